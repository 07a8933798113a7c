"""Programs about the cost of launching: small kernels, graphs, what graphs hide."""

from __future__ import annotations

from collections.abc import Sequence

from sample_traces import kernels
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, H100_80GB, Card
from sample_traces.program import Program
from sample_traces.programs.syncs import read_back
from sample_traces.programs.training import Job, iterate, launch_all, network, start_up
from sample_traces.sample import Sample
from sample_traces.work import Graph, Kernel

CARD = A100_80GB


def small_kernels(card: Card, duration_ns: int, count: int) -> tuple[Kernel, ...]:
    """A decoder's layer, over and over, in kernels of about the given time."""
    layer = (
        kernels.gemm(card, "fp16", 128, 1024, 64).lasting(round(1.3 * duration_ns)),
        kernels.triton(card, "triton_per_fused_add_rsqrt_mul_0", 1 << 20).lasting(duration_ns),
        kernels.flash_forward(round(1.2 * duration_ns), 256),
        kernels.gemm(card, "fp16", 128, 512, 64).lasting(duration_ns),
        kernels.triton(card, "triton_poi_fused_silu_mul_2", 1 << 20).lasting(
            round(0.5 * duration_ns)
        ),
    )
    return tuple(layer[number % len(layer)] for number in range(count))


def replayed(job: Job, work: Sequence[Kernel], count: int, cost_ns: int = 11_000) -> Program:
    """Steps that replay one graph of the kernels and read a token back."""
    graph = Graph(tuple(work))

    def step(_: int) -> Routine[None]:
        yield from job.main.launch(job.stream, graph, cost_ns=cost_ns)
        yield from read_back(job, job.stream, wait=True)
        yield from job.main.work(20_000)

    def whole() -> Routine[None]:
        yield from start_up(job.main, weights=0)
        yield from job.main.instantiate(graph)
        yield from iterate(job.main, count, step, text="round {}")

    job.program.start(job.main, whole())
    return job.program


def _launched(job: Job, work: Sequence[Kernel], count: int, python_ns: int) -> Program:
    """Steps that launch the kernels one by one and read a token back."""

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, work, python_ns)
        yield from read_back(job, job.stream, wait=True)
        yield from job.main.work(20_000)

    return job.run(count, step, text="round {}", weights=0)


def launch_bound(cured: bool) -> Program:
    """A decoder of tiny kernels that the device finishes faster than the host launches them."""
    job, work = Job(Program(CARD)), small_kernels(CARD, 2_600, 50)
    return replayed(job, work, 24) if cured else _launched(job, work, 24, 2_500)


def launch_gaps(cured: bool) -> Program:
    """A decoding round without graphs, a fifth of it idle between kernels."""
    job, work = Job(Program(CARD, nvtx=False), "generate"), small_kernels(CARD, 5_600, 120)
    return replayed(job, work, 24) if cured else _launched(job, work, 24, 2_000)


def small_prize(cured: bool) -> Program:
    """Launch gaps that are there, while five percent is all there is to gain."""
    job = Job(Program(CARD, nvtx=False), "generate")
    work = small_kernels(CARD, 3_600, 130) + small_kernels(CARD, 96_000, 60)
    return replayed(job, work, 16) if cured else _launched(job, work, 16, 500)


def graph_inference(_: bool) -> Program:
    """Inference that replays a graph, recorded as whole replays."""
    return replayed(Job(Program(H100_80GB)), small_kernels(H100_80GB, 40_000, 90), 50)


def graph_nodes(_: bool) -> Program:
    """The same inference recorded node by node."""
    program = Program(H100_80GB, graph_mode="node")
    return replayed(Job(program), small_kernels(H100_80GB, 40_000, 90), 30)


def hidden_kernels(cured: bool) -> Program:
    """Nearly everything runs in graphs that were recorded as whole replays; node mode cures it."""
    program = Program(CARD, graph_mode="node" if cured else "graph", nvtx=False)
    return replayed(Job(program, "serve"), small_kernels(CARD, 60_000, 80), 30)


def slow_graph_launch(cured: bool) -> Program:
    """A graph whose launch call takes seven times as long as it should."""
    work = small_kernels(CARD, 4_000, 90)
    return replayed(Job(Program(CARD)), work, 40, cost_ns=50_000 if cured else 350_000)


def unfused_optimizer(cured: bool) -> Program:
    """An optimizer that launches five small kernels per parameter, slowly."""
    job = Job(Program(CARD))
    work, parameters, size = network(CARD, 14_000_000), 28, 2_300_000
    parts = [kernels.pointwise(CARD, op, size) for op in ("scale", "mul", "add", "div", "add")]

    def step(_: int) -> Routine[None]:
        with job.main.range("forward and backward"):
            yield from launch_all(job.main, job.stream, work.forward + work.backward)
        with job.main.range("Optimizer.step#AdamW.step"):
            if cured:
                fused = kernels.fused_adam(CARD, size * parameters)
                yield from launch_all(job.main, job.stream, (fused,), 400_000)
            else:
                yield from launch_all(job.main, job.stream, parts * parameters, 140_000)

    return job.run(22, step)


SAMPLES = (
    Sample(
        "launch_bound",
        "A decoder of kernels shorter than the cost of launching them",
        "launch_bound",
        launch_bound,
        cure="one graph launch per round",
        also=("sync_in_loop", "host_bound"),
        quiet=("input_starvation", "pageable_copy"),
        low_high=True,
    ),
    Sample(
        "launch_gaps",
        "A fifth of every decoding round idle between kernels",
        "launch_bound",
        launch_gaps,
        cure="one graph launch per round",
        also=("sync_in_loop", "host_bound"),
        case="D19",
        low_high=True,
    ),
    Sample(
        "launch_gaps_small_prize",
        "Launch gaps worth five percent",
        "launch_bound",
        small_prize,
        cure="one graph launch per round",
        also=("sync_in_loop", "host_bound"),
        case="D21",
        low_high=True,
    ),
    Sample(
        "graph_inference",
        "Inference that replays a graph, recorded as whole replays",
        None,
        graph_inference,
        quiet=("launch_bound", "host_bound", "sync_in_loop"),
        also=("graph_kernels_hidden",),
    ),
    Sample(
        "graph_nodes",
        "Inference that replays a graph, recorded node by node",
        None,
        graph_nodes,
        quiet=("launch_bound", "host_bound", "sync_in_loop", "graph_kernels_hidden"),
    ),
    Sample(
        "graph_kernels_hidden",
        "Kernels hidden in graphs recorded as whole replays",
        "graph_kernels_hidden",
        hidden_kernels,
        cure="recorded with --cuda-graph-trace=node; nothing gets faster",
        quiet=("launch_bound", "host_bound"),
    ),
    Sample(
        "slow_graph_launch",
        "A graph launch that takes 350 microseconds where 50 are usual",
        "launch_bound",
        slow_graph_launch,
        cure="the launch call takes 50 microseconds; kernels are the same",
        also=("sync_in_loop", "host_bound", "graph_kernels_hidden"),
        case="D24",
        low_high=True,
    ),
    Sample(
        "unfused_optimizer",
        "A hundred and forty optimizer kernels launched slowly",
        "unfused_optimizer",
        unfused_optimizer,
        cure="one fused kernel that passes over parameters, gradients and moments once",
        also=("host_bound", "launch_bound", "unfused_memory_bound_chain", "fp32_memory_traffic"),
        case="D23",
        low_high=True,
    ),
)
