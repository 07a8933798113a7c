"""Interval algebra on int64 arrays of half-open intervals [start, end), in ns.

A `Spans` is *merged* when it is sorted, disjoint and free of empty intervals; `union` makes one.
Nothing here loops over intervals in Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """Intervals as two int64 arrays of one length."""

    start: Ints
    end: Ints

    @property
    def total_ns(self) -> int:
        """Returns the sum of the lengths."""
        return int((self.end - self.start).sum())


def spans(start: npt.ArrayLike, end: npt.ArrayLike) -> Spans:
    """Returns the intervals with int64 bounds, in the order given."""
    return Spans(np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64))


EMPTY = spans([], [])


def union(these: Spans) -> Spans:
    """Returns the merged union; touching intervals become one, empty ones vanish."""
    start, end = _real(these)
    if not len(start):
        return EMPTY
    if not ascending(start):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.flatnonzero(start[1:] > reach[:-1]) + 1
    if len(opens) == len(start) - 1:
        return Spans(start, reach)
    return Spans(
        start[np.concatenate(([0], opens))], reach[np.concatenate((opens - 1, [len(start) - 1]))]
    )


def _real(these: Spans) -> Spans:
    """The intervals that are not empty; the same arrays where none is empty."""
    real = these.end > these.start
    return these if real.all() else Spans(these.start[real], these.end[real])


def ascending(times: Ints) -> bool:
    """Returns whether the times are sorted."""
    return bool((times[1:] >= times[:-1]).all())


def clip(these: Spans, low: int, high: int) -> Spans:
    """Returns the parts inside [low, high), in the same order, without those left empty."""
    return _real(Spans(np.maximum(these.start, low), np.minimum(these.end, high)))


def gaps(these: Spans, low: int, high: int) -> Spans:
    """Returns the merged complement of any intervals inside [low, high)."""
    merged = union(clip(these, low, high))
    start = np.concatenate(([low], merged.end)).astype(np.int64)
    end = np.concatenate((merged.start, [high])).astype(np.int64)
    return _real(Spans(start, end))


def without(left: Spans, right: Spans) -> tuple[Spans, Ints]:
    """Returns the parts of `left` that `right` leaves free, and the row of `left` of each.

    Both are sorted and disjoint, without empty intervals.
    """
    if not len(right.start):
        return left, np.arange(len(left.start))
    first = np.searchsorted(right.end, left.start, side="right")
    count = np.searchsorted(right.start, left.end, side="left") - first + 1
    mine = np.repeat(np.arange(len(left.start)), count)
    begins = np.cumsum(count) - count
    # Each interval is free before, between and after those that overlap it.
    after = np.arange(len(mine)) + np.repeat(first - begins, count)
    start, end = right.end[after - 1], right.start[np.minimum(after, len(right.start) - 1)]
    start[begins], end[begins + count - 1] = left
    free = end > start
    return Spans(start[free], end[free]), mine[free]


def subtract(left: Spans, right: Spans) -> Spans:
    """Returns the merged part of the first merged set that the second does not cover."""
    return without(left, right)[0]


def partition(layers: Sequence[Spans], low: int, high: int) -> list[Spans]:
    """Returns for each layer its merged part of [low, high) that no earlier layer covers.

    One more set follows: the time that no layer covers. All totals therefore sum to `high - low`.
    """
    shares: list[Spans] = []
    taken = EMPTY
    for layer in layers:
        merged = union(clip(layer, low, high))
        shares.append(subtract(merged, taken))
        taken = union(Spans(*(np.concatenate(pair) for pair in zip(taken, merged, strict=True))))
    return [*shares, gaps(taken, low, high)]


def covered_before(merged: Spans, at: Ints) -> Ints:
    """Returns for each time how many ns of a merged set lie before it; intervals may touch."""
    if not len(merged.start):
        return np.zeros(len(at), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(merged.end - merged.start)))
    index = np.searchsorted(merged.start, at, side="right") - 1
    inside = np.minimum(at, merged.end[index]) - merged.start[index]
    return np.where(index < 0, 0, before[index] + inside).astype(np.int64)


def covered(these: Spans, merged: Spans) -> Ints:
    """Returns for each interval how many of its ns a merged set covers."""
    return covered_before(merged, these.end) - covered_before(merged, these.start)


def overlaps(these: Spans, merged: Spans) -> tuple[Ints, Ints]:
    """Returns the rows of sorted disjoint intervals that a merged set overlaps, and by how many
    ns each. The result is that of `covered`, but the cost depends only on the size of the merged
    set."""
    first = np.searchsorted(these.end, merged.start, side="right")
    count = np.maximum(np.searchsorted(these.start, merged.end, side="left") - first, 0)
    mine = np.arange(int(count.sum())) + np.repeat(first - np.cumsum(count) + count, count)
    length = np.minimum(these.end[mine], np.repeat(merged.end, count))
    length -= np.maximum(these.start[mine], np.repeat(merged.start, count))
    # An empty interval inside the set is found here although it has no overlap.
    mine, length = mine[length > 0], length[length > 0]
    opens = np.flatnonzero(np.diff(mine, prepend=-1))
    return mine[opens], np.add.reduceat(length, opens) if len(opens) else length


def split_before(these: Spans, code: np.ndarray, codes: int, at: Ints) -> Ints:
    """Returns one row per code: how many ns of that code's intervals lie before each time.

    The intervals are sorted and disjoint.
    """
    found = np.zeros((codes, len(at)), dtype=np.int64)
    for row in range(codes):
        mine = np.flatnonzero(code == row)
        found[row] = covered_before(Spans(these.start[mine], these.end[mine]), at)
    return found


def sums(codes: np.ndarray, ns: Ints, size: int) -> Ints:
    """Returns the sum of ns of each of the codes from 0 to `size` - 1."""
    # Doubles are exact for whole numbers below 2^53; in ns that is 104 days.
    return np.asarray(np.bincount(codes, ns, size), dtype=np.int64)


def rows_of(code: int, sorted_codes: np.ndarray) -> slice:
    """Returns the rows of one code among sorted ones."""
    low = int(np.searchsorted(sorted_codes, code, "left"))
    return slice(low, int(np.searchsorted(sorted_codes, code, "right")))


def runs(codes: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Yields the code of each run of equal ones and the rows of the run."""
    bounds = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    for low, high in itertools.pairwise([0, *bounds.tolist(), len(codes)]):
        if high > low:
            yield int(codes[low]), slice(low, high)


