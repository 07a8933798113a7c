"""Programs with several faults that hide each other, and with one fault on several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sample_traces import kernels
from sample_traces.cuda import Host
from sample_traces.device import Stream
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB
from sample_traces.host import Process
from sample_traces.program import Program
from sample_traces.programs.training import (
    MIB,
    WARMUP_STEPS,
    iterate,
    launch_all,
    network,
    start_up,
    warm_up,
)
from sample_traces.sample import Sample
from sample_traces.work import download, upload

CARD = A100_80GB
STEPS = 40
Body = Callable[[Host, Stream, bool], Routine[None]]
"""One step of a thread on its GPU, with its faults or with all of them cured."""


def on_each(gpus: int, body: Body, cured: bool) -> Program:
    """A process whose threads run the same steps, one on each GPU."""
    program = Program(*([CARD] * gpus))
    process: Process = program.process("python", tuple(range(gpus)))
    for gpu in range(gpus):
        host = Host(process, "python" if gpu == 0 else f"replica_{gpu}")
        program.start(host, _whole(host, process.stream(gpu), gpu, body, cured))
    return program


def _whole(host: Host, stream: Stream, gpu: int, body: Body, cured: bool) -> Routine[None]:
    yield from start_up(host, gpu, weights=0)

    def step(_: int) -> Routine[None]:
        yield from body(host, stream, cured)

    if gpu == 0:
        yield from iterate(host, STEPS, step, devices=(gpu,))
        return
    for index in range(STEPS):
        if index < WARMUP_STEPS:
            yield from warm_up(host, index)
        yield from step(index)
        if index in (WARMUP_STEPS - 1, STEPS - 2, STEPS - 1):
            yield from host.synchronize_device(gpu)


WORK = network(CARD, 12_000_000)


def _read_back(host: Host, stream: Stream, cured: bool) -> Routine[None]:
    yield from host.copy(stream, download(4, pinned=True))
    if not cured:
        yield from host.synchronize_stream(stream)


def pair(host: Host, stream: Stream, cured: bool) -> Routine[None]:
    """The loss is read back, and right after it a batch is copied from ordinary memory, which
    waits for the stream as well."""
    yield from _read_back(host, stream, cured)
    yield from host.copy(stream, upload(MIB, pinned=cured))
    yield from host.work(3_000_000)
    yield from launch_all(host, stream, WORK.kernels)


def triple(host: Host, stream: Stream, cured: bool) -> Routine[None]:
    """Beside that a buffer is freed and allocated anew, and freeing waits for the device."""
    yield from _read_back(host, stream, cured)
    if not cured:
        yield from host.free(stream.device, 120_000)
        yield from host.malloc(180_000)
    yield from host.copy(stream, upload(MIB, pinned=cured))
    yield from host.work(3_000_000)
    yield from launch_all(host, stream, WORK.kernels)


def read_back(host: Host, stream: Stream, cured: bool) -> Routine[None]:
    """The loss is read back in every step."""
    yield from host.work(3_500_000)
    yield from launch_all(host, stream, WORK.kernels)
    yield from _read_back(host, stream, cured)


def upload_batch(host: Host, stream: Stream, cured: bool) -> Routine[None]:
    """The batch comes from ordinary memory."""
    yield from host.copy(stream, upload(48 * MIB, pinned=cured))
    yield from host.work(1_500_000)
    yield from launch_all(host, stream, WORK.kernels)


def own_code(host: Host, stream: Stream, cured: bool) -> Routine[None]:
    """The host runs code of its own for longer than the kernels take."""
    if not cured:
        yield from host.work(14_000_000)
    yield from launch_all(host, stream, WORK.kernels)
    yield from _read_back(host, stream, cured=False)


def products(host: Host, stream: Stream, cured: bool) -> Routine[None]:
    """Matrix products in FP32 beside tensor cores."""
    kind = "tf32" if cured else "sgemm"
    product = kernels.gemm(CARD, kind, 4096, 2048, 1024)
    yield from launch_all(host, stream, [product] * 12)


def build(body: Body, gpus: int) -> Callable[[bool], Program]:
    """The program that runs the steps on so many GPUs."""
    return lambda cured: on_each(gpus, body, cured)


def _samples() -> Iterable[Sample]:
    for gpus, where in ((1, ""), (2, "_two_gpus")):
        on = f" on {gpus} GPUs" if gpus > 1 else ""
        yield Sample(
            f"hidden_pair{where}",
            f"A read-back and a pageable copy in one step{on}",
            "pageable_copy",
            build(pair, gpus),
            cure="pinned memory, and the loss is not waited for",
            also=("sync_in_loop", "host_bound"),
            needs=("sync_in_loop",),
            low_high=True,
        )
        yield Sample(
            f"hidden_triple{where}",
            f"A read-back, a pageable copy and an allocation in one step{on}",
            "allocation_churn",
            build(triple, gpus),
            cure="pinned memory, no wait for the loss, the buffer is kept",
            also=("sync_in_loop", "pageable_copy", "host_bound"),
            needs=("pageable_copy", "sync_in_loop"),
            low_high=True,
        )
    for gpus in (2, 4):
        for body, rule, ranged in (
            (read_back, "sync_in_loop", False),
            (upload_batch, "pageable_copy", True),
            (own_code, "host_bound", False),
            (products, "fp32_gemm", True),
        ):
            yield Sample(
                f"{rule}_on_{gpus}_gpus",
                f"The fault of {rule} in the threads of {gpus} GPUs",
                rule,
                build(body, gpus),
                cure="the same on every GPU",
                also=tuple(name for name in ("host_bound", "fp32_memory_traffic") if name != rule),
                low_high=ranged,
            )


SAMPLES = tuple(_samples())
