"""Looking over an export for what a window's numbers depend on, before it is read.

All of this scans tables for a few columns or a single value; `nsysdoctor.ingest.cut` says what is
looked for and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.export_codes import PROCESS_MASK, UNIFIED_MEMORY
from nsysdoctor.ingest.cut import (
    LARGE_BYTES,
    OPERATIONS,
    Capture,
    Cut,
    Stretch,
    View,
    equal,
    process_of,
    sound,
    spelled,
)
from nsysdoctor.ingest.reader import Export
from nsysdoctor.ingest.schema import SOURCES, Source
from nsysdoctor.window import widened

_SURE_NS = 1_000_000_000
"""Only a longer operation can reach over the next one of its stream by a second."""

_TIMES, _OPERATIONS = 10, 200_000
"""The surroundings in which steps are looked for: times the window, and operations."""

_MOST_LONE = 1_000
"""More ids than this are taken as a stretch."""

_PLACE = ["global_pid", "ordinal", "context", "green", "stream"]
_COLUMNS = ["start_ns", "end_ns", "correlation", "node", *_PLACE]
_KERNELS = ("global_pid", "full_id", "early")
_COPIES = ("global_pid", "ordinal", "copy_kind", "bytes", "start_ns", "end_ns")
_KNOWN = frozenset({*_COLUMNS, *_KERNELS, *_COPIES, "global_tid", "src_kind", "dst_kind"})
_BY_NAME: dict[str, Source] = {source.name: source for source in SOURCES}

Values = Mapping[str, int]
Pairs = list[tuple[int, ...]]


def survey(export: Export, low_ns: int, high_ns: int) -> View:
    """Returns what to read for the numbers of a window, and what is known of the rest."""
    low, high = widened(low_ns, high_ns)
    cut = Cut(low, high, low, high)
    tables = [_Table(export, _BY_NAME[name], cut) for name in OPERATIONS]
    api = _Table(export, _BY_NAME["api"], cut)
    ops = pd.concat([table.rows for table in tables], ignore_index=True)
    bounds, places = _bounds(tables), _places(tables)
    further: list[Values] = [*_succeeding(tables, ops, low, high)]
    if bounds[0] < low and not (ops["end_ns"] <= low_ns).any():
        further += _preceding(tables, low)
    if bounds[1] > high:
        further += _following(tables, _silent(ops, places, high_ns), high)
    linked = pd.concat([ops, api.rows], ignore_index=True)
    named = [pair for table in tables for pair in table.ids(further)]
    cut = replace(
        cut,
        further=tuple(further),
        by_process=any(process for process, _ in places),
        clean=frozenset(table.name for table in (*tables, api) if table.clean),
    )
    cut = _with_calls(cut, linked, named, api.last_ids(low))
    return View(_with_host(cut, api), _capture(tables, cut, bounds, places))


def _capture(
    tables: Sequence[_Table], cut: Cut, bounds: tuple[int, int], places: Pairs
) -> Capture:
    """What is known of the whole capture, if a cut of it is read."""
    kernel, copy = tables[:2]
    early = f"start < {cut.low_ns} AND ({kernel.linked(cut)}) IS NOT TRUE"
    ran = kernel.distinct("global_pid", "full_id", early=early)
    moved = copy.distinct(*_COPIES, where=copy.large())
    return Capture(
        *bounds, _frame(places, *_PLACE[:2]), _frame(ran, *_KERNELS), _frame(moved, *_COPIES)
    )


def _frame(rows: Pairs, *names: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(names), dtype=np.int64)


def surroundings(export: Export, view: View) -> View:
    """Returns a wider view: of several times the window and at least of so many operations that
    what recurs in it is seen to recur; of all where the capture has no more."""
    cut, capture = view
    if cut is None or capture is None:
        return view
    sources = [export.table_of(_BY_NAME[name]) for name in OPERATIONS]
    count = sum(export.count(f'SELECT count(*) FROM "{name}"') for name in sources if name)
    whole = capture.last_ns - capture.first_ns
    wide = max(_TIMES * (cut.high_ns - cut.low_ns), whole * _OPERATIONS // max(count, 1)) // 2
    middle = (cut.low_ns + cut.high_ns) // 2
    low, high = middle - wide, middle + wide
    if low <= capture.first_ns and capture.last_ns <= high:
        return View(None, capture)
    return View(Cut(low, high, low, high, clean=cut.clean), capture)


class _Table:
    """A table of operations or calls, as far as it is looked at here; empty if it is missing.

    `rows` are those near the window: start_ns, end_ns, correlation, node and place. A `clean`
    table holds no row whose times cannot be.
    """

    def __init__(self, export: Export, source: Source, cut: Cut) -> None:
        self.name = source.name
        self._export = export
        self._source = replace(source, columns=tuple(c for c in source.columns if c.name in _KNOWN))
        self._table = export.table_of(source)
        self._present: Sequence[str] = export.tables.get(self._table or "", ())
        try:
            found = export.read(self._source, cut)
        except MissingTableError:
            self._table, self.clean, self.rows = None, False, _rows(pd.DataFrame())
        else:
            self.clean, self.rows = not found.dropped, _rows(found.frame)

    def ask(self, asked: str, where: str = "1", per: str = "") -> list[tuple[object, ...]]:
        """Returns what is asked of the rows whose times can be, under a condition; of all of
        them, or of those that are alike in something."""
        if self._table is None:
            return []
        known = [f"({where})"] + ([] if self.clean else [sound(self._source, self._present)])
        kind, filtered = spelled(self._source, "copy_kind", self._present), self._source.where
        if kind is not None:
            known.append(f"{kind} NOT IN {UNIFIED_MEMORY}")
        if filtered is not None and filtered[0] in self._present:
            known.append(filtered[1])
        where = " AND ".join(known)
        grouped = f" GROUP BY {per}" if per else ""
        return self._export.query(f'SELECT {asked} FROM "{self._table}" WHERE {where}{grouped}')

    def least(self, asked: str, where: str) -> list[int]:
        """Returns the one number that is asked of the rows under a condition; none without any."""
        return [int(str(row[0])) for row in self.ask(asked, where) if row[0] is not None]

    def last_ids(self, up_to_ns: int) -> Pairs:
        """Returns process and correlation id of the last row of each thread to end by a time."""
        thread, number = map(self._column, ("global_tid", "correlation"))
        rows = self.ask(f'{thread}, {number}, max("end")', f'"end" <= {up_to_ns}', per=thread)
        last = (map(int, map(str, row)) for row in rows if _whole(row))
        return sorted((whose & PROCESS_MASK, call) for whose, call, _ in last)

    def distinct(self, *names: str, where: str = "1", **told: str) -> Pairs:
        """Returns the combinations of columns, and of whether conditions hold, sorted."""
        asked = [*map(self._column, names), *told.values()]
        rows = self.ask("DISTINCT " + ", ".join(asked), where)
        return sorted(tuple(map(int, map(str, row))) for row in rows if _whole(row))

    def large(self) -> str:
        """Returns the condition on large copies between pinned memory and a device."""
        kind, size, source, target = map(
            self._column, ("copy_kind", "bytes", "src_kind", "dst_kind")
        )
        ends = f"({source} = 1 AND {target} != 0 OR {target} = 1 AND {source} != 0)"
        return f"{kind} IN (1, 2) AND {size} >= {LARGE_BYTES} AND {ends}"

    def ids(self, wanted: Sequence[Values]) -> Pairs:
        """Returns process and correlation id of single operations."""
        if not wanted:
            return []
        where = " OR ".join(self.alike(values) for values in wanted)
        return self.distinct("global_pid", "correlation", where=where)

    def alike(self, values: Values) -> str:
        """Returns the condition that columns have these values."""
        return equal(self._source, self._present, values)

    def linked(self, cut: Cut, *, lone: bool = True) -> str:
        """Returns the condition on rows whose id the cut names."""
        return cut.calls(self._source, self._present, lone=lone)

    def _column(self, name: str) -> str:
        if name == "global_pid":
            return f"ifnull({process_of(self._source, self._present)}, 0)"
        return f"ifnull({spelled(self._source, name, self._present) or 0}, 0)"


def _whole(row: tuple[object, ...]) -> bool:
    """Whether all values are numbers, as they should be."""
    return all(isinstance(value, int) for value in row)


def _rows(found: pd.DataFrame) -> pd.DataFrame:
    """The columns that are looked at; what a table lacks is 0."""
    if "copy_kind" in found:
        found = found[~found["copy_kind"].isin(UNIFIED_MEMORY)]
    if "global_tid" in found:
        process = np.asarray(found["global_tid"], dtype=np.int64) & np.int64(PROCESS_MASK)
        found = found.assign(global_pid=process)
    return found.reindex(columns=_COLUMNS, fill_value=0).astype(np.int64)


def _bounds(tables: Iterable[_Table]) -> tuple[int, int]:
    """From when to when operations ran."""
    asked = [row for table in tables for row in table.ask('min(start), max("end")')]
    known = [(int(str(low)), int(str(high))) for low, high in asked if low is not None]
    return min((low for low, _ in known), default=0), max((high for _, high in known), default=0)


def _places(tables: Iterable[_Table]) -> Pairs:
    """The processes and CUDA ordinals that operations ran on."""
    return sorted({pair for t in tables for pair in t.distinct("global_pid", "ordinal")})


def _silent(ops: pd.DataFrame, places: Pairs, from_ns: int) -> Pairs:
    """The places where nothing begins from a time on, as far as was read."""
    near = ops[ops["start_ns"] >= from_ns]
    seen = set(zip(near["global_pid"].tolist(), near["ordinal"].tolist(), strict=True))
    return [place for place in places if place not in seen]


def _following(tables: Iterable[_Table], places: Pairs, high_ns: int) -> list[Values]:
    """The first operation of each place from a time on."""
    keys = [{"global_pid": process, "ordinal": ordinal} for process, ordinal in places]
    first: dict[int, int] = {}
    for table in tables if keys else ():
        parts = [f"min(start) FILTER (WHERE {table.alike(key)})" for key in keys]
        for row in table.ask(", ".join(parts), f"start >= {high_ns}"):
            for place, start in enumerate(row):
                if isinstance(start, int):
                    first[place] = min(first.get(place, start), start)
    return [{**keys[place], "start_ns": start} for place, start in sorted(first.items())]


def _preceding(tables: Iterable[_Table], low_ns: int) -> list[Values]:
    """What ended last up to a time."""
    ends = [end for t in tables for end in t.least('max("end")', f'"end" <= {low_ns}')]
    return [{"end_ns": max(ends)}] if ends else []


def _succeeding(
    tables: Sequence[_Table], ops: pd.DataFrame, low_ns: int, high_ns: int
) -> list[Values]:
    """What follows on their stream behind long operations that reach over the edges."""
    long = (ops["end_ns"] - ops["start_ns"] > _SURE_NS) & (ops["node"] == 0)
    over = (ops["start_ns"] < low_ns) | (ops["end_ns"] > high_ns)
    found: list[Values] = []
    for row in ops[long & over].to_dict("records"):
        place = {name: row[name] for name in (*_PLACE, "node")}
        start, end = row["start_ns"], row["end_ns"]
        later = f'(start > {start} OR (start = {start} AND "end" > {end}))'
        asked = [t.least("min(start)", f"{t.alike(place)} AND {later}") for t in tables]
        known = [time for times in asked for time in times]
        found += [{**place, "start_ns": min(known)}] if known else []
    return found


def _with_calls(cut: Cut, linked: pd.DataFrame, named: Pairs, last: Pairs) -> Cut:
    """The cut with the ids of the operations and calls read and named: stretches of those that
    began in it, and one by one what reaches into it, and the last calls before it."""
    linked = linked[linked["correlation"] > 0]
    if not cut.by_process:
        linked = linked.assign(global_pid=0)
    begun = linked["start_ns"] >= cut.low_ns
    stretches = {
        int(str(process)): Stretch(int(str(process)), int(ids.min()), int(ids.max()))
        for process, ids in linked[begun].groupby("global_pid", sort=True)["correlation"]
    }
    early = linked.loc[~begun, ["global_pid", "correlation"]].itertuples(index=False, name=None)
    lone = _outside(stretches, [*early, *named], cut)
    for process in [process for process, ids in lone.items() if len(ids) > _MOST_LONE]:
        ids = lone.pop(process).union(stretches.get(process, ())[1:])
        stretches[process] = Stretch(process, min(ids), max(ids))
    for process, ids in _outside(stretches, last, cut).items():
        lone.setdefault(process, set()).update(ids)
    return replace(
        cut,
        stretches=tuple(stretches.values()),
        lone={process: tuple(sorted(ids)) for process, ids in sorted(lone.items())},
    )


def _outside(
    stretches: Mapping[int, Stretch], ids: Iterable[tuple[int, ...]], cut: Cut
) -> dict[int, set[int]]:
    """Per process those of some ids that lie in none of the stretches."""
    found: dict[int, set[int]] = {}
    for told, number in ids:
        process = told if cut.by_process else 0
        within = stretches.get(process)
        if number > 0 and not (within and within.first <= number <= within.last):
            found.setdefault(process, set()).add(number)
    return found


def _with_host(cut: Cut, api: _Table) -> Cut:
    """The cut with the time in which the host made the calls of the stretches."""
    for low, high in api.ask("min(start), max(start)", api.linked(cut, lone=False)):
        if isinstance(low, int) and isinstance(high, int):
            return replace(
                cut, host_low_ns=min(low, cut.low_ns), host_high_ns=max(high, cut.high_ns)
            )
    return cut
