"""From the pieces of the ledger to its rows in a report, and which findings claim them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import distinct_rows
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.report.model import LostTime
from nsysdoctor.trace.trace import Trace

_SHOWN, _SHORTER = 200, 100
"""Rows of a trace told with thread and range, the longest ones; those told without them."""

OTHERS = "others"
"""The culprit of a row that holds many small ones of one cause."""

_PLACE = ("thread", "range")
_OWNER = ("device", "phase", "bucket", "cause", "culprit_kind")
_KEY = (*_OWNER, "culprit", *_PLACE)
_AROUND = ("before", "after")


class Ledger(NamedTuple):
    """The pieces of lost time, the report row of each, and the rows before findings claim any."""

    pieces: pd.DataFrame
    row: Ints
    rows: list[LostTime]


def ledger_of(trace: Trace, index: int) -> Ledger:
    """Returns the ledger of a trace; a row is worth most first.

    The longest rows are told with thread and range; of the others the range and the thread, and
    then the name, are left out, so that a report stays short and its sums exact.
    """
    pieces = trace.table("lost_time")
    length = (pieces["end_ns"] - pieces["start_ns"]).to_numpy()
    code, first = distinct_rows([_codes(pieces, name) for name in _KEY])
    keys = pd.DataFrame({name: pieces[name].iloc[first].to_numpy(dtype=object) for name in _KEY})
    keys["ns"] = np.bincount(code, length, len(first)).astype(np.int64)
    folded = _folded(keys)
    number, told = pd.factorize(pd.MultiIndex.from_frame(folded[list(_KEY)]))
    row = number[code].astype(np.int64)
    totals = _totals(pieces, row, len(told))
    budget = trace.table("time_budget").set_index("device")["span_ns"]
    rows = [
        _row(index, dict(zip(_KEY, key, strict=True)), total)
        for key, total in zip(told, totals.to_dict("records"), strict=True)
    ]
    rows = _with_ratios(rows, {int(d): int(ns) for d, ns in budget.items()})
    order = sorted(range(len(rows)), key=lambda i: _rank(rows[i]))
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows))
    return Ledger(pieces, place[row], [rows[i] for i in order])


def _rank(row: LostTime) -> tuple[object, ...]:
    return (row.device, row.phase in _AROUND, -row.ns, *(getattr(row, name) for name in _KEY))


def _codes(pieces: pd.DataFrame, name: str) -> np.ndarray:
    column = pieces[name]
    codes = column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column
    return np.asarray(codes)


def _folded(keys: pd.DataFrame) -> pd.DataFrame:
    """The keys, those of short rows without their place and the shortest without their name."""
    found = keys.copy()
    low = _short(found["ns"], _SHOWN)
    found.loc[low, list(_PLACE)] = ""
    rest = found[low].groupby([*_OWNER, "culprit"], sort=False)["ns"].transform("sum")
    names = found.loc[low, [*_OWNER, "culprit"]].assign(ns=rest).drop_duplicates()
    tiny = names[_short(names["ns"], _SHORTER)].drop(columns="ns").assign(tiny=True)
    marked = found.merge(tiny, "left", [*_OWNER, "culprit"])["tiny"].notna().to_numpy()
    found.loc[marked & low & (found["culprit"] != "").to_numpy(), "culprit"] = OTHERS
    return found


def _short(ns: pd.Series[int], kept: int) -> np.ndarray:
    """Which are not among the `kept` largest."""
    order = np.argsort(-ns.to_numpy(), kind="stable")
    low = np.ones(len(ns), dtype=bool)
    low[order[:kept]] = False
    return low


def _totals(pieces: pd.DataFrame, row: Ints, count: int) -> pd.DataFrame:
    """Per row: ns, count of stretches, start and length of the longest; pieces of one row that
    touch are one stretch."""
    start, end = pieces["start_ns"].to_numpy(), pieces["end_ns"].to_numpy()
    device = pieces["device"].to_numpy()
    opens = np.ones(len(row), dtype=bool)
    opens[1:] = (
        (row[1:] != row[:-1]) | (start[1:] != end[:-1]) | (device[1:] != device[:-1])
    )
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(row)) - 1 if len(first) else first
    own, begins, length = row[first], start[first], end[last] - start[first]
    order = np.lexsort((begins, -length, own))
    longest = order[np.append(True, own[order][1:] != own[order][:-1])] if len(order) else order
    return pd.DataFrame(
        {
            "ns": np.bincount(own, length, count).astype(np.int64),
            "count": np.bincount(own, minlength=count),
            "longest_start_ns": begins[longest],
            "longest_ns": length[longest],
        }
    )


def _row(index: int, key: dict[str, object], total: dict[str, int]) -> LostTime:
    text = {name: str(key[name]) for name in _KEY if name != "device"}
    figures = {name: int(value) for name, value in total.items()}
    return LostTime(trace=index, device=int(str(key["device"])), ratio=0.0, **text, **figures)  # type: ignore[arg-type]


def _with_ratios(rows: list[LostTime], span_ns: dict[int, int]) -> list[LostTime]:
    """The rows with their share: inside the span of it, around it of all that was recorded."""
    around = dict.fromkeys(span_ns, 0)
    for row in rows:
        around[row.device] += row.ns if row.phase in _AROUND else 0
    found = []
    for row in rows:
        whole = span_ns[row.device] + (around[row.device] if row.phase in _AROUND else 0)
        found.append(replace(row, ratio=row.ns / whole if whole else 0.0))
    return found


def claimed(
    ledger: Ledger, claims: Sequence[np.ndarray], acted_on: Sequence[bool]
) -> list[LostTime]:
    """Returns the rows with the findings that claim a part of them, by their places.

    `claims` tells for each finding which pieces its cure addresses; `claimed_ns` counts those of
    findings that are `acted_on`, each once.
    """
    count = len(ledger.rows)
    found: list[list[int]] = [[] for _ in range(count)]
    length = (ledger.pieces["end_ns"] - ledger.pieces["start_ns"]).to_numpy()
    some = np.zeros(len(length), dtype=bool)
    for place, (mine, acts) in enumerate(zip(claims, acted_on, strict=True)):
        if acts:
            some |= mine
        for row in np.unique(ledger.row[mine]).tolist():
            found[row].append(place)
    spent = np.bincount(ledger.row[some], length[some], count).astype(np.int64)
    return [
        replace(row, findings=mine, claimed_ns=int(ns))
        for row, mine, ns in zip(ledger.rows, found, spent.tolist(), strict=True)
    ]


def renumbered(rows: Sequence[LostTime], place_of: Sequence[int]) -> list[LostTime]:
    """Returns the rows with their findings numbered by `place_of`, their places in another list;
    findings that became one there are named once."""
    return [
        replace(row, findings=sorted({place_of[number] for number in row.findings}))
        for row in rows
    ]
