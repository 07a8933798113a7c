"""Which function a thread's own code was in, as far as CPU samples near an instant tell."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, rows_of
from nsysdoctor.tables.host_activity.shares import LEAST_SAMPLES
from nsysdoctor.tables.ledger.tiles import Columns, Tiles, tiles_of

_REACH = 2
"""A sample speaks for so many sampling periods around it, up to the middle of the way to the next
one: further away the thread may not have been on a CPU."""


def function_tiles(
    pieces: Columns, own: np.ndarray, samples: pd.DataFrame
) -> Mapping[int, Tiles]:
    """Returns for each thread its time in tiles owned by functions (rows of the stacks' names).

    Only samples in a thread's `own` pieces count, outside of calls. An instant belongs to the
    nearest of them; a function seen in fewer than five names nothing.
    """
    whose, found = samples["thread"].to_numpy(), {}
    for thread in np.unique(pieces["thread"][own]).tolist():
        rows = rows_of(thread, whose)
        time = samples["start_ns"].to_numpy()[rows]
        function = samples["function"].to_numpy()[rows]
        if len(time) < LEAST_SAMPLES:
            continue
        reach = int(_REACH * np.median(np.diff(time)))
        mine = np.flatnonzero(own & (pieces["thread"] == thread))
        inside = _inside(time, Spans(pieces["start_ns"][mine], pieces["end_ns"][mine]))
        time, function = time[inside], function[inside]
        if len(time):
            found[thread] = _around(time, _often(function), reach)
    return found


def _inside(time: Ints, these: Spans) -> np.ndarray:
    """Which times lie in intervals, of which those of several devices may overlap."""
    opened = np.searchsorted(np.sort(these.start), time, side="right")
    return np.asarray(opened > np.searchsorted(np.sort(these.end), time, side="right"))


def _often(function: Ints) -> Ints:
    """The functions, -1 for those that are seen too rarely."""
    known = np.maximum(function, 0)
    seen = np.bincount(known, function >= 0)
    return np.where((function >= 0) & (seen[known] >= LEAST_SAMPLES), function, -1)


def _around(time: Ints, function: Ints, reach: int) -> Tiles:
    """The time around each sample, up to its reach and the middle between two."""
    kept = np.append(True, time[1:] > time[:-1])
    time, function = time[kept], function[kept]
    middle = time[:-1] + (time[1:] - time[:-1]) // 2
    low, high = time - reach, time + reach + 1
    low[1:], high[:-1] = np.maximum(low[1:], middle), np.minimum(high[:-1], middle)
    real = high > low
    return tiles_of(Spans(low[real], high[real]), function[real])
