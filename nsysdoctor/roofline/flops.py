"""Operations and bytes of an operation whose shapes are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Shape = Sequence[int]


@dataclass(frozen=True)
class Work:
    """Operations (a multiply-add counts two) and bytes that must cross the memory bus once."""

    flops: int
    bytes: int


def gemm(m: int, n: int, k: int, itemsize: int, batch: int = 1, addend: int = 0) -> Work:
    """Work of `batch` products [m, k] x [k, n]; `addend` is the size of an operand added to them.

    A bias vector is an addend of n elements, a full matrix one of m x n.
    """
    moved = batch * (m * k + k * n + m * n) + addend
    return Work(batch * (2 * m * n * k + (m * n if addend else 0)), moved * itemsize)


def convolution(data: Shape, weight: Shape, output: Shape, itemsize: int, groups: int = 1) -> Work:
    """Work of a convolution: data [N, C, *], weight [K, C / groups, *], output [N, K, *].

    Each output element takes one multiply-add per weight of its output channel; the gradients
    for data and weight take as many each. Transposed convolutions swap data and output.
    """
    if data[1] != weight[1] * groups:
        raise ValueError(f"{data[1]} channels, weight for {weight[1] * groups}")
    flops = 2 * prod(output) * prod(weight[1:])
    return Work(flops, (prod(data) + prod(weight) + prod(output)) * itemsize)


def attention(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    itemsize: int,
    causal: bool = False,
    kv_heads: int | None = None,
) -> Work:
    """Work of fused attention: two products per (query, key) pair, Q K V read and O written.

    `causal` counts only the pairs that are used, the last query seeing every key. Softmax is
    left out, as it is by convention; the backward pass takes 2.5 times the operations.
    """
    pairs = _causal_pairs(queries, keys) if causal else queries * keys
    kept = heads if kv_heads is None else kv_heads
    moved = 2 * batch * head_dim * (heads * queries + kept * keys)
    return Work(4 * batch * heads * pairs * head_dim, moved * itemsize)


def _causal_pairs(queries: int, keys: int) -> int:
    """Query i sees keys - queries + i + 1 keys, none if that is negative."""
    hidden = max(queries - keys, 0)
    rows = queries - hidden
    first = max(keys - queries, 0) + 1
    return rows * first + rows * (rows - 1) // 2


def broadcast(shapes: Sequence[Shape]) -> tuple[int, ...]:
    """The common shape of operands: trailing axes are aligned, an axis of 1 stretches."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes do not broadcast: {list(map(list, shapes))}")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def elementwise(shapes: Sequence[Shape], itemsizes: Sequence[int], flops_per_element: int) -> Work:
    """Work of a pointwise kernel; `itemsizes` has one entry per input and one for the output.

    A broadcast input is read once, not once per use: its own size counts.
    """
    if len(itemsizes) != len(shapes) + 1:
        raise ValueError(f"{len(itemsizes)} item sizes for {len(shapes)} inputs and an output")
    elements = prod(broadcast(shapes))
    read = sum(prod(shape) * size for shape, size in zip(shapes, itemsizes, strict=False))
    return Work(elements * flops_per_element, read + elements * itemsizes[-1])


def layer_norm(rows: int, columns: int, itemsize: int, affine: bool = True) -> Work:
    """Work of layer normalisation in one pass over the data.

    Per element: sum, subtract, square, sum, scale = 5, with an affine part 2 more.
    """
    flops = rows * columns * (7 if affine else 5)
    return Work(flops, (2 * rows * columns + (2 * columns if affine else 0)) * itemsize)


def softmax(rows: int, columns: int, itemsize: int) -> Work:
    """Work of softmax in one pass: per element maximum, subtract, exponential, sum, divide."""
    return Work(5 * rows * columns, 2 * rows * columns * itemsize)


def embedding(indices: int, width: int, itemsize: int, index_itemsize: int = 8) -> Work:
    """Work of a look-up: every index reads one row and writes it; nothing is computed."""
    return Work(0, indices * (2 * width * itemsize + index_itemsize))
