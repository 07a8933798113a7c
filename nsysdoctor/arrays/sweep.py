"""Which of several nested ranges is open at a time: one sweep over ranges and times in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsysdoctor.arrays.compiled import run_pass
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes


def open_at(wanted: np.ndarray, start: Ints, end: Ints, time: Ints) -> Codes:
    """Returns for each time the row of the innermost wanted range open then, -1 outside all.

    Ranges nest properly and are sorted by start, the longest first where starts are equal; times
    are sorted.
    """
    found = np.full(len(time), -1, dtype=np.int32)
    if len(start):
        stack = np.zeros(len(start), dtype=np.int32)
        run_pass(_sweep, len(start) + len(time), (wanted, start, end, time), (stack, found))
    return found


def _sweep(
    wanted: Any, start: Any, end: Any, time: Any, stack: Any, found: Any
) -> None:
    """Fills `found`. `stack` holds the ranges that are open, the outermost at index 0."""
    row = depth = 0
    for place in range(len(time)):
        now = time[place]
        while row < len(start) and start[row] <= now:
            if wanted[row]:
                while depth and end[stack[depth - 1]] <= start[row]:
                    depth -= 1
                stack[depth] = row
                depth += 1
            row += 1
        while depth and end[stack[depth - 1]] <= now:
            depth -= 1
        found[place] = stack[depth - 1] if depth else -1
