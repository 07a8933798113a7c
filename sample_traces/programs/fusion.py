"""Programs whose fault is inside the device: unfused chains, wide types, layouts, plain maths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sample_traces import kernels
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, V100_16GB, Card
from sample_traces.kernels import BF16, FLOAT
from sample_traces.program import Program
from sample_traces.programs.training import Job, launch_all
from sample_traces.sample import Sample
from sample_traces.work import Kernel

CARD = A100_80GB
ROWS, WIDTH, HIDDEN = 8192, 2048, 3072
Layer = Sequence[Kernel]


def layers(layer: Layer, count: int, steps: int = 24, card: Card = CARD) -> Program:
    """A program whose steps run one layer many times over."""
    job = Job(Program(card))

    def step(_: int) -> Routine[None]:
        with job.main.range("forward"):
            yield from launch_all(job.main, job.stream, list(layer) * count)

    return job.run(steps, step)


def _product(width: int = WIDTH, card: Card = CARD) -> Kernel:
    return kernels.gemm(card, "bf16", ROWS, width, WIDTH)


def gelu_mul(cured: bool) -> Program:
    """A GELU and a product with the gate, each a trip through memory."""
    size = ROWS * HIDDEN
    plain = [kernels.pointwise(CARD, op, size, BF16) for op in ("gelu", "mul")]
    fused = [kernels.triton(CARD, "triton_poi_fused_gelu_mul_0", 6 * size)]
    return layers([_product(HIDDEN), *(fused if cured else plain)], 14)


def _norm_chain(dtype: str = BF16) -> list[Kernel]:
    size = ROWS * WIDTH
    return [
        kernels.pointwise(CARD, "add", size, dtype),
        kernels.layer_norm(CARD, ROWS, WIDTH, dtype),
        kernels.pointwise(CARD, "mul", size, dtype),
        kernels.pointwise(CARD, "add", size, dtype),
    ]


def unfused_chain(cured: bool) -> Program:
    """Residual, layer norm, scale and shift in four kernels between the products."""
    fused = kernels.triton(CARD, "triton_per_fused_add_mul_native_layer_norm_0", 10 * ROWS * WIDTH)
    return layers([_product(), *([fused] if cured else _norm_chain())], 8)


def fused_chain(_: bool) -> Program:
    """The same network compiled: generated kernels between the products."""
    return unfused_chain(True)


def separated_kernels(_: bool) -> Program:
    """The kernels of the chain with a product between each two."""
    layer = [part for kernel in _norm_chain() for part in (_product(), kernel)]
    return layers(layer, 5)


def kernels_on_streams(_: bool) -> Program:
    """The kernels of the chain, each on a stream of its own and for data of its own."""
    job = Job(Program(CARD))
    streams = [job.process.side_stream() for _ in range(4)]

    def step(_: int) -> Routine[None]:
        for _ in range(8):
            for stream, kernel in zip(streams, _norm_chain(), strict=True):
                yield from launch_all(job.main, stream, (kernel, _product()))

    return job.run(20, step)


def _attention(kind: str, dtype: str) -> list[Kernel]:
    """Scores, scale, mask, softmax, dropout and the product with the values."""
    heads, length, width = 64, 1024, 64
    count = heads * length * length
    return [
        kernels.gemm(CARD, kind, length, length, width, heads),
        kernels.pointwise(CARD, "scale", count, dtype),
        kernels.masked_fill(CARD, count),
        kernels.softmax(CARD, heads * length, length, dtype),
        kernels.dropout(CARD, count),
        kernels.gemm(CARD, kind, length, width, length, heads),
    ]


def _fused_attention() -> Kernel:
    operations = 4.0 * 64 * 1024 * 1024 * 64
    return kernels.flash_forward(kernels.maths_ns(CARD, operations, "half", 0.5), 512)


def unfused_attention(cured: bool) -> Program:
    """Attention in six kernels that write and read the matrix of scores."""
    attention = [_fused_attention()] if cured else _attention("bf16", FLOAT)
    return layers([_product(HIDDEN), *attention, _product()], 5)


def attention_fallback(cured: bool) -> Program:
    """Attention that an explicit mask sent to the plain maths in FP32."""
    attention = [_fused_attention()] if cured else _attention("sgemm", FLOAT)
    return layers([_product(HIDDEN), *attention, _product()], 4)


def fused_attention(_: bool) -> Program:
    """Attention in one kernel."""
    return unfused_attention(True)


def fp32_traffic(cured: bool) -> Program:
    """Layer norms and activations that move FP32 between products in BF16."""
    dtype = BF16 if cured else FLOAT
    norm = kernels.layer_norm(CARD, ROWS, WIDTH, dtype)
    active = kernels.pointwise(CARD, "gelu", ROWS * HIDDEN, dtype)
    return layers([_product(HIDDEN), active, _product(), norm], 8)


def fp32_gemm(cured: bool) -> Program:
    """Products in FP32 on a card that has TF32."""
    return _products(CARD, "tf32" if cured else "sgemm")


def _products(card: Card, kind: str) -> Program:
    dense = kernels.gemm(card, kind, 4096, 2048, 2048)
    other = kernels.gemm(card, "fp16", 16_384, 4096, 2048)
    return layers([dense, dense, other], 8, card=card)


def fp32_gemm_volta(_: bool) -> Program:
    """The same products on a card without TF32."""
    return _products(V100_16GB, "sgemm")


def tf32_gemm(_: bool) -> Program:
    """The same products with TF32."""
    return _products(CARD, "tf32")


def _transform(name: str, count: int) -> Kernel:
    full = (
        f"void cudnn::ops::{name}<__half, __half, float, (bool)0, (bool)1,"
        " (cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t<T3>, const T1 *, T2 *)"
    )
    moved = 4 * count
    grid = (-(-count // 8192), 1, 1)
    return Kernel(
        full,
        kernels.memory_ns(CARD, moved, name),
        grid,
        (256, 1, 1),
        registers=34,
        static_shared=4224,
        bytes=moved,
    )


def _convolutions(count: int, *, channels_last: bool, convolution_ns: int) -> Program:
    before = _transform("nchwToNhwcKernel", count)
    behind = _transform("nhwcToNchwKernel", count)
    name = kernels.CONVOLUTIONS["fprop"].replace("tf32f32_tf32f32_f32", "f16f16_f16f32_f32")
    work = Kernel(
        name.replace("nhwckrsc_nchw", "nhwckrsc_nhwc"), convolution_ns, (864, 1, 1), registers=220
    )
    return layers([work] if channels_last else [before, work, behind], 14)


def layout_transform(cured: bool) -> Program:
    """Convolutions with a change of layout before and behind each, a third of the time."""
    return _convolutions(100_000_000, channels_last=cured, convolution_ns=1_050_000)


def rare_layout_transform(_: bool) -> Program:
    """The same changes of layout at one percent of the time."""
    return _convolutions(8_000_000, channels_last=False, convolution_ns=3_600_000)


def layout_copies(cured: bool) -> Program:
    """Queries, keys and values made contiguous before attention, and its output behind it."""
    copy = [kernels.strided(CARD, "copy", ROWS * WIDTH * 2, BF16)]
    attention = [kernels.flash_forward(600_000, 1024)]
    layer = attention if cured else [*copy * 3, *attention, *copy]
    return layers([_product(HIDDEN), *layer, _product()], 6)


def slow_pointwise(_: bool) -> Program:
    """Additions in a row, each twenty times slower than memory would allow."""
    add = kernels.pointwise(CARD, "add", ROWS * WIDTH // 4, BF16)
    slow = replace(add, duration_ns=20 * add.duration_ns)
    return layers([_product(), *[slow] * 4], 8)


FUSED = "one kernel moves only the chain's outer inputs and outputs"

SAMPLES = (
    Sample(
        "unfused_chain",
        "Residual, layer norm, scale and shift in four kernels",
        "unfused_memory_bound_chain",
        unfused_chain,
        cure=FUSED,
        quiet=("fp32_memory_traffic", "launch_bound", "unfused_attention"),
        case="D32",
    ),
    Sample(
        "gelu_mul",
        "A GELU and a product in two kernels",
        "unfused_memory_bound_chain",
        gelu_mul,
        cure=FUSED,
        quiet=("fp32_memory_traffic", "launch_bound", "unfused_attention"),
        case="D31",
    ),
    Sample(
        "fused_chain",
        "The same network compiled",
        None,
        fused_chain,
        quiet=("unfused_memory_bound_chain",),
        case="D31",
    ),
    Sample(
        "separated_kernels",
        "Memory-bound kernels with a product between each two",
        None,
        separated_kernels,
        quiet=("unfused_memory_bound_chain",),
        case="D32",
    ),
    Sample(
        "kernels_on_streams",
        "Memory-bound kernels on streams of their own",
        None,
        kernels_on_streams,
        quiet=("unfused_memory_bound_chain",),
        case="D32",
    ),
    Sample(
        "unfused_attention",
        "Attention in six kernels",
        "unfused_attention",
        unfused_attention,
        cure="one fused attention kernel",
        also=("unfused_memory_bound_chain", "fp32_memory_traffic"),
        quiet=("fp32_gemm",),
        case="D33",
        low_high=True,
    ),
    Sample(
        "attention_fallback",
        "Attention in plain FP32 maths because of a mask",
        "unfused_attention",
        attention_fallback,
        cure="one fused attention kernel",
        also=("unfused_memory_bound_chain", "fp32_memory_traffic", "fp32_gemm"),
        case="D33",
        low_high=True,
    ),
    Sample(
        "fused_attention",
        "Attention in one kernel",
        None,
        fused_attention,
        quiet=("unfused_attention", "unfused_memory_bound_chain"),
        case="D33",
    ),
    Sample(
        "fp32_memory_traffic",
        "Layer norms and activations in FP32 between products in BF16",
        "fp32_memory_traffic",
        fp32_traffic,
        cure="the same kernels on BF16 storage: half the bytes, half the time",
        quiet=("unfused_memory_bound_chain", "fp32_gemm"),
    ),
    Sample(
        "fp32_gemm",
        "Products in FP32 on a card with TF32",
        "fp32_gemm",
        fp32_gemm,
        cure="the same products with TF32 on tensor cores",
        quiet=("fp32_memory_traffic", "unfused_attention"),
        case="D34",
        low_high=True,
    ),
    Sample(
        "fp32_gemm_volta",
        "Products in FP32 on a card without TF32",
        None,
        fp32_gemm_volta,
        quiet=("fp32_gemm",),
        case="D34",
    ),
    Sample(
        "tf32_gemm",
        "Products with TF32",
        None,
        tf32_gemm,
        quiet=("fp32_gemm",),
        case="D34",
    ),
    Sample(
        "layout_transform",
        "A change of layout before and behind each convolution",
        "layout_transform",
        layout_transform,
        cure="the convolutions run in the layout they like; the changes are gone",
        quiet=("unfused_memory_bound_chain", "fp32_memory_traffic"),
        case="D35",
    ),
    Sample(
        "rare_layout_transform",
        "Changes of layout at one percent of the time",
        None,
        rare_layout_transform,
        quiet=("layout_transform",),
        case="D35",
    ),
    Sample(
        "layout_copies",
        "Four strided copies around each attention",
        "layout_copy",
        layout_copies,
        cure="attention reads and writes strides; the copies are gone",
        quiet=("unfused_memory_bound_chain", "fp32_memory_traffic"),
    ),
    Sample(
        "slow_pointwise",
        "Additions in a row that are far from the memory roof",
        None,
        slow_pointwise,
        quiet=("unfused_memory_bound_chain", "fp32_memory_traffic"),
    ),
)
