"""Interval algebra against a brute-force bitmap."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.arrays import intervals as iv
from nsysdoctor.arrays.intervals import Spans, spans

SIZE = 40


@st.composite
def some_spans(draw: st.DrawFn) -> Spans:
    pairs = draw(
        st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)
    )
    return spans([min(p) for p in pairs], [max(p) for p in pairs])


def bitmap(these: Spans) -> np.ndarray:
    bits = np.zeros(SIZE, dtype=bool)
    for low, high in zip(*these, strict=True):
        bits[max(low, 0) : max(high, 0)] = True
    return bits


def is_merged(these: Spans) -> bool:
    return bool((these.end > these.start).all() and (these.start[1:] > these.end[:-1]).all())


@given(some_spans())
def test_union_covers_the_same_and_is_merged(a: Spans) -> None:
    merged = iv.union(a)
    assert is_merged(merged)
    assert (bitmap(merged) == bitmap(a)).all()
    assert merged.total_ns == bitmap(a).sum()


@given(some_spans(), st.integers(0, SIZE), st.integers(0, SIZE))
def test_gaps_are_the_complement(a: Spans, x: int, y: int) -> None:
    low, high = min(x, y), max(x, y)
    holes = iv.gaps(a, low, high)
    expected = ~bitmap(a)
    expected[:low] = False
    expected[high:] = False
    assert is_merged(holes)
    assert (bitmap(holes) == expected).all()


@given(some_spans(), some_spans())
def test_subtract(a: Spans, b: Spans) -> None:
    a, b = iv.union(a), iv.union(b)
    only = iv.subtract(a, b)
    assert is_merged(only)
    assert (bitmap(only) == (bitmap(a) & ~bitmap(b))).all()


@given(st.lists(some_spans(), max_size=4), st.integers(0, SIZE), st.integers(0, SIZE))
def test_partition_sums_to_the_window_and_earlier_layers_win(
    layers: list[Spans], x: int, y: int
) -> None:
    low, high = min(x, y), max(x, y)
    shares = iv.partition(layers, low, high)
    assert len(shares) == len(layers) + 1
    assert sum(share.total_ns for share in shares) == high - low
    left = np.zeros(SIZE, dtype=bool)
    left[low:high] = True
    for layer, share in zip(layers, shares, strict=False):
        assert is_merged(share)
        assert (bitmap(share) == (bitmap(layer) & left)).all()
        left &= ~bitmap(layer)
    assert (bitmap(shares[-1]) == left).all()


@given(some_spans(), some_spans(), st.lists(st.integers(-2, SIZE + 2), max_size=5))
def test_covered_counts_the_overlap(a: Spans, b: Spans, at: list[int]) -> None:
    merged = iv.union(b)
    bits = bitmap(merged)
    for (low, high), found in zip(zip(*a, strict=True), iv.covered(a, merged), strict=True):
        assert found == bits[low:high].sum()
    times = np.array(at, dtype=np.int64)
    for time, found in zip(at, iv.covered_before(merged, times), strict=True):
        assert found == bits[: max(time, 0)].sum()


@given(some_spans())
def test_innermost_tiles_the_union_with_the_latest_start(a: Spans) -> None:
    pieces, owner = iv.innermost(a)
    owners = np.full(SIZE, -1)
    order = np.lexsort((-a.end, a.start))
    for row in order:
        owners[a.start[row] : a.end[row]] = row
    found = np.full(SIZE, -1)
    for low, high, who in zip(*pieces, owner, strict=True):
        assert high > low
        assert (found[low:high] == -1).all()
        found[low:high] = who
    assert (found == owners).all()


def test_bounds_near_the_end_of_int64_stay_exact() -> None:
    big = 1_732_107_141_551_429_079
    merged = iv.union(spans([big, big + 49], [big + 20, big + 60]))
    assert merged.total_ns == 31
    assert iv.gaps(merged, big, big + 60).total_ns == 29


@given(some_spans(), some_spans())
def test_without_leaves_what_is_free_of_the_other(a: Spans, b: Spans) -> None:
    left, right = iv.innermost(a)[0], iv.innermost(b)[0]
    free, row = iv.without(left, right)
    assert (bitmap(free) == (bitmap(a) & ~bitmap(b))).all()
    for low, high, i in zip(*free, row, strict=True):
        assert left.start[i] <= low < high <= left.end[i]


@given(some_spans(), some_spans())
def test_overlaps_tell_what_covered_tells(a: Spans, b: Spans) -> None:
    left, right = iv.innermost(a)[0], iv.union(b)
    row, ns = iv.overlaps(left, right)
    every = iv.covered(left, right)
    assert row.tolist() == np.flatnonzero(every).tolist()
    assert ns.tolist() == every[every > 0].tolist()


@given(some_spans(), st.sets(st.integers(0, SIZE - 1)))
def test_tiles_met_are_those_that_overlap(a: Spans, more: set[int]) -> None:
    real = a.end > a.start
    a = spans(a.start[real], a.end[real])
    begins = [-1, *sorted(more)]
    until = [*begins[1:], SIZE]
    for low, high, first, count in zip(*a, *iv.tiles_met(a, np.array(begins)), strict=True):
        met = [k for k in range(len(begins)) if begins[k] < high and low < until[k]]
        assert met == list(range(first, first + count))


@given(some_spans(), st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_split_before_counts_the_time_of_each_code(a: Spans, codes: list[int]) -> None:
    pieces, owner = iv.innermost(a)
    code = np.array(codes)[owner]
    split = iv.split_before(pieces, code, 3, np.arange(SIZE + 1))
    for value in range(3):
        mine = bitmap(spans(pieces.start[code == value], pieces.end[code == value]))
        assert (split[value] == np.concatenate(([0], np.cumsum(mine)))).all()


@given(st.lists(st.integers(0, 3)))
def test_runs_are_the_stretches_of_one_code(codes: list[int]) -> None:
    found = [(code, codes[rows]) for code, rows in iv.runs(np.array(codes, dtype=np.int64))]
    assert [code for _, part in found for code in part] == codes
    assert all(set(part) == {code} for code, part in found)
    assert all(one[0] != other[0] for one, other in itertools.pairwise(found))
