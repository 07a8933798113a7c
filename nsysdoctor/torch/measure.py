"""Measuring a GPU: bandwidth, matrix products, copies, launches and what fusion gains."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from nsysdoctor.errors import UsageError
from nsysdoctor.roofline.profile import DeviceProfile, Spread, Transfer
from nsysdoctor.torch.marks import real_torch

REPEATS = 15
_AT_LEAST_NS = 2_000_000
"""A repeat takes at least this long, so that neither clock nor launch matters."""
_MOST_CALLS = 2000
_ARRAY_BYTES = 1 << 29
_PRODUCT_SIZES = (4096, 8192)
_TRANSFER_BYTES = (1 << 14, 1 << 17, 1 << 20, 1 << 24, 1 << 28)
_LAUNCHES = 400
_ROWS, _WIDTH = 16_384, 4096

Body = Callable[[], object]


def spread_of(values: list[float]) -> Spread:
    """Returns median, tenth and ninetieth percentile of some figures."""
    ordered = sorted(values)
    last = len(ordered) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    return Spread(middle, ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))


def rate_of(amount: float, took_ns: Spread) -> Spread:
    """Returns the amount per second for times of it; the slowest time is the lowest rate."""
    return Spread(
        amount / took_ns.median * 1e9,
        amount / took_ns.high * 1e9,
        amount / took_ns.low * 1e9,
        took_ns.count,
    )


def measure(device: int = 0, say: Callable[[str], None] = lambda _: None) -> DeviceProfile:
    """Returns the measured profile of one GPU; `say` is called with the name of each part as it
    begins.

    Raises UsageError when torch is missing or sees no such GPU. Takes about a minute and two
    gigabytes of its memory.
    """
    torch = usable_torch(device)
    with torch.cuda.device(device):
        found = torch.cuda.get_device_properties(device)
        say("memory bandwidth")
        copy, triad = _bandwidth(torch)
        say("matrix products")
        products = _products(torch, (found.major, found.minor))
        say("copies between host and device")
        transfers = list(_transfers(torch))
        say("launches")
        launch, node = _launches(torch)
        say("residual + layer norm + dropout, plain and compiled")
        fusion = dict(_fusion(torch, (found.major, found.minor)))
    return DeviceProfile(
        name=str(found.name),
        compute_major=int(found.major),
        compute_minor=int(found.minor),
        sm_count=int(found.multi_processor_count),
        copy_bytes_per_s=copy,
        triad_bytes_per_s=triad,
        gemm_flops_per_s=products,
        transfers=transfers,
        launch_ns=launch,
        graph_node_ns=node,
        fusion_ns=fusion,
        torch_version=str(torch.__version__),
    )


def usable_torch(device: int) -> Any:
    """Returns torch after checking that it sees a GPU of that number; raises UsageError
    otherwise."""
    try:
        torch = real_torch()
    except ImportError as error:
        raise UsageError(
            "calibrate measures with torch, which is not installed",
            "install it with: pip install 'nsysdoctor[torch]'",
        ) from error
    if not torch.cuda.is_available():
        raise UsageError(
            f"torch {torch.__version__} sees no NVIDIA GPU here",
            "run calibrate on the machine whose GPU is to be measured, with a CUDA build of torch",
        )
    count = torch.cuda.device_count()
    if not 0 <= device < count:
        raise UsageError(
            f"there is no GPU {device}, torch sees {count}", f"use --device 0 to {count - 1}"
        )
    return torch


def _timed(torch: Any, body: Body) -> Spread:
    """The device's time per call in ns, repeated; each repeat has enough calls for the clock's
    resolution."""
    for _ in range(3):
        body()
    torch.cuda.synchronize()
    calls = 1
    while calls < _MOST_CALLS and (took := _device_ns(torch, body, calls)) < _AT_LEAST_NS:
        calls = min(_MOST_CALLS, max(2 * calls, round(calls * 1.2 * _AT_LEAST_NS / max(took, 1))))
    return spread_of([_device_ns(torch, body, calls) / calls for _ in range(REPEATS)])


def _device_ns(torch: Any, body: Body, calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        body()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e6


def _bandwidth(torch: Any) -> tuple[Spread, Spread]:
    """Copy moves an array twice, a + s * b three times; arrays larger than any cache."""
    free, _ = torch.cuda.mem_get_info()
    count = min(_ARRAY_BYTES, free // 8) // 4
    one, other, out = (torch.ones(count, device="cuda") for _ in range(3))
    copy = _timed(torch, lambda: out.copy_(one))
    triad = _timed(torch, lambda: torch.add(one, other, alpha=2.0, out=out))
    return rate_of(8.0 * count, copy), rate_of(12.0 * count, triad)


def _products(torch: Any, capability: tuple[int, int]) -> dict[str, Spread]:
    """The best rate of square products per type that the device has units for."""
    kinds = {"fp32": (torch.float32, "highest")}
    if capability >= (7, 0):
        kinds["fp16"] = (torch.float16, "highest")
    if capability >= (8, 0):
        kinds["tf32"] = (torch.float32, "high")
        kinds["bf16"] = (torch.bfloat16, "highest")
    found = {}
    for kind, (dtype, precision) in kinds.items():
        with _precision(torch, precision):
            rates = [_product(torch, dtype, size) for size in _PRODUCT_SIZES]
        found[kind] = max(rates, key=lambda rate: rate.median)
    return found


@contextmanager
def _precision(torch: Any, wanted: str) -> Iterator[None]:
    """TF32 on tensor cores with `high`, plain FP32 with `highest`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _product(torch: Any, dtype: Any, size: int) -> Spread:
    one, other = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(one)
    return rate_of(2.0 * size**3, _timed(torch, lambda: torch.mm(one, other, out=out)))


