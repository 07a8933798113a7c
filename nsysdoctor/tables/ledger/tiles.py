"""Cutting pieces of time where something about them changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nsysdoctor.arrays.intervals import Ints, Spans, runs, tiles_met

Columns = dict[str, np.ndarray]
"""Pieces of time as columns of one length; each has start_ns and end_ns and is not empty."""

_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Tiles(NamedTuple):
    """All of time: each stretch lasts until the next one's start and has an owner, -1 for none."""

    start_ns: Ints
    owner: Ints


def tiles_of(span: Spans, owner: Ints) -> Tiles:
    """Returns all of time in tiles, of sorted disjoint intervals that each have an owner."""
    count = 2 * len(owner) + 1
    start, own = np.full(count, _FIRST), np.full(count, -1, dtype=np.int64)
    start[1::2], start[2::2] = span
    own[1::2] = owner
    lasts = np.append(start[1:] > start[:-1], True)
    return Tiles(start[lasts], own[lasts])


def cut(
    pieces: Columns, by: str, tiles: Mapping[int, Tiles], into: str, asked: np.ndarray | None = None
) -> Columns:
    """Returns the pieces cut where the tiles of their own code in the column `by` change.

    The column `into` names the tile's owner, -1 for pieces that are not `asked` for or whose code
    has no tiles. Pieces keep their order.
    """
    start, end, code = pieces["start_ns"], pieces["end_ns"], pieces[by]
    count = np.ones(len(start), dtype=np.int64)
    first = np.zeros(len(start), dtype=np.int64)
    # The first tile is all of time, for pieces that stay whole.
    parts, at = [Tiles(np.array([_FIRST]), np.array([-1]))], 1
    rows = np.arange(len(start)) if asked is None else np.flatnonzero(asked)
    rows = rows[np.argsort(code[rows], kind="stable")]
    for value, where in runs(code[rows]):
        if value not in tiles:
            continue
        mine, own = rows[where], tiles[value]
        met, count[mine] = tiles_met(Spans(start[mine], end[mine]), own.start_ns)
        first[mine] = met + at
        parts.append(own)
        at += len(own.start_ns)
    row = np.repeat(np.arange(len(start)), count)
    tile = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - first, count)
    begins = np.concatenate([part.start_ns for part in parts])
    until = np.concatenate([np.append(part.start_ns[1:], _LAST) for part in parts])
    found = {name: column[row] for name, column in pieces.items()}
    found["start_ns"] = np.maximum(found["start_ns"], begins[tile])
    found["end_ns"] = np.minimum(found["end_ns"], until[tile])
    found[into] = np.concatenate([part.owner for part in parts])[tile]
    return found


def joined(*parts: Columns) -> Columns:
    """Returns the pieces of all parts, one after another; a column that a part lacks is -1."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.concatenate(
            [part.get(name, np.full(len(part["start_ns"]), -1, np.int8)) for part in parts]
        )
        for name in names
    }


def taken(pieces: Columns, rows: np.ndarray) -> Columns:
    """Returns the pieces of some rows."""
    return {name: column[rows] for name, column in pieces.items()}
