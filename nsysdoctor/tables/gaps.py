"""When a device idles, and what the operation that ended each gap was waiting for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints, Spans, overlay
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import COPY
from nsysdoctor.tables.ops import COMMUNICATION
from nsysdoctor.tables.states import CAUSE, States
from nsysdoctor.tables.time_budget import BUCKETS

HTOD = 1
_NEAR_NS = 10_000
"""An operation that starts this soon after another ended may have waited for it."""

_HAND_OVER_NS = 200_000
"""The longest time a device takes from an operation to the next of the same stream."""

_UNKNOWN, _LAUNCH = CAUSE["unknown"], CAUSE["launch"]


class Pieces(NamedTuple):
    """Parts of gaps: where, the row of the gap, the cause code, thread and call (-1 none)."""

    span: Spans
    gap: Ints
    cause: Ints
    thread: Ints
    api: Ints


@table
def gaps(device_pieces: pd.DataFrame, ops: pd.DataFrame) -> pd.DataFrame:
    """Returns the stretches in which a device ran nothing, by device and start.

    Columns: device, start_ns, end_ns, op (row of the operation that ended it, the first to
    start; -1 where the window ends it).
    """
    idle = device_pieces[device_pieces["bucket"] == BUCKETS.index("idle")]
    idle = idle[["device", "start_ns", "end_ns"]].sort_values(
        ["device", "start_ns"], kind="stable", ignore_index=True
    )
    op = np.full(len(idle), -1, dtype=np.int64)
    starts = ops["start_ns"].to_numpy()
    for device, rows in idle.groupby("device", sort=True):
        mine = np.flatnonzero(ops["device"].to_numpy() == device)
        index = np.searchsorted(starts[mine], rows["end_ns"].to_numpy())
        inside = index < len(mine)
        op[rows.index.to_numpy()[inside]] = mine[index[inside]]
    return idle.assign(op=op)


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
    device = gaps["device"].to_numpy()
    call, returned = _calls(op, launches, api)
    late = (call >= 0) & (returned > start)
    host_end = np.where(late, np.minimum(returned, end), start)
    cause = np.where(late, _LAUNCH, _waited_for(start, end, call, ops, op, op_category))
    parts = [_rest(Spans(host_end, end), cause, np.where(late, call, -1))]
    if api is not None and thread_states is not None:
        thread = np.where(call >= 0, api["thread"].to_numpy()[call], -1)
        parts.append(_host_part(Spans(start, host_end), device, thread, thread_states, api))
    pieces = _stack(parts)
    frame = pd.DataFrame(
        {
            "gap": pieces.gap,
            "device": device[pieces.gap],
            "start_ns": pieces.span.start,
            "end_ns": pieces.span.end,
            "cause": _input_waits(pieces, op, ops, memcpy_rows).astype(np.int8),
            "thread": pieces.thread,
            "api": pieces.api,
        }
    )
    return frame.sort_values(["gap", "start_ns"], kind="stable", ignore_index=True)


def _calls(
    op: Ints, launches: pd.DataFrame | None, api: pd.DataFrame | None
) -> tuple[Ints, Ints]:
    """The row and end of the call of each operation, -1 and 0 where it has none."""
    call = np.full(len(op), -1, dtype=np.int64)
    if launches is None or api is None or not len(launches):
        return call, np.zeros(len(op), dtype=np.int64)
    known = launches["op"].to_numpy()
    index = np.minimum(np.searchsorted(known, op), len(known) - 1)
    found = (known[index] == op) & (op >= 0)
    call[found] = launches["api"].to_numpy()[index[found]]
    return call, np.where(found, api["end_ns"].to_numpy()[call], 0)


def _host_part(
    late: Spans, device: Ints, thread: Ints, states: dict[int, States], api: pd.DataFrame
) -> Pieces:
    """What the launching thread did in the late part of each gap; another thread of the process
    where that one only waited for it."""
    found: list[Pieces] = []
    real = (late.end > late.start) & (thread >= 0)
    # Gaps of one device are disjoint; those of several may overlap.
    pairs = pd.DataFrame({"device": device[real], "thread": thread[real]})
    for (_, code), rows in pairs.groupby(["device", "thread"], sort=True).indices.items():
        part = np.flatnonzero(real)[rows]
        span = Spans(late.start[part], late.end[part])
        pieces, mine, state = overlay(span, states[code].pieces)
        cause = _at(states[code].cause, state, CAUSE["host_code"])
        call = _at(states[code].api, state, -1)
        own = Pieces(pieces, part[mine], cause, np.full(len(mine), code), call)
        found.append(_handed_over(own, code, states, api))
    return _stack(found)


def _at(values: Ints, index: Ints, default: int) -> Ints:
    """The values at an index, the default where the index is negative."""
    padded = np.append(values, default)
    return np.asarray(padded[np.where(index >= 0, index, len(values))], dtype=np.int64)


def _handed_over(own: Pieces, code: int, states: dict[int, States], api: pd.DataFrame) -> Pieces:
    """Replaces the waits of a thread by the CUDA calls of the threads it may wait for."""
    first = pd.Series(api["process"].to_numpy()).groupby(api["thread"].to_numpy()).first()
    for other, state in states.items():
        waiting = own.cause == CAUSE["os_wait"]
        if other == code or first[other] != first[code] or not waiting.any():
            continue
        in_call = state.api >= 0
        calls = Spans(state.pieces.start[in_call], state.pieces.end[in_call])
        idle = _rows(own, waiting)
        pieces, mine, found = overlay(idle.span, calls)
        taken = Pieces(
            pieces,
            idle.gap[mine],
            np.where(found >= 0, _at(state.cause[in_call], found, 0), idle.cause[mine]),
            np.where(found >= 0, other, idle.thread[mine]),
            np.where(found >= 0, _at(state.api[in_call], found, 0), idle.api[mine]),
        )
        joined = _stack([_rows(own, ~waiting), taken])
        own = _rows(joined, np.argsort(joined.span.start, kind="stable"))
    return own


def _rows(pieces: Pieces, which: np.ndarray) -> Pieces:
    return Pieces(
        Spans(pieces.span.start[which], pieces.span.end[which]),
        pieces.gap[which], pieces.cause[which], pieces.thread[which], pieces.api[which],
    )  # fmt: skip


def _stack(parts: list[Pieces]) -> Pieces:
    none = np.empty(0, dtype=np.int64)
    every = [Pieces(Spans(none, none), none, none, none, none), *parts]
    start, end = (np.concatenate([getattr(p.span, b) for p in every]) for b in ("start", "end"))
    columns = ("gap", "cause", "thread", "api")
    return Pieces(
        Spans(start, end), *(np.concatenate([getattr(p, c) for p in every]) for c in columns)
    )


def _rest(rest: Spans, cause: Ints, call: Ints) -> Pieces:
    """The part of each gap after the host's: the launch itself, or waiting for an operation."""
    rows = np.flatnonzero(rest.end > rest.start)
    nobody = np.full(len(rows), -1, dtype=np.int64)
    span = Spans(rest.start[rows], rest.end[rows])
    return Pieces(span, rows, cause[rows], nobody, call[rows])


