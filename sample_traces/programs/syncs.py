"""Programs in which the host waits for the device, rightly or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sample_traces import kernels
from sample_traces.device import Stream
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, RTX_3070_TI
from sample_traces.host import Event
from sample_traces.program import Program
from sample_traces.programs.training import MIB, Job, launch_all, network
from sample_traces.sample import Sample
from sample_traces.work import Kernel, download, upload

CARD = A100_80GB
BIT_MASK = (
    "void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::DispatchSelectIf<"
    "at_cuda_detail::cub::CountingInputIterator<long, long>, at_cuda_detail::cub::"
    "TransformInputIterator<bool, at::native::<unnamed>::NonZeroOp<bool>, const bool *, long>,"
    " long *, int *, at_cuda_detail::cub::NullType, at_cuda_detail::cub::NullType, int, (bool)0>::"
    "PtxPolicyWrapper<T1>>(T2, T3, T4, T5, T6, T7, T8, T9, int)"
)
COUNT = (
    "void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::DeviceReducePolicy"
    "<bool, int, int, at_cuda_detail::cub::Sum>::Policy600, int *, int *, int,"
    " at_cuda_detail::cub::Sum, int, int>(T2, T3, T4, T5, T6)"
)


def read_back(
    job: Job, stream: Stream, *, wait: bool, size_bytes: int = 4, pinned: bool = True
) -> Routine[None]:
    """Fetch a scalar as ``.item()`` does; without waiting when told so."""
    yield from job.main.copy(stream, download(size_bytes, pinned=pinned))
    if wait:
        yield from job.main.synchronize_stream(stream)


def sync_in_loop(cured: bool) -> Program:
    """A training loop that reads the loss in every step and then fills the queue anew."""
    job = Job(Program(CARD))
    work = network(CARD, 44_000_000)
    batch = upload(8 * MIB, pinned=True)

    def step(_: int) -> Routine[None]:
        yield from job.main.copy(job.stream, batch)
        yield from job.train(work)
        with job.main.range("log loss"):
            yield from read_back(job, job.stream, wait=not cured)
        yield from job.main.work(4_500_000)

    return job.run(33, step)


def sync_storm(cured: bool) -> Program:
    """An optimizer that reads one scalar per parameter."""
    job = Job(Program(CARD))
    work = network(CARD, 8_000_000)
    tiny = kernels.pointwise(CARD, "scale", 4096)

    def step(_: int) -> Routine[None]:
        yield from job.train(work)
        with job.main.range("optimizer step"):
            for _ in range(100):
                yield from job.main.work(5_000)
                yield from job.main.launch(job.stream, tiny)
                yield from read_back(job, job.stream, wait=not cured)

    return job.run(18, step, weights=0)


def data_dependent(cured: bool) -> Program:
    """A boolean mask in every layer: its size has to come back before the next kernel."""
    job = Job(Program(CARD))
    work = network(CARD, 14_000_000)
    count = Kernel(COUNT, 2_300, (1, 1, 1), (256, 1, 1), registers=28, static_shared=44)
    select = Kernel(BIT_MASK, 5_200, (216, 1, 1), (128, 1, 1), registers=40, static_shared=4160)

    def step(_: int) -> Routine[None]:
        for kernel in work.forward:
            yield from launch_all(job.main, job.stream, (kernel, count))
            yield from read_back(job, job.stream, wait=not cured, size_bytes=8)
            yield from job.main.work(45_000)
            yield from launch_all(job.main, job.stream, (select,))

    return job.run(36, step, weights=0)


def _sync_at(place: str) -> Callable[[bool], Program]:
    """The same training loop with its one synchronisation in the named range."""

    def build(cured: bool) -> Program:
        job = Job(Program(CARD))
        work = network(CARD, 20_000_000)

        def stand(name: str) -> Routine[None]:
            with job.main.range(name):
                if name == place:
                    yield from read_back(job, job.stream, wait=not cured)

        def step(_: int) -> Routine[None]:
            yield from stand("batch to device")
            yield from job.main.work(2_400_000)
            yield from job.train(work)
            yield from stand("progress bar")

        return job.run(36, step)

    return build


def sync_beside_host(cured: bool) -> Program:
    """A step of 17 ms that is host code, 0.1 ms of kernels and a short synchronisation."""
    job = Job(Program(CARD))
    tiny = [kernels.gemm(CARD, "bf16", 256, 256, 128).lasting(9_000)] * 10

    def step(_: int) -> Routine[None]:
        if not cured:
            yield from job.main.work(16_300_000)
        yield from launch_all(job.main, job.stream, tiny, 4_000)
        yield from read_back(job, job.stream, wait=True)

    return job.run(40, step)


def scalar_reads(cured: bool) -> Program:
    """Thirty-two scalars per step fetched into ordinary memory, one synchronisation each."""
    job = Job(Program(RTX_3070_TI))
    tiny = kernels.pointwise(RTX_3070_TI, "scale", 65_536)
    product = kernels.gemm(RTX_3070_TI, "tf32", 4096, 512, 512).lasting(420_000)

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, [product] * 4)
        for _ in range(32):
            yield from launch_all(job.main, job.stream, (tiny,))
            yield from read_back(job, job.stream, wait=not cured, pinned=cured)

    return job.run(30, step, weights=0)


def scalar_reads_beside_streams(cured: bool) -> Program:
    """The same reads while three other streams work; the reads on the null stream halt them."""
    job = Job(Program(RTX_3070_TI))
    streams = [job.process.side_stream(blocking=not cured) for _ in range(3)]
    tiny = kernels.pointwise(RTX_3070_TI, "scale", 65_536)
    quarter = kernels.gemm(RTX_3070_TI, "tf32", 1024, 512, 512).lasting(90_000)
    part = Kernel(quarter.name, quarter.duration_ns, (12, 1, 1), (128, 1, 1), share=300)

    def step(_: int) -> Routine[None]:
        for _ in range(12):
            for stream in streams:
                yield from launch_all(job.main, stream, (part,), 3_000)
            yield from launch_all(job.main, job.stream, (tiny,))
            yield from read_back(job, job.stream, wait=not cured, pinned=cured)

    return job.run(30, step, weights=0)


def decode(cured: bool) -> Program:
    """Token generation: eight milliseconds of kernels, then five of scheduling in Python."""
    job = Job(Program(CARD))
    work = network(CARD, 20_000_000)

    def step(_: int) -> Routine[None]:
        with job.main.range("execute model"):
            yield from launch_all(job.main, job.stream, work.forward)
        yield from read_back(job, job.stream, wait=True)
        with job.main.range("schedule"):
            yield from job.main.work(120_000 if cured else 5_000_000)

    return job.run(60, step, text="iteration {}")


def long_sync(_: bool) -> Program:
    """A loop that waits for the device in every step while the device is busy throughout."""
    job = Job(Program(CARD))
    work, event = network(CARD, 30_000_000), job.process.event()

    def step(index: int) -> Routine[None]:
        previous = Event(event.number, list(event.tasks), event.sync)
        yield from job.train(work)
        yield from job.main.record_event(job.stream, event)
        if index:
            yield from job.main.synchronize_event(job.stream, previous)

    return job.run(36, step)


def drained_but_busy(_: bool) -> Program:
    """A loop that synchronises after 60 ms of kernels: the bubble is far below a percent."""
    job = Job(Program(CARD))
    work = network(CARD, 60_000_000)

    def step(_: int) -> Routine[None]:
        yield from job.train(work)
        yield from job.main.synchronize_device()

    return job.run(30, step)


def host_ahead(_: bool) -> Program:
    """Long pauses between the calls of the host, none on the device."""
    job = Job(Program(CARD, nvtx=False), "inference")
    work = network(CARD, 40_000_000)
    queue: Sequence[Kernel] = work.forward

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, queue, 2_000)
        yield from job.main.work(9_000_000)

    return job.run(40, step)


NO_WAIT = "the read-backs stay but the host no longer waits for them"

SAMPLES = (
    Sample(
        "sync_in_loop",
        "The loss read back in every step",
        "sync_in_loop",
        sync_in_loop,
        cure=NO_WAIT,
        also=("host_bound",),
        quiet=("pageable_copy", "input_starvation", "launch_bound"),
        case="D4",
    ),
    Sample(
        "sync_storm",
        "A synchronisation per parameter in the optimizer",
        "sync_in_loop",
        sync_storm,
        cure=NO_WAIT,
        also=("launch_bound", "host_bound", "unfused_optimizer"),
        quiet=("pageable_copy", "input_starvation"),
        case="D5",
    ),
    Sample(
        "data_dependent_sync",
        "Boolean masks whose size comes back in every layer",
        "sync_in_loop",
        data_dependent,
        cure=NO_WAIT,
        also=("host_bound", "launch_bound"),
        quiet=("pageable_copy", "input_starvation"),
        case="D6",
    ),
    Sample(
        "sync_in_progress_bar",
        "A synchronisation at the end of the step, in the progress bar",
        "sync_in_loop",
        _sync_at("progress bar"),
        cure=NO_WAIT,
        also=("host_bound",),
        case="D7",
    ),
    Sample(
        "sync_in_batch_to_device",
        "The same synchronisation at the start of the next step",
        "sync_in_loop",
        _sync_at("batch to device"),
        cure=NO_WAIT,
        also=("host_bound",),
        case="D7",
    ),
    Sample(
        "sync_beside_host_code",
        "A synchronisation that is not the bottleneck",
        "host_bound",
        sync_beside_host,
        cure="the sixteen milliseconds of host code are gone",
        quiet=("sync_in_loop", "input_starvation"),
        case="D8",
    ),
    Sample(
        "scalar_reads",
        "Thirty-two scalars per step, each with its own synchronisation",
        "sync_in_loop",
        scalar_reads,
        cure=NO_WAIT,
        also=("launch_bound", "host_bound"),
        quiet=("blocking_copy",),
        case="D10a",
    ),
    Sample(
        "scalar_reads_beside_streams",
        "The same reads halt three other streams",
        "sync_in_loop",
        scalar_reads_beside_streams,
        cure=NO_WAIT + ", from pinned memory and without the null stream halting the others",
        also=("pageable_copy", "default_stream_serialization", "launch_bound", "host_bound"),
        case="D10b",
        low_high=True,
    ),
    Sample(
        "decode_gap",
        "Five milliseconds of scheduling between the iterations of a decoder",
        "host_bound",
        decode,
        cure="the scheduling between the iterations is gone",
        also=("sync_in_loop",),
        quiet=("input_starvation", "pageable_copy"),
        case="D18",
    ),
    Sample(
        "long_sync",
        "A synchronisation that waits long while the device works",
        None,
        long_sync,
        quiet=("sync_in_loop",),
        case="D29",
    ),
    Sample(
        "drained_but_busy",
        "A device synchronisation after sixty milliseconds of kernels",
        None,
        drained_but_busy,
        quiet=("sync_in_loop",),
        case="D29",
    ),
    Sample(
        "host_ahead",
        "Pauses of the host that the device does not notice",
        None,
        host_ahead,
        quiet=("host_bound", "launch_bound"),
        case="D30",
    ),
)
