"""Programs whose fault is a copy between host and device."""

from __future__ import annotations

from collections.abc import Sequence

from sample_traces import kernels
from sample_traces.device import Stream
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, H100_80GB
from sample_traces.host import Event
from sample_traces.program import Program
from sample_traces.programs.training import (
    MIB,
    Job,
    copy_batch,
    launch_all,
    loader,
    network,
)
from sample_traces.sample import Sample
from sample_traces.work import Copy, Kernel, download, upload

IMAGES = 256 * 3 * 224 * 224 * 4  # bytes of a batch of FP32 images


def pageable_copy(cured: bool) -> Program:
    """A training loop whose batches are copied with ``non_blocking=True`` from ordinary memory."""
    job, steps = Job(Program(A100_80GB)), 30
    work = network(A100_80GB, 33_000_000)
    batches = loader(job, steps, lambda _: 30_000_000, workers=8)
    batch = (upload(IMAGES, pinned=cured), upload(256 * 8, pinned=cured))

    def step(_: int) -> Routine[None]:
        with job.main.range("next batch"):
            yield from job.main.work(90_000)
            yield from job.main.take(batches, "poll")
        with job.main.range("batch to device"):
            yield from copy_batch(job.main, job.stream, batch)
        yield from job.main.work(900_000)
        yield from job.train(work)

    return job.run(steps, step)


def pageable_tensors(cured: bool) -> Program:
    """Twenty tensors per step, each copied from ordinary memory on the compute stream."""
    job = Job(Program(A100_80GB))
    work = network(A100_80GB, 24_000_000)
    batch = [upload((2 + number % 5) * MIB, pinned=cured) for number in range(20)]

    def step(_: int) -> Routine[None]:
        yield from copy_batch(job.main, job.stream, batch)
        yield from job.main.work(300_000)
        yield from job.train(work)

    return job.run(30, step)


def pageable_download(cured: bool) -> Program:
    """Inference that sends results back with ``non_blocking=True`` into ordinary memory."""
    job = Job(Program(A100_80GB))
    work = network(A100_80GB, 9_000_000)
    result = download(4 * MIB, pinned=cured)

    def step(_: int) -> Routine[None]:
        yield from job.main.copy(job.stream, upload(2 * MIB, pinned=True))
        with job.main.range("forward"):
            yield from launch_all(job.main, job.stream, work.forward)
        with job.main.range("results to host"):
            yield from job.main.copy(job.stream, result)
        yield from job.main.work(1_100_000)

    return job.run(40, step, text="batch {}")


def pageable_streams(cured: bool) -> Program:
    """Columns copied over four streams; ordinary memory makes them follow one another."""
    job = Job(Program(A100_80GB, nvtx=False), "columns")
    streams = [job.process.side_stream() for _ in range(4)]
    column = upload(24 * MIB, pinned=cured)
    scan = kernels.gemm(A100_80GB, "bf16", 8192, 4096, 4096).lasting(2_300_000)

    def step(_: int) -> Routine[None]:
        for stream in streams:
            yield from job.main.work(20_000)
            yield from job.main.copy(stream, column)
            yield from job.main.launch(stream, scan)

    return job.run(40, step)


def blocking_copy(cured: bool) -> Program:
    """A solver that calls cudaMemcpy for its input and its result in every step."""
    job = Job(Program(A100_80GB, nvtx=False), "solver")
    solve = kernels.gemm(A100_80GB, "bf16", 16_384, 4096, 4096)
    inputs, result = upload(24 * MIB, pinned=cured), download(8 * MIB, pinned=cured)

    def move(copy: Copy) -> Routine[None]:
        if cured:
            yield from job.main.copy(job.stream, copy)
        else:
            yield from job.main.copy_now(0, copy)

    def step(_: int) -> Routine[None]:
        yield from move(inputs)
        yield from job.main.work(700_000)
        yield from launch_all(job.main, job.stream, [solve] * 6, 2_000)
        yield from move(result)
        yield from job.main.work(400_000)

    return job.run(50, step)


def prefetch(
    job: Job, side: Stream, batch: Sequence[Copy], ready: Event, used: Event
) -> Routine[None]:
    """Copy the next batch on a side stream, once the buffer it goes into is free."""
    yield from job.main.wait_event(side, used)
    yield from copy_batch(job.main, side, batch)
    yield from job.main.record_event(side, ready)


def overlapped(job: Job, batch: Sequence[Copy], step_ns: int, steps: int) -> Program:
    """A training loop that copies the next batch on a side stream while it computes."""
    work, side = network(job.stream.gpu.card, step_ns), job.process.side_stream()
    ready = [job.process.event() for _ in range(2)]
    used = [job.process.event() for _ in range(2)]

    def step(index: int) -> Routine[None]:
        here, following = index % 2, (index + 1) % 2
        if index == 0:
            yield from prefetch(job, side, batch, ready[here], used[here])
        yield from job.main.wait_event(job.stream, ready[here])
        with job.main.range("prefetch"):
            yield from prefetch(job, side, batch, ready[following], used[following])
        yield from job.main.work(300_000)
        yield from job.train(work)
        yield from job.main.record_event(job.stream, used[here])

    return job.run(steps, step)


