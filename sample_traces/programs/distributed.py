"""Programs on several GPUs: collectives that are exposed, contended for, or waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sample_traces import kernels
from sample_traces.cuda import Host
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, H100_80GB, Card
from sample_traces.host import NCCL
from sample_traces.program import Program
from sample_traces.programs.training import MIB, Job, Network, launch_all, network
from sample_traces.sample import Sample
from sample_traces.work import Kernel, upload

COLLECTIVE = "cudaLaunchKernelExC_v11060"
BUCKETS = 4


class Rank(Job):
    """One process of a data-parallel job, with a stream for its collectives."""

    def __init__(self, program: Program, number: int, ranks: int) -> None:
        super().__init__(program, "python", (number,))
        self.number = number
        self.ranks = ranks
        self.comm = self.process.side_stream(priority=-5)
        self.ready = self.process.event()
        self.reduced = self.process.event()

    def reduce(self, host: Host, key: str, duration_ns: int) -> Routine[None]:
        """Launch a collective on its own stream, after what the compute stream has by now."""
        yield from host.work(6_000)
        yield from host.record_event(self.stream, self.ready)
        yield from host.wait_event(self.comm, self.ready)
        with host.range("ncclAllReduce", NCCL):
            kernel = kernels.all_reduce(key, self.ranks, duration_ns)
            yield from host.launch(self.comm, kernel, api=COLLECTIVE)

    def join(self, host: Host) -> Routine[None]:
        """Have the compute stream wait for the collectives."""
        yield from host.record_event(self.comm, self.reduced)
        yield from host.wait_event(self.stream, self.reduced)


def _parts(work: Sequence[Kernel]) -> list[Sequence[Kernel]]:
    size = -(-len(work) // BUCKETS)
    return [work[place : place + size] for place in range(0, len(work), size)]


def _bucket_ns(number: int, reduce_ns: int) -> int:
    """The last bucket holds the first layers only and is small."""
    return reduce_ns if number < BUCKETS - 1 else reduce_ns // 6


def _backward(
    rank: Rank, work: Network, index: int, reduce_ns: int, overlapped: bool
) -> Routine[None]:
    """The backward pass with one collective per bucket of gradients."""
    host = rank.autograd
    parts = _parts(work.backward)
    for number, part in enumerate(parts):
        yield from launch_all(host, rank.stream, part)
        if overlapped:
            yield from rank.reduce(host, f"{index}/{number}", _bucket_ns(number, reduce_ns))
    if not overlapped:
        for number in range(len(parts)):
            yield from rank.reduce(host, f"{index}/{number}", _bucket_ns(number, reduce_ns))
    yield from rank.join(host)


def data_parallel(
    card: Card, ranks: int, work: Network, *, overlapped: bool, reduce_ns: int, steps: int = 20
) -> Program:
    """A data-parallel training job, one process per card."""
    program = Program(*([card] * ranks))

    def start(rank: Rank) -> None:
        def step(index: int) -> Routine[None]:
            yield from rank.main.copy(rank.stream, upload(2 * MIB, pinned=True))
            with rank.main.range("forward"):
                yield from launch_all(rank.main, rank.stream, work.forward)
            with rank.main.range("backward"):
                yield from rank.backward(_backward(rank, work, index, reduce_ns, overlapped))
            with rank.main.range("optimizer"):
                yield from launch_all(rank.main, rank.stream, work.update)

        rank.run(steps, step)

    for number in range(ranks):
        start(Rank(program, number, ranks))
    return program


def exposed_communication(cured: bool) -> Program:
    """Gradients reduced after the whole backward pass instead of beside it."""
    work = network(A100_80GB, 20_000_000, layers=2)
    return data_parallel(A100_80GB, 2, work, overlapped=cured, reduce_ns=1_500_000)


def communication_contention(cured: bool) -> Program:
    """Collectives beside the backward pass take the bandwidth that its kernels need."""
    work = network(A100_80GB, 20_000_000, layers=2)
    if not cured:
        slowed = tuple(replace(kernel, slowdown=1.8) for kernel in work.backward)
        work = replace(work, backward=slowed)
    return data_parallel(A100_80GB, 2, work, overlapped=True, reduce_ns=2_200_000)


def two_gpus(_: bool) -> Program:
    """A data-parallel job whose collectives fit beside the backward pass."""
    work = network(H100_80GB, 24_000_000, layers=2)
    return data_parallel(H100_80GB, 2, work, overlapped=True, reduce_ns=900_000)


class Lag(NamedTuple):
    """What makes one rank late in every step, ns: slower kernels, a pause of the host's own
    code, or a wait for input."""

    kernels_ns: int = 0
    pause_ns: int = 0
    input_ns: int = 0


def _skewed(lag: Callable[[int], Lag], ranks: int = 8, steps: int = 16) -> Program:
    """Ranks that meet in one collective per step after their own time of compute."""
    program = Program(*([H100_80GB] * ranks))
    product = kernels.gemm(H100_80GB, "bf16", 32_768, 4096, 4096)

    def start(rank: Rank) -> None:
        own = lag(rank.number)
        work = [product.lasting((20_000_000 + own.kernels_ns) // 5)] * 5

        def step(index: int) -> Routine[None]:
            if own.input_ns:
                yield from rank.main.os_call("pthread_cond_timedwait", own.input_ns)
                yield from rank.main.copy(rank.stream, upload(2 * MIB, pinned=True))
            if own.pause_ns:
                yield from rank.main.work(own.pause_ns)
            yield from launch_all(rank.main, rank.stream, work)
            yield from rank.reduce(rank.main, f"{index}", 2_000_000)
            yield from rank.join(rank.main)
            yield from launch_all(rank.main, rank.stream, (kernels.fused_adam(H100_80GB, MIB),))

        rank.run(steps, step, weights=2)

    for number in range(ranks):
        start(Rank(program, number, ranks))
    return program


def straggler(cured: bool) -> Program:
    """Eight ranks that wait ten milliseconds for rank 4 in every step."""
    return _skewed(_only(4, Lag(kernels_ns=10_000_000), cured))


def straggler_pause(cured: bool) -> Program:
    """Eight ranks that wait for rank 2, whose host collects garbage in every step."""
    return _skewed(_only(2, Lag(pause_ns=30_000_000), cured))


def straggler_input(cured: bool) -> Program:
    """Eight ranks that wait for rank 6, whose input comes late in every step."""
    return _skewed(_only(6, Lag(input_ns=32_000_000), cured))


def _only(late: int, lag: Lag, cured: bool) -> Callable[[int], Lag]:
    return lambda rank: lag if rank == late and not cured else Lag()


SAMPLES = (
    Sample(
        "exposed_communication",
        "Gradients reduced after the backward pass",
        "exposed_communication",
        exposed_communication,
        cure="each bucket is reduced as soon as its part of the backward pass has ended",
        quiet=("straggler_rank", "sync_in_loop", "host_bound"),
        case="D36",
    ),
    Sample(
        "communication_contention",
        "Backward kernels 1.8 times slower beside collectives",
        "communication_contention",
        communication_contention,
        cure="the kernels run beside the collectives as fast as alone",
        quiet=("straggler_rank", "host_bound"),
        also=("exposed_communication",),
        case="D37",
        low_high=True,
    ),
    Sample(
        "straggler_rank",
        "Eight ranks of which one is ten milliseconds late",
        "straggler_rank",
        straggler,
        cure="rank 4 is as fast as the others",
        also=("exposed_communication",),
        case="D38",
    ),
    Sample(
        "straggler_pause",
        "Eight ranks of which one pauses to collect garbage",
        "straggler_rank",
        straggler_pause,
        cure="rank 2 pauses no more",
        also=("exposed_communication", "host_bound", "sync_in_loop"),
        case="D38",
    ),
    Sample(
        "straggler_input",
        "Eight ranks of which one waits for input",
        "straggler_rank",
        straggler_input,
        cure="rank 6 gets its input at once",
        also=("exposed_communication", "input_starvation", "host_bound", "sync_in_loop"),
        case="D38",
    ),
    Sample(
        "two_gpu",
        "A data-parallel job with its collectives beside the backward pass",
        None,
        two_gpus,
        quiet=("exposed_communication", "communication_contention", "straggler_rank"),
    ),
)
