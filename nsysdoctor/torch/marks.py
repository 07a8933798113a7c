"""Marks the iterations of a loop as ranges, and switches the profiler on for some of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

Item = TypeVar("Item")

LOADING = "load batch"
"""The text of the range in which a loop waits for its next item."""

# Variables that nsys and other NVTX tools set in the processes they start; users set the last one.
_SIGNS = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "NSYSDOCTOR_MARK")


@cache
def tool_attached() -> bool:
    """Returns whether this process was started by nsys or another tool that records NVTX ranges."""
    return any(os.environ.get(name) for name in _SIGNS)


@cache
def real_torch() -> Any:
    """Returns the torch package; untyped, since its types differ between releases."""
    return import_module("torch")


@cache
def cuda_there() -> bool:
    """Returns whether torch can use a GPU here."""
    return bool(real_torch().cuda.is_available())


def nvtx_taken() -> bool:
    """Returns whether a tool records the NVTX ranges of this process."""
    return tool_attached() and cuda_there()


def profiler_runs() -> bool:
    """Returns whether torch's own profiler records this thread, `emit_nvtx` included."""
    return bool(real_torch().autograd._profiler_enabled())


def attached() -> bool:
    """Returns whether ranges are recorded: by nsys on a GPU, or by torch's own profiler."""
    return profiler_runs() or nvtx_taken()


def open_range(text: str) -> Callable[[], object] | None:
    """Opens a range on this thread. Returns a function that closes it, None when nothing records.

    While torch's profiler runs, the range goes to the profiler, which, as `emit_nvtx`, passes it on
    to nsys.
    """
    if profiler_runs():
        record = real_torch().autograd.profiler.record_function(text)
        record.__enter__()
        return lambda: record.__exit__(None, None, None)
    if nvtx_taken():
        nvtx = real_torch().cuda.nvtx
        nvtx.range_push(text)
        return cast("Callable[[], object]", nvtx.range_pop)
    return None


class Range:
    """A range around a piece of code: `with Range("encode"): ...`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._close: Callable[[], object] | None = None

    def __enter__(self) -> Range:
        self._close = open_range(self._text)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._close is not None:
            self._close()


@dataclass
class _Loop:
    """The steps of this process: the next number, and the range of steps that the profiler
    records."""

    number: int = 0
    start: int = -1
    stop: int = -1
    recording: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> int:
        """Counts a step; starts the profiler before the first step of that range."""
        with self.lock:
            number = self.number
            self.number += 1
        if number == self.start:
            self._switch(True)
        return number

    def finish(self, number: int) -> None:
        """Stops the profiler after the last step of that range."""
        if self.recording and number + 1 >= self.stop:
            self._switch(False)

    def _switch(self, on: bool) -> None:
        if not nvtx_taken():
            return
        cuda = real_torch().cuda
        # Work queued before the switch would be recorded in part.
        cuda.synchronize()
        (cuda.profiler.start if on else cuda.profiler.stop)()
        self.recording = on


_LOOP = _Loop()


@contextmanager
def step(name: str = "step") -> Iterator[int]:
    """Marks one iteration and gives its number, which counts on over all loops of the process.

        while training:
            with step():
                ...
    """
    number = _LOOP.begin()
    try:
        with Range(f"{name} {number}"):
            yield number
    finally:
        _LOOP.finish(number)


class Steps(Generic[Item]):
    """An iterable that hands out each item inside a step."""

    def __init__(self, items: Iterable[Item], name: str = "step") -> None:
        self._items = items
        self._name = name

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Item]:
        items = iter(self._items)
        with Range(LOADING):
            there, item = _next(items)
        while there:
            with step(self._name):
                yield item  # type: ignore[misc]
                with Range(LOADING):
                    there, item = _next(items)


def _next(items: Iterator[Item]) -> tuple[bool, Item | None]:
    try:
        return True, next(items)
    except StopIteration:
        return False, None


def steps(items: Iterable[Item], name: str = "step") -> Steps[Item]:
    """Marks the iterations of a loop: `for batch in steps(loader): ...`.

    A step holds the body of the loop and the wait for the next item, the latter in a range of
    its own. `len` is that of `items`.
    """
    return Steps(items, name)


def capture(start: int, steps: int) -> None:
    """Has nsys record `steps` steps from number `start` on, once `steps()` or `step()` get there.

    For `nsys profile --capture-range=cudaProfilerApi` or `nsysdoctor capture --range`; without
    nsys nothing happens. Raises ValueError for a range that holds no step.
    """
    if start < 0 or steps < 1:
        raise ValueError(f"start={start}, steps={steps} holds no step: use start >= 0, steps >= 1")
    _LOOP.start, _LOOP.stop = start, start + steps
