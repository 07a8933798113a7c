"""Finding the period of a sequence of symbols, such as the calls a program repeats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsysdoctor.arrays.intervals import Ints

MIN_REPEATS = 4
MIN_COVER_RATIO = 0.5
MIN_PERIOD = 2
"""A single symbol that repeats is no period."""

_LONG = 20
_MIN_REGULAR_RATIO, _WHOLE_RATIO = 0.7, 0.9


class Run(NamedTuple):
    """Where one symbol recurs regularly: its positions, the usual distance between them, and the
    share of the sequence between the first and the last position."""

    position: Ints
    period: int
    cover: float


def find_period(symbol: Ints) -> Run | None:
    """Returns the recurring symbol that marks the period of the sequence, None where there is none.

    Candidates are all symbols that recur at regular distances over most of the sequence. The most
    even one wins, and among equally even ones the one of shortest distance. A symbol whose
    irregular distances recur regularly themselves marks a part of a longer period, as a layer does
    inside a training step.
    """
    runs = [run for run in _runs(symbol) if run.cover >= MIN_COVER_RATIO]
    whole = [run for run in runs if not _is_part(run)]
    if not whole:
        return _from_seams(max(runs, key=_evenness, default=None))
    best_cover = max(run.cover for run in whole)
    good = [run for run in whole if run.cover >= 0.8 * best_cover]
    return min(good, key=_preference)


def _runs(symbol: Ints) -> list[Run]:
    order = np.lexsort((np.arange(len(symbol)), symbol))
    cuts = np.flatnonzero(np.diff(symbol[order])) + 1
    found = []
    for position in np.split(order, cuts):
        run = _regular_run(position, len(symbol))
        if run is not None and run.period >= MIN_PERIOD:
            found.append(run)
    return found


def _near(distance: Ints) -> np.ndarray:
    """Which distances are close to the usual one; in a long period one symbol more or less is
    allowed."""
    typical = float(np.median(distance))
    allowed = max(0.02 * typical, 1.0 if typical >= _LONG else 0.0)
    return np.asarray(np.abs(distance - typical) <= allowed)


def _regular_run(position: Ints, count: int) -> Run | None:
    """The positions from the first to the last regular distance, if most distances between them are
    regular."""
    if len(position) <= MIN_REPEATS:
        return None
    distance = np.diff(position)
    near = _near(distance)
    if near.mean() < _MIN_REGULAR_RATIO:
        return None
    inside = np.flatnonzero(near)
    kept = position[inside[0] : inside[-1] + 2]
    if len(kept) <= MIN_REPEATS:
        return None
    period = int(np.median(np.diff(kept)))
    return Run(kept, period, float(kept[-1] - kept[0]) / count)


def _preference(run: Run) -> tuple[int, int, float, int]:
    """Sort key for a symbol that marks a whole period: even distances (in steps of 5 %), then short
    ones."""
    near = float(_near(np.diff(run.position)).mean())
    return -round(20 * near), run.period, -run.cover, int(run.position[0])


def _evenness(run: Run) -> tuple[float, float, int]:
    """Sort key for a symbol that marks a part of a period: few odd distances, then wide
    coverage."""
    near = float(_near(np.diff(run.position)).mean())
    return near, run.cover, -int(run.position[0])


def _from_seams(part: Run | None) -> Run | None:
    """The longer period that begins at each irregular distance of a part, for periods that no
    symbol of their own marks."""
    if part is None:
        return None
    odd = np.flatnonzero(~_near(np.diff(part.position)))
    seams = np.concatenate(([part.position[0]], part.position[odd + 1]))
    return Run(seams, int(np.median(np.diff(seams))), part.cover)


def _is_part(run: Run) -> bool:
    """Whether the irregular distances of a run recur regularly, so that each begins a longer
    period. A few of them at odd places are interruptions instead, such as an evaluation."""
    near = _near(np.diff(run.position))
    odd = np.flatnonzero(~near)
    if len(odd) < MIN_REPEATS or near.mean() < _WHOLE_RATIO:
        return len(odd) >= MIN_REPEATS
    between = np.diff(odd)
    return bool((np.abs(between - np.median(between)) <= 1).mean() >= 0.8)
