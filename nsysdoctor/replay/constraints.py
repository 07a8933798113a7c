"""The constraint graph of a trace, built from its tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import time_order
from nsysdoctor.replay.graph import Graph, Kind, Nodes, Wish, number_nodes, settle
from nsysdoctor.tables.dependencies.latent_waits import LatentWaits
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.tables.host.call_kinds import SUBMITS
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_LAUNCH_NS = 10_000
_STREAM_NS = 2_000
_SEEN_NS = 5_000
_HELD_NS = 20_000
_SLACK_NS = 3_000
"""A start this much later than launch and stream explain was waiting for something else."""


@table
def constraint_graph(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    links: Links,
    waiting: Waiting,
    latent_waits: LatentWaits,
    thread_handoffs: Ints,
    collectives: pd.DataFrame,
    request: Request,
) -> Graph:
    """Returns the constraint graph of the whole trace; see `replay.graph`. What is usual is
    told by what a report is about."""
    nodes = number_nodes(api, ops)
    wishes = (
        _host_wishes(api, nodes, waiting, latent_waits, thread_handoffs),
        _op_wishes(ops, api, nodes, links, waiting, request),
        _run_wishes(ops, nodes, collectives),
    )
    window = request.window if isinstance(request.window, tuple) else None
    return settle(nodes, chain.from_iterable(wishes), window)


def _host_wishes(
    api: pd.DataFrame,
    nodes: Nodes,
    waiting: Waiting,
    latent_waits: LatentWaits,
    thread_handoffs: Ints,
) -> Iterator[Wish]:
    calls = np.flatnonzero(api["top"].to_numpy())
    start, end = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
    order = calls[time_order(start[calls], group=thread_handoffs[calls])]
    follows = thread_handoffs[order][1:] == thread_handoffs[order][:-1]
    earlier, later = order[:-1][follows], order[1:][follows]
    outside = start[later] - end[earlier]
    yield Wish(nodes.call_end[earlier], nodes.call_start[later], outside, Kind.OUTSIDE)
    own = np.where(waiting.blocks[calls], waiting.own_ns[calls], end[calls] - start[calls])
    yield Wish(_of(nodes.call_start, calls), _of(nodes.call_end, calls), own, Kind.CALL)
    late, awaited = latent_waits
    op = nodes.op_end[np.concatenate((waiting.op, awaited))]
    call = nodes.call_end[np.concatenate((waiting.call, late))]
    lag = np.concatenate((waiting.lag_ns, (end - start)[late]))
    yield Wish(op, call, lag, Kind.BLOCK)


def _op_wishes(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    nodes: Nodes,
    links: Links,
    waiting: Waiting,
    request: Request,
) -> Iterator[Wish]:
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    launched, follows = np.flatnonzero(links.call >= 0), np.flatnonzero(links.before >= 0)
    call = links.call[launched]
    latency = start[launched] - api["start_ns"].to_numpy()[call]
    shown = request.in_given_window(ops)
    usual_ns = _usual(latency if shown is None else latency[shown[launched]], _LAUNCH_NS)
    launch_ns = usual_ns + _held_up(api, call, waiting, latency, request)
    pause = start[follows] - end[links.before[follows]]
    told = pause >= 0 if shown is None else (pause >= 0) & shown[follows]
    stream_ns = _usual(pause[told], _STREAM_NS)
    target = _of(nodes.op_start, launched)
    yield Wish(nodes.call_start[call], target, launch_ns, Kind.LAUNCH)
    yield _after(nodes, links.before, stream_ns, Kind.STREAM)
    yield _beside(nodes, links.before, start, end)
    yield _after(nodes, links.engine_turns.engine, 0, Kind.ENGINE)
    yield _after(nodes, links.engine_turns.device, 0, Kind.DEVICE)
    waits = nodes.op_start[waiting.event_waiter]
    yield Wish(nodes.op_end[waiting.event_op], waits, stream_ns, Kind.EVENT)
    promised = np.full(len(ops), np.iinfo(np.int64).min)
    promised[launched] = start[launched] - latency + launch_ns
    for row in (links.before, *links.engine_turns):
        has = np.flatnonzero(row >= 0)
        promised[has] = np.maximum(promised[has], end[row[has]] + stream_ns)
    late = ((links.call >= 0) | (links.before >= 0)) & (start - promised > _SLACK_NS)
    waiter, seen = _seen_waits(ops, np.flatnonzero(late), links.before)
    lag = start[waiter] - end[seen]
    yield Wish(nodes.op_end[seen], nodes.op_start[waiter], lag, Kind.SEEN)


def _of(nodes: Numbers, rows: Ints) -> Numbers:
    """The nodes of sorted rows, uncopied where that is all of them."""
    return nodes if len(rows) == len(nodes) else nodes[rows]


def _after(nodes: Nodes, before: Numbers, typical_ns: int, kind: Kind) -> Wish:
    """Each operation starts after the end of the one before it, where there is one."""
    has = np.flatnonzero(before >= 0)
    return Wish(nodes.op_end[before[has]], nodes.op_start[has], typical_ns, kind)


def _beside(nodes: Nodes, before: Numbers, start: Ints, end: Ints) -> Wish:
    """Operations that begin before the end of the one before them on their stream, as dependent
    launches do, keep their distance from its start."""
    row = np.flatnonzero(before >= 0)
    row = row[start[row] < end[before[row]]]
    first = before[row]
    return Wish(nodes.op_start[first], nodes.op_start[row], start[row] - start[first], Kind.OVERLAP)


def _held_up(
    api: pd.DataFrame, call: Numbers, waiting: Waiting, latency: Ints, request: Request
) -> Ints:
    """How much longer than usual each call was held up before it submitted its operation, by a
    lock or by loading code: its excess, where the operation starts that late at least."""
    length = (api["end_ns"] - api["start_ns"]).to_numpy()
    verb = api["verb"].to_numpy()
    excess = np.zeros(len(api), dtype=np.int64)
    slow = (length > _HELD_NS) & ~waiting.blocks
    shown = request.in_given_window(api)
    for submits in SUBMITS:
        alike = verb == submits
        rows = np.flatnonzero(slow & alike)
        told = alike if shown is None else alike & shown
        if len(rows) and told.any():
            excess[rows] = length[rows] - np.median(length[told])
    held = excess[call]
    held[(held <= _HELD_NS) | (held > latency)] = 0
    return held


def _run_wishes(
    ops: pd.DataFrame, nodes: Nodes, collectives: pd.DataFrame
) -> Iterator[Wish]:
    """How long operations run; the kernels of one collective end once the last has started and
    its transfer is done."""
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy(copy=True)
    met = collectives[collectives["meeting"] >= 0]
    length[met["op"].to_numpy()] = met["transfer_ns"].to_numpy()
    yield Wish(nodes.op_start, nodes.op_end, length, Kind.RUN)
    pairs = met[["op", "meeting", "transfer_ns"]].merge(met[["op", "meeting"]], on="meeting")
    pairs = pairs[pairs["op_x"] != pairs["op_y"]]
    other, mine = nodes.op_start[pairs["op_y"].to_numpy()], nodes.op_end[pairs["op_x"].to_numpy()]
    yield Wish(other, mine, pairs["transfer_ns"].to_numpy(), Kind.MEET)


def _usual(values: Ints, most: int) -> int:
    """The short end of what is seen: what a start costs when nothing else delays it."""
    return int(min(np.percentile(values, 10), most)) if len(values) else most


def _seen_waits(ops: pd.DataFrame, waiter: Ints, before: Numbers) -> tuple[Ints, Ints]:
    """For operations that start late without reason: the operation that ended just before, of
    another stream or overlapped by the one before on the same."""
    start, end = (ops[c].to_numpy() for c in ("start_ns", "end_ns"))
    order = time_order(end)
    index = np.searchsorted(end[order], start[waiter], side="right") - 1
    candidate = order[np.maximum(index, 0)]
    near = (index >= 0) & (start[waiter] - end[candidate] <= _SEEN_NS)
    near &= candidate != before[waiter]
    return waiter[near], candidate[near]
