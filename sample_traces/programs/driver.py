"""Programs that call slow parts of the driver in the loop: memory and code."""

from __future__ import annotations

from sample_traces import kernels
from sample_traces.cuda import Host
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB
from sample_traces.program import Program
from sample_traces.programs.training import (
    MIB,
    WARMUP_STEPS,
    Job,
    launch_all,
    network,
    start_up,
)
from sample_traces.sample import Sample
from sample_traces.work import Kernel, download, upload

CARD = A100_80GB


def allocation_churn(cured: bool) -> Program:
    """The allocator's cache emptied in every step: memory freed and allocated again."""
    job = Job(Program(CARD))
    work = network(CARD, 18_000_000)

    def step(index: int) -> Routine[None]:
        yield from job.train(work)
        if not cured:
            yield from _churn(job, index)

    return job.run(30, step)


def _churn(job: Job, index: int) -> Routine[None]:
    for number in range(12):
        yield from job.main.free(0, 100_000 + 37_000 * ((number + index) % 5))
    for number in range(12):
        yield from job.main.malloc(130_000 + 61_000 * ((number + index) % 7))


def allocation_at_start(_: bool) -> Program:
    """The same frees and allocations in the first two steps only."""
    job = Job(Program(CARD))
    work = network(CARD, 18_000_000)

    def step(index: int) -> Routine[None]:
        yield from job.train(work)
        if index < WARMUP_STEPS - 1:
            yield from _churn(job, index)

    return job.run(30, step)


def pinned_per_request(cured: bool) -> Program:
    """Four serving threads that page-lock a buffer for every request, under one driver lock."""
    program = Program(CARD, nvtx=False)
    job = Job(program, "server")
    work = network(CARD, 22_000_000, layers=2)

    def serve(host: Host, number: int) -> Routine[None]:
        stream = host.process.side_stream()
        for request in range(14):
            if not cured:
                yield from host.host_alloc(2_000_000 + 1_300_000 * ((request + number) % 6))
            yield from host.copy(stream, upload(6 * MIB, pinned=True))
            yield from launch_all(host, stream, work.forward[:4], 3_000)
            yield from host.synchronize_stream(stream)
            if not cured:
                yield from host.host_free(400_000)

    program.start(job.main, start_up(job.main))
    for number in range(4):
        host = Host(job.process, "worker")
        program.start(host, serve(host, number), 60_000_000)
    return program


def pinned_per_step(cured: bool) -> Program:
    """A decoder that page-locks 33.5 MB in every step to send a block table."""
    job = Job(Program(CARD))
    work = network(CARD, 9_000_000)

    def step(_: int) -> Routine[None]:
        if not cured:
            yield from job.main.host_alloc(2_600_000)
        yield from job.main.copy(job.stream, upload(33_554_432, pinned=True))
        yield from launch_all(job.main, job.stream, work.forward)
        yield from job.main.synchronize_stream(job.stream)
        if not cured:
            yield from job.main.host_free(350_000)

    return job.run(40, step, text="decode {}")


def jit_in_loop(cured: bool) -> Program:
    """Device code built anew every eighth step for a shape not seen before."""
    job = Job(Program(CARD))
    work = network(CARD, 16_000_000)

    def step(index: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, work.forward)
        fresh = index % 8 == 6
        if fresh and not cured:
            yield from job.main.load_library(90_000_000, "cuModuleLoadData")
        name = f"triton_poi_fused_add_mul_{index if fresh else 0}"
        kernel = kernels.triton(CARD, name, 40 * MIB)
        yield from job.main.work(6_000)
        yield from job.main.launch(job.stream, kernel, api="cuLaunchKernel")
        yield from job.main.copy(job.stream, download(64, pinned=True))
        yield from job.main.synchronize_stream(job.stream)

    return job.run(42, step, text="request {}")


