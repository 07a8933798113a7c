"""Programs with nothing to find."""

from __future__ import annotations

from sample_traces import kernels
from sample_traces.device import Stream
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, H100_80GB
from sample_traces.program import Program
from sample_traces.programs.copies import IMAGES, overlapped
from sample_traces.programs.training import (
    MIB,
    WARMUP_STEPS,
    Job,
    Network,
    launch_all,
    loader,
    network,
    start_up,
)
from sample_traces.sample import Sample
from sample_traces.work import Kernel, download, upload

EVERYTHING = (
    "pageable_copy",
    "blocking_copy",
    "serial_copy",
    "many_small_copies",
    "copy_contention",
    "sync_in_loop",
    "input_starvation",
    "host_bound",
    "launch_bound",
    "allocation_churn",
    "pinned_allocation_in_loop",
    "jit_in_loop",
    "default_stream_serialization",
    "unfused_memory_bound_chain",
    "unfused_attention",
    "unfused_optimizer",
    "fp32_memory_traffic",
    "fp32_gemm",
    "layout_transform",
    "exposed_communication",
)


def healthy_training(_: bool) -> Program:
    """Training with pinned batches that a side stream brings in one step ahead."""
    batch = (upload(IMAGES, pinned=True), upload(256 * 8, pinned=True))
    return overlapped(Job(Program(A100_80GB)), batch, 34_000_000, 30)


def healthy_loader(_: bool) -> Program:
    """Training whose eight loader workers keep their queue full."""
    job, steps = Job(Program(H100_80GB)), 32
    work = network(H100_80GB, 26_000_000)
    batches = loader(job, steps, lambda _: 90_000_000, workers=8, ahead=8)

    def step(_: int) -> Routine[None]:
        yield from job.main.take(batches, "poll")
        yield from job.main.copy(job.stream, upload(2 * MIB, pinned=True))
        yield from job.train(work)

    return job.run(steps, step)


def healthy_driver_api(_: bool) -> Program:
    """A program without NVTX that launches through the driver, as compiled frameworks do."""
    job = Job(Program(H100_80GB, nvtx=False), "python3")
    stream, work = job.process.side_stream(), network(H100_80GB, 18_000_000)

    def step(_: int) -> Routine[None]:
        for kernel in work.kernels:
            yield from job.main.work(2_500)
            yield from job.main.launch(stream, kernel, api="cuLaunchKernelEx")

    return job.run(40, step)


def _evaluate(job: Job, stream: Stream, work: Network) -> Routine[None]:
    """Batches without a backward pass, each read back; then weights saved from the device."""
    with job.main.range("evaluation"):
        for _ in range(6):
            yield from job.main.copy(stream, upload(16 * MIB))
            yield from launch_all(job.main, stream, work.forward)
            yield from job.main.copy(stream, download(4, pinned=True))
            yield from job.main.synchronize_stream(stream)
            yield from job.main.work(2_000_000)
    with job.main.range("save checkpoint"):
        for _ in range(5):
            yield from job.main.copy(stream, download(48 * MIB))
            yield from job.main.os_call("write", 22_000_000)


def evaluation_and_checkpoint(_: bool) -> Program:
    """Healthy steps with an evaluation and a checkpoint in their midst."""
    job = Job(Program(A100_80GB))
    work, count = network(A100_80GB, 22_000_000), 40

    def whole() -> Routine[None]:
        yield from start_up(job.main)
        for index in range(count):
            phase = "warmup" if index < WARMUP_STEPS else "steady"
            with job.main.step(index, "tail" if index == count - 1 else phase):
                yield from job.main.copy(job.stream, upload(MIB, pinned=True))
                yield from job.train(work)
                if index in (WARMUP_STEPS - 1, count - 2, count - 1):
                    yield from job.main.synchronize_device()
            if index == 19:
                yield from _evaluate(job, job.stream, work)

    job.program.start(job.main, whole())
    return job.program


def four_streams(_: bool) -> Program:
    """Small kernels on four non-blocking streams that fill the device together."""
    job = Job(Program(A100_80GB, nvtx=False), "pipeline")
    streams = [job.process.side_stream() for _ in range(4)]
    whole = kernels.gemm(A100_80GB, "bf16", 4096, 4096, 1024).lasting(400_000)
    quarter = Kernel(whole.name, 400_000, (27, 1, 1), (128, 1, 1), share=250)

    def step(_: int) -> Routine[None]:
        for _ in range(8):
            for stream in streams:
                yield from launch_all(job.main, stream, (quarter,), 3_000)

    return job.run(40, step, weights=0)


SAMPLES = (
    Sample(
        "healthy_training",
        "Training with batches brought in one step ahead on a side stream",
        None,
        healthy_training,
        quiet=EVERYTHING,
    ),
    Sample(
        "healthy_loader",
        "Training with a loader that is always ahead",
        None,
        healthy_loader,
        quiet=EVERYTHING,
    ),
    Sample(
        "healthy_driver_api",
        "Launches through the driver, without ranges",
        None,
        healthy_driver_api,
        quiet=EVERYTHING,
    ),
    Sample(
        "evaluation_and_checkpoint",
        "Healthy steps around an evaluation and a checkpoint",
        None,
        evaluation_and_checkpoint,
        quiet=EVERYTHING,
    ),
    Sample(
        "four_streams",
        "Four streams that fill the device together",
        None,
        four_streams,
        quiet=tuple(rule for rule in EVERYTHING if rule != "fp32_gemm"),
    ),
)
