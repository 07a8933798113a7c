"""Finds out, before an export is read, which of its rows the results for a window depend on.

Each query here scans a table for a few columns or one value; `nsysdoctor.ingest.cut` says what is
looked for and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from nsysdoctor.ingest.cut import OPERATIONS, Capture, Cut, Stretch, View, widened
from nsysdoctor.ingest.lookup import COPIES, KERNELS, PLACE, Lookup, Pairs, Values
from nsysdoctor.ingest.reader import Export
from nsysdoctor.ingest.schema import SOURCES
from nsysdoctor.ingest.source import Source

_SURE_NS = 100_000
"""Only a longer operation can overlap the next of its stream so far that its end is impossible."""

_TIMES, _OPERATIONS = 10, 200_000
"""The surroundings in which steps are looked for: times the window, and operations."""

_MOST_LONE = 1_000
"""More ids than this are taken as a stretch."""

_BY_NAME: dict[str, Source] = {source.name: source for source in SOURCES}


def survey(export: Export, low_ns: int, high_ns: int) -> View:
    """Returns which rows to read for the results of a window, and what is known of the rest."""
    low, high = widened(low_ns, high_ns)
    cut = Cut(low, high, low, high)
    tables = [Lookup(export, _BY_NAME[name], cut) for name in OPERATIONS]
    api = Lookup(export, _BY_NAME["api"], cut)
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
    last = api.picked('max("end")', f'"end" <= {low}', "global_tid")
    cut = _with_calls(cut, linked, named)
    cut = _with_ids(cut, _queued(tables, cut, high, last))
    cut = _with_host(cut, api, ops[(ops["end_ns"] > low_ns) & (ops["start_ns"] < high_ns)])
    cut = _with_lone(cut, [*last, *_capturing(export, api, low, high)])
    return View(cut, _capture(tables, cut, bounds, places))


def _capture(
    tables: Sequence[Lookup], cut: Cut, bounds: tuple[int, int], places: Pairs
) -> Capture:
    """Facts about the whole capture, for when only a cut of it is read."""
    kernel, copy = tables[:2]
    early = f"start < {cut.low_ns} AND ({kernel.linked(cut)}) IS NOT TRUE"
    ran = kernel.distinct("global_pid", "full_id", early=early)
    moved = copy.distinct(*COPIES, where=copy.large())
    return Capture(
        *bounds, _frame(places, *PLACE[:2]), _frame(ran, *KERNELS), _frame(moved, *COPIES)
    )


def _frame(rows: Pairs, *names: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(names), dtype=np.int64)


def surroundings(export: Export, view: View) -> View:
    """Returns a wider view, large enough to see what repeats in the window: several times its
    length and at least a number of operations. Where the capture holds no more than that, it is the
    whole capture."""
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


def _bounds(tables: Iterable[Lookup]) -> tuple[int, int]:
    """The start of the first and the end of the last operation."""
    answers = [row for table in tables for row in table.select('min(start), max("end")')]
    known = [(int(str(low)), int(str(high))) for low, high in answers if low is not None]
    return min((low for low, _ in known), default=0), max((high for _, high in known), default=0)


def _places(tables: Iterable[Lookup]) -> Pairs:
    """The processes and CUDA ordinals that operations ran on."""
    return sorted({pair for t in tables for pair in t.distinct("global_pid", "ordinal")})


def _silent(ops: pd.DataFrame, places: Pairs, from_ns: int) -> Pairs:
    """The places where, among the rows read so far, no operation begins at or after a time."""
    near = ops[ops["start_ns"] >= from_ns]
    seen = set(zip(near["global_pid"].tolist(), near["ordinal"].tolist(), strict=True))
    return [place for place in places if place not in seen]


def _following(tables: Iterable[Lookup], places: Pairs, high_ns: int) -> list[Values]:
    """The first operation of each place at or after a time."""
    keys = [{"global_pid": process, "ordinal": ordinal} for process, ordinal in places]
    first: dict[int, int] = {}
    for table in tables if keys else ():
        parts = [f"min(start) FILTER (WHERE {table.alike(key)})" for key in keys]
        for row in table.select(", ".join(parts), f"start >= {high_ns}"):
            for place, start in enumerate(row):
                if isinstance(start, int):
                    first[place] = min(first.get(place, start), start)
    return [{**keys[place], "start_ns": start} for place, start in sorted(first.items())]


def _preceding(tables: Iterable[Lookup], low_ns: int) -> list[Values]:
    """The operation that ended last, at or before a time."""
    ends = [end for t in tables for end in t.aggregate('max("end")', f'"end" <= {low_ns}')]
    return [{"end_ns": max(ends)}] if ends else []


def _succeeding(
    tables: Sequence[Lookup], ops: pd.DataFrame, low_ns: int, high_ns: int
) -> list[Values]:
    """The next operation on the stream of each long operation that crosses the window's edges."""
    long = (ops["end_ns"] - ops["start_ns"] > _SURE_NS) & (ops["node"] == 0)
    over = (ops["start_ns"] < low_ns) | (ops["end_ns"] > high_ns)
    found: list[Values] = []
    for row in ops[long & over].to_dict("records"):
        place = {name: row[name] for name in (*PLACE, "node")}
        start, end = row["start_ns"], row["end_ns"]
        later = f'(start > {start} OR (start = {start} AND "end" > {end}))'
        answers = [t.aggregate("min(start)", f"{t.alike(place)} AND {later}") for t in tables]
        known = [time for times in answers for time in times]
        found += [{**place, "start_ns": min(known)}] if known else []
    return found