def _candidates(job: Job, index: int) -> Routine[None]:
    """Try eight convolutions for one layer, as a benchmark mode does for a new shape."""
    for number in range(8):
        name = kernels.CONVOLUTIONS["fprop"].replace(
            "128x128x16", f"{32 << number % 3}x64x{number}"
        )
        tried = Kernel(name, 260_000 + 40_000 * number, (216, 1, 1), registers=200)
        yield from job.main.malloc(150_000 + 9_000 * (index % 4))
        yield from launch_all(job.main, job.stream, (tried,))
        yield from job.main.synchronize_device()
        yield from job.main.free(0, 110_000)


def autotune(cured: bool) -> Program:
    """Convolutions tuned in every step because every batch has another size."""
    job = Job(Program(CARD))
    work = network(CARD, 14_000_000)

    def step(index: int) -> Routine[None]:
        if not cured:
            yield from _candidates(job, index)
        yield from job.train(work)

    return job.run(30, step)


def autotune_at_start(_: bool) -> Program:
    """Convolutions tuned in the first steps only."""
    job = Job(Program(CARD))
    work = network(CARD, 14_000_000)

    def step(index: int) -> Routine[None]:
        if index < WARMUP_STEPS:
            yield from _candidates(job, index)
        yield from job.train(work)

    return job.run(36, step)


def slow_start(_: bool) -> Program:
    """A first step that takes a second: a communicator connects and device code is loaded."""
    job = Job(Program(CARD))
    work = network(CARD, 20_000_000)

    def step(index: int) -> Routine[None]:
        if index == 0:
            yield from job.main.os_call("poll", 900_000_000)
            yield from job.main.load_library(120_000_000)
            first = kernels.all_reduce("first", 1, 400_000_000)
            yield from job.main.launch(job.stream, first, api="cudaLaunchKernelExC_v11060")
        yield from job.train(work)

    return job.run(36, step)


CALLS_GONE = "the calls are gone from the steps"

SAMPLES = (
    Sample(
        "allocation_churn",
        "Device memory freed and allocated again in every step",
        "allocation_churn",
        allocation_churn,
        cure=CALLS_GONE,
        quiet=("host_bound", "sync_in_loop"),
        case="D12",
    ),
    Sample(
        "allocation_at_start",
        "Device memory freed and allocated again in the first two steps",
        None,
        allocation_at_start,
        quiet=("allocation_churn",),
        case="D12",
    ),
    Sample(
        "pinned_per_request",
        "Four threads that page-lock a buffer per request",
        "pinned_allocation_in_loop",
        pinned_per_request,
        cure=CALLS_GONE,
        also=("sync_in_loop", "serial_copy"),
        quiet=("pageable_copy",),
        case="D11",
    ),
    Sample(
        "pinned_per_step",
        "A page-locked buffer allocated in every decoding step",
        "pinned_allocation_in_loop",
        pinned_per_step,
        cure=CALLS_GONE,
        also=("serial_copy", "sync_in_loop"),
        quiet=("pageable_copy",),
        case="D15",
    ),
    Sample(
        "jit_in_loop",
        "Device code built every eighth step",
        "jit_in_loop",
        jit_in_loop,
        cure=CALLS_GONE,
        also=("sync_in_loop", "launch_bound"),
        quiet=("host_bound", "input_starvation"),
        case="D25",
    ),
    Sample(
        "autotune_in_loop",
        "Eight convolutions tried in every step",
        "jit_in_loop",
        autotune,
        cure="the trials are gone: their kernels, allocations and synchronisations",
        also=("allocation_churn", "sync_in_loop"),
        case="D26",
        low_high=True,
    ),
    Sample(
        "autotune_at_start",
        "Convolutions tried in the first three steps",
        None,
        autotune_at_start,
        quiet=("jit_in_loop", "allocation_churn", "sync_in_loop"),
        case="D26",
    ),
    Sample(
        "slow_start",
        "One slow first step",
        None,
        slow_start,
        quiet=("jit_in_loop", "input_starvation", "exposed_communication"),
        case="D27",
    ),
)
