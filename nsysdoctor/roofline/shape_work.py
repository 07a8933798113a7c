"""Operations and bytes of an operator from the shapes and types of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from nsysdoctor.roofline.flops import (
    Work,
    attention,
    convolution,
    elementwise,
    embedding,
    gemm,
    layer_norm,
    softmax,
)

TYPE_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "fp8": 1,
    "int16": 2, "float16": 2, "bfloat16": 2, "fp16": 2, "bf16": 2,
    "int32": 4, "float32": 4, "fp32": 4, "tf32": 4,
    "int64": 8, "float64": 8, "fp64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes per element of the types that annotations and kernel names mention."""

_BACKWARD_ATTENTION = 2.5
"""The gradients take five products where the forward pass takes two."""


_LARGEST = 2**60
"""More bytes or operations than this are of shapes that somebody made up."""


class Operand(NamedTuple):
    """A tensor argument: its shape and the bytes of an element."""

    shape: tuple[int, ...]
    itemsize: int

    @property
    def bytes(self) -> int:
        """What reading it once moves."""
        return prod(self.shape) * self.itemsize


class Family(NamedTuple):
    """Operators of one formula, and the categories of the kernels that do their work."""

    work: Callable[[Sequence[Operand], int, Mapping[str, object]], Work | None]
    categories: frozenset[str]
    operators: tuple[str, ...]
    per_kernel: bool = False
    """Whether every kernel of the operator does this much, not all of them together."""


def operator_work(
    operator: str,
    operands: Sequence[Operand],
    out_itemsize: int,
    settings: Mapping[str, object] | None = None,
) -> Work | None:
    """The work of a PyTorch operator; None where its formula is unknown or the shapes misfit.

    `operands` are the tensor arguments in their order, `out_itemsize` the bytes of an element of
    the result, `settings` the parameters that shapes do not show (stride, padding, dilation,
    transposed, is_causal). Bytes are those that must cross the memory bus: each input read once,
    each output written once.
    """
    family = family_of(operator)
    try:
        work = family.work(operands, out_itemsize, settings or {}) if family else None
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
        return None
    sound = work is not None and 0 <= work.flops <= _LARGEST and 0 <= work.bytes <= _LARGEST
    return work if sound else None


def family_of(operator: str) -> Family | None:
    """The formula of an operator, by its name with or without `aten::`; None if there is none."""
    return _BY_NAME.get(operator.removeprefix("aten::"))


