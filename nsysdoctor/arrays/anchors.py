"""The period of a sequence whose repeats are not all alike, by symbols that recur in even steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsysdoctor.arrays.intervals import Ints

_MIN_REPEATS = 4
_MIN_COVER_RATIO = 0.5
_MIN_PERIOD = 2
"""A single symbol that repeats is no period."""

_LONG = 20
_MIN_REGULAR_RATIO, _WHOLE_RATIO = 0.7, 0.9


class Anchor(NamedTuple):
    """Where one symbol recurs regularly: its positions, their distance, the share of the
    sequence between the first and the last."""

    position: Ints
    period: int
    cover: float


def find_anchor(symbol: Ints) -> Anchor | None:
    """Returns the recurring symbol that marks the sequence's period, None without one.

    Of all symbols that recur at regular distances over most of the sequence the most even one
    counts, of equal ones that of shortest distance. A symbol whose irregular distances recur
    regularly themselves marks a part of a longer period, as a layer does inside a step.
    """
    runs = [run for run in _runs(symbol) if run.cover >= _MIN_COVER_RATIO]
    whole = [run for run in runs if not _is_part(run)]
    if not whole:
        return _from_seams(max(runs, key=_evenness, default=None))
    best_cover = max(run.cover for run in whole)
    good = [run for run in whole if run.cover >= 0.8 * best_cover]
    return min(good, key=_preference)


def _runs(symbol: Ints) -> list[Anchor]:
    order = np.lexsort((np.arange(len(symbol)), symbol))
    cuts = np.flatnonzero(np.diff(symbol[order])) + 1
    found = []
    for position in np.split(order, cuts):
        run = _regular_run(position, len(symbol))
        if run is not None and run.period >= _MIN_PERIOD:
            found.append(run)
    return found


def _near(distance: Ints) -> np.ndarray:
    """Which distances are the usual one; a long period may hold a symbol more or less."""
    typical = float(np.median(distance))
    allowed = max(0.02 * typical, 1.0 if typical >= _LONG else 0.0)
    return np.asarray(np.abs(distance - typical) <= allowed)


def _regular_run(position: Ints, count: int) -> Anchor | None:
    """The positions from the first to the last regular distance, if most lie regularly."""
    if len(position) <= _MIN_REPEATS:
        return None
    distance = np.diff(position)
    near = _near(distance)
    if near.mean() < _MIN_REGULAR_RATIO:
        return None
    inside = np.flatnonzero(near)
    kept = position[inside[0] : inside[-1] + 2]
    if len(kept) <= _MIN_REPEATS:
        return None
    period = int(np.median(np.diff(kept)))
    return Anchor(kept, period, float(kept[-1] - kept[0]) / count)


def _preference(run: Anchor) -> tuple[int, int, float, int]:
    """What makes a whole period the best: even distances (in steps of 5 %), then shortness."""
    near = float(_near(np.diff(run.position)).mean())
    return -round(20 * near), run.period, -run.cover, int(run.position[0])


def _evenness(run: Anchor) -> tuple[float, float, int]:
    """What makes a part the best to read seams from: few odd distances, wide cover."""
    near = float(_near(np.diff(run.position)).mean())
    return near, run.cover, -int(run.position[0])


def _from_seams(part: Anchor | None) -> Anchor | None:
    """The longer period whose seams a part shows, where no symbol of its own marks it."""
    if part is None:
        return None
    odd = np.flatnonzero(~_near(np.diff(part.position)))
    seams = np.concatenate(([part.position[0]], part.position[odd + 1]))
    return Anchor(seams, int(np.median(np.diff(seams))), part.cover)


def _is_part(run: Anchor) -> bool:
    """Whether the irregular distances of a run recur regularly, so that they are the seams of a
    longer period. A few seams at odd places are interruptions, such as an evaluation."""
    near = _near(np.diff(run.position))
    odd = np.flatnonzero(~near)
    if len(odd) < _MIN_REPEATS or near.mean() < _WHOLE_RATIO:
        return len(odd) >= _MIN_REPEATS
    between = np.diff(odd)
    return bool((np.abs(between - np.median(between)) <= 1).mean() >= 0.8)
