"""Kernels as frameworks launch them: names as exports spell them, geometry that fits the work.

A memory-bound kernel lasts as long as its bytes take at 85 to 92 % of the card's bandwidth; a
matrix product as long as its operations take at a usual share of the arithmetic peak.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from sample_traces.hardware import Card
from sample_traces.work import WHOLE_DEVICE, Collective, Kernel

FLOAT, HALF, BF16 = "float", "c10::Half", "c10::BFloat16"
ITEM_BYTES: Mapping[str, int] = {FLOAT: 4, HALF: 2, BF16: 2, "long": 8, "bool": 1}
FLOOR_NS = 1_250  # the shortest kernel
BLOCK = 128
ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
)

# Arithmetic operations per SM and clock, by compute capability and kind of maths.
PER_CLOCK: Mapping[tuple[int, int], Mapping[str, int]] = {
    (7, 0): {"fp32": 128, "half": 1024},
    (8, 0): {"fp32": 128, "tf32": 1024, "half": 2048},
    (8, 6): {"fp32": 256, "tf32": 256, "half": 512},
    (9, 0): {"fp32": 256, "tf32": 2048, "half": 4096},
}

_LAMBDA = "::[lambda() (instance {i})]::operator ()() const::[lambda() (instance {j})]"
_BODY = _LAMBDA + "::operator ()() const::[lambda({t}) (instance 1)]"
_BINARY = "at::native::BinaryFunctor<{t}, {t}, {t}, at::native::binary_internal::{f}<float>>"
_UNARY = "at::native::BUnaryFunctor<{t}, {t}, {t}, at::native::binary_internal::{f}<float>>"
_ITERATOR = "(at::TensorIteratorBase &"

# Functor of each pointwise operation and the number of arrays it reads and writes.
POINTWISE: Mapping[str, tuple[str, int]] = {
    "add": ("at::native::CUDAFunctor_add<{t}>", 3),
    "mul": (_BINARY.replace("{f}", "MulFunctor"), 3),
    "div": (_BINARY.replace("{f}", "DivFunctor"), 3),
    "scale": (_UNARY.replace("{f}", "MulFunctor"), 2),
    "copy": (
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]"
        "::operator ()() const::[lambda() (instance 12)]::operator ()() const::[lambda({t})"
        " (instance 1)]",
        2,
    ),
    "fill": ("at::native::FillFunctor<{t}>", 1),
    "gelu": (f"at::native::GeluCUDAKernelImpl{_ITERATOR}, at::native::GeluType){_BODY}", 2),
    "sigmoid": (f"at::native::sigmoid_kernel_cuda{_ITERATOR}){_BODY}", 2),
    "tanh": (f"at::native::tanh_kernel_cuda{_ITERATOR}){_BODY}", 2),
    "exp": (f"at::native::exp_kernel_cuda{_ITERATOR}){_BODY}", 2),
    "rsqrt": (f"at::native::rsqrt_kernel_cuda{_ITERATOR}){_BODY}", 2),
    "silu": (f"at::native::<unnamed>::silu_kernel{_ITERATOR}){_BODY}", 2),
    "relu": (
        f"at::native::<unnamed>::launch_clamp_scalar{_ITERATOR}, c10::Scalar, c10::Scalar,"
        f" at::native::detail::ClampLimits){_BODY}",
        2,
    ),
    "threshold_backward": (
        f"at::native::<unnamed>::threshold_kernel_impl<{{t}}>{_ITERATOR}, T1, T1)"
        "::[lambda({t}, {t}) (instance 1)]",
        3,
    ),
}


def efficiency(label: str) -> float:
    """Share of the bandwidth that a memory-bound kernel reaches: fixed per kind, 0.85 to 0.92."""
    return 0.85 + 0.07 * (zlib.crc32(label.encode()) % 1000) / 999


def memory_ns(card: Card, moved: int, label: str) -> int:
    """Time of a kernel that only moves bytes."""
    return max(FLOOR_NS, round(moved / (card.bandwidth * efficiency(label)) * 1e9))


def maths_ns(card: Card, operations: float, kind: str, share: float) -> int:
    """Time of a kernel that only computes."""
    peak = card.sm_count * card.clock * PER_CLOCK[card.compute][kind]
    return max(FLOOR_NS, round(operations / (peak * share) * 1e9))


def _functor(op: str, dtype: str) -> str:
    functor, _ = POINTWISE[op]
    place = {FLOAT: ("2", "2"), BF16: ("1", "4"), HALF: ("2", "3")}.get(dtype, ("1", "1"))
    return functor.replace("{t}", dtype).replace("{i}", place[0]).replace("{j}", place[1])


def pointwise(card: Card, op: str, count: int, dtype: str = FLOAT) -> Kernel:
    """A contiguous pointwise kernel: 16 bytes per thread and array, up to 8 elements."""
    item = ITEM_BYTES[dtype]
    per_thread = min(8, max(2, 16 // item))
    arrays = POINTWISE[op][1]
    name = (
        f"void at::native::vectorized_elementwise_kernel<(int){per_thread}, {_functor(op, dtype)},"
        f" std::array<char *, (unsigned long){arrays}>>(int, T2, T3)"
    )
    moved = arrays * item * count
    return Kernel(
        name,
        memory_ns(card, moved, op),
        grid=(-(-count // (BLOCK * per_thread)), 1, 1),
        block=(BLOCK, 1, 1),
        registers=16 + 2 * arrays,
        bytes=moved,
    )


def strided(card: Card, op: str, count: int, dtype: str = FLOAT) -> Kernel:
    """A pointwise kernel over non-contiguous tensors."""
    item, arrays = ITEM_BYTES[dtype], POINTWISE[op][1]
    per_thread = 2 if item >= 4 else 4
    name = (
        f"void at::native::elementwise_kernel<(int)128, (int){per_thread},"
        f" void at::native::gpu_kernel_impl_nocast<{_functor(op, dtype)}>(at::TensorIteratorBase &,"
        " const T1 &)::[lambda(int) (instance 1)]>(int, T3)"
    )
    moved = arrays * item * count
    grid = (-(-count // (BLOCK * per_thread)), 1, 1)
    return Kernel(name, memory_ns(card, moved, op), grid, (BLOCK, 1, 1), registers=19, bytes=moved)


def cast_to_bf16(card: Card, count: int) -> Kernel:
    """A conversion of FP32 into BF16: six bytes per element."""
    name = (
        "void at::native::vectorized_elementwise_kernel<(int)8,"
        " at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float)"
        " (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)"
    )
    grid = (-(-count // (BLOCK * 8)), 1, 1)
    return Kernel(name, memory_ns(card, 6 * count, "cast"), grid, registers=22, bytes=6 * count)


def layer_norm(card: Card, rows: int, width: int, dtype: str = FLOAT) -> Kernel:
    """A layer norm: one block per row, reads and writes each element once."""
    name = (
        f"void at::native::<unnamed>::vectorized_layer_norm_kernel<{dtype}, float, (bool)0>(int,"
        " T2, const T1 *, const T1 *, const T1 *, T2 *, T2 *, T1 *)"
    )
    moved = 2 * ITEM_BYTES[dtype] * rows * width
    return Kernel(
        name,
        memory_ns(card, moved, "layer_norm"),
        (rows, 1, 1),
        (32, 4, 1),
        registers=40,
        static_shared=48,
        bytes=moved,
    )


def softmax(card: Card, rows: int, width: int, dtype: str = FLOAT) -> Kernel:
    """A softmax over rows of up to 1024 elements: one warp per row, four rows per block."""
    log2 = (width - 1).bit_length()
    name = (
        f"void <unnamed>::softmax_warp_forward<{dtype}, {dtype}, float, (int){log2}, (bool)0,"
        " (bool)0>(T2 *, const T1 *, int, int, int, const bool *, int, bool)"
    )
    moved = 2 * ITEM_BYTES[dtype] * rows * width
    duration = memory_ns(card, moved, "softmax")
    return Kernel(name, duration, (-(-rows // 4), 1, 1), (32, 4, 1), registers=40, bytes=moved)


def masked_fill(card: Card, count: int) -> Kernel:
    """A masked fill of FP32 scores: reads scores and a byte mask, writes scores."""
    name = (
        "void at::native::elementwise_kernel<(int)128, (int)2,"
        " void at::native::gpu_kernel_impl_nocast<at::native::<unnamed>::masked_fill_kernel("
        "at::TensorIterator &, const c10::Scalar &)::[lambda() (instance 1)]::operator ()() const::"
        "[lambda() (instance 7)]::operator ()() const::[lambda(float, bool) (instance 1)]>("
        "at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)"
    )
    grid = (-(-count // (BLOCK * 2)), 1, 1)
    return Kernel(
        name, memory_ns(card, 9 * count, "masked_fill"), grid, registers=18, bytes=9 * count
    )


def dropout(card: Card, count: int) -> Kernel:
    """A dropout of FP32 values: reads and writes them and writes a byte mask."""
    name = (
        "void at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int, (int)1,"
        " (int)4, bool>(at::cuda::detail::TensorInfo<const T1, T3>, at::cuda::detail::TensorInfo<"
        "T1, T3>, at::cuda::detail::TensorInfo<T6, T3>, T3, T2, at::PhiloxCudaState)"
    )
    grid = (min(8 * card.sm_count, -(-count // 1024)), 1, 1)
    duration = memory_ns(card, 9 * count, "dropout")
    return Kernel(name, duration, grid, (256, 1, 1), registers=36, bytes=9 * count)


def reduction(card: Card, count: int, dtype: str = FLOAT) -> Kernel:
    """A sum over all elements."""
    functor = (
        f"at::native::func_wrapper_t<{dtype}, at::native::sum_functor<{dtype}, float, {dtype}>"
        "::operator ()(at::TensorIterator &)::[lambda(float, float) (instance 1)]>"
    )
    name = (
        f"void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<{dtype}, {functor},"
        f" unsigned int, {dtype}, (int)4, (int)4>>(T3)"
    )
    moved = ITEM_BYTES[dtype] * count
    grid = (1, max(1, min(2 * card.sm_count, count // 65_536)), 1)
    duration = memory_ns(card, moved, "reduction")
    return Kernel(name, duration, grid, (512, 1, 1), registers=32, static_shared=16, bytes=moved)


def triton(card: Card, name: str, moved: int) -> Kernel:
    """A generated kernel that moves its outer inputs and outputs only."""
    grid = (max(1, moved // 8192), 1, 1)
    return Kernel(
        name, memory_ns(card, moved, "triton"), grid, (128, 1, 1), registers=24, bytes=moved
    )


_GEMMS: Mapping[str, tuple[str, str, tuple[int, int], float]] = {
    "sgemm": ("{arch}_sgemm_128x64_tn", "fp32", (128, 64), 0.80),
    "tf32": (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_warpsize2x2x1"
        "_tensor16x8x8_kernel",
        "tf32",
        (128, 128),
        0.55,
    ),
    "bf16": (
        "{arch}_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "half",
        (128, 128),
        0.62,
    ),
    "fp16": (
        "{arch}_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        "half",
        (128, 128),
        0.62,
    ),
}


def gemm(card: Card, kind: str, m: int, n: int, k: int, batch: int = 1) -> Kernel:
    """A matrix product of m×k by k×n, once or in a batch."""
    name, maths, tile, share = _GEMMS[kind]
    arch = "volta" if card.compute[0] == 7 else "ampere"
    grid = (-(-m // tile[0]), -(-n // tile[1]), batch)
    return Kernel(
        name.replace("{arch}", arch),
        maths_ns(card, 2.0 * m * n * k * batch, maths, share),
        grid,
        (128, 1, 1),
        registers=122 if kind == "sgemm" else 230,
        dynamic_shared=0 if kind == "sgemm" else 81_920,
        bytes=(2 if maths == "half" else 4) * batch * (m * k + k * n + m * n),
    )


CONVOLUTIONS: Mapping[str, str] = {
    "fprop": (
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4"
        "_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn"
    ),
    "dgrad": (
        "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4"
        "_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn"
    ),
    "wgrad": (
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x32"
        "_stage3_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn"
    ),
}


def convolution(kind: str, duration_ns: int, blocks: int = 432) -> Kernel:
    """A convolution on tensor cores: forward, data gradient or weight gradient."""
    return Kernel(
        CONVOLUTIONS[kind],
        duration_ns,
        (blocks, 1, 1),
        (128, 1, 1),
        registers=236,
        dynamic_shared=98_304,
    )


def all_reduce(
    key: str,
    ranks: int,
    duration_ns: int,
    name: str = ALL_REDUCE,
) -> Kernel:
    """A collective: ends on all ranks together, the given time after the last one came."""
    return Kernel(
        name,
        duration_ns,
        (24, 1, 1),
        (544, 1, 1),
        registers=96,
        static_shared=82_240,
        share=WHOLE_DEVICE // 10,
        collective=Collective(key, ranks),
    )


_FLASH = (
    "<(int)64, (int)128, (int)128, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t,"
    " pytorch_flash::Flash_kernel_traits<(int)64, (int)128, (int)128, (int)4, cutlass::bfloat16_t>>"
)


def flash_forward(duration_ns: int, blocks: int) -> Kernel:
    """One fused attention kernel."""
    name = (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits"
        f"{_FLASH}, (bool)0, (bool)1, (bool)0, (bool)0, (bool)1, (bool)1, (bool)0>("
        "pytorch_flash::Flash_fwd_params)"
    )
    grid = (max(1, blocks // 16), 16, 1)
    return Kernel(name, duration_ns, grid, (128, 1, 1), registers=255, dynamic_shared=49_152)


def flash_backward(duration_ns: int, blocks: int) -> Kernel:
    """The gradient of one fused attention kernel."""
    name = (
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<"
        f"pytorch_flash::Flash_bwd_kernel_traits{_FLASH}, (bool)0, (bool)1, (bool)0, (bool)0,"
        " (bool)1, (bool)1>(pytorch_flash::Flash_bwd_params)"
    )
    grid = (max(1, blocks // 16), 16, 1)
    return Kernel(name, duration_ns, grid, (256, 1, 1), registers=255, dynamic_shared=147_456)


def fused_adam(card: Card, parameters: int) -> Kernel:
    """One pass of a fused Adam over FP32 parameters, gradients and both moments."""
    name = (
        "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::"
        "FusedOptimizerTensorListMetadata<(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<"
        "float, (int)4, (at::native::ADAM_MODE)1, (bool)0>, const float *, double, double, double,"
        " double, double, bool, bool, const float *, const float *>(T1, T2, T3...)"
    )
    moved = 28 * parameters  # reads four arrays and writes three
    grid = (max(1, min(320, parameters // 65_536)), 1, 1)
    duration = memory_ns(card, moved, "multi_tensor")
    return Kernel(name, duration, grid, (512, 1, 1), registers=64, bytes=moved)
