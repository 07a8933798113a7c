"""Real programs with one fault each, and the same with the fault cured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Body = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """How large the programs are; small ones only show that the code runs."""

    device: str = "cuda"
    batch_bytes: int = 64 << 20
    product: int = 4096
    products: int = 6
    rows: int = 16_384
    width: int = 4096
    small: int = 256
    launches: int = 300


@dataclass(frozen=True)
class Story:
    """One program: `make(torch, size, cured)` gives the body of its step.

    `rules` are those of which one must find the fault.
    """

    name: str
    title: str
    rules: tuple[str, ...]
    make: Callable[[Any, Size, bool], Body]
    compiles: bool = False


class _Model:
    """Products that keep the device busy while the host runs ahead."""

    def __init__(self, torch: Any, size: Size) -> None:
        dtype = torch.bfloat16 if size.device == "cuda" else torch.float32
        self.torch = torch
        self.count = size.products
        self.data = torch.randn(size.product, size.product, device=size.device).to(dtype)
        self.out = torch.empty_like(self.data)

    def work(self) -> None:
        for _ in range(self.count):
            self.torch.mm(self.data, self.data, out=self.out)


def _host_batch(torch: Any, size: Size, pinned: bool) -> Any:
    batch = torch.ones(size.batch_bytes // 4)
    return batch.pin_memory() if pinned and size.device == "cuda" else batch


def _copying(
    torch: Any, size: Size, *, pinned: bool, asynchronous: bool, host: bool = False
) -> Body:
    model = _Model(torch, size)
    batches = [_host_batch(torch, size, pinned) for _ in range(2)]

    def body() -> None:
        batch = batches[0].to(size.device, non_blocking=asynchronous, copy=True)
        if host:
            _host_work(size)
        batch.mul_(0.5)
        model.work()

    return body


def pageable_async(torch: Any, size: Size, cured: bool) -> Body:
    return _copying(torch, size, pinned=cured, asynchronous=True)


def pageable_blocking(torch: Any, size: Size, cured: bool) -> Body:
    return _copying(torch, size, pinned=cured, asynchronous=cured)


def pinned_blocking(torch: Any, size: Size, cured: bool) -> Body:
    return _copying(torch, size, pinned=True, asynchronous=cured, host=True)


def prefetch(torch: Any, size: Size, cured: bool) -> Body:
    """A pinned batch on the compute stream, or on a side stream one step ahead."""
    if not cured or size.device != "cuda":
        return _copying(torch, size, pinned=True, asynchronous=True)
    model, side = _Model(torch, size), torch.cuda.Stream()
    batch = _host_batch(torch, size, True)
    ready: list[Any] = []

    def fetch() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ready.append(batch.to(size.device, non_blocking=True, copy=True))

    def body() -> None:
        if not ready:
            fetch()
        torch.cuda.current_stream().wait_stream(side)
        there = ready.pop()
        there.record_stream(torch.cuda.current_stream())
        fetch()
        there.mul_(0.5)
        model.work()

    return body


def read_back(torch: Any, size: Size, cured: bool) -> Body:
    """A loss read every step, with host work behind it that the device could have hidden."""
    model = _Model(torch, size)
    loss = torch.ones(1, device=size.device)

    def body() -> None:
        model.work()
        value = loss.add_(1.0)
        if not cured:
            value.item()
        _host_work(size)

    return body


def _host_work(size: Size) -> None:
    total = 0
    for number in range(10 * size.small * (8 if size.device == "cuda" else 1)):
        total += number


def _chain(torch: Any, size: Size, dtype: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    functional = torch.nn.functional
    data, residual = (
        torch.randn(size.rows, size.width, device=size.device).to(dtype) for _ in range(2)
    )
    weight, bias = (torch.ones(size.width, device=size.device, dtype=dtype) for _ in range(2))

    def chain(data: Any, residual: Any, weight: Any, bias: Any) -> Any:
        normed = functional.layer_norm(data + residual, (size.width,), weight, bias)
        return functional.dropout(normed, 0.1, training=True)

    return chain, (data, residual, weight, bias)


def fusion(torch: Any, size: Size, cured: bool) -> Body:
    chain, inputs = _chain(torch, size, torch.float32)
    run = torch.compile(chain) if cured and size.device == "cuda" else chain

    def body() -> None:
        with torch.no_grad():
            for _ in range(4):
                run(*inputs)

    return body


def storage(torch: Any, size: Size, cured: bool) -> Body:
    chain, inputs = _chain(torch, size, torch.bfloat16 if cured else torch.float32)

    def body() -> None:
        with torch.no_grad():
            for _ in range(4):
                chain(*inputs)

    return body


def tf32(torch: Any, size: Size, cured: bool) -> Body:
    data = torch.randn(size.product, size.product, device=size.device)
    out = torch.empty_like(data)

    def body() -> None:
        torch.set_float32_matmul_precision("high" if cured else "highest")
        for _ in range(size.products):
            torch.mm(data, data, out=out)
        torch.set_float32_matmul_precision("highest")

    return body


def graphs(torch: Any, size: Size, cured: bool) -> Body:
    data = torch.ones(size.small, size.small, device=size.device)

    def work() -> None:
        for _ in range(size.launches):
            data.mul_(1.0001)

    if not cured or size.device != "cuda":
        return work
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Body = graph.replay
    return replay


STORIES = (
    Story("pageable_async", "pageable batch with non_blocking=True, against pinned",
          ("pageable_copy",), pageable_async),
    Story("pageable_blocking", "pageable batch, against pinned with non_blocking=True",
          ("pageable_copy", "blocking_copy", "sync_in_loop"), pageable_blocking),
    Story("pinned_blocking", "pinned batch, against the same with non_blocking=True",
          ("sync_in_loop", "blocking_copy"), pinned_blocking),
    Story("prefetch", "pinned batch on the compute stream, against a side stream",
          ("serial_copy",), prefetch),
    Story("read_back", ".item() every step, against none", ("sync_in_loop",), read_back),
    Story("fusion", "residual + layer norm + dropout, against compiled",
          ("unfused_memory_bound_chain",), fusion, compiles=True),
    Story("storage", "the same in FP32, against BF16 storage", ("fp32_memory_traffic",), storage),
    Story("tf32", "FP32 products, against TF32", ("fp32_gemm",), tf32),
    Story("graphs", "small kernels one by one, against a CUDA graph", ("launch_bound",), graphs),
)  # fmt: skip
