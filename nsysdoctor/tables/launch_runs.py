"""Runs of launches that could be one CUDA graph, and graph launches that take too long."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import GRAPH, KERNEL, SET
from nsysdoctor.tables.host_time import in_loop
from nsysdoctor.tables.starving import PAUSE_NS
from nsysdoctor.tables.states import CAUSE
from nsysdoctor.verbs import Verb

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
def launch_runs(host_calls: pd.DataFrame, ops: pd.DataFrame, window: pd.DataFrame) -> pd.DataFrame:
    """Returns the calls of the window that belong to a run: of one chain, each launching without
    waiting and soon after the one before. Copies over the bus end a run.

    Columns: call (row of `host_calls`), api, run (code), first (bool: opens its run), launch
    (bool: submits a kernel or a set), op (the operation it submits, -1 none), chain.
    """
    verb = host_calls["verb"].to_numpy()
    op, before = host_calls["op"].to_numpy(), host_calls["before"].to_numpy()
    kind = ops["kind"].to_numpy()[np.maximum(op, 0)]
    submits = np.isin(verb, [int(v) for v in _LAUNCHES]) & (op >= 0)
    fitting = submits | np.isin(verb, [int(v) for v in _PASSING])
    short = (host_calls["end_ns"] - host_calls["start_ns"]).to_numpy() < PAUSE_NS
    fitting &= short & ~host_calls["blocks"].to_numpy()
    fitting &= in_loop(host_calls, window)
    follows = np.zeros(len(host_calls), dtype=bool)
    follows[1:] = fitting[1:] & fitting[:-1] & (before[1:] >= 0)
    follows &= host_calls["outside_ns"].to_numpy() < PAUSE_NS
    run = np.cumsum(fitting & ~follows) - 1
    rows = np.flatnonzero(fitting)
    return pd.DataFrame(
        {
            "call": rows,
            "api": host_calls["api"].to_numpy()[rows],
            "run": run[rows],
            "first": ~follows[rows],
            "launch": (submits & np.isin(kind, (KERNEL, SET)))[rows],
            "op": op[rows],
            "chain": host_calls["chain"].to_numpy()[rows],
        }
    )


@table
def slow_graphs(
    host_calls: pd.DataFrame,
    gap_causes: pd.DataFrame,
    ops: pd.DataFrame,
    launches: pd.DataFrame,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the graph launches of the window that take much longer than usual for their size.

    Columns: call (row of `host_calls`), api, thread, device, call_ns, usual_ns, idle_ns (the
    device idled for it). Of a replay recorded as a whole its length tells how many nodes it can
    have at most.
    """
    graphs = (host_calls["verb"] == int(Verb.GRAPH_LAUNCH)) & ~host_calls["blocks"]
    chosen = (graphs & (host_calls["op"] >= 0)).to_numpy()
    rows = np.flatnonzero(chosen & in_loop(host_calls, window))
    mine = host_calls.iloc[rows].reset_index(drop=True)
    op = mine["op"].to_numpy()
    seen = mine["api"].map(launches["api"].value_counts()).fillna(1).to_numpy(dtype=np.int64)
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()[op]
    whole = ops["kind"].to_numpy()[op] == GRAPH
    usual = GRAPH_NS + NODE_NS * np.where(whole, length // _SHORTEST_NODE_NS, seen)
    launching = gap_causes[gap_causes["cause"] == CAUSE["launch"]]
    idle = (launching["end_ns"] - launching["start_ns"]).groupby(launching["api"]).sum()
    call_ns = mine["end_ns"] - mine["start_ns"]
    found = pd.DataFrame(
        {
            "call": rows,
            "api": mine["api"],
            "thread": mine["thread"],
            "device": ops["device"].to_numpy()[op],
            "call_ns": call_ns,
            "usual_ns": usual,
            "idle_ns": mine["api"].map(idle).fillna(0).astype(np.int64),
        }
    )
    return found[call_ns > SLOW_RATIO * usual].reset_index(drop=True)
