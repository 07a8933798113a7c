"""Where in the program's own ranges something happens."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.annotation import title
from nsysdoctor.intervals import Ints, Spans, innermost_at, spans
from nsysdoctor.recipe import table
from nsysdoctor.tables.step_marks import Marks

_DIGITS = re.compile(r"\d+")


class RangePlaces:
    """Tells the innermost range of a thread at a time: its title, with numbers folded to `#`.

    `told` says of each text whether it counts; ranges that mark steps do not.
    """

    def __init__(self, ranges: pd.DataFrame, texts: list[str], told: np.ndarray) -> None:
        self._texts = texts
        self._told = told
        self._ranges = ranges
        self._by_thread: dict[int, tuple[Spans, Ints]] = {}

    def _of(self, thread: int) -> tuple[Spans, Ints]:
        """The ranges of a thread and their texts, taken out when first asked for."""
        if thread not in self._by_thread:
            chosen = (self._ranges["thread"] == thread) & self._ranges["pushed"]
            mine = self._ranges[chosen & self._told[self._ranges["text"].to_numpy()]]
            nested = spans(mine["start_ns"], mine["end_ns"])
            self._by_thread[thread] = nested, mine["text"].to_numpy()
        return self._by_thread[thread]

    def at(self, thread: Ints, time: Ints) -> list[str]:
        """Returns the folded text of the innermost range at each time, "" outside all."""
        found = [""] * len(time)
        for code in np.unique(thread).tolist():
            nested, text = self._of(code)
            rows = np.flatnonzero(thread == code)
            inner = innermost_at(nested, time[rows])
            for row, place in zip(rows.tolist(), inner.tolist(), strict=True):
                found[row] = self._texts[text[place]] if place >= 0 else ""
        return found

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
    label = step_marks.label if step_marks is not None else ""
    whole = [str(text) for text in range_names["text"]]
    told = np.array([_DIGITS.sub("#", text) != label for text in whole], dtype=bool)
    return RangePlaces(ranges, [_DIGITS.sub("#", title(text)) for text in whole], told)