def _distinct(*arrays: Ints) -> Ints:
    """The sorted distinct values of the arrays. Sorting is faster than hashing on data that is
    mostly in order."""
    merged = np.sort(np.concatenate(arrays), kind="stable")
    new = np.ones(len(merged), dtype=bool)
    new[1:] = merged[1:] != merged[:-1]
    return np.asarray(merged[new], dtype=np.int64)


def innermost(these: Spans) -> tuple[Spans, Ints]:
    """Returns disjoint sorted pieces that tile the union, and the row that owns each piece.

    Where intervals overlap the one that starts last owns the piece, of those the shorter, of
    equal ones the later: of nested intervals the innermost. Adjacent pieces of one owner are
    joined.
    """
    if (these.end > these.start).all() and (these.start[1:] >= these.end[:-1]).all():
        return these, np.arange(len(these.start))
    order = np.lexsort((-these.end, these.start))
    start, end = these.start[order], these.end[order]
    bounds = _distinct(start, end)
    if len(bounds) < 2:
        return EMPTY, np.empty(0, dtype=np.int64)
    owner = _paint(
        np.searchsorted(bounds, start), np.searchsorted(bounds, end), len(bounds) - 1
    )
    owned = owner >= 0
    low, high, who = bounds[:-1][owned], bounds[1:][owned], order[owner[owned]]
    opens = np.ones(len(who), dtype=bool)
    opens[1:] = (who[1:] != who[:-1]) | (low[1:] != high[:-1])
    first = np.flatnonzero(opens)
    last = np.concatenate((first[1:] - 1, [len(who) - 1])) if len(first) else first
    return Spans(low[first], high[last]), who[first].astype(np.int64)


def _paint(first: Ints, stop: Ints, cells: int) -> Ints:
    """Returns for each cell the row of the last range that covers it, -1 where none does.

    Each range is written as two overlapping blocks whose length is a power of two. The blocks are
    then halved, the largest first, and the later row wins. Cost: O((ranges + cells) log cells),
    without a Python loop over either.
    """
    length = stop - first
    row = np.flatnonzero(length > 0)
    level = np.zeros(len(length), dtype=np.int64)
    level[row] = np.frexp(length[row].astype(np.float64))[1] - 1
    top = int(level[row].max()) if len(row) else 0
    painted = np.full(cells, -1, dtype=np.int64)
    for k in range(top, -1, -1):
        size = 1 << k
        mine = row[level[row] == k]
        np.maximum.at(painted, first[mine], mine)
        np.maximum.at(painted, stop[mine] - size, mine)
        half = size >> 1
        if half:
            lower = painted.copy()
            lower[half:] = np.maximum(lower[half:], painted[:-half])
            painted = lower
    return painted


def nearest_before(sorted_times: Ints, at: Ints) -> Ints:
    """Returns for each time the index of the last entry at or before it, -1 where there is none."""
    return (np.searchsorted(sorted_times, at, side="right") - 1).astype(np.int64)


def tiles_met(these: Spans, begins: Ints) -> tuple[Ints, Ints]:
    """Returns for each interval the first tile that it overlaps, and how many it overlaps.

    A tile reaches from one of the sorted distinct times `begins` to the next. The first of these
    times lies before all intervals, and no interval is empty.
    """
    first = np.searchsorted(begins, these.start, side="right") - 1
    return first, np.searchsorted(begins, these.end, side="left") - first
