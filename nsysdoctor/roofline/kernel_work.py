"""Reads from a kernel's name what it computes, in a word, and how much of its traffic it writes."""

from __future__ import annotations

import re
from typing import NamedTuple

from nsysdoctor.roofline.launch_geometry import (
    ITEMSIZES,
    itemsizes,
    layout_of,
    plain,
    template_arguments,
)

_FUNCTORS = (
    (r"CUDAFunctor(?:OnSelf|OnOther)?_add|\bplus<|std::plus", "add"),
    (r"direct_copy_kernel|float16_copy|copy_device_to_device|copy_kernel", "copy"),
    (r"masked_fill", "masked_fill"),
    (r"FillFunctor|fill_kernel", "fill"),
    (r"addcmul", "addcmul"),
    (r"addcdiv", "addcdiv"),
    (r"MulFunctor|multiplies<", "mul"),
    (r"DivFunctor|divides<", "div"),
    (r"MinusFunctor|minus<", "sub"),
    (r"[Gg]elu", "gelu"),
    (r"pow_tensor|pow_kernel", "pow"),
    (r"launch_clamp_scalar", "relu"),
    (r"where_kernel", "where"),
    (r"threshold_kernel", "relu_backward"),
    (r"LerpFunctor|lerp_", "lerp"),
    (r"MaxOps|MaxNanFunctor", "max"),
    (r"MeanOps|MeanFunctor", "mean"),
    (r"MinOps", "min"),
    (r"WelfordOps", "var_mean"),
    (r"NormTwoOps|LpNorm", "norm"),
    (r"sum_functor", "sum"),
    (r"\b(\w+?)_kernel_cuda\b", ""),
    (r"\b(\w+?)_kernel_impl\b", ""),
    (r"(?:::|\b)(\w+?)_kernel(?:_\w+)?\(at::TensorIterator", ""),
    (r"UnaryOp\w*Functor<[^>]*>, at::native::(\w+)<", ""),
    (r"\b([A-Z]\w+?)Functor", ""),
)
_KERNELS = (
    (r"layer_?norm\w*(?:grad|bwd|backward)|GammaBetaBackward", "layer_norm_backward"),
    (r"layer_?norm|LayerNorm", "layer_norm"),
    (r"rms_?norm|RMSNorm", "rms_norm"),
    (r"batch_?norm\w*backward|bn_bw", "batch_norm_backward"),
    (r"batch_?norm|bn_fw", "batch_norm"),
    (r"(?i)soft_?max\w*(?:backward|bw|back)", "softmax_backward"),
    (r"(?i)soft_?max", "softmax"),
    (r"masked_scale", "dropout_backward"),
    (r"dropout", "dropout"),
    (r"CatArray", "cat"),
    (r"nchwToNhwc", "nchw_to_nhwc"),
    (r"nhwcToNchw", "nhwc_to_nchw"),
)  # fmt: skip
_GENERIC = re.compile(r"elementwise_kernel|^reduce_kernel|^multi_tensor_apply|^kernel\d*$")
_WRITTEN = {
    "norm": 0.5, "softmax": 0.5, "dropout": 0.5, "copy_cast": 0.5, "elementwise": 0.4,
    "layout": 0.5, "memory": 1.0, "reduction": 0.0, "optimizer": 0.4, "embedding": 0.5,
}  # fmt: skip
"""The usual share of writes in a family's traffic: norms read and write once, sums read only."""


class Writes(NamedTuple):
    """The part of a kernel's traffic that it writes.

    `ratio` is the written share of its bytes. Where `out_bytes` > 0, the kernel writes blocks x
    threads x `per_thread` elements of that size instead, since its inputs may be broadcast.
    """

    ratio: float
    per_thread: int = 0
    out_bytes: int = 0


def operation_of(full: str, short: str, category: str = "") -> str:
    """Returns a word for what a kernel computes: add, gelu, layer_norm, softmax, ...

    Generic kernels are named after their functor, others after themselves.
    """
    if not _GENERIC.search(short):
        named = next((word for pattern, word in _KERNELS if re.search(pattern, short)), None)
        return named or short
    for pattern, word in _FUNCTORS:
        hit = re.search(pattern, full)
        if hit:
            found = word or _bare(hit.group(1))
            backward = "ackward" in full and "ackward" not in found
            return f"{found}_backward" if backward else found
    return category or short


def _bare(name: str) -> str:
    return re.sub(r"^launch_|_cuda$|_kernel$", "", name).lower()


def is_log_softmax(full: str) -> bool:
    """Returns whether a softmax kernel computes logarithms. Losses do this, attention never
    does."""
    if "LogSoftMax" in full or "log_softmax" in full.lower():
        return True
    arguments = template_arguments(
        plain(full), "softmax_warp_backward" if "warp_backward" in full else "softmax_warp_forward"
    )
    return len(arguments) > 4 and arguments[4] in ("1", "true")


def writes_of(full: str, category: str) -> Writes:
    """Returns which part of a kernel's traffic it writes, from its name."""
    text, usual = plain(full), Writes(_WRITTEN.get(category, 0.4))
    if "multi_tensor_apply_kernel<" in text:
        layout = layout_of(full)
        item = next((s for n, s in ITEMSIZES.items() if f"<{n}," in text), 4)
        return Writes(item / layout.bytes_per_element[0]) if layout else usual
    if "softmax_warp_" in text:
        return Writes(1 / 3 if "backward" in text else 0.5)
    arguments = template_arguments(text, "vectorized_elementwise_kernel")
    if len(arguments) > 1 and (sizes := itemsizes(arguments[1])):
        return Writes(sizes[0] / sum(sizes))
    return _strided_writes(full, text) or usual


def _strided_writes(full: str, text: str) -> Writes | None:
    """Kernels whose inputs may be broadcast: the result has one element per slot."""
    layout = layout_of(full)
    if layout is None or layout.per_thread <= 0:
        return None
    functors = template_arguments(text, "unrolled_elementwise_kernel")[:1]
    strided = template_arguments(text, "elementwise_kernel")
    for wrapper in ("gpu_kernel_impl_nocast", "gpu_kernel_impl"):
        if len(strided) > 2:
            functors += template_arguments(strided[2], wrapper)[:1]
    sizes = next((found for functor in functors if (found := itemsizes(functor))), None)
    return Writes(0.4, layout.per_thread, sizes[0]) if sizes else None
