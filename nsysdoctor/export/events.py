"""A trace's tables for other programs: readable frames, and a Perfetto trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError, UsageError
from nsysdoctor.tables.host.thread_states import CAUSES
from nsysdoctor.trace.trace import table_recipes

if TYPE_CHECKING:
    from nsysdoctor.trace.trace import Trace

TABLES = (
    "ops", "api", "gap_causes", "copies", "steps", "time_budget", "devices", "waits", "ranges",
)  # fmt: skip
"""What an export holds when no table is named."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_KINDS = np.array(["kernel", "copy", "set", "graph"], dtype=object)


def readable(trace: Trace, name: str) -> pd.DataFrame:
    """Returns a table with codes replaced by texts and the step of each event where it has one.

    Raises UsageError for a name that is no table and MissingTableError when the trace lacks it.
    """
    if name not in table_recipes():
        known = ", ".join(TABLES)
        raise UsageError(f"there is no table {name}", f"the usual ones are: {known}")
    frame = trace.table(name)
    if not isinstance(frame, pd.DataFrame):
        raise UsageError(f"{name} is no table of rows", f"use one of: {', '.join(TABLES)}")
    return _with_texts(trace, name, frame.copy())


def _with_texts(trace: Trace, name: str, frame: pd.DataFrame) -> pd.DataFrame:
    if name == "ops":
        names = trace.table("names")
        for column in ("full", "short", "category"):
            frame[column] = names[column].to_numpy(dtype=object)[frame["name"]]
        frame["kind"] = _KINDS[frame["kind"]]
    elif name == "api":
        frame["name"] = trace.table("api_names")["name"].to_numpy(dtype=object)[frame["name"]]
    elif name == "gap_causes":
        frame["cause"] = np.array(CAUSES, dtype=object)[frame["cause"]]
    elif name == "ranges":
        texts = trace.table("range_names")["text"].to_numpy(dtype=object)
        frame["text"] = texts[frame["text"]]
        frame["process"] = trace.table("threads")["process"].to_numpy()[frame["thread"]]
        frame["depth"] = trace.table("range_depth")["depth"]
    return frame


def guarded(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the frame with texts that a spreadsheet would run as formulas after an apostrophe."""
    kinds = frame.dtypes
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(kinds[name])]
    return frame.assign(**{name: _guarded(frame[name]) for name in texts})


def _guarded(cells: pd.Series) -> pd.Series:
    risky = {text: f"'{text}" for text in cells.unique() if str(text).startswith(_FORMULAS)}
    return cells.map(lambda text: risky.get(text, text)) if risky else cells


def readable_tables(trace: Trace) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields every usual table that the trace can give, by name."""
    for name in TABLES:
        try:
            yield name, readable(trace, name)
        except MissingTableError:
            continue


def write_perfetto(trace: Trace, file: TextIO) -> None:
    """Writes the trace in the JSON that Perfetto and other trace viewers open.

    One process per GPU with a thread per stream, one per host process with its threads; times in
    microseconds from the first event, exact to the nanosecond.
    """
    events = _events(trace)
    file.write('{"otherData": {"tool": "nsysdoctor"}, "traceEvents": [\n')
    for place, event in enumerate(events):
        file.write((",\n" if place else "") + json.dumps(event, ensure_ascii=True))
    file.write("\n]}\n")


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    ops = readable(trace, "ops")
    api = readable(trace, "api") if trace.optional("api") is not None else None
    origin = int(ops["start_ns"].min())
    if api is not None and len(api):
        origin = min(origin, int(api["start_ns"].min()))
    yield from _names(trace)
    for row in ops.to_dict("records"):
        where = {"pid": int(row["device"]), "tid": int(row["lane"])}
        yield _event(row, row["short"], origin, where, {"name": row["full"]})
    if api is None:
        return
    for row in api.to_dict("records"):
        yield _event(row, row["name"], origin, _host(row), {"correlation": row["correlation"]})
    if trace.optional("ranges") is not None:
        for row in readable(trace, "ranges").to_dict("records"):
            yield _event(row, row["text"], origin, _host(row), {})


def _host(row: dict[str, Any]) -> dict[str, int]:
    return {"pid": 1000 + int(row["process"]), "tid": int(row["thread"])}


def _event(
    row: dict[str, Any], name: str, origin: int, where: dict[str, int], more: dict[str, Any]
) -> dict[str, Any]:
    start, length = int(row["start_ns"]) - origin, int(row["end_ns"]) - int(row["start_ns"])
    return {"ph": "X", "name": name, "ts": start / 1000, "dur": length / 1000, **where,
            "args": more}  # fmt: skip


def _names(trace: Trace) -> Iterator[dict[str, Any]]:
    def named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}

    for row in trace.table("devices").to_dict("records"):
        yield named("process_name", int(row["device"]), 0, f"GPU {row['device']} {row['name']}")
    for lane, row in enumerate(trace.table("lanes").to_dict("records")):
        yield named("thread_name", int(row["device"]), lane, f"stream {row['stream']}")
    for code, row in enumerate(trace.table("processes").to_dict("records")):
        yield named("process_name", 1000 + code, 0, f"process {row['pid']} {row['name']}".strip())
    threads = trace.optional("threads")
    for code, row in enumerate([] if threads is None else threads.to_dict("records")):
        label = row["name"] or f"thread {row['tid']}"
        yield named("thread_name", 1000 + int(row["process"]), code, label)
