"""Ranges around the modules of a model, with the shapes and types of what goes in."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from nsysdoctor.torch.marks import attached, nvtx_taken, open_range, profiler_runs, real_torch

# Parameters of modules that are needed, beside the shapes, to compute the work.
_SETTINGS = (
    "in_features", "out_features", "kernel_size", "stride", "padding", "dilation", "groups",
    "transposed", "output_padding", "normalized_shape", "num_embeddings", "embedding_dim",
)  # fmt: skip


# torch's profiler writes names into its JSON as they are, so a quote would break the file
_UNFIT = re.compile(r"[\s\"\\]")


class _Opened(threading.local):
    """The open ranges of this thread, outermost first: the module each belongs to, and the function
    that closes it."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, Callable[[], object]]] = []


_OPENED = _Opened()


class Shapes:
    """The marks on a model; `remove` takes them off, leaving a `with` block does so too."""

    def __init__(self, hooks: list[Any], emitter: Any = None) -> None:
        self._hooks = hooks
        self._emitter = emitter

    @property
    def count(self) -> int:
        """How many modules are marked."""
        return len(self._hooks) // 2

    def remove(self) -> None:
        """Takes the marks off the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._emitter is not None:
            self._emitter.__exit__(None, None, None)
            self._emitter = None

    def __enter__(self) -> Shapes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def shapes(model: Any, *, always: bool = False) -> Shapes:
    """Marks every call of a module of `model` with its path, class, input shapes and types.

    Under nsys, PyTorch also marks the operators inside (`emit_nvtx(record_shapes=True)`), in the
    backward pass as well, on the thread that calls this function. The model stays unchanged when
    nothing records, unless `always` is set, for a profiler that starts later.
    """
    if not always and not attached():
        return Shapes([])
    hooks = [hook for name, module in model.named_modules() for hook in _hooked(name, module)]
    return Shapes(hooks, _emitter())


def _emitter() -> Any:
    """PyTorch's own operator ranges, entered, unless a profiler already runs."""
    if profiler_runs() or not nvtx_taken():
        return None
    emitter = real_torch().autograd.profiler.emit_nvtx(record_shapes=True)
    emitter.__enter__()
    return emitter


def _hooked(name: str, module: Any) -> Iterable[Any]:
    path = _UNFIT.sub("_", name)
    head = f"module {path} ({type(module).__name__})"
    tail = _tail(module)

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        import torch

        if torch.compiler.is_compiling() or not attached():
            return
        tensors = list(_tensors((*args, *kwargs.values())))
        close = open_range(head + _operands(tensors) + tail)
        if close is not None:
            _OPENED.ranges.append((id(module), close))

    def after(*_: Any) -> None:
        import torch

        if not torch.compiler.is_compiling():
            _close(id(module))

    yield module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    # also after an exception, so that ranges always nest
    yield module.register_forward_hook(after, always_call=True)


def _close(owner: int) -> None:
    """Closes the innermost range of a module, and any ranges inside it that an exception left
    open."""
    ranges = _OPENED.ranges
    if not any(own == owner for own, _ in ranges):
        return
    while ranges:
        own, close = ranges.pop()
        close()
        if own == owner:
            return


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors among arguments, those in lists and tuples too."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _operands(tensors: list[Any]) -> str:
    if not tensors:
        return ""
    sizes = [list(tensor.shape) for tensor in tensors]
    dtypes = ", ".join(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
    return f", sizes = {sizes}, dtypes = [{dtypes}]"


def _tail(module: Any) -> str:
    """The fixed parameters of a module and the shapes of its own weights."""
    settings: dict[str, object] = {
        key: _listed(getattr(module, key)) for key in _SETTINGS if _plain(module, key)
    }
    weights = _weights(module)
    if weights:
        settings["weights"] = weights
    return f", settings = {settings}" if settings else ""


def _plain(module: Any, key: str) -> bool:
    value = getattr(module, key, None)
    items = value if isinstance(value, (list, tuple)) else [value]
    return value is not None and all(isinstance(item, (int, str)) for item in items)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _weights(module: Any) -> dict[str, list[int]]:
    import torch

    return {
        name: list(weight.shape)
        for name in ("weight", "bias")
        if isinstance(weight := getattr(module, name, None), torch.Tensor)
        and not torch.nn.parameter.is_lazy(weight)
    }
