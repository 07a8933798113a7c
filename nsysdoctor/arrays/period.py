"""Finding the period of a sequence of symbols, such as the calls a program repeats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsysdoctor.arrays.anchors import find_anchor
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.tandem import MIN_REPEATS, Block, blocks, mixed

MIN_COVER_RATIO = 0.5
_LEAST_COVER_RATIO, _SURE_REPEATS, _FOLLOWING_RATIO = 0.1, 10, 0.9
_LONGER_RATIO, _AS_GOOD_RATIO = 1.2, 0.8
_ALIKE_RATIO = 0.2
"""By how much of its length one repeat may differ from the others."""

KERNEL_RUN, INPUT = 1, 2
"""What a symbol may be: a kernel, something that brings input."""

_LONG, _SLIVER_RATIO = 20, 0.02
_PAUSE_RATIO, _HALF_ALIKE_RATIO, _MUCH_RATIO, _EVEN_RATIO = 2.0, 0.9, 0.5, 0.75
_SAME_RATIO = 0.9


class Run(NamedTuple):
    """Where a sequence repeats whole: where each repeat begins and ends, how many symbols it
    usually has, and its share of the weight."""

    position: Ints
    stop: Ints
    period: int
    cover: float


def find_period(
    symbol: Ints,
    weight: npt.NDArray[np.float64] | None = None,
    time: Ints | None = None,
    kind: npt.NDArray[np.int8] | None = None,
) -> Run | None:
    """Returns the repeats of the longest part that the sequence repeats whole, None without any.

    A part counts from three repeats in a row on, whatever it is made of: layers make a step. What
    comes between repeats is no part of a longer one where it is a sliver without kernels, such as
    a read-back every tenth time, where it runs the same, as a repeat that logs does, or where
    repeats bring input and it has no kernels or much work with input of its own: then it is a
    checkpoint or an evaluation. `time` tells when each symbol was; a repeat begins after the
    longest pause. `kind` flags symbols as KERNEL_RUN or INPUT.
    """
    if len(symbol) < 2 * MIN_REPEATS:
        return None
    weight = np.ones(len(symbol)) if weight is None else weight
    total = np.concatenate(([0.0], np.cumsum(weight)))
    known = np.zeros(len(symbol), dtype=np.int8) if kind is None else kind
    whole, ends = _whole(symbol, total, time, known)
    if whole is not None:
        whole = _made(*_with_ends(symbol, *_with_alike(whole.position, whole.stop)), total)
    loose = _loose(symbol, total)
    if whole is None or loose is None:
        return whole if whole is not None else loose
    longer = loose.period > _LONGER_RATIO * whole.period and not ends
    return loose if longer and loose.cover >= _AS_GOOD_RATIO * whole.cover else whole


def _whole(
    symbol: Ints, total: npt.NDArray[np.float64], time: Ints | None, kind: npt.NDArray[np.int8]
) -> tuple[Run | None, bool]:
    """The longest part that repeats whole, and whether what is made of it is no longer part."""
    best: Run | None = None
    for block in blocks(symbol, total):
        run = _run_of(block, total, time)
        if 0 < len(run.position) < _SURE_REPEATS:
            run = _made(*_with_ends(symbol, run.position, run.stop), total)
        if not _counts(run):
            continue
        if best is None or run.cover > best.cover / _AS_GOOD_RATIO:
            best = run
        elif run.cover >= _AS_GOOD_RATIO * best.cover and run.period > best.period:
            if _interrupted(best, run, symbol, kind):
                return best, True
            best = run
    return best, False


def _counts(run: Run) -> bool:
    """Whether repeats hold enough of the work, little of it where they are many in a row, and are
    of one length: the same loop before and after a pause is no step."""
    length = run.stop - run.position
    even = np.abs(length - run.period) <= _MUCH_RATIO * run.period
    if len(length) < MIN_REPEATS or even.mean() <= _EVEN_RATIO:
        return False
    following = float((run.position[1:] == run.stop[:-1]).mean())
    many = len(run.position) >= _SURE_REPEATS and following >= _FOLLOWING_RATIO
    return run.cover >= (_LEAST_COVER_RATIO if many else MIN_COVER_RATIO)


def _run_of(block: Block, total: npt.NDArray[np.float64], time: Ints | None) -> Run:
    """Where the block stands, from the longest pause in it on."""
    if time is not None:
        block = block.rotated(_longest_pause(block, time))
    place, at, size = block.places(), block.level.at, block.period
    if _has_equal_halves(block):
        place, size = np.sort(np.concatenate((place, place + size // 2))), size // 2
    return _made(at[place], at[place + size], total)


def _has_equal_halves(block: Block) -> bool:
    """Whether a block is one part twice but for some symbols, as where buffers change places."""
    size = block.period // 2
    if 2 * size != block.period or size < _LONG:
        return False
    first, second = np.split(block.level.symbol[block.place : block.place + 2 * size], 2)
    return bool((first == second).mean() >= _HALF_ALIKE_RATIO)


def _made(position: Ints, stop: Ints, total: npt.NDArray[np.float64]) -> Run:
    cover = float((total[stop] - total[position]).sum() / max(total[-1], 1e-9))
    period = int(np.median(stop - position)) if len(position) else 0
    return Run(position, stop, period, cover)


def _longest_pause(block: Block, time: Ints) -> int:
    """The place in the block before which the longest pause usually lies, not within what repeats
    in it."""
    place, at = block.places(), block.level.at
    rows = at[place[:, None] + np.arange(block.period)[None, :]]
    pause = np.median(np.diff(time, prepend=time[0])[rows], axis=0)
    shift = int(np.argmax(pause))
    left = len(block.rotated(shift).places())
    # A repeat is not given up for a pause that is hardly longer than the one before the first.
    dear = left < min(len(place), MIN_REPEATS) or pause[shift] < _PAUSE_RATIO * pause[0]
    return 0 if left < len(place) and dear else shift


def _with_alike(position: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """The repeats with those between two of them that are nearly as long: one that logs, or whose
    kernels depend on its data."""
    if len(position) < MIN_REPEATS:
        return position, stop
    gap = position[1:] - stop[:-1]
    usual = float(np.median(stop - position))
    alike = np.flatnonzero(np.abs(gap - usual) <= _ALIKE_RATIO * usual)
    sliver = np.flatnonzero((gap > 0) & (gap <= _ALIKE_RATIO * usual))
    position = np.insert(position, alike + 1, stop[alike])
    stop = stop.copy()
    stop[sliver] += gap[sliver]
    found = np.insert(stop, alike + 1, position[alike + 1 + np.arange(len(alike)) + 1])
    return position, found


def _with_ends(symbol: Ints, position: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """The repeats with one before the first and one behind the last that are nearly the same: the
    first one still chooses kernels, the last one is cut off."""
    one = symbol[position[0] : stop[0]]
    size, low, high = len(one), int(position[0]), int(stop[-1])
    while low >= size and _shared(symbol[low - size : low], one) >= _SAME_RATIO:
        position, stop = np.append(low - size, position), np.append(low, stop)
        low -= size
    rest = symbol[high : high + size]
    if len(rest) >= _SAME_RATIO * size and _shared(rest, one) >= _AS_GOOD_RATIO:
        position, stop = np.append(position, high), np.append(stop, high + len(rest))
    return position, stop


def _interrupted(
    inner: Run, outer: Run, symbol: Ints, kind: npt.NDArray[np.int8]
) -> bool:
    """Whether a longer part is the shorter one, repeated, with something between that is no part
    of the program's step."""
    middle = len(outer.position) // 2
    low, high = int(outer.position[middle]), int(outer.stop[middle])
    rest = np.ones(high - low, dtype=bool)
    for start, end in zip(inner.position.tolist(), inner.stop.tolist(), strict=True):
        if end > low and start < high:
            rest[max(start - low, 0) : end - low] = False
    more = kind[low:high][rest]
    kernels, feeds = bool((more & KERNEL_RUN).any()), bool((more & INPUT).any())
    if len(more) <= max(1.0, _SLIVER_RATIO * inner.period) and inner.period >= _LONG:
        return not kernels
    one = slice(int(inner.position[0]), int(inner.stop[0]))
    much = len(more) >= _MUCH_RATIO * inner.period
    as_long = abs(len(more) - inner.period) <= (1 - _SAME_RATIO) * inner.period
    if as_long and _shared(symbol[low:high][rest], symbol[one]) >= _AS_GOOD_RATIO:
        return True
    return bool((kind[one] & INPUT).any()) and ((much and feeds) or not kernels)


def _shared(some: Ints, others: Ints) -> float:
    """How much two sequences have in common, by pairs of neighbours: near 1 for what runs the same,
    such as a repeat that logs."""
    pairs = [mixed(part[:-1] * np.int64(1_000_003) + part[1:]) for part in (some, others)]
    code, place = np.unique(np.concatenate(pairs), return_inverse=True)
    mine = np.bincount(place[: len(pairs[0])], minlength=len(code))
    theirs = np.bincount(place[len(pairs[0]) :], minlength=len(code))
    return float(np.minimum(mine, theirs).sum()) / max(int(np.maximum(mine, theirs).sum()), 1)


def _loose(symbol: Ints, total: npt.NDArray[np.float64]) -> Run | None:
    """Repeats that are not all alike, by a symbol that recurs in even steps."""
    anchor = find_anchor(symbol)
    if anchor is None:
        return None
    position = anchor.position
    limit = np.minimum(position + round(_LONGER_RATIO * anchor.period), len(symbol))
    last = min(int(position[-1]) + anchor.period, len(symbol))
    return _made(position, np.minimum(np.append(position[1:], last), limit), total)
