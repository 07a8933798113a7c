"""The program's recorded time before a device's first operation and after its last one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import runs
from nsysdoctor.tables.host.thread_states import CAUSE, States
from nsysdoctor.tables.ledger.device_phases import PHASE
from nsysdoctor.tables.ledger.lost_pieces import IDLE
from nsysdoctor.tables.ledger.tiles import Columns, Tiles, cut
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_NONE: Columns = {
    "device": np.empty(0, np.int64), "start_ns": np.empty(0, np.int64),
    "end_ns": np.empty(0, np.int64), "bucket": np.empty(0, np.int8),
    "cause": np.empty(0, np.int8), "thread": np.empty(0, np.int32),
    "api": np.empty(0, np.int32), "phase": np.empty(0, np.int8),
}  # fmt: skip


class _Stretch(NamedTuple):
    """Time of a thread around the span of a device."""

    device: int
    start_ns: int
    end_ns: int
    thread: int
    phase: int
    api: int = -1
    """The call that launched what came next, for the time from its end on."""


@table
def thread_bounds(
    threads: pd.DataFrame,
    api: pd.DataFrame | None = None,
    waits: pd.DataFrame | None = None,
    ranges: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns when each row of `threads` is seen first and last, by its calls and closed ranges:
    first_ns, last_ns (first above last for a thread that is never seen)."""
    limits = np.iinfo(np.int64)
    first = np.full(len(threads), limits.max)
    last = np.full(len(threads), limits.min)
    if ranges is not None:
        ranges = ranges[~ranges["open"]]
    for frame in (api, waits, ranges):
        if frame is None:
            continue
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        for thread, rows in runs(frame["thread"].to_numpy()):
            first[thread] = min(first[thread], int(start[rows].min()))
            last[thread] = max(last[thread], int(end[rows].max()))
    return pd.DataFrame({"first_ns": first, "last_ns": last})


@table
def around_pieces(
    ops: pd.DataFrame,
    horizon: pd.DataFrame,
    request: Request,
    threads: pd.DataFrame,
    processes: pd.DataFrame,
    thread_bounds: pd.DataFrame,
    api: pd.DataFrame | None = None,
    launches: pd.DataFrame | None = None,
    thread_states: dict[int, States] | None = None,
) -> Columns:
    """Returns what the host did before each device's first operation and after its last one.

    Columns: device, start_ns, end_ns, bucket (idle), cause, thread, api, phase (code of before or
    after). The thread is the one that launched the operation; beyond what is seen of it, the
    first thread of its process. Nothing for a part of the capture: what lies around that is no
    start-up.
    """
    if request.window not in ("auto", "all"):
        return _NONE
    stretches = []
    own = threads["process"].to_numpy(), threads["tid"].to_numpy()
    pid = processes["pid"].to_numpy()
    for row in horizon.itertuples(index=False):
        mine = ops[(ops["device"] == row.device).to_numpy()]
        ends = (int(mine["start_ns"].to_numpy().argmin()), int(mine["end_ns"].to_numpy().argmax()))
        for at, phase, edge in zip(ends, ("before", "after"), row[1:], strict=True):
            process = int(mine["process"].iloc[at])
            main = np.flatnonzero((own[0] == process) & (own[1] == (pid[process] & 0xFFFFFF)))
            first = int(main[0]) if len(main) else -1
            call = _launcher(int(mine.index[at]), launches)
            thread = int(api["thread"].iloc[call]) if api is not None and call >= 0 else first
            of = thread_bounds[own[0] == process]
            pair = (thread, first)
            found = _stretches(int(row.device), int(edge), phase, pair, of, thread_bounds)
            if api is not None and call >= 0 and phase == "before":
                found = _launched(found, call, int(api["end_ns"].iloc[call]))
            stretches += found
    return _states_in(stretches, thread_states or {})


def _launcher(op: int, launches: pd.DataFrame | None) -> int:
    """The call that launched an operation, -1 where none is known."""
    if launches is None:
        return -1
    known = launches["op"].to_numpy()
    place = int(np.searchsorted(known, op))
    if place == len(known) or known[place] != op:
        return -1
    return int(launches["api"].iloc[place])


def _launched(stretches: list[_Stretch], call: int, returned_ns: int) -> list[_Stretch]:
    """The stretches with the time since the call returned as that of the launch."""
    found = []
    for one in stretches:
        at = min(max(one.start_ns, returned_ns), one.end_ns)
        found += [one._replace(end_ns=at), one._replace(start_ns=at, api=call)]
    return [one for one in found if one.end_ns > one.start_ns]


def _stretches(
    device: int, edge: int, phase: str, pair: tuple[int, int], of: pd.DataFrame, every: pd.DataFrame
) -> list[_Stretch]:
    """The time from where a process is first seen to `edge`, or from there to where it is last
    seen: that of the launching thread, and beyond it that of the first thread."""
    thread, main = pair
    seen = of[of["first_ns"] <= of["last_ns"]]
    if thread < 0 or not len(seen):
        return []
    code, bounds = PHASE[phase], every.iloc[thread]
    low, high = int(seen["first_ns"].min()), int(seen["last_ns"].max())
    if phase == "before":
        inner = min(max(int(bounds["first_ns"]), low), edge)
        parts = [(low, inner, main), (inner, edge, thread)]
    else:
        inner = max(min(int(bounds["last_ns"]), high), edge)
        parts = [(edge, inner, thread), (inner, high, main)]
    return [_Stretch(device, a, b, who, code) for a, b, who in parts if b > a]


def _states_in(stretches: list[_Stretch], states: dict[int, States]) -> Columns:
    """The stretches cut by what their threads stood in."""
    if not stretches:
        return _NONE
    columns = dict(zip(_Stretch._fields, map(np.array, zip(*stretches, strict=True)), strict=True))
    tiles = {
        thread: Tiles(own.start_ns, np.arange(len(own.start_ns)))
        for thread, own in states.items()
        if (columns["thread"] == thread).any()
    }
    found = cut(columns, "thread", tiles, "state", columns["api"] < 0)
    state, launched = found.pop("state"), found["api"] >= 0
    found["bucket"] = np.full(len(state), IDLE, dtype=np.int8)
    causes = np.where(launched, CAUSE["launch"], CAUSE["host_code"])
    found["cause"] = causes.astype(np.int8)
    for thread in tiles:
        mine = np.flatnonzero((found["thread"] == thread) & ~launched)
        found["cause"][mine] = states[thread].cause[state[mine]]
        found["api"][mine] = states[thread].api[state[mine]]
    return found
