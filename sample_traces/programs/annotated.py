"""A training loop recorded with shapes: modules and operators stand in ranges of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from sample_traces import kernels
from sample_traces.cuda import Host
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB
from sample_traces.kernels import BF16
from sample_traces.program import Program
from sample_traces.programs.training import PYTHON_NS, Job
from sample_traces.sample import Sample
from sample_traces.work import Kernel

CARD = A100_80GB
ROWS, WIDTH, LAYERS, STEPS = 8192, 2048, 4, 12
SIZE = ROWS * WIDTH
DATA, ROW = [ROWS, WIDTH], [WIDTH]

Call = tuple[str, Sequence[Sequence[int]], Kernel]
"""An operator, the shapes of its arguments, and the kernel that does it."""


def _bias() -> Kernel:
    """One row added to all rows: the row is read once, so two arrays move instead of three."""
    plain = kernels.strided(CARD, "add", SIZE, BF16)
    moved = 2 * (2 * SIZE + WIDTH)
    return replace(plain, bytes=moved, duration_ns=kernels.memory_ns(CARD, moved, "bias"))


def _layer(cured: bool) -> list[Call]:
    product: Call = ("aten::mm", [DATA, [WIDTH, WIDTH]],
                     kernels.gemm(CARD, "bf16", ROWS, WIDTH, WIDTH))  # fmt: skip
    if cured:
        name = "triton_per_fused_add_mul_native_layer_norm_0"
        fused = kernels.triton(CARD, name, 8 * SIZE)
        return [product, ("Torch-Compiled Region: 0/0", [], fused)]
    norm = replace(kernels.layer_norm(CARD, ROWS, WIDTH, BF16), bytes=4 * SIZE + 4 * WIDTH)
    return [
        product,
        ("aten::add", [DATA, ROW, []], _bias()),
        ("aten::add", [DATA, DATA, []], kernels.pointwise(CARD, "add", SIZE, BF16)),
        ("aten::native_layer_norm", [DATA, [], ROW, ROW, []], norm),
        ("aten::mul", [DATA, DATA], kernels.pointwise(CARD, "mul", SIZE, BF16)),
    ]


def _backward() -> list[Call]:
    """The gradients of the multiplication and of the product."""
    square = [WIDTH, WIDTH]
    by_weight: Call = ("aten::mm", [[WIDTH, ROWS], DATA],
                       kernels.gemm(CARD, "bf16", WIDTH, WIDTH, ROWS))  # fmt: skip
    by_data: Call = ("aten::mm", [DATA, square], kernels.gemm(CARD, "bf16", ROWS, WIDTH, WIDTH))
    scaled: Call = ("aten::mul", [DATA, DATA], kernels.pointwise(CARD, "mul", SIZE, BF16))
    return [scaled, by_weight, by_data]


def _text(operator: str, number: int, op_id: int, shapes: Sequence[Sequence[int]]) -> str:
    """A range's text as `emit_nvtx(record_shapes=True)` writes it."""
    sizes = f", sizes = {[list(shape) for shape in shapes]}" if shapes else ""
    return f"{operator}, seq = {number}, op_id = {op_id}{sizes}"


def annotated_chain(cured: bool) -> Program:
    """Products with a bias, a residual, a layer norm and a scale between them, with shapes."""
    job = Job(Program(CARD))
    numbers, ids = count(1), count(1)
    forward, backward = _layer(cured), _backward()

    def call(host: Host, number: int, one: Call) -> Routine[None]:
        operator, shapes, kernel = one
        yield from host.work(PYTHON_NS)
        with host.range(_text(operator, number, next(ids), shapes)):
            yield from host.launch(job.stream, kernel)

    def gradients(used: Sequence[int]) -> Routine[None]:
        for number in reversed(used):
            node = f"autograd::engine::evaluate_function: MulBackward0, seq = {number}, op_id = 0"
            with job.autograd.range(node):
                for one in backward:
                    yield from call(job.autograd, number, one)

    def step(_: int) -> Routine[None]:
        used = []
        for layer in range(LAYERS):
            with job.main.range(f"module layers.{layer} (Block), sizes = [{DATA}]"):
                for one in forward:
                    number = next(numbers)
                    yield from call(job.main, number, one)
            used.append(number)
        yield from job.backward(gradients(used))

    return job.run(STEPS, step)


SAMPLES = (
    Sample(
        "annotated_chain",
        "Bias, residual, layer norm and scale in four kernels, recorded with shapes",
        "unfused_memory_bound_chain",
        annotated_chain,
        cure="one kernel moves only the chain's outer inputs and outputs",
        quiet=("fp32_memory_traffic", "launch_bound"),
    ),
)
