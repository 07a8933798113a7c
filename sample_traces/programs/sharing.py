"""Programs about what shares a device, and captures that mislead."""

from __future__ import annotations

from dataclasses import replace

from sample_traces import kernels
from sample_traces.cuda import Host
from sample_traces.device import Stream
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, RTX_3070_TI
from sample_traces.program import SESSION_START_NS, Program
from sample_traces.programs.training import MIB, Job, iterate, launch_all, network, start_up
from sample_traces.recording import Recording
from sample_traces.sample import Sample
from sample_traces.work import Kernel, Migration, upload

CARD = A100_80GB


def two_processes(_: bool) -> Program:
    """Two processes that take turns on one device, each half of the time idle."""
    program = Program(CARD)
    product = kernels.gemm(CARD, "bf16", 8192, 4096, 4096).lasting(4_850_000)

    def start(job: Job, at_ns: int) -> None:
        def step(_: int) -> Routine[None]:
            yield from launch_all(job.main, job.stream, (product,))
            yield from job.main.synchronize_stream(job.stream)
            yield from job.main.work(4_700_000)

        def whole() -> Routine[None]:
            yield from start_up(job.main)
            yield from iterate(job.main, 50, step)

        program.start(job.main, whole(), at_ns)

    for number in range(2):
        start(Job(program, "replica"), 5_000_000 * number)
    return program


def default_stream(cured: bool) -> Program:
    """Four streams that drain around a tiny kernel on the null stream, every millisecond."""
    program = Program(CARD, nvtx=False)
    job = Job(program, "pipeline")
    tiny = Kernel("update_counters(unsigned int *, int)", 5_000, (1, 1, 1), (32, 1, 1), share=10)

    def feed(host: Host, stream: Stream, duration_ns: int) -> Routine[None]:
        kernel = Kernel(
            "void filter_columns<float, (int)4>(const T1 *, T1 *, int)",
            duration_ns,
            (27, 1, 1),
            (256, 1, 1),
            registers=48,
            share=240,
        )
        newest, older = host.process.event(), host.process.event()
        for _ in range(220):
            yield from launch_all(host, stream, (kernel,), 4_000)
            newest, older = older, newest
            yield from host.record_event(stream, newest)
            yield from host.synchronize_event(stream, older)

    def tick() -> Routine[None]:
        yield from start_up(job.main, weights=2)
        for _ in range(90):
            yield from job.main.work(1_000_000)
            yield from job.main.launch(job.stream, tiny)

    program.start(job.main, tick())
    for number in range(4):
        stream = job.process.side_stream(blocking=not cured)
        host = Host(job.process, "worker")
        program.start(host, feed(host, stream, 330_000 + 35_000 * number), 14_000_000)
    return program


def single_stream(_: bool) -> Program:
    """A training job with everything on the null stream."""
    job = Job(Program(CARD))
    work = network(CARD, 22_000_000)

    def step(_: int) -> Routine[None]:
        yield from job.main.copy(job.stream, upload(MIB, pinned=True))
        yield from job.train(work)

    return job.run(36, step)


def one_thread(_: bool) -> Program:
    """A device that is busy throughout with kernels of a single thread."""
    job = Job(Program(CARD, nvtx=False), "simulate")
    lone = Kernel("walk(double *, long, long)", 24_000_000, (1, 1, 1), (1, 1, 1), registers=26)

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, (lone,), 2_000)

    return job.run(30, step, weights=0)


def register_spill(_: bool) -> Program:
    """Kernels that keep 600 bytes per thread in local memory."""
    job = Job(Program(CARD, nvtx=False), "chemistry")
    kernel = Kernel(
        "void integrate<double, (int)6>(const T1 *, T1 *, int)",
        6_000_000,
        (864, 1, 1),
        (256, 1, 1),
        registers=255,
        local_bytes=600,
    )

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, [kernel] * 3, 2_000)

    return job.run(30, step, weights=0)


