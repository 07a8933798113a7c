"""Stretches of a sequence that repeat whole, from the shortest ones to those made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsysdoctor.arrays.intervals import Ints

Hashes = npt.NDArray[np.uint64]

MIN_REPEATS = 3
_MOST_LEVELS = 24
_GRAMS = (1, 2, 4, 16, 64)
_RARE_RATIO = 0.005
"""Distances between equal stretches that are rarer than this are not looked at."""


class Level(NamedTuple):
    """A sequence in which shorter repeats were joined: `symbol`, and in `at` where each begins in
    the sequence as it was given, with the end of that behind the last."""

    symbol: Ints
    at: Ints


class Block(NamedTuple):
    """What repeats whole in a level: its length there, and where a run of it begins that holds
    most of the weight."""

    level: Level
    period: int
    place: int
    twice: bool = False
    """Whether it stands there only twice in a row."""

    def rotated(self, shift: int) -> Block:
        """Returns the block that begins further on in its repeats."""
        return self._replace(place=self.place + shift)

    def places(self) -> Ints:
        """Returns where the block stands in its level, without overlap."""
        symbol, size = self.level.symbol, self.period
        found = _equal(symbol, symbol[self.place : self.place + size])
        if len(found) < 2 or (np.diff(found) >= size).all():
            return found
        kept, free = [], 0
        for place in found.tolist():
            if place >= free:
                kept.append(place)
                free = place + size
        return np.array(kept, dtype=np.int64)


def blocks(symbol: Ints, total: npt.NDArray[np.float64]) -> Iterator[Block]:
    """Yields what repeats whole at least three times in a row, shorter repeats before those made of
    them. Equal neighbours count as one symbol, a run of repeats as one of a longer block.

    `total` is the running sum of the symbols' weights, from 0 on.
    """
    level = _deduped(Level(symbol, np.arange(len(symbol) + 1)))
    for _ in range(_MOST_LEVELS):
        found = _shortest(level.symbol)
        if found is None:
            yield from _twice(level, total)
            return
        period, low, high = found
        kind = _kinds(level.symbol, low, period)
        weight = np.bincount(kind, total[level.at[high]] - total[level.at[low]])
        mine = np.flatnonzero(kind == int(weight.argmax()))
        yield Block(level, period, int(low[mine[int(np.argmax(high[mine] - low[mine]))]]))
        level = _deduped(_collapsed(level, low, high, kind))


def _twice(level: Level, total: npt.NDArray[np.float64]) -> Iterator[Block]:
    """The block that stands twice in a row with most of the weight, as where the first of three
    repeats still chooses kernels."""
    best, heaviest = None, 0.0
    for period in _distances(level.symbol, 2).tolist():
        found = _runs(level.symbol, period, 2)
        if found is None:
            continue
        weight = total[level.at[found[1]]] - total[level.at[found[0]]]
        if float(weight.max()) > heaviest:
            heaviest, place = float(weight.max()), int(found[0][int(weight.argmax())])
            best = Block(level, period, place, twice=True)
    if best is not None:
        yield best


def _deduped(level: Level) -> Level:
    first = np.flatnonzero(np.diff(level.symbol, prepend=-1 << 62) != 0)
    return Level(level.symbol[first], np.append(level.at[first], level.at[-1]))


def _shortest(symbol: Ints) -> tuple[int, Ints, Ints] | None:
    """The shortest period with three repeats in a row, with the runs of whole repeats of it."""
    for period in _distances(symbol, MIN_REPEATS).tolist():
        found = _runs(symbol, period, MIN_REPEATS)
        if found is not None:
            return period, *found
    return None


def _runs(symbol: Ints, period: int, least: int) -> tuple[Ints, Ints] | None:
    """The runs of at least so many whole repeats of a period, None without any."""
    same = np.concatenate(([0], (symbol[period:] == symbol[:-period]).view(np.int8), [0]))
    turns = np.flatnonzero(np.diff(same))
    low, high = turns[::2], turns[1::2] + period
    # What ends one run may not begin the next one as well.
    low[1:] = np.maximum(low[1:], high[:-1])
    repeats = (high - low) // period
    long = repeats >= least
    return (low[long], (low + repeats * period)[long]) if long.any() else None


def _distances(symbol: Ints, repeats: int) -> Ints:
    """The distances from stretches of some symbols to the next equal ones that are no exceptions
    and leave room for so many repeats, shortest first."""
    found = [np.empty(0, dtype=np.int64)]
    for size in _GRAMS:
        if len(symbol) < repeats * size:
            break
        code = _grams(symbol, size)
        order = np.argsort(code, kind="stable")
        again = code[order[1:]] == code[order[:-1]]
        found.append(np.diff(order)[again])
    distance, count = np.unique(np.concatenate(found), return_counts=True)
    usual = (count >= max(2, _RARE_RATIO * len(symbol))) & (distance >= 2)
    return distance[usual & (repeats * distance <= len(symbol))]


def mixed(values: Ints) -> Hashes:
    """Returns scattered codes of values, the same for equal ones."""
    with np.errstate(over="ignore"):
        code = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        code = (code ^ (code >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(code ^ (code >> np.uint64(29)), dtype=np.uint64)


def _powers(count: int, base: int) -> Hashes:
    powers = np.full(count, base & (1 << 64) - 1, dtype=np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)


def _grams(symbol: Ints, size: int) -> Hashes:
    """Codes of all stretches of a size, by where they begin; equal ones have the same."""
    if size == 1:
        return mixed(symbol)
    with np.errstate(over="ignore"):
        terms = mixed(symbol) * _powers(len(symbol), _BASE)
        sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)))
        found = (sums[size:] - sums[:-size]) * _powers(len(symbol) - size + 1, _INVERSE)
        return np.asarray(found, dtype=np.uint64)


def _equal(symbol: Ints, block: Ints) -> Ints:
    """Where a sequence holds a block."""
    if len(symbol) < len(block):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(_grams(symbol, len(block)) == _grams(block, len(block))[0])


def _kinds(symbol: Ints, low: Ints, period: int) -> Ints:
    """Codes of runs from `low` on, the same for runs of one block wherever in it they begin."""
    pairs = mixed(symbol[:-1] * np.int64(1_000_003) + symbol[1:])
    with np.errstate(over="ignore"):
        sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(pairs, dtype=np.uint64)))
        around = sums[low + period] - sums[low]
    return np.asarray(np.unique(around, return_inverse=True)[1], dtype=np.int64)


def _collapsed(level: Level, low: Ints, high: Ints, kind: Ints) -> Level:
    """The level with one symbol for each run."""
    symbol = level.symbol.copy()
    symbol[low] = int(symbol.max()) + 1 + kind
    inside = np.zeros(len(symbol) + 1, dtype=np.int8)
    inside[low + 1] += 1
    inside[high] -= 1
    kept = np.flatnonzero(np.cumsum(inside[:-1]) == 0)
    return Level(symbol[kept], np.append(level.at[kept], level.at[-1]))
