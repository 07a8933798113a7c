"""Programs whose copies go the wrong way: a slow link, peers by way of the host, needless trips."""

from __future__ import annotations

from dataclasses import replace

from sample_traces import kernels
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, RTX_3070_TI, Card
from sample_traces.program import Program
from sample_traces.programs.copies import overlapped
from sample_traces.programs.training import MIB, Job, launch_all, start_up
from sample_traces.sample import Sample
from sample_traces.work import Copy, Kernel, download, on_device, upload

LINK_RATE = 25_000_000_000
SLOTS: dict[bool, Card] = {
    False: replace(A100_80GB, pinned_htod=6_000_000_000, pinned_dtoh=LINK_RATE),
    True: replace(A100_80GB, pinned_htod=LINK_RATE, pinned_dtoh=LINK_RATE),
}


def slow_link(cured: bool) -> Program:
    """Batches that are prefetched from pinned memory of the other socket."""
    job = Job(Program(SLOTS[cured]))
    return overlapped(job, (upload(96 * MIB, pinned=True),), 10_000_000, 36)


def element_copies(cured: bool) -> Program:
    """Elements that a loop sets one by one with copies within device memory."""
    job = Job(Program(A100_80GB, nvtx=False), "ruby")
    card = A100_80GB
    work = [kernels.gemm(card, "bf16", 4096, 4096, 4096)] * 3
    scatter = Kernel("scatter_pieces(const Piece *, int)", 3_000, grid=(4, 1, 1))
    element, count = on_device(8), 400

    def step(_: int) -> Routine[None]:
        for _number in range(count):
            yield from job.main.work(900)
            if not cured:
                yield from job.main.copy(job.stream, element)
        if cured:
            yield from job.main.launch(job.stream, scatter)
        yield from launch_all(job.main, job.stream, work, 2_000)
        yield from job.main.synchronize_stream(job.stream)

    return job.run(24, step, weights=0)


def round_trip(cured: bool) -> Program:
    """An OpenMP loop whose target region maps two arrays in and out in each of its turns."""
    job = Job(Program(A100_80GB, nvtx=False), "solver")
    size = 6 * MIB
    relax = Kernel("__omp_offloading_802_3c1e_relax_l42", 400_000, grid=(432, 1, 1))

    def move(copy: Copy) -> Routine[None]:
        yield from job.main.work(3_000)
        yield from job.main.copy(job.stream, copy, api="cuMemcpyAsync")

    def step(_: int) -> Routine[None]:
        for _array in range(0 if cured else 2):
            yield from move(upload(size))
        yield from job.main.work(3_000)
        yield from job.main.launch(job.stream, relax, api="cuLaunchKernel")
        yield from job.main.synchronize_stream(job.stream)
        for _array in range(0 if cured else 2):
            yield from move(download(size))

    return job.run(40, step, weights=0)


def double_precision(cured: bool) -> Program:
    """Products of NumPy's float64 arrays on a card with one FP64 unit for 64 of FP32."""
    job = Job(Program(RTX_3070_TI, nvtx=False), "numpy")
    # The card's ratio of 64, of which products in FP32 reach 60 %.
    product = Kernel(
        "ampere_sgemm_128x64_tn" if cured else "volta_dgemm_128x64_nn",
        round(6_000_000 / (0.6 * 64)) if cured else 6_000_000,
        grid=(32, 32, 1),
    )

    def step(_: int) -> Routine[None]:
        yield from job.main.work(700_000)
        yield from launch_all(job.main, job.stream, [product] * 2, 2_000)
        yield from job.main.synchronize_stream(job.stream)

    return job.run(30, step, weights=0)


def unsplit_copy(cured: bool) -> Program:
    """A program that uploads four gigabytes with one call and then goes through them once."""
    job, tiles, size = Job(Program(A100_80GB, nvtx=False), "stencil"), 8, 4 << 30
    sweep = Kernel("sweep(const float *, float *)", 280_000_000, grid=(8192, 1, 1))
    part = sweep.lasting(sweep.duration_ns // tiles)
    streams = [job.process.side_stream() for _ in range(2)]

    def whole() -> Routine[None]:
        yield from start_up(job.main, weights=0)
        if not cured:
            yield from job.main.copy_now(0, upload(size, pinned=True))
            yield from job.main.launch(job.stream, sweep)
        for number in range(tiles if cured else 0):
            stream = streams[number % 2]
            yield from job.main.copy(stream, upload(size // tiles, pinned=True))
            yield from job.main.launch(stream, part)
        yield from job.main.synchronize_device()

    job.program.start(job.main, whole())
    return job.program


SAMPLES = (
    Sample(
        "unsplit_copy",
        "Four gigabytes in one piece before the kernel that goes through them",
        "unsplit_copy",
        unsplit_copy,
        cure="eight tiles on two streams: each tile's kernel runs while the next tile travels",
        also=("blocking_copy", "sync_in_loop"),
        quiet=("serial_copy", "slow_link"),
    ),
    Sample(
        "double_precision",
        "Products in FP64 on a GeForce card",
        "double_precision",
        double_precision,
        cure="the same products in FP32",
        also=("sync_in_loop", "host_bound", "fp32_gemm"),
        quiet=("fp32_memory_traffic",),
    ),
    Sample(
        "round_trip",
        "An OpenMP loop that maps its arrays in and out in every turn",
        "data_round_trip",
        round_trip,
        cure="a target data region around the loop keeps the arrays on the device",
        also=("pageable_copy", "sync_in_loop", "host_bound"),
        quiet=("serial_copy", "many_small_copies"),
    ),
    Sample(
        "slow_link",
        "Batches prefetched from pinned memory at a quarter of the link's rate",
        "slow_link",
        slow_link,
        cure="the copies run at the rate of the link",
        quiet=("serial_copy", "pageable_copy", "input_starvation"),
    ),
    Sample(
        "element_copies",
        "Four hundred elements set one by one with copies on the device",
        "many_small_copies",
        element_copies,
        cure="one kernel moves all elements, after the same loop on the host",
        also=("host_bound", "launch_bound", "sync_in_loop"),
        quiet=("serial_copy", "pageable_copy"),
    ),
)