def _queued(tables: Sequence[Lookup], cut: Cut, high_ns: int, last: Pairs) -> Pairs:
    """The operations that were launched before the cut and start after it, because the host ran
    ahead."""
    up_to = {process: first - 1 for process, first, _ in cut.stretches}
    for recorded, number in last:
        process = recorded if cut.by_process else 0
        if all(process != known.process for known in cut.stretches):
            up_to[process] = max(up_to.get(process, 0), number)
    return [
        pair
        for table in tables
        for pair in table.distinct(
            "global_pid",
            "correlation",
            where=f"start >= {high_ns} AND ({table.numbered(cut, up_to)})",
        )
    ]


def _capturing(export: Export, api: Lookup, low_ns: int, high_ns: int) -> Pairs:
    """The calls that show whether a stream is being captured into a graph at the edges of the cut:
    per process the last ones before it and the first ones after it."""
    found: Pairs = []
    for word in ("StreamBeginCapture", "StreamEndCapture") if "StringIds" in export.tables else ():
        ids = export.query(f"SELECT id FROM StringIds WHERE value LIKE '%{word}%'")
        named = api.named([int(str(row[0])) for row in ids if isinstance(row[0], int)])
        found += api.picked("max(start)", f"start < {low_ns} AND {named}", "global_pid")
        found += api.picked("min(start)", f"start >= {high_ns} AND {named}", "global_pid")
    return found


def _with_calls(cut: Cut, linked: pd.DataFrame, named: Pairs) -> Cut:
    """The cut with the ids of all operations and calls read or listed: as stretches where they
    began inside it, one by one where they began earlier."""
    linked = linked[linked["correlation"] > 0]
    if not cut.by_process:
        linked = linked.assign(global_pid=0)
    begun = linked["start_ns"] >= cut.low_ns
    stretches = tuple(
        Stretch(int(str(process)), int(ids.min()), int(ids.max()))
        for process, ids in linked[begun].groupby("global_pid", sort=True)["correlation"]
    )
    early = linked.loc[~begun, ["global_pid", "correlation"]].itertuples(index=False, name=None)
    return _with_ids(replace(cut, stretches=stretches), [*early, *named])


def _with_ids(cut: Cut, ids: Iterable[tuple[int, ...]]) -> Cut:
    """The cut with further ids: one by one, or, where a process has many of them, merged with its
    stretch into a longer one."""
    cut = _with_lone(cut, ids)
    stretches = {stretch.process: stretch for stretch in cut.stretches}
    lone = dict(cut.lone)
    for process in [process for process, numbers in lone.items() if len(numbers) > _MOST_LONE]:
        every = lone.pop(process).union(stretches.get(process, ())[1:])
        stretches[process] = Stretch(process, min(every), max(every))
    return replace(cut, stretches=tuple(stretches.values()), lone=lone)


def _with_lone(cut: Cut, ids: Iterable[tuple[int, ...]]) -> Cut:
    """The cut with further single ids."""
    more = {process: cut.lone_of(process) | new for process, new in _outside(cut, ids).items()}
    return replace(cut, lone={**cut.lone, **more})


def _outside(cut: Cut, ids: Iterable[tuple[int, ...]]) -> dict[int, frozenset[int]]:
    """Of some ids those that lie in none of the stretches, per process."""
    within = {stretch.process: stretch for stretch in cut.stretches}
    found: dict[int, set[int]] = {}
    for recorded, number in ids:
        process = recorded if cut.by_process else 0
        known = within.get(process)
        if number > 0 and not (known and known.first <= number <= known.last):
            found.setdefault(process, set()).add(number)
    return {process: frozenset(numbers) for process, numbers in found.items()}


def _with_host(cut: Cut, api: Lookup, running: pd.DataFrame) -> Cut:
    """The cut with the host's time span: while it made the calls of the stretches and those of
    operations that run in the window."""
    ids = running[["global_pid", "correlation"]].itertuples(index=False, name=None)
    with_running = replace(cut, lone=_outside(cut, ids))
    for low, high in api.select("min(start), max(start)", api.linked(with_running)):
        if isinstance(low, int) and isinstance(high, int):
            return replace(
                cut, host_low_ns=min(low, cut.low_ns), host_high_ns=max(high, cut.high_ns)
            )
    return cut
