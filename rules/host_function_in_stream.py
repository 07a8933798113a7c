"""Host functions put into a stream, behind which the device stands until they have run."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, covered, spans, union
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.steps.range_places import RangePlaces
from nsysdoctor.tables.steps.steps import in_window
from nsysdoctor.trace.recipe import table

_HOST_FUNCTION = re.compile(r"^cu(?:da)?(?:LaunchHostFunc|StreamAddCallback)")
_STREAM_NS, _FAST_NS = 2_000, 900
"""From the end of an operation to the start of the next on its stream when nothing is between."""

_LAUNCH_NS = 10_000
_NO_WAITS = ("thread", "start_ns", "end_ns", "name")


@table
def held_operations(
    host_calls: pd.DataFrame,
    api: pd.DataFrame,
    api_names: pd.DataFrame,
    ops: pd.DataFrame,
    links: Links,
    window: pd.DataFrame,
    *,
    min_held_ns: int,
) -> pd.DataFrame:
    """Returns the operations that start late behind a host function in their stream.

    Columns: op, api (the call that put the function there), name, thread, device, from_ns (its
    stream could have gone on), until_ns, called_ns. A call row names no stream: of the streams
    that the thread submits to just before and just after, the one that stands longer is taken.
    """
    names = api_names["name"].astype(str).to_numpy()
    ours = np.array([_HOST_FUNCTION.match(name) is not None for name in names], dtype=bool)
    put = np.flatnonzero(ours[api["name"].to_numpy()[host_calls["api"].to_numpy()]])
    put = put[in_window(host_calls["start_ns"].to_numpy()[put], window)]
    found = [_behind(host_calls, put, near, ops, links) for near in _neighbours(host_calls, put)]
    op = np.concatenate([each[0] for each in found])
    put = np.concatenate([each[1] for each in found])
    before = links.before[op]
    from_ns = np.maximum(
        ops["end_ns"].to_numpy()[before], host_calls["start_ns"].to_numpy()[put]
    )
    called = api["start_ns"].to_numpy()[links.call[op]] + _LAUNCH_NS
    from_ns = np.maximum(from_ns, called)
    rows = pd.DataFrame(
        {
            "op": op,
            "api": host_calls["api"].to_numpy()[put],
            "name": names[api["name"].to_numpy()[host_calls["api"].to_numpy()[put]]],
            "thread": host_calls["thread"].to_numpy()[put],
            "device": ops["device"].to_numpy()[op],
            "from_ns": from_ns,
            "until_ns": ops["start_ns"].to_numpy()[op],
            "called_ns": host_calls["start_ns"].to_numpy()[put],
        }
    )
    rows = rows.assign(held_ns=rows["until_ns"] - rows["from_ns"])
    rows = rows[rows["held_ns"] >= min_held_ns].sort_values(
        ["api", "held_ns", "op"], kind="stable"
    )
    rows = rows.drop_duplicates("api", keep="last").drop_duplicates("op", keep="last")
    return rows.drop(columns="held_ns").reset_index(drop=True)


def _neighbours(host_calls: pd.DataFrame, put: Ints) -> list[Ints]:
    """The operation that the chain of each call submits last before it, and first behind it."""
    op, chain = host_calls["op"].to_numpy(), host_calls["chain"].to_numpy()
    rows = np.flatnonzero(op >= 0)
    found = []
    for index in (np.searchsorted(rows, put) - 1, np.searchsorted(rows, put)):
        inside = (index >= 0) & (index < len(rows))
        near = rows[np.clip(index, 0, max(len(rows) - 1, 0))] if len(rows) else put
        inside &= chain[near] == chain[put]
        found.append(np.where(inside, op[near], -1).astype(np.int64))
    return found


def _behind(
    host_calls: pd.DataFrame, put: Ints, near: Ints, ops: pd.DataFrame, links: Links
) -> tuple[Ints, Ints]:
    """The first operation that was submitted behind each function to the stream of `near`, and
    the function's call."""
    ops_found, calls = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    lane, start = ops["lane"].to_numpy(), host_calls["start_ns"].to_numpy()
    called = np.full(len(ops), np.iinfo(np.int64).min)
    of_chain = host_calls["op"].to_numpy()
    submits = np.flatnonzero(of_chain >= 0)
    called[of_chain[submits]] = start[submits]
    known = np.flatnonzero((called > np.iinfo(np.int64).min) & (links.before >= 0))
    wanted = np.where(near >= 0, lane[np.maximum(near, 0)], -1)
    for code in np.unique(wanted[wanted >= 0]):
        mine = np.flatnonzero(wanted == code)
        there = known[lane[known] == code]
        there = there[np.argsort(called[there], kind="stable")]
        index = np.searchsorted(called[there], start[put[mine]], side="right")
        inside = index < len(there)
        ops_found.append(there[index[inside]])
        calls.append(put[mine[inside]])
    return np.concatenate(ops_found), np.concatenate(calls)


