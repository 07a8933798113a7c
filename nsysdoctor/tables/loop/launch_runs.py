"""Runs of launches that could be one CUDA graph, and graph launches that take too long."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.account.idle_parts import IdleParts, of_calls
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL, SET
from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.tables.loop.host_gaps import PAUSE_NS
from nsysdoctor.tables.loop.host_time import opens_chain
from nsysdoctor.trace.recipe import table

_LAUNCHES = (Verb.LAUNCH, Verb.SET_ASYNC)
GRAPH_NS, NODE_NS = 10_000, 200
"""What launching a graph usually takes: a constant and a share per node. NVIDIA states 2.5 µs and
200 ns per node before CUDA 12.6, less since; the rest is what profiled calls show."""

SLOW_RATIO = 3
"""A graph launch that takes this many times the usual is slow."""

_SHORTEST_NODE_NS = 2_000

_PASSING = (Verb.EVENT_RECORD, Verb.STREAM_WAIT, Verb.QUERY, Verb.OTHER)
"""Calls that a run may hold beside its launches: short ones that leave the queue alone."""


@table
def launch_runs(
    host_calls: pd.DataFrame, ops: pd.DataFrame, loop_calls: np.ndarray
) -> pd.DataFrame:
    """Returns the calls of the window that belong to a run: calls of one chain that each launch
    without waiting, soon after the one before. Copies over the bus end a run.

    Columns: call (row of `host_calls`), run (code), first (bool: opens its run), launch (bool:
    submits a kernel or a set).
    """
    verb, op = host_calls["verb"].to_numpy(), host_calls["op"].to_numpy()
    submits = np.isin(verb, [int(v) for v in _LAUNCHES]) & (op >= 0)
    fitting = submits | np.isin(verb, [int(v) for v in _PASSING])
    fitting &= (host_calls["end_ns"] - host_calls["start_ns"]).to_numpy() < PAUSE_NS
    fitting &= loop_calls & ~host_calls["blocks"].to_numpy()
    follows = fitting & ~opens_chain(host_calls)
    follows[1:] &= fitting[:-1]
    follows &= host_calls["outside_ns"].to_numpy() < PAUSE_NS
    rows = np.flatnonzero(fitting).astype(np.int32)
    kind = ops["kind"].to_numpy()[np.maximum(op[rows], 0)]
    first = ~follows[rows]
    return pd.DataFrame(
        {
            "call": rows,
            "run": np.cumsum(first, dtype=np.int32) - 1,
            "first": first,
            "launch": submits[rows] & np.isin(kind, (KERNEL, SET)),
        },
        copy=False,
    )


@table
def slow_graphs(
    host_calls: pd.DataFrame,
    idle_parts: IdleParts,
    ops: pd.DataFrame,
    launches: pd.DataFrame,
    loop_calls: np.ndarray,
) -> pd.DataFrame:
    """Returns the graph launches of the window that take much longer than usual for their size.

    Columns: call (row of `host_calls`), api, thread, device, call_ns, usual_ns, idle_ns (the device
    idled for it). For a replay that was recorded as a whole, its length limits how many nodes it
    can have.
    """
    chosen = (host_calls["verb"].to_numpy() == int(Verb.GRAPH_LAUNCH)) & loop_calls
    chosen &= ~host_calls["blocks"].to_numpy() & (host_calls["op"].to_numpy() >= 0)
    rows = np.flatnonzero(chosen)
    mine = host_calls.iloc[rows]
    row, op = mine["api"].to_numpy(), mine["op"].to_numpy()
    length = ops["end_ns"].to_numpy()[op] - ops["start_ns"].to_numpy()[op]
    whole = ops["kind"].to_numpy()[op] == GRAPH
    seen = _op_count(row, launches)
    usual = GRAPH_NS + NODE_NS * np.where(whole, length // _SHORTEST_NODE_NS, seen)
    call_ns = (mine["end_ns"] - mine["start_ns"]).to_numpy()
    found = pd.DataFrame(
        {
            "call": rows,
            "api": row,
            "thread": mine["thread"].to_numpy(),
            "device": ops["device"].to_numpy()[op],
            "call_ns": call_ns,
            "usual_ns": usual,
            "idle_ns": of_calls(row, idle_parts.calls, "launch_ns"),
        }
    )
    return found[call_ns > SLOW_RATIO * usual].reset_index(drop=True)


def _op_count(row: Codes, launches: pd.DataFrame) -> Ints:
    """How many operations of the trace each of some calls submitted, at least one."""
    if not len(row):
        return np.empty(0, dtype=np.int64)
    known = launches["api"].to_numpy()
    count = np.bincount(known, minlength=int(row.max()) + 1)
    return np.asarray(np.maximum(count[row], 1))
