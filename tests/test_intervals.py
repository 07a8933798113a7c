"""Interval algebra against a brute-force bitmap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor import intervals as iv
from nsysdoctor.intervals import Spans, spans

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
def test_intersect_and_subtract(a: Spans, b: Spans) -> None:
    a, b = iv.union(a), iv.union(b)
    both, only = iv.intersect(a, b), iv.subtract(a, b)
    assert is_merged(both) and is_merged(only)
    assert (bitmap(both) == (bitmap(a) & bitmap(b))).all()
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


@given(some_spans(), st.randoms(use_true_random=False))
def test_innermost_by_rank_lets_the_highest_win(a: Spans, random: object) -> None:
    rank = np.arange(len(a.start))
    random.shuffle(rank)  # type: ignore[attr-defined]
    pieces, owner = iv.innermost(a, rank)
    found = np.full(SIZE, -1)
    for low, high, who in zip(*pieces, owner, strict=True):
        found[low:high] = who
    expected = np.full(SIZE, -1)
    for row in np.argsort(rank):
        expected[a.start[row] : a.end[row]] = row
    assert (found == expected).all()


def test_bounds_near_the_end_of_int64_stay_exact() -> None:
    big = 1_732_107_141_551_429_079
    merged = iv.union(spans([big, big + 49], [big + 20, big + 60]))
    assert merged.total_ns == 31
    assert iv.gaps(merged, big, big + 60).total_ns == 29


@given(some_spans(), some_spans())
def test_overlay_cuts_the_left_at_the_bounds_of_the_right(a: Spans, b: Spans) -> None:
    a, b = iv.union(a), iv.union(b)
    pieces, mine, other = iv.overlay(a, b)
    assert pieces.total_ns == a.total_ns
    assert (pieces.start[1:] >= pieces.end[:-1]).all()
    for low, high, i, j in zip(*pieces, mine, other, strict=True):
        assert a.start[i] <= low < high <= a.end[i]
        if j >= 0:
            assert b.start[j] <= low < high <= b.end[j]
        else:
            assert not bitmap(b)[low:high].any()


@st.composite
def nested_spans(draw: st.DrawFn) -> Spans:
    """Ranges pushed and popped at random, empty ones among them."""
    stack: list[int] = []
    found: list[tuple[int, int]] = []
    for time in range(0, SIZE, 2):
        move = draw(st.sampled_from(["push", "pop", "stay", "touch"]))
        if move == "touch":
            found.append((time, time))
        if move == "push":
            stack.append(time)
        elif move == "pop" and stack:
            found.append((stack.pop(), time + 1))
    found += [(start, SIZE) for start in stack]
    found.sort(key=lambda pair: (pair[0], -pair[1]))
    return spans([low for low, _ in found], [high for _, high in found])


@given(nested_spans())
def test_innermost_at_finds_the_shortest_that_holds_the_time(a: Spans) -> None:
    times = np.arange(-1, SIZE + 2)
    for time, row in zip(times.tolist(), iv.innermost_at(a, times).tolist(), strict=True):
        holding = np.flatnonzero((a.start <= time) & (time < a.end))
        if len(holding):
            assert row == holding[np.argmin((a.end - a.start)[holding])]
        else:
            assert row == -1