def serial_copy(cured: bool) -> Program:
    """Pinned batches, asynchronous copies, and still the compute stream waits for each of them."""
    job, steps, step_ns = Job(Program(A100_80GB)), 36, 24_000_000
    batch = (upload(IMAGES, pinned=True), upload(256 * 8, pinned=True))
    if cured:
        return overlapped(job, batch, step_ns, steps)
    work = network(A100_80GB, step_ns)

    def step(_: int) -> Routine[None]:
        with job.main.range("batch to device"):
            yield from copy_batch(job.main, job.stream, batch)
        yield from job.main.work(300_000)
        yield from job.train(work)

    return job.run(steps, step)


def many_small_copies(cured: bool) -> Program:
    """Two hundred features of 8 kB copied one by one, where one copy would do."""
    job = Job(Program(A100_80GB, nvtx=False), "recommender")
    work = network(A100_80GB, 2_600_000, layers=2)
    count, size = 120, 8192
    features = [upload(count * size, pinned=True)] if cured else [upload(size, pinned=True)] * count

    def step(_: int) -> Routine[None]:
        for feature in features:
            yield from job.main.work(800)
            yield from job.main.copy(job.stream, feature)
        yield from launch_all(job.main, job.stream, work.kernels, 2_000)
        yield from job.main.copy(job.stream, download(4096, pinned=True))
        yield from job.main.synchronize_stream(job.stream)

    return job.run(24, step, weights=0)


def copy_contention(cured: bool) -> Program:
    """Four kB that the next kernel needs wait behind 96 MB that are for the next step."""
    job = Job(Program(A100_80GB))
    work, side = network(A100_80GB, 9_000_000), job.process.side_stream()
    mapped = Kernel("read_mapped_table(const int4 *, int4 *, int)", 2_200, grid=(2, 1, 1))

    def step(_: int) -> Routine[None]:
        yield from job.main.copy(side, upload(96 * MIB, pinned=True))
        if cured:
            yield from job.main.launch(job.stream, mapped)
        else:
            yield from job.main.copy(job.stream, upload(4096, pinned=True))
        yield from job.train(work)
        yield from job.main.synchronize_stream(job.stream)

    return job.run(40, step)


def chunked_download(cured: bool) -> Program:
    """Results fetched in 128 MB chunks through one staging buffer, with a host copy after each."""
    job = Job(Program(H100_80GB, nvtx=False))
    work = network(H100_80GB, 20_000_000)
    chunk = download(128 * MIB, pinned=True)

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, work.forward, 2_000)
        for _ in range(8):
            yield from job.main.copy(job.stream, chunk)
            yield from job.main.synchronize_stream(job.stream)
            yield from job.main.work(60_000 if cured else 40_000_000)

    return job.run(14, step)


PAGEABLE_CURE = (
    "the host buffers are pinned: the calls no longer block and the copies run at pinned speed, on"
    " the same stream"
)

SAMPLES = (
    Sample(
        "pageable_copy",
        "Training with non_blocking=True from batches that are not pinned",
        "pageable_copy",
        pageable_copy,
        cure=PAGEABLE_CURE,
        also=("serial_copy", "host_bound"),
        case="D1",
        low_high=True,
    ),
    Sample(
        "pageable_tensors",
        "Twenty unpinned tensors per step on the compute stream",
        "pageable_copy",
        pageable_tensors,
        cure=PAGEABLE_CURE,
        also=("serial_copy", "many_small_copies", "host_bound"),
        case="D1",
        low_high=True,
    ),
    Sample(
        "pageable_download",
        "Results sent to unpinned memory with non_blocking=True",
        "pageable_copy",
        pageable_download,
        cure=PAGEABLE_CURE,
        also=("host_bound", "serial_copy"),
        quiet=("input_starvation",),
        case="D3",
        low_high=True,
    ),
    Sample(
        "pageable_streams",
        "Unpinned columns over four streams",
        "pageable_copy",
        pageable_streams,
        cure=PAGEABLE_CURE,
        also=("serial_copy",),
        case="D14",
        low_high=True,
    ),
    Sample(
        "blocking_copy",
        "A solver that calls cudaMemcpy in every step",
        "blocking_copy",
        blocking_copy,
        cure="the copies become cudaMemcpyAsync from and to pinned memory on the same stream",
        also=("host_bound", "serial_copy"),
        quiet=("pageable_copy",),
        low_high=True,
    ),
    Sample(
        "serial_copy",
        "Pinned batches copied on the compute stream",
        "serial_copy",
        serial_copy,
        cure="the copies move to a side stream, one step ahead, ordered by events",
        quiet=("pageable_copy", "blocking_copy", "input_starvation", "copy_contention"),
    ),
    Sample(
        "many_small_copies",
        "A hundred and twenty small uploads per step",
        "many_small_copies",
        many_small_copies,
        cure="one copy of the total size replaces the small ones",
        also=("serial_copy", "launch_bound", "sync_in_loop"),
        quiet=("pageable_copy",),
    ),
    Sample(
        "copy_contention",
        "A small upload queued behind the prefetch of the next batch",
        "copy_contention",
        copy_contention,
        cure="the small upload waits for no other copy: a kernel reads it from mapped memory",
        also=("serial_copy", "sync_in_loop"),
        quiet=("pageable_copy",),
    ),
    Sample(
        "chunked_download",
        "A gigabyte fetched in chunks with 40 ms of host work between them",
        "host_bound",
        chunked_download,
        cure="the host copies between the chunks are gone",
        also=("serial_copy", "sync_in_loop", "blocking_copy"),
        quiet=("pageable_copy",),
        case="D16",
    ),
)
