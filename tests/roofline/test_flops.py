"""Operations and bytes from shapes, against figures worked out by hand."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.roofline.flops import (
    Work,
    attention,
    broadcast,
    convolution,
    elementwise,
    embedding,
    gemm,
    layer_norm,
    softmax,
)

SIZES = st.integers(1, 64)


@pytest.mark.parametrize(
    ("work", "flops", "moved"),
    [
        # 2 x 3 x 4 multiply-adds; 8 + 12 + 6 numbers of 4 bytes
        (gemm(2, 3, 4, 4), 48, 104),
        # a bias of 3 is added to each of 6 outputs
        (gemm(2, 3, 4, 4, addend=3), 54, 116),
        (gemm(2, 3, 4, 2, batch=5), 240, 260),
        (gemm(8192, 8192, 8192, 2), 1_099_511_627_776, 402_653_184),
        # 3x3 filters, 2 to 4 channels, 8x8 outputs: 256 outputs x 18 weights x 2
        (convolution([1, 2, 10, 10], [4, 2, 3, 3], [1, 4, 8, 8], 4), 9_216, 2_112),
        # depthwise: each output sees one channel
        (convolution([1, 4, 10, 10], [4, 1, 3, 3], [1, 4, 8, 8], 4, groups=4), 4_608, 2_768),
        # ResNet-50's first layer on one image: 118 M multiply-adds
        (
            convolution([1, 3, 224, 224], [64, 3, 7, 7], [1, 64, 112, 112], 2),
            2 * 118_013_952, 2 * (150_528 + 9_408 + 802_816),
        ),
        # 3 queries, 5 keys, width 2: 15 pairs x 2 products x 2 x 2 operations
        (attention(1, 1, 3, 5, 2, 4), 120, 4 * (2 * 6 + 2 * 10)),
        # causal, square: 1 + 2 + 3 pairs
        (attention(1, 1, 3, 3, 2, 4, causal=True), 48, 96),
        # the last query sees all 5 keys: 3 + 4 + 5 pairs
        (attention(1, 1, 3, 5, 2, 4, causal=True), 96, 128),
        # more queries than keys: the first two see nothing, then 1 + 2 + 3
        (attention(1, 1, 5, 3, 2, 4, causal=True), 48, 128),
        # 8 query heads share 2 key-value heads
        (attention(2, 8, 16, 16, 4, 2, kv_heads=2), 65_536, 2 * 2 * 2 * 4 * (128 + 32)),
        # [4, 3] + [3] reads 12 + 3 numbers and writes 12
        (elementwise([[4, 3], [3]], [4, 4, 4], 1), 12, 108),
        # mask of one byte, result in half precision
        (elementwise([[4, 3], [4, 1]], [4, 1, 2], 2), 24, 76),
        (layer_norm(10, 4, 2), 280, 176),
        (layer_norm(10, 4, 2, affine=False), 200, 160),
        (softmax(10, 4, 4), 200, 320),
        (embedding(10, 4, 2), 0, 240),
    ],
)  # fmt: skip
def test_work(work: Work, flops: int, moved: int) -> None:
    assert (work.flops, work.bytes) == (flops, moved)


def test_channels_must_fit() -> None:
    with pytest.raises(ValueError, match="3 channels, weight for 4"):
        convolution([1, 3, 8, 8], [8, 4, 3, 3], [1, 8, 6, 6], 4)


def test_item_sizes_must_fit() -> None:
    with pytest.raises(ValueError, match="2 item sizes for 2 inputs"):
        elementwise([[2], [2]], [4, 4], 1)


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4), min_size=1, max_size=4))
def test_broadcast_is_numpys(shapes: list[list[int]]) -> None:
    try:
        expected = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast(shapes)
    else:
        assert broadcast(shapes) == expected


@given(SIZES, SIZES, SIZES, st.sampled_from([1, 2, 4, 8]))
def test_a_convolution_of_one_pixel_is_a_product(n: int, c: int, k: int, size: int) -> None:
    point = convolution([n, c, 1, 1], [k, c, 1, 1], [n, k, 1, 1], size)
    assert point == gemm(n, k, c, size)


@given(SIZES, SIZES)
def test_causal_pairs_are_those_of_the_mask(queries: int, keys: int) -> None:
    mask = np.arange(keys)[None, :] <= np.arange(queries)[:, None] + keys - queries
    assert attention(1, 1, queries, keys, 1, 1, causal=True).flops == 4 * mask.sum()


@given(st.lists(SIZES, min_size=1, max_size=3))
def test_nothing_is_read_twice(shape: list[int]) -> None:
    assert elementwise([shape, shape], [2, 2, 2], 1).bytes == 6 * prod(shape)
