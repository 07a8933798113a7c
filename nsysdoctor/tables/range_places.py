"""Where in the program's own ranges something happens."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints, Spans, innermost, spans
from nsysdoctor.recipe import table
from nsysdoctor.tables.step_marks import Marks

_DIGITS = re.compile(r"\d+")


class RangePlaces:
    """Tells the innermost range of a thread at a time; numbers in texts are folded to `#` and
    the ranges that mark steps do not count."""

    def __init__(self, ranges: pd.DataFrame, texts: list[str], step_label: str) -> None:
        self._texts = texts
        told = np.array([t != step_label for t in texts], dtype=bool)
        kept = ranges[ranges["pushed"] & told[ranges["text"].to_numpy()]]
        self._by_thread: dict[int, tuple[Spans, Ints]] = {}
        for thread, rows in kept.groupby("thread", sort=True):
            pieces, owner = innermost(spans(rows["start_ns"], rows["end_ns"]))
            self._by_thread[int(thread)] = pieces, rows["text"].to_numpy()[owner]

    def at(self, thread: Ints, time: Ints) -> list[str]:
        """Returns the folded text of the innermost range at each time, "" outside all."""
        found = [""] * len(time)
        for code in np.unique(thread).tolist():
            if code not in self._by_thread:
                continue
            pieces, text = self._by_thread[code]
            rows = np.flatnonzero(thread == code)
            index = np.searchsorted(pieces.start, time[rows], side="right") - 1
            inside = (index >= 0) & (time[rows] < pieces.end[np.maximum(index, 0)])
            for row, piece in zip(rows[inside].tolist(), index[inside].tolist(), strict=True):
                found[row] = self._texts[text[piece]]
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
    texts = [_DIGITS.sub("#", str(text)) for text in range_names["text"]]
    return RangePlaces(ranges, texts, step_marks.label if step_marks is not None else "")