def unified_memory(cured: bool) -> Program:
    """A join that takes 5 ms, or 40 when its pages have to come in first."""
    job = Job(Program(RTX_3070_TI, nvtx=False), "query")
    join = kernels.gemm(RTX_3070_TI, "tf32", 4096, 1024, 1024).lasting(5_000_000)
    name = "void mixed_join<(int)128, long>(const table_view *, const table_view *, long *)"
    join = replace(join, name=name, registers=64, dynamic_shared=0)
    faulting = replace(join, migration=Migration(150, 2 * MIB // 4, 35_000_000))

    def step(index: int) -> Routine[None]:
        late = index % 3 == 2 and not cured
        yield from launch_all(job.main, job.stream, (faulting if late else join,), 8_000)
        yield from job.main.synchronize_stream(job.stream)

    return job.run(34, step, weights=0)


def unified_memory_at_start(_: bool) -> Program:
    """The same join with a few migrations in the first step only."""
    job = Job(Program(RTX_3070_TI, nvtx=False), "query")
    name = "void mixed_join<(int)128, long>(const table_view *, const table_view *, long *)"
    join = Kernel(name, 17_000_000, (1024, 1, 1), (128, 1, 1), registers=64)
    first = replace(join, migration=Migration(96, 64 * 1024, 1_600_000))

    def step(index: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, (first if index == 0 else join,), 8_000)
        yield from job.main.synchronize_stream(job.stream)

    return job.run(34, step, weights=0)


def profiler_overhead(cured: bool) -> Program:
    """Launch calls in which the profiler writes its buffers out for 20 ms."""
    job = Job(Program(CARD))
    work = network(CARD, 12_000_000)
    flush = "CUDA profiling data flush"

    def step(index: int) -> Routine[None]:
        yield from job.train(work)
        if index % 9 == 8 and not cured:
            yield from job.main.synchronize_stream(job.stream)
            yield from job.main.stalled_launch(job.stream, work.forward[0], flush, 20_000_000)

    return job.run(40, step)


def incomplete_capture(cured: bool) -> Program:
    """A trace that holds the calls of its first 300 ms but not their kernels."""
    program = single_stream(True)
    lost_until = SESSION_START_NS + 300_000_000

    def lose(rows: Recording) -> None:
        rows.ops = [op for op in rows.ops if op.start_ns >= lost_until]
        text = "Not all CUDA events might have been collected."
        rows.diagnostics.append((lost_until, 2, text))

    if not cured:
        program.after(lose)
    return program


SAMPLES = (
    Sample(
        "two_processes",
        "Two processes that take turns on one device",
        None,
        two_processes,
        quiet=("host_bound", "sync_in_loop", "gpu_idle"),
        case="D39",
    ),
    Sample(
        "default_stream",
        "Four streams that drain around the null stream every millisecond",
        "default_stream_serialization",
        default_stream,
        cure="the four streams are created non-blocking: nothing waits for the null stream",
        also=("sync_in_loop",),
        quiet=("host_bound",),
        case="D41",
    ),
    Sample(
        "single_stream",
        "Training on the null stream alone",
        None,
        single_stream,
        quiet=("default_stream_serialization", "serial_copy"),
        case="D41",
    ),
    Sample(
        "one_thread",
        "A device busy with single-thread kernels",
        "underfilled_grid",
        one_thread,
        quiet=("gpu_idle", "host_bound", "launch_bound"),
        case="D42",
    ),
    Sample(
        "register_spill",
        "Kernels that spill registers",
        "register_spill",
        register_spill,
        quiet=("gpu_idle", "underfilled_grid"),
    ),
    Sample(
        "unified_memory",
        "Every third join waits for its pages",
        "unified_memory_migration",
        unified_memory,
        cure="the pages are there before the kernel starts",
        also=("sync_in_loop",),
        quiet=("pageable_copy", "many_small_copies", "blocking_copy"),
        case="D44",
    ),
    Sample(
        "unified_memory_at_start",
        "A few migrations in the first step",
        None,
        unified_memory_at_start,
        quiet=("unified_memory_migration", "sync_in_loop"),
        case="D44",
    ),
    Sample(
        "profiler_overhead",
        "Gaps that the profiler made",
        "profiler_overhead",
        profiler_overhead,
        cure="the profiler does not write its buffers out during the steps",
        also=("sync_in_loop",),
        quiet=("host_bound", "launch_bound"),
        case="D45a",
    ),
    Sample(
        "incomplete_capture",
        "Calls without their kernels in the first 300 ms",
        "incomplete_capture",
        incomplete_capture,
        cure="nothing is lost",
        quiet=("host_bound", "launch_bound", "default_stream_serialization"),
        case="D45b",
    ),
)