def _transfers(torch: Any) -> Iterator[Transfer]:
    """Copies of each size from and to pinned and pageable memory."""
    for size in _TRANSFER_BYTES:
        there = torch.zeros(size, dtype=torch.uint8, device="cuda")
        for memory in ("pinned", "pageable"):
            here = torch.zeros(size, dtype=torch.uint8, pin_memory=memory == "pinned")
            pairs = (("HtoD", there, here), ("DtoH", here, there))
            for direction, target, source in pairs:
                took = _timed(torch, partial(target.copy_, source, non_blocking=True))
                yield Transfer(direction, memory, size, rate_of(float(size), took))


def _launches(torch: Any) -> tuple[Spread, Spread]:
    """The host's time per launched kernel, and the device's time per kernel of a graph."""
    data = torch.zeros(32, device="cuda")

    def launch() -> None:
        for _ in range(_LAUNCHES):
            data.add_(1.0)

    launch()
    torch.cuda.synchronize()
    host = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        launch()
        host.append((time.perf_counter_ns() - start) / _LAUNCHES)
        torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    node = _timed(torch, graph.replay)
    low, middle, high = (figure / _LAUNCHES for figure in (node.low, node.median, node.high))
    return spread_of(host), Spread(middle, low, high, node.count)


def _fusion(torch: Any, capability: tuple[int, int]) -> Iterator[tuple[str, Spread]]:
    """Residual + layer norm + dropout, operator by operator and compiled, by storage type."""
    functional = torch.nn.functional

    def chain(data: Any, residual: Any, weight: Any, bias: Any) -> Any:
        normed = functional.layer_norm(data + residual, (_WIDTH,), weight, bias)
        return functional.dropout(normed, 0.1, training=True)

    kinds = {"fp32": torch.float32}
    if capability >= (8, 0):
        kinds["bf16"] = torch.bfloat16
    for kind, dtype in kinds.items():
        data, residual = (torch.randn(_ROWS, _WIDTH, device="cuda").to(dtype) for _ in range(2))
        weight, bias = (torch.ones(_WIDTH, device="cuda", dtype=dtype) for _ in range(2))
        inputs = (data, residual, weight, bias)
        with torch.no_grad():
            yield f"unfused_{kind}", _timed(torch, partial(chain, *inputs))
            took = _compiled(torch, chain, inputs)
        if took is not None:
            yield f"fused_{kind}", took


def _compiled(torch: Any, chain: Callable[..., Any], inputs: tuple[Any, ...]) -> Spread | None:
    """The time of the chain as one compiled kernel, None where this machine cannot compile it."""
    try:
        fused = torch.compile(chain)
        return _timed(torch, partial(fused, *inputs))
    except (RuntimeError, ImportError, OSError, subprocess.SubprocessError):
        return None
