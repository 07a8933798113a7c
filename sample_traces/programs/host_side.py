"""Programs that starve the device from the host's side: slow loaders and slow Python."""

from __future__ import annotations

from sample_traces import kernels
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, RTX_3070_TI
from sample_traces.program import Program
from sample_traces.programs.training import (
    MIB,
    Job,
    launch_all,
    loader,
    network,
)
from sample_traces.sample import Sample
from sample_traces.work import upload

CARD = A100_80GB
NEXT_BATCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def input_starvation(cured: bool) -> Program:
    """Two workers that need 60 ms per batch for a device that needs 20 ms."""
    job, steps = Job(Program(CARD)), 33
    work = network(CARD, 20_000_000)
    batches = loader(job, steps, lambda _: 60_000_000, workers=6 if cured else 2)

    def step(_: int) -> Routine[None]:
        with job.main.range("next batch"):
            yield from job.main.take(batches, "poll")
            yield from job.main.work(70_000)
        yield from job.main.copy(job.stream, upload(12 * MIB, pinned=True))
        yield from job.train(work)

    return job.run(steps, step)


def periodic_starvation(cured: bool) -> Program:
    """A loader that decodes images anew in every fourth step: 9.4, 9.4, 9.4, 27 ms."""
    job, steps = Job(Program(RTX_3070_TI)), 48
    work = network(RTX_3070_TI, 7_500_000)
    batches = loader(
        job, steps, lambda n: 27_000_000 if n % 4 == 3 and not cured else 9_300_000, ahead=1
    )

    def step(_: int) -> Routine[None]:
        yield from job.main.take(batches, "pthread_cond_timedwait")
        yield from job.main.copy(job.stream, upload(13 * MIB, pinned=True))
        yield from job.train(work)
        yield from job.main.synchronize_stream(job.stream)

    return job.run(steps, step)


def starvation_without_os_calls(cured: bool) -> Program:
    """A starved loop in a trace without OS calls: only the loader's range shows the wait."""
    job, steps = Job(Program(CARD, osrt=False)), 36
    work = network(CARD, 20_000_000)
    batches = loader(job, steps, lambda _: 34_000_000, workers=2 if cured else 1)

    def step(_: int) -> Routine[None]:
        with job.main.range(NEXT_BATCH):
            yield from job.main.take(batches, "sem_clockwait")
        yield from job.main.copy(job.stream, upload(12 * MIB, pinned=True))
        yield from job.train(work)

    return job.run(steps, step)


def host_bound(cured: bool) -> Program:
    """Seven milliseconds of metrics in Python between steps that the device finishes first."""
    job = Job(Program(CARD))
    work = network(CARD, 12_000_000)

    def step(_: int) -> Routine[None]:
        yield from job.main.copy(job.stream, upload(4 * MIB, pinned=True))
        yield from job.train(work)
        yield from job.main.synchronize_stream(job.stream)
        with job.main.range("metrics"):
            yield from job.main.work(100_000 if cured else 7_000_000)

    return job.run(40, step)


def python_bound(cured: bool) -> Program:
    """A framework that needs a quarter millisecond for each launch, without any waiting."""
    job = Job(Program(CARD))
    product = kernels.gemm(CARD, "bf16", 2048, 1024, 1024).lasting(90_000)
    python_ns = 6_000 if cured else 240_000

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, [product] * 30, python_ns)

    return job.run(36, step)


SAMPLES = (
    Sample(
        "input_starvation",
        "Two loader workers where the device needs three times as many",
        "input_starvation",
        input_starvation,
        cure="six workers: the batch is there when the step begins",
        quiet=("host_bound", "pageable_copy", "sync_in_loop"),
    ),
    Sample(
        "periodic_starvation",
        "A loader that is late in every fourth step",
        "input_starvation",
        periodic_starvation,
        cure="decoded images are kept: every fourth batch takes as long as the others",
        also=("serial_copy", "sync_in_loop"),
        quiet=("host_bound", "pageable_copy"),
        case="D17",
    ),
    Sample(
        "starvation_without_os_calls",
        "A starved loop in a trace without OS calls",
        "input_starvation",
        starvation_without_os_calls,
        cure="two workers: the batch is there when the step begins",
        quiet=("host_bound", "pageable_copy"),
    ),
    Sample(
        "host_bound",
        "Metrics computed in Python between the steps",
        "host_bound",
        host_bound,
        cure="the host code between the steps is gone",
        also=("sync_in_loop",),
        quiet=("input_starvation", "launch_bound"),
    ),
    Sample(
        "python_bound",
        "A quarter millisecond of Python before every launch",
        "host_bound",
        python_bound,
        cure="six microseconds of Python before every launch",
        also=("launch_bound",),
        quiet=("input_starvation", "sync_in_loop"),
    ),
)
