"""Programs whose fault is a copy between host and device."""

from __future__ import annotations

from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB
from sample_traces.program import Program
from sample_traces.programs.training import (
    cnn,
    copy_batch,
    iterate,
    loader,
    start_up,
    trainer,
)
from sample_traces.sample import Sample
from sample_traces.work import upload


def pageable_copy(cured: bool) -> Program:
    """A training loop whose batches are copied with ``non_blocking=True`` from ordinary memory."""
    program = Program(A100_80GB)
    job, steps = trainer(program), 30
    network = cnn(A100_80GB, 31_000_000)
    batches = loader(job, steps, lambda _: 30_000_000, workers=8)
    batch = (upload(256 * 3 * 224 * 224 * 4, pinned=cured), upload(256 * 8, pinned=cured))

    def step(_: int) -> Routine[None]:
        with job.main.range("next batch"):
            yield from job.main.work(90_000)
            yield from job.main.take(batches, "poll")
        with job.main.range("batch to device"):
            yield from copy_batch(job.main, job.stream, batch)
        yield from job.main.work(900_000)
        yield from job.train(network)

    def run() -> Routine[None]:
        yield from start_up(job.main)
        yield from iterate(job.main, steps, step)

    program.start(job.main, run())
    return program


SAMPLES = (
    Sample(
        "pageable_copy",
        "Training with non_blocking=True from batches that are not pinned",
        "pageable_copy",
        pageable_copy,
        cure=(
            "the batches come from pinned memory: the calls no longer block and the copies run at"
            " pinned speed, on the same stream"
        ),
        also=("serial_copy",),
        case="D1",
        low_high=True,
    ),
)