def _waited_for(
    start: Ints, end: Ints, call: Ints, ops: pd.DataFrame, op: Ints, op_category: pd.Series[str]
) -> Ints:
    """What an operation queued before the gap waited for.

    After its stream's previous operation it is the device passing on: a dependency. In a longer
    gap an operation of another device that ended just before the start is what was waited for:
    communication if it is a collective. Nothing visible is unknown.
    """
    cause = np.full(len(op), _UNKNOWN, dtype=np.int64)
    known, row = (call >= 0) & (op >= 0), np.maximum(op, 0)
    ends, lane = ops["end_ns"].to_numpy(), ops["lane"].to_numpy()
    order = np.argsort(ends, kind="stable")
    before = order[np.maximum(np.searchsorted(ends[order], start, side="right") - 1, 0)]
    passed_on = (end - start <= _HAND_OVER_NS) & (lane[before] == lane[row])
    cause[known & (passed_on | (end - start <= _NEAR_NS))] = CAUSE["dependency"]
    collective = (op_category == COMMUNICATION).to_numpy()
    last = order[np.maximum(np.searchsorted(ends[order], end, side="right") - 1, 0)]
    # The device itself is idle throughout, so whatever ended inside the gap ran elsewhere.
    elsewhere = known & (ends[last] > start) & (end - ends[last] <= _NEAR_NS)
    cause[elsewhere] = CAUSE["dependency"]
    peers = known & ~elsewhere & (end - start > _NEAR_NS) & collective[row]
    cause[(elsewhere & collective[last]) | peers] = CAUSE["communication"]
    return cause


def _input_waits(
    pieces: Pieces, op: Ints, ops: pd.DataFrame, memcpy_rows: pd.DataFrame | None
) -> Ints:
    """Turns an OS wait before a host-to-device copy into a wait for input.

    The thread slept until something came, and what came went to the device.
    """
    if memcpy_rows is None or not len(op):
        return pieces.cause
    row = np.maximum(op, 0)
    is_copy = (op >= 0) & (ops["kind"].to_numpy()[row] == COPY)
    kinds = memcpy_rows["copy_kind"].to_numpy()
    brings = np.zeros(len(op), dtype=bool)
    brings[is_copy] = kinds[ops["row"].to_numpy()[row[is_copy]]] == HTOD
    waited = (pieces.cause == CAUSE["os_wait"]) & brings[pieces.gap]
    return np.where(waited, CAUSE["input_wait"], pieces.cause)
