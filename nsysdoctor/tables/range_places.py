"""Where in the program's own ranges something happens."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.tables.step_marks import Marks

_DIGITS = re.compile(r"\d+")


class _Level(NamedTuple):
    """The ranges of one thread at one depth: they follow one another."""

    start: Ints
    end: Ints
    text: Ints


class RangePlaces:
    """Tells the innermost range of a thread at a time; numbers in texts are folded to `#` and
    the ranges that mark steps do not count."""

    def __init__(self, ranges: pd.DataFrame, texts: list[str], step_label: str) -> None:
        self._texts = texts
        self._told = np.array([t != step_label for t in texts], dtype=bool)
        self._ranges = ranges
        self._levels: dict[int, list[_Level]] = {}

    def _of(self, thread: int) -> list[_Level]:
        """The levels of a thread, deepest first, made when first asked for."""
        if thread not in self._levels:
            chosen = (self._ranges["thread"] == thread) & self._ranges["pushed"]
            mine = self._ranges[chosen & self._told[self._ranges["text"].to_numpy()]]
            depth = mine["depth"].to_numpy()
            columns = [mine[c].to_numpy() for c in ("start_ns", "end_ns", "text")]
            self._levels[thread] = [
                _Level(*(column[depth == level] for column in columns))
                for level in sorted(np.unique(depth).tolist(), reverse=True)
            ]
        return self._levels[thread]

    def at(self, thread: Ints, time: Ints) -> list[str]:
        """Returns the folded text of the innermost range at each time, "" outside all."""
        found = np.full(len(time), -1, dtype=np.int64)
        for code in np.unique(thread).tolist():
            rows = np.flatnonzero(thread == code)
            for level in self._of(code):
                open_rows = rows[found[rows] < 0]
                index = np.searchsorted(level.start, time[open_rows], side="right") - 1
                inside = (index >= 0) & (time[open_rows] < level.end[np.maximum(index, 0)])
                found[open_rows[inside]] = level.text[index[inside]]
        return [self._texts[text] if text >= 0 else "" for text in found.tolist()]

    def most(self, thread: Ints, time: Ints, weight: Ints | None = None) -> str:
        """Returns the text that holds more than half of the weight, "" if none does."""
        weights = pd.Series(np.ones(len(time)) if weight is None else weight)
        shares = weights.groupby(self.at(thread, time)).sum().sort_index()
        top = str(shares.idxmax()) if len(shares) else ""
        return top if len(shares) and shares.max() > 0.5 * weights.sum() else ""


@table
def range_places(
    ranges: pd.DataFrame, range_names: pd.DataFrame, step_marks: Marks | None = None
) -> RangePlaces:
    """Returns where things happen in the ranges of each thread."""
    texts = [_DIGITS.sub("#", str(text)) for text in range_names["text"]]
    return RangePlaces(ranges, texts, step_marks.label if step_marks is not None else "")