@table
def host_function_in_stream(
    held_operations: pd.DataFrame,
    gaps: pd.DataFrame,
    threads: pd.DataFrame,
    window: pd.DataFrame,
    thread_labels: list[str],
    waits: pd.DataFrame | None = None,
    range_places: RangePlaces | None = None,
    *,
    min_ratio: float,
) -> pd.DataFrame:
    """Returns a row per call, thread and device: subject, device, thread, name, count (functions
    that hold an operation up), held_ns, typical_ns, longest_ns, idle_ns, place, doing."""
    span_ns = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    rows = []
    for (name, code, device), mine in held_operations.groupby(
        ["name", "thread", "device"], sort=True
    ):
        held = union(spans(mine["from_ns"], mine["until_ns"]))
        hole = gaps[gaps["device"] == device]
        idle = covered(held, union(spans(hole["start_ns"], hole["end_ns"])))
        length = (mine["until_ns"] - mine["from_ns"]).to_numpy()
        if length.sum() <= min_ratio * span_ns:
            continue
        place = range_places and range_places.most(
            mine["thread"].to_numpy(), mine["called_ns"].to_numpy(), length
        )
        rows.append(
            {
                "subject": f"{name} of {thread_labels[code]} on GPU {device}",
                "device": int(device),
                "thread": thread_labels[code],
                "name": str(name),
                "_cause": str(name),
                "count": len(mine),
                "held_ns": int(length.sum()),
                "typical_ns": int(np.median(length)),
                "longest_ns": int(length.max()),
                "idle_ns": int(idle.sum()),
                "place": f", mostly in {place}" if place else "",
                "doing": _doing(held, int(code), threads, waits),
                "_code": int(code),
            }
        )
    return pd.DataFrame(rows)


def _doing(held: Spans, code: int, threads: pd.DataFrame, waits: pd.DataFrame | None) -> str:
    """The OS call in which another thread of the process mostly stands meanwhile, as words."""
    if waits is None:
        return ""
    process = threads["process"].to_numpy()
    others = np.flatnonzero(process == process[code])
    mine = waits[waits["thread"].isin(others[others != code])]
    shares = {
        str(name): int(covered(held, union(spans(those["start_ns"], those["end_ns"]))).sum())
        for name, those in mine.groupby(mine["name"].astype(str), sort=True)
    }
    longest = max(shares, key=lambda name: shares[name], default="")
    if not longest or 2 * shares[longest] < int((held.end - held.start).sum()):
        return ""
    return f"; another thread stands in {longest} meanwhile"


def cure(
    host_function_in_stream: pd.DataFrame, held_operations: pd.DataFrame
) -> list[pd.DataFrame]:
    """The stream goes on without the function."""
    parts = []
    for row, mine in _of_rows(host_function_in_stream, held_operations):
        parts.append(edits(Change.STREAM_NS, row, mine["op"], _STREAM_NS, fast_ns=_FAST_NS))
        parts.append(edits(Change.UNSEEN, row, mine["op"]))
    return join(*parts)


def _of_rows(
    rows: pd.DataFrame, held_operations: pd.DataFrame
) -> list[tuple[int, pd.DataFrame]]:
    by = dict(iter(held_operations.groupby(["name", "thread", "device"])))
    keys = zip(rows["name"], rows["_code"], rows["device"], strict=True)
    return [(row, by[key]) for row, key in enumerate(keys)]


def evidence(
    host_function_in_stream: pd.DataFrame, held_operations: pd.DataFrame
) -> pd.DataFrame:
    """Returns how long the stream stands: row, start_ns, end_ns, what."""
    parts = [
        pd.DataFrame(
            {
                "row": row,
                "start_ns": mine["from_ns"],
                "end_ns": mine["until_ns"],
                "what": "the stream stands behind " + mine["name"],
            }
        )
        for row, mine in _of_rows(host_function_in_stream, held_operations)
    ]
    return pd.concat(parts, ignore_index=True)
