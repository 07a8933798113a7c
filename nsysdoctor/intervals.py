"""Interval algebra on int64 arrays of half-open intervals [start, end), in ns.

A `Spans` is *merged* when it is sorted, disjoint and free of empty intervals; `union` makes one.
Nothing here loops over intervals in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    real = these.end > these.start
    start, end = these.start[real], these.end[real]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.flatnonzero(start[1:] > reach[:-1]) + 1
    first = np.concatenate(([0], opens))
    last = np.concatenate((opens - 1, [len(start) - 1]))
    return Spans(start[first], reach[last])


def clip(these: Spans, low: int, high: int) -> Spans:
    """Returns the parts inside [low, high), in the same order, without those left empty."""
    start, end = np.maximum(these.start, low), np.minimum(these.end, high)
    real = end > start
    return Spans(start[real], end[real])


def gaps(these: Spans, low: int, high: int) -> Spans:
    """Returns the merged complement of any intervals inside [low, high)."""
    merged = union(clip(these, low, high))
    start = np.concatenate(([low], merged.end)).astype(np.int64)
    end = np.concatenate((merged.start, [high])).astype(np.int64)
    real = end > start
    return Spans(start[real], end[real])


def intersect(left: Spans, right: Spans) -> Spans:
    """Returns the merged intersection of two merged sets."""
    low = np.searchsorted(right.end, left.start, side="right")
    count = np.maximum(np.searchsorted(right.start, left.end, side="left") - low, 0)
    mine = np.repeat(np.arange(len(left.start)), count)
    first = np.repeat(low - (np.cumsum(count) - count), count)
    other = first + np.arange(len(mine))
    return Spans(
        np.maximum(left.start[mine], right.start[other]),
        np.minimum(left.end[mine], right.end[other]),
    )


def subtract(left: Spans, right: Spans) -> Spans:
    """Returns the merged part of the first merged set that the second does not cover."""
    if not len(left.start):
        return EMPTY
    holes = gaps(right, int(left.start[0]), int(left.end[-1]))
    return intersect(left, holes)


def partition(layers: Sequence[Spans], low: int, high: int) -> list[Spans]:
    """Returns the merged share of each layer in [low, high): earlier layers win.

    One more set follows, what no layer covers, so that the totals sum to `high - low`.
    """
    shares: list[Spans] = []
    taken = EMPTY
    for layer in layers:
        merged = union(clip(layer, low, high))
        shares.append(subtract(merged, taken))
        taken = union(Spans(*(np.concatenate(pair) for pair in zip(taken, merged, strict=True))))
    return [*shares, gaps(taken, low, high)]


def covered_before(merged: Spans, at: Ints) -> Ints:
    """Returns for each time how many ns of a merged set lie before it."""
    if not len(merged.start):
        return np.zeros(len(at), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(merged.end - merged.start)))
    index = np.searchsorted(merged.start, at, side="right") - 1
    inside = np.minimum(at, merged.end[index]) - merged.start[index]
    return np.where(index < 0, 0, before[index] + inside).astype(np.int64)


def covered(these: Spans, merged: Spans) -> Ints:
    """Returns for each interval how many of its ns a merged set covers."""
    return covered_before(merged, these.end) - covered_before(merged, these.start)


def _distinct(*arrays: Ints) -> Ints:
    """All values of the arrays, sorted and each once; sorting beats hashing on runs of order."""
    merged = np.sort(np.concatenate(arrays), kind="stable")
    new = np.ones(len(merged), dtype=bool)
    new[1:] = merged[1:] != merged[:-1]
    return np.asarray(merged[new], dtype=np.int64)


def innermost(these: Spans, rank: Ints | None = None) -> tuple[Spans, Ints]:
    """Returns disjoint sorted pieces that tile the union, and the row that owns each piece.

    Where intervals overlap the one of highest `rank` owns the piece; by default the rank is the
    order by start, later last, shorter last: of nested intervals the innermost. Adjacent pieces
    of one owner are joined.
    """
    count = len(these.start)
    if rank is None:
        order = np.lexsort((-these.end, these.start))
    else:
        order = np.argsort(rank, kind="stable")
    start, end = these.start[order], these.end[order]
    bounds = _distinct(start, end)
    if count == 0 or len(bounds) < 2:
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
    """Returns for each cell the last range (row) that covers it, -1 where none does.

    Each range is laid down as two blocks of a power of two; blocks are then halved from the
    largest down, the later row winning. O((ranges + cells) log cells), no loop over either.
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
    """Returns for each time the index of the last entry not after it, -1 where there is none."""
    return (np.searchsorted(sorted_times, at, side="right") - 1).astype(np.int64)


def overlay(left: Spans, right: Spans) -> tuple[Spans, Ints, Ints]:
    """Returns the pieces of `left` cut at the bounds of `right`, and the row of each in both.

    Both are sorted and disjoint (empty intervals allowed on neither side). The second array
    holds -1 where `right` covers nothing.
    """
    if not len(left.start):
        return EMPTY, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    bounds = _distinct(*left, *right)
    low, high = bounds[:-1], bounds[1:]
    mine, other = _owner(left, low), _owner(right, low)
    kept = mine >= 0
    low, high, mine, other = low[kept], high[kept], mine[kept], other[kept]
    return Spans(low, high), mine, other


def _owner(disjoint: Spans, at: Ints) -> Ints:
    if not len(disjoint.start):
        return np.full(len(at), -1, dtype=np.int64)
    index = np.searchsorted(disjoint.start, at, side="right") - 1
    return np.where((index >= 0) & (at < disjoint.end[index]), index, -1).astype(np.int64)


def innermost_at(nested: Spans, at: Ints) -> Ints:
    """Returns for each time the row of the innermost interval that holds it, -1 for none.

    The intervals nest properly and are sorted by start, the longest first, as the ranges that a
    thread pushes and pops are.
    """
    # Of the intervals begun by then those that are not over enclose one another.
    return last_above(nested.end, np.searchsorted(nested.start, at, side="right") - 1, at)


_FAN = 16
"""How many rows the search for a value passes one by one before it goes on by blocks of rows."""


def last_above(values: Ints, row: Ints, least: Ints) -> Ints:
    """Returns the last row, at or before each given one, whose value is above `least`; -1 for none.

    A search that leaves the block of its row goes on among the largest values of blocks, so that
    it takes few steps however far back it ends.
    """
    found = _above_in_block(values, row, least)
    far = np.flatnonzero((found < 0) & (row >= _FAN))
    if len(far):
        largest = np.maximum.reduceat(values, np.arange(0, len(values), _FAN))
        block = last_above(largest, row[far] // _FAN - 1, least[far])
        far, block = far[block >= 0], block[block >= 0]
        found[far] = _above_in_block(values, block * _FAN + _FAN - 1, least[far])
    return found


def _above_in_block(values: Ints, row: Ints, least: Ints) -> Ints:
    """The same among the rows of the block only."""
    found = np.full(len(row), -1, dtype=np.int64)
    open_ = np.flatnonzero(row >= 0)
    place = row[open_]
    while len(open_):
        above = values[place] > least[open_]
        found[open_[above]] = place[above]
        goes_on = ~above & (place % _FAN > 0)
        open_, place = open_[goes_on], place[goes_on] - 1
    return found
