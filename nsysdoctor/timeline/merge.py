"""Levels of detail: which items of a long trace are shown singly, and which are merged into
blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from nsysdoctor.arrays.intervals import EMPTY, Ints, Spans, spans, union

Mask = npt.NDArray[np.bool_]

NEAR_NS = 50_000
PER_WINDOW = 4000
"""Most items of all rows that one place of evidence shows one by one."""


@dataclass(frozen=True)
class Items:
    """Rows of one track, sorted by start: equally long int64 columns."""

    start: Ints
    end: Ints
    name: Ints
    paint: Ints
    key: Ints
    bytes: Ints
    shape: Ints
    count: Ints
    busy: Ints

    def take(self, rows: Ints | Mask) -> Items:
        """Returns the chosen rows."""
        return Items(*(getattr(self, column.name)[rows] for column in fields(self)))


def items(
    start: Ints,
    end: Ints,
    name: Ints,
    paint: Ints,
    key: Ints | None = None,
    moved: Ints | None = None,
    shape: Ints | None = None,
) -> Items:
    """Returns single items in order of start, longest first; absent columns are zero."""
    order = np.lexsort((name, -end, start))
    zero = np.zeros(len(start), dtype=np.int64)
    columns = [start, end, name, paint]
    columns += [zero if column is None else column for column in (key, moved, shape)]
    columns += [np.ones_like(zero), zero]
    return Items(*(np.asarray(column, dtype=np.int64)[order] for column in columns))


def inside(these: Items, windows: Spans) -> Mask:
    """Returns which items overlap a window of a merged set."""
    if not len(windows.start):
        return np.zeros(len(these.start), dtype=bool)
    index = np.searchsorted(windows.end, these.start, side="right")
    opens = np.append(windows.start, np.iinfo(np.int64).max)[index]
    return np.asarray(opens < np.maximum(these.end, these.start + 1))


def detail_windows(starts: Sequence[Ints], places: Iterable[tuple[int, int]], budget: int) -> Spans:
    """Returns the merged windows to show item by item: the places in order, while the budget lasts.

    Each place gets 7/10 of its length before and after, NEAR_NS at least, which is a little more
    than the page shows when it jumps there. A window with more than PER_WINDOW items is cut to its
    beginning.
    """
    chosen: list[tuple[int, int]] = []
    left = budget
    for low, high in places:
        window = _fitted(starts, low, high)
        size = _between(starts, *window)
        if size > left:
            break
        left -= size
        chosen.append(window)
    if not chosen:
        return EMPTY
    return union(spans(*zip(*chosen, strict=True)))


def _between(starts: Sequence[Ints], low: int, high: int) -> int:
    return sum(int(np.searchsorted(start, high) - np.searchsorted(start, low)) for start in starts)


def _fitted(starts: Sequence[Ints], low: int, high: int) -> tuple[int, int]:
    """Pads a place; where that holds too many items, keeps its beginning and halves the rest."""
    pad = max((high - low) * 7 // 10, NEAR_NS)
    if _between(starts, low - pad, high + pad) <= PER_WINDOW:
        return low - pad, high + pad
    before = low - NEAR_NS
    while high - low > 2 and _between(starts, before, high) > PER_WINDOW:
        high = low + (high - low) // 2
    return before, high


def caps(sizes: Sequence[int], budget: int) -> list[int]:
    """Returns how many items each row may hold: small rows stay whole, large ones share the
    rest."""
    allowed = [0] * len(sizes)
    left = budget
    order = sorted(range(len(sizes)), key=lambda row: (sizes[row], row))
    for place, row in enumerate(order):
        allowed[row] = min(sizes[row], left // (len(order) - place))
        left -= allowed[row]
    return allowed


def merged(these: Items, single: Mask, bins: int, span: tuple[int, int]) -> Items:
    """Returns the items with runs of short neighbours merged into blocks.

    An item stays single where `single` is set, or where it is at least as long as one bin, which is
    the span divided by `bins`. A block reaches from its first start to its last end, counts its
    items, sums their time in `busy`, and takes name and paint from what ran longest.
    """
    width = max(1, -(-(span[1] - span[0]) // max(1, bins)))
    alone = single | (these.end - these.start >= width)
    group = _groups(these.start, alone, width, span[0])
    if not len(group) or group[-1] + 1 == len(group):
        return these
    first = np.flatnonzero(np.diff(group, prepend=-1))
    size = np.diff(np.append(first, len(group)))
    blocks = these.take(_longest(these, group, first))
    many = size > 1
    end = np.maximum.reduceat(these.end, first)
    zero = np.where(many, 0, 1)
    return replace(
        blocks,
        start=these.start[first],
        end=end,
        count=size.astype(np.int64),
        busy=np.where(many, np.add.reduceat(these.end - these.start, first), 0),
        key=blocks.key * zero,
        bytes=blocks.bytes * zero,
        shape=blocks.shape * zero,
    )


def _groups(start: Ints, alone: Mask, width: int, origin: int) -> Ints:
    """The number of the block that each item belongs to; a block never encloses a single item."""
    cell = (start - origin) // width
    fresh = np.ones(len(start), dtype=bool)
    fresh[1:] = (cell[1:] != cell[:-1]) | alone[1:] | alone[:-1]
    return np.cumsum(fresh) - 1


def _longest(these: Items, group: Ints, first: Ints) -> Ints:
    """Row of each group whose name ran longest in the group, the first of them."""
    names = int(these.name.max()) + 1
    pair, at, back = np.unique(group * names + these.name, return_index=True, return_inverse=True)
    length = np.bincount(back, weights=(these.end - these.start).astype(np.float64))
    owner = pair // names
    order = np.lexsort((at, -length, owner))
    _, leader = np.unique(owner[order], return_index=True)
    return np.asarray(at[order][leader], dtype=np.int64)


@dataclass(frozen=True)
class Pieces:
    """A device row: items that tile its span, each with one state or with several parts."""

    start: Ints
    end: Ints
    paint: Ints
    count: Ints
    part_count: Ints
    part_paint: Ints
    part_ns: Ints


def merged_pieces(
    start: Ints, end: Ints, paint: Ints, single: Mask, bins: int, mixed: int
) -> Pieces:
    """Returns the pieces with short neighbours merged; the time of each state is kept exactly."""
    whole = (int(start[0]), int(end[-1])) if len(start) else (0, 0)
    width = max(1, -(-(whole[1] - whole[0]) // max(1, bins)))
    alone = single | (end - start >= width)
    group = _groups(start, alone, width, whole[0])
    first = np.flatnonzero(np.diff(group, prepend=-1)) if len(group) else group
    count = np.diff(np.append(first, len(group))).astype(np.int64)
    key, back = np.unique(group * 256 + paint, return_inverse=True)
    total = np.zeros(len(key), dtype=np.int64)
    np.add.at(total, back, end - start)
    in_group = np.bincount(key // 256, minlength=len(first))
    several = in_group > 1
    flat = several[key // 256]
    last = np.append(first[1:] - 1, len(group) - 1) if len(first) else first
    return Pieces(
        start[first],
        end[last],
        np.where(several, mixed, paint[first]),
        count,
        np.where(several, in_group, 0).astype(np.int64),
        key[flat] % 256,
        total[flat],
    )
