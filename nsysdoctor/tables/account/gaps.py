"""When a device idles, and what the operation that ended each gap was waiting for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, runs, tiles_met
from nsysdoctor.arrays.order import Codes, narrowed, stacked, time_order
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.activity.gpu_rows import COPY
from nsysdoctor.tables.activity.ops import COMMUNICATION
from nsysdoctor.tables.host.thread_states import CAUSE, OWN_CODE, States
from nsysdoctor.trace.recipe import table

HTOD = 1
NEAR_NS = 10_000
"""An operation that starts this soon after another ended may have waited for it."""

_HAND_OVER_NS = 200_000
"""The longest time a device takes from an operation to the next of the same stream."""


@table
def gaps(device_pieces: pd.DataFrame, ops: pd.DataFrame) -> pd.DataFrame:
    """Returns the stretches in which a device ran nothing, by device and start.

    Columns: device, start_ns, end_ns, op (row of the operation that ended it, the first to
    start; -1 where the window ends it).
    """
    idle = np.flatnonzero(device_pieces["bucket"].to_numpy() == BUCKETS.index("idle"))
    found = {c: device_pieces[c].to_numpy()[idle] for c in ("device", "start_ns", "end_ns")}
    op = np.full(len(idle), -1, dtype=np.int32)
    for device, rows in runs(found["device"]):
        mine = np.flatnonzero(ops["device"].to_numpy() == device)
        index = np.searchsorted(ops["start_ns"].to_numpy()[mine], found["end_ns"][rows])
        inside = index < len(mine)
        op[rows][inside] = mine[index[inside]]
    return pd.DataFrame({**found, "op": op}, copy=False)


class Host(NamedTuple):
    """What the launching thread did in the first part of each gap, until `end_ns`: `size` of
    `states`, from row `first` on. Without such a part `end_ns` is the start of the gap."""

    states: States
    thread: Codes
    first: Ints
    size: Ints
    end_ns: Ints


@table
def gap_causes(
    gaps: pd.DataFrame,
    ops: pd.DataFrame,
    op_category: pd.Series[str],
    launches: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    thread_states: dict[int, States] | None = None,
    memcpy_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the gaps cut into pieces of one cause each; they tile `gaps` exactly.

    Columns: gap, device, start_ns, end_ns, cause (code into `CAUSES`), thread, api (row of the
    call the host stood in, -1 none), sorted by gap and start.

    The operation that ends a gap tells what was waited for. If its call ended after the gap
    began, the host was late: what its thread did until then is the cause, followed by the
    launch itself. If the call ended before, the operation waited for another one.
    """
    start, end, op = (gaps[c].to_numpy() for c in ("start_ns", "end_ns", "op"))
    call, returned = _calls(op, launches, api)
    late = (call >= 0) & (returned > start)
    host_end = np.where(late, np.minimum(returned, end), start)
    cause = np.full(len(gaps), CAUSE["unknown"], dtype=np.int8)
    cause[late] = CAUSE["launch"]
    queued = np.flatnonzero((call >= 0) & ~late)
    cause[queued] = _waited_for(Spans(start[queued], end[queued]), op[queued], ops, op_category)
    call[~late] = -1
    host = _host(Spans(start, host_end), call, thread_states or {}, api)
    pieces = _pieces(gaps, host, cause, call)
    if api is not None and len(thread_states or {}) > 1:
        _name_threads(pieces, api)
    _name_inputs(pieces, op, ops, memcpy_rows)
    return pd.DataFrame(pieces, copy=False)


def _calls(
    op: Codes, launches: pd.DataFrame | None, api: pd.DataFrame | None
) -> tuple[Codes, Ints]:
    """The row and end of the call of each operation, -1 and 0 where it has none."""
    call, returned = np.full(len(op), -1, dtype=np.int32), np.zeros(len(op), dtype=np.int64)
    if launches is None or api is None or not len(launches):
        return call, returned
    known = launches["op"].to_numpy()
    index = np.minimum(np.searchsorted(known, op), len(known) - 1)
    found = np.flatnonzero((known[index] == op) & (op >= 0))
    call[found] = launches["api"].to_numpy()[index[found]]
    returned[found] = api["end_ns"].to_numpy()[call[found]]
    return call, returned


def _host(
    late: Spans, call: Codes, states: dict[int, States], api: pd.DataFrame | None
) -> Host:
    """What the launching thread did in the late part of each gap."""
    thread = np.full(len(call), -1, dtype=np.int32)
    first, size = (np.zeros(len(call), dtype=np.int64) for _ in range(2))
    rows = np.flatnonzero(late.end > late.start)
    parts: list[States] = []
    if api is not None:
        thread[rows] = api["thread"].to_numpy()[call[rows]]
    for code in np.unique(thread[rows]).tolist():
        mine = rows[thread[rows] == code]
        at, size[mine] = tiles_met(
            Spans(late.start[mine], late.end[mine]), states[code].start_ns
        )
        first[mine] = at + sum(len(part.api) for part in parts)
        parts.append(states[code])
    joined = States(*map(stacked, zip(*(parts or [OWN_CODE]), strict=True)))
    return Host(joined, thread, first, size, late.end)


