"""Where in the program's own ranges something happens."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, runs
from nsysdoctor.arrays.order import Codes
from nsysdoctor.arrays.sweep import open_at
from nsysdoctor.roofline.operator_text import title
from nsysdoctor.tables.steps.marks import Marks
from nsysdoctor.trace.recipe import table

_DIGITS = re.compile(r"\d+")


class RangePlaces:
    """Tells the innermost range of a thread at a time: its title, with numbers folded to `#`.

    `titles` and `told` say of each text what it is called and whether it counts.
    """

    def __init__(self, ranges: pd.DataFrame, titles: list[str], told: np.ndarray) -> None:
        self._start, self._end, self._text, self._pushed = (
            ranges[column].to_numpy() for column in ("start_ns", "end_ns", "text", "pushed")
        )
        self._rows = dict(runs(ranges["thread"].to_numpy()))
        self._titles = sorted({"", *titles})
        place = {title: code for code, title in enumerate(self._titles)}
        self._title = np.array([place[title] for title in titles], dtype=np.int32)
        self._told = told

    @property
    def titles(self) -> list[str]:
        """Returns all titles, sorted; the first is "", for what lies outside all ranges."""
        return self._titles

    def changes(self, thread: int) -> Ints:
        """Returns the times, sorted and each once, at which the innermost range may change."""
        rows = self._rows.get(thread, slice(0))
        wanted = self._pushed[rows] & self._told[self._text[rows]]
        times = np.concatenate((self._start[rows][wanted], self._end[rows][wanted]))
        return np.asarray(np.unique(times), dtype=np.int64)

    def at(self, thread: Codes, time: Ints) -> Codes:
        """Returns the title of the innermost range at each time, by its place in `titles`; 0
        outside all."""
        found = np.zeros(len(time), dtype=np.int32)
        for code in np.unique(thread).tolist():
            asked, rows = np.flatnonzero(thread == code), self._rows.get(code, slice(0))
            asked = asked[np.argsort(time[asked], kind="stable")]
            text = self._text[rows]
            wanted = self._pushed[rows] & self._told[text]
            inner = open_at(wanted, self._start[rows], self._end[rows], time[asked])
            found[asked[inner >= 0]] = self._title[text[inner[inner >= 0]]]
        return found

    def most(self, thread: Codes, time: Ints, weight: Ints | None = None) -> str:
        """Returns the title that holds more than half of the weight, "" if none does."""
        shares = np.bincount(self.at(thread, time), weight, len(self._titles))
        top = int(shares.argmax())
        return self._titles[top] if shares[top] > 0.5 * shares.sum() else ""


@table
def range_places(
    ranges: pd.DataFrame, range_names: pd.DataFrame, step_marks: Marks | None = None
) -> RangePlaces:
    """Returns where things happen in the ranges of each thread, those that mark steps apart."""
    label = step_marks.label if step_marks is not None else ""
    whole = [str(text) for text in range_names["text"]]
    told = np.array([_DIGITS.sub("#", text) != label for text in whole], dtype=bool)
    return RangePlaces(ranges, _titles(whole), told)


def _titles(texts: list[str]) -> list[str]:
    return [_DIGITS.sub("#", title(text)) for text in texts]


@table
def named_places(ranges: pd.DataFrame, range_names: pd.DataFrame) -> RangePlaces:
    """Returns where things happen in the ranges of each thread, ranges that mark steps too."""
    whole = [str(text) for text in range_names["text"]]
    return RangePlaces(ranges, _titles(whole), np.ones(len(whole), dtype=bool))