def _product(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    """The last two are multiplied, one before them is added; 3 axes mean a batch."""
    left, right = operands[-2], operands[-1]
    if left.shape[-1] != right.shape[-2] or left.shape[:-2] != right.shape[:-2]:
        raise ValueError("inner sizes differ")
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    added = operands[0] if len(operands) > 2 else Operand((0,), out)
    return _mixed(gemm(m, n, k, 1, prod(left.shape[:-2]), prod(added.shape)),
                  [left, right, added], prod(left.shape[:-1]) * n * out)  # fmt: skip


def _linear(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    data, weight = operands[0], operands[1]
    if data.shape[-1] != weight.shape[1]:
        raise ValueError("inner sizes differ")
    rows, added = prod(data.shape[:-1]), operands[2:3]
    flops = gemm(rows, weight.shape[0], weight.shape[1], 1, addend=len(added))
    return _mixed(flops, [data, weight, *added], rows * weight.shape[0] * out)


def _mixed(work: Work, read: Sequence[Operand], written: int) -> Work:
    return Work(work.flops, sum(operand.bytes for operand in read) + written)


def _convolution(
    operands: Sequence[Operand], out: int, settings: Mapping[str, object]
) -> Work | None:
    data, weight = operands[0], operands[1]
    axes = len(data.shape) - 2
    if axes < 1 or len(weight.shape) != axes + 2:
        raise ValueError("no convolution")
    spatial = _spatial(data.shape[2:], weight.shape[2:], settings)
    if spatial is None:
        return None
    if settings.get("transposed"):
        groups = _number(settings.get("groups"), 1)
        result = (data.shape[0], weight.shape[1] * groups, *spatial)
        work = convolution(result, weight.shape, data.shape, 1, groups)
    else:
        result = (data.shape[0], weight.shape[0], *spatial)
        groups = data.shape[1] // weight.shape[1]
        work = convolution(data.shape, weight.shape, result, 1, groups)
    return _mixed(work, operands[:3], prod(result) * out)


def _spatial(
    data: Sequence[int], kernel: Sequence[int], settings: Mapping[str, object]
) -> list[int] | None:
    """The result's size along each axis, None where stride or padding is unknown."""
    axes = len(data)
    stride, padding = (_numbers(settings.get(key), axes) for key in ("stride", "padding"))
    dilation = _numbers(settings.get("dilation", 1), axes)
    if settings.get("padding") in ("valid", "same"):
        same = settings["padding"] == "same"
        return list(data) if same else _strided(data, kernel, stride, [0] * axes, dilation)
    if padding is None or stride is None or dilation is None:
        return None
    if not settings.get("transposed"):
        return _strided(data, kernel, stride, padding, dilation)
    more = _numbers(settings.get("output_padding", 0), axes) or [0] * axes
    rows = zip(data, kernel, stride, padding, dilation, more, strict=True)
    return [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in rows]


def _strided(
    data: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int] | None,
    padding: Sequence[int],
    dilation: Sequence[int] | None,
) -> list[int] | None:
    if stride is None or dilation is None:
        return None
    rows = zip(data, kernel, stride, padding, dilation, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in rows]


def _numbers(value: object, count: int) -> list[int] | None:
    """A number per axis; a single number stands for all axes."""
    if isinstance(value, int):
        return [value] * count
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, int) for item in value):
        return None
    return list(value) * count if len(value) == 1 else list(value) if len(value) == count else None


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _convolution_backward(
    operands: Sequence[Operand], out: int, settings: Mapping[str, object]
) -> Work:
    """Each of its kernels makes one gradient: as many operations as forward, two read, one made."""
    gradient, data, weight = operands[:3]
    if settings.get("transposed"):
        data, gradient = gradient, data
    work = convolution(data.shape, weight.shape, gradient.shape, 1,
                       data.shape[1] // weight.shape[1])  # fmt: skip
    return Work(work.flops, sum(operand.bytes for operand in (gradient, data, weight)))


def _attention(axis: int, first: int, backward: bool) -> Callable[..., Work]:
    """`axis` is that of the heads: 1 for [B, H, S, D], 2 for [B, S, H, D]; Q comes `first`."""

    def work(operands: Sequence[Operand], out: int, settings: Mapping[str, object]) -> Work:
        query, key, value = operands[first : first + 3]
        length = 3 - axis
        batch, heads, width = query.shape[0], query.shape[axis], query.shape[3]
        if key.shape[3] != width or value.shape[length] != key.shape[length]:
            raise ValueError("no attention")
        causal = settings.get("is_causal") is True
        plain = attention(batch, heads, query.shape[length], key.shape[length], width,
                          query.itemsize, causal, key.shape[axis])  # fmt: skip
        if not backward:
            return plain
        # reads Q, K, V, the result and its gradient; writes three gradients
        moved = 2 * (query.bytes + key.bytes + value.bytes) + 2 * query.bytes
        return Work(int(plain.flops * _BACKWARD_ATTENTION), moved)

    return work


def _pointwise(flops: int, inputs: int) -> Callable[..., Work]:
    def work(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
        read = operands[:inputs]
        if not read:
            raise ValueError("no tensor")
        shapes, sizes = [row.shape for row in read], [row.itemsize for row in read]
        return elementwise(shapes, [*sizes, out], flops)

    return work


def _fill(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    return Work(0, operands[0].bytes)


def _copy(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    target, source = operands[:2]
    return Work(0, target.bytes + source.bytes)


def _join(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    return Work(0, 2 * sum(operand.bytes for operand in operands))


def _dropout(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    """Reads the data, writes the result and a mask of one byte per element."""
    data = operands[0]
    return Work(2 * prod(data.shape), 2 * data.bytes + prod(data.shape))


def _layer_norm(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    data, affine = operands[0], operands[1:]
    elements = prod(data.shape)
    if affine and elements % prod(affine[0].shape):
        raise ValueError("the weight does not fit the data")
    moved = data.bytes + elements * out + sum(row.bytes for row in affine)
    return Work(layer_norm(1, elements, 1, affine=bool(affine)).flops, moved)


def _softmax(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    elements = prod(operands[0].shape)
    return Work(softmax(1, elements, 1).flops, operands[0].bytes + elements * out)


def _softmax_backward(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    """Multiply, sum, multiply, subtract; reads the gradient and the result."""
    gradient, result = operands[:2]
    elements = prod(gradient.shape)
    return Work(4 * elements, gradient.bytes + result.bytes + elements * out)


def _embedding(operands: Sequence[Operand], out: int, _: Mapping[str, object]) -> Work:
    table, index = operands[:2]
    if len(table.shape) != 2:
        raise ValueError("no table of rows")
    return embedding(prod(index.shape), table.shape[1], out, index.itemsize)


_MOVERS = frozenset({"elementwise", "copy_cast", "dropout", "memory", "layout", "other"})
_ROWS = frozenset({"norm", "softmax", "reduction", "loss", "other"})
_PRODUCTS = frozenset({"gemm"})

_FAMILIES = (
    Family(_product, _PRODUCTS, ("mm", "addmm", "bmm", "baddbmm")),
    Family(_linear, _PRODUCTS, ("linear",)),
    Family(
        _convolution, frozenset({"conv", "gemm"}),
        ("convolution", "_convolution", "cudnn_convolution", "conv1d", "conv2d", "conv3d",
         "convolution_overrideable", "_conv_depthwise2d", "_slow_conv2d_forward",
         "slow_conv2d_forward"),
    ),
    Family(_convolution_backward, frozenset({"conv", "gemm"}), ("convolution_backward",), True),
    Family(
        _attention(1, 0, False), frozenset({"attention"}),
        ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
         "_cudnn_attention_forward"),
    ),
    Family(
        _attention(2, 0, False), frozenset({"attention"}),
        ("_flash_attention_forward", "_efficient_attention_forward"),
    ),
    Family(
        _attention(1, 1, True), frozenset({"attention"}),
        ("_scaled_dot_product_flash_attention_backward",
         "_scaled_dot_product_efficient_attention_backward",
         "_scaled_dot_product_cudnn_attention_backward", "_cudnn_attention_backward"),
    ),
    Family(
        _attention(2, 1, True), frozenset({"attention"}),
        ("_flash_attention_backward", "_efficient_attention_backward"),
    ),
    Family(
        _pointwise(1, 1), _MOVERS,
        ("relu", "relu_", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
         "tanh", "tanh_", "erf", "sign", "floor", "ceil", "square", "clamp", "clamp_",
         "clamp_min", "clamp_min_", "logical_not", "bitwise_not", "isnan"),
    ),
    Family(_pointwise(4, 1), _MOVERS, ("sigmoid", "sigmoid_", "silu", "silu_")),
    Family(_pointwise(8, 1), _MOVERS, ("gelu", "gelu_")),
    Family(
        _pointwise(1, 2), _MOVERS,
        ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "pow", "pow_", "maximum",
         "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bitwise_and",
         "bitwise_or", "masked_fill", "masked_fill_", "threshold_backward"),
    ),
    Family(_pointwise(3, 2), _MOVERS, ("tanh_backward", "sigmoid_backward", "lerp", "lerp_")),
    Family(_pointwise(6, 2), _MOVERS, ("silu_backward",)),
    Family(_pointwise(12, 2), _MOVERS, ("gelu_backward",)),
    Family(_pointwise(2, 2), _MOVERS, ("native_dropout_backward",)),
    Family(_pointwise(1, 3), _MOVERS, ("where",)),
    Family(_pointwise(2, 3), _MOVERS, ("addcmul", "addcmul_", "addcdiv", "addcdiv_")),
    Family(_fill, _MOVERS, ("fill_", "zero_")),
    Family(_copy, _MOVERS, ("copy_",)),
    Family(_join, _MOVERS, ("cat",)),
    Family(_dropout, _MOVERS, ("native_dropout",)),
    Family(_layer_norm, _ROWS, ("layer_norm", "native_layer_norm")),
    Family(_softmax, _ROWS, ("softmax", "_softmax", "log_softmax", "_log_softmax")),
    Family(
        _softmax_backward, _ROWS, ("_softmax_backward_data", "_log_softmax_backward_data")
    ),
    Family(_embedding, frozenset({"embedding", "memory", "other"}), ("embedding",)),
)  # fmt: skip

_BY_NAME = {operator: family for family in _FAMILIES for operator in family.operators}

COMPARISONS = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "isnan"}
)
"""Operators whose result is one byte per element, whatever they read."""