def _pieces(gaps: pd.DataFrame, host: Host, cause: Codes, call: Codes) -> dict[str, np.ndarray]:
    """The columns of `gap_causes`: in each gap what the host did, then what `cause` and `call`
    say of the rest: the launch itself, or waiting for an operation."""
    start, end = gaps["start_ns"].to_numpy(), gaps["end_ns"].to_numpy()
    more = host.end_ns < end
    count = host.size + more
    last = np.cumsum(count) - 1
    first, rest = last - count + 1, last[more]
    gap = np.repeat(np.arange(len(gaps), dtype=np.int32), count)
    state = np.arange(len(gap), dtype=np.int32)
    state -= np.repeat((first - host.first).astype(np.int32), count)
    state[rest] = 0
    found = {
        "gap": gap,
        "device": np.repeat(gaps["device"].to_numpy(), count),
        "start_ns": host.states.start_ns[state],
        "end_ns": np.empty(len(gap), dtype=np.int64),
        "cause": host.states.cause[state],
        "thread": np.repeat(narrowed(host.thread), count),
        "api": host.states.api[state],
    }
    found["start_ns"][first], found["start_ns"][rest] = start, host.end_ns[more]
    found["end_ns"][:-1], found["end_ns"][last] = found["start_ns"][1:], end
    found["cause"][rest], found["api"][rest], found["thread"][rest] = cause[more], call[more], -1
    return found


def _name_threads(pieces: dict[str, np.ndarray], api: pd.DataFrame) -> None:
    """Names the threads that others waited for: those whose calls the host stood in."""
    thread = pieces["thread"].astype(np.int32)
    in_call = np.flatnonzero((thread >= 0) & (pieces["api"] >= 0))
    thread[in_call] = api["thread"].to_numpy()[pieces["api"][in_call]]
    pieces["thread"] = narrowed(thread)


def _name_inputs(
    pieces: dict[str, np.ndarray], op: Codes, ops: pd.DataFrame, memcpy_rows: pd.DataFrame | None
) -> None:
    """EngineTurns an OS wait before a host-to-device copy into a wait for input.

    The thread slept until something came, and what came went to the device.
    """
    if memcpy_rows is None:
        return
    waits = np.flatnonzero(pieces["cause"] == CAUSE["os_wait"])
    before = op[pieces["gap"][waits]]
    waits, before = waits[before >= 0], before[before >= 0]
    is_copy = ops["kind"].to_numpy()[before] == COPY
    waits, row = waits[is_copy], ops["row"].to_numpy()[before[is_copy]]
    brings = memcpy_rows["copy_kind"].to_numpy()[row] == HTOD
    pieces["cause"][waits[brings]] = CAUSE["input_wait"]


def _waited_for(
    gap: Spans, op: Codes, ops: pd.DataFrame, op_category: pd.Series[str]
) -> Codes:
    """What an operation queued before the gap waited for.

    After its stream's previous operation it is the device passing on: a dependency. In a longer
    gap an operation of another device that ended just before the start is what was waited for:
    communication if it is a collective. Nothing visible is unknown.
    """
    cause = np.full(len(op), CAUSE["unknown"], dtype=np.int8)
    if not len(op):
        return cause
    length, lane = gap.end - gap.start, ops["lane"].to_numpy()
    order = time_order(ops["end_ns"].to_numpy())
    ends = ops["end_ns"].to_numpy()[order]
    before = order[np.maximum(np.searchsorted(ends, gap.start, side="right") - 1, 0)]
    passed_on = (length <= _HAND_OVER_NS) & (lane[before] == lane[op])
    cause[passed_on | (length <= NEAR_NS)] = CAUSE["dependency"]
    collective = (op_category == COMMUNICATION).to_numpy()
    place = np.maximum(np.searchsorted(ends, gap.end, side="right") - 1, 0)
    # The device itself is idle throughout, so whatever ended inside the gap ran elsewhere.
    elsewhere = (ends[place] > gap.start) & (gap.end - ends[place] <= NEAR_NS)
    cause[elsewhere] = CAUSE["dependency"]
    peers = ~elsewhere & (length > NEAR_NS) & collective[op]
    cause[(elsewhere & collective[order[place]]) | peers] = CAUSE["communication"]
    return cause
