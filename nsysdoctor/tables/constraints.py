"""The constraint graph of a trace, built from its tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.graph import Graph, Kind, Nodes, Wish, number_nodes, settle
from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.tables.turns import Turns, previous
from nsysdoctor.tables.waiting import Waiting
from nsysdoctor.verbs import SUBMITS

_LAUNCH_NS = 10_000
_STREAM_NS = 2_000
_SEEN_NS = 5_000
_HELD_NS = 20_000
_SLACK_NS = 3_000
"""A start this much later than launch and stream explain was waiting for something else."""


class Links(NamedTuple):
    """Per operation: the outermost call that submits it and its predecessors, -1 for none."""

    call: Ints
    before: Ints
    turns: Turns


@table
def links(ops: pd.DataFrame, api: pd.DataFrame, launches: pd.DataFrame, turns: Turns) -> Links:
    """Returns what each operation is linked to by submission, stream and shared resources.

    `before` is the previous operation of its stream.
    """
    call = np.full(len(ops), -1, dtype=np.int64)
    top = api["top"].to_numpy()
    outer = np.maximum.accumulate(np.where(top, np.arange(len(api)), 0))
    call[launches["op"].to_numpy()] = outer[launches["api"].to_numpy()]
    before = previous(ops["lane"].to_numpy(), np.ones(len(ops), dtype=bool))
    return Links(call, before, turns)


@table
def constraint_graph(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    links: Links,
    waiting: Waiting,
    relay: Ints,
    collectives: pd.DataFrame,
) -> Graph:
    """Returns the constraint graph of the whole trace; see `nsysdoctor.graph`."""
    nodes = number_nodes(api, ops)
    host = _host_wishes(api, nodes, waiting, relay)
    device = _op_wishes(ops, api, nodes, links, waiting)
    return settle(nodes, [*host, *device, *_run_wishes(ops, nodes, collectives)])


def _host_wishes(api: pd.DataFrame, nodes: Nodes, waiting: Waiting, relay: Ints) -> list[Wish]:
    calls = np.flatnonzero(api["top"].to_numpy())
    chain = calls[np.lexsort((calls, api["start_ns"].to_numpy()[calls], relay[calls]))]
    follows = relay[chain][1:] == relay[chain][:-1]
    earlier, later = chain[:-1][follows], chain[1:][follows]
    start, end = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
    outside = start[later] - end[earlier]
    own = np.where(waiting.blocks[calls], waiting.own_ns[calls], end[calls] - start[calls])
    return [
        Wish(nodes.call_end[earlier], nodes.call_start[later], outside, Kind.OUTSIDE),
        Wish(nodes.call_start[calls], nodes.call_end[calls], own, Kind.CALL),
        Wish(
            nodes.op_end[waiting.op], nodes.call_end[waiting.call], waiting.lag_ns, Kind.BLOCK
        ),
    ]  # fmt: skip


def _op_wishes(
    ops: pd.DataFrame, api: pd.DataFrame, nodes: Nodes, links: Links, waiting: Waiting
) -> list[Wish]:
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    called = api["start_ns"].to_numpy()[np.maximum(links.call, 0)] if len(api) else start
    has_call, has_before = links.call >= 0, links.before >= 0
    latency = np.where(has_call, start - called, 0)
    pause = np.where(has_before, start - end[np.maximum(links.before, 0)], -1)
    launch_ns = _usual(latency[has_call], _LAUNCH_NS) + _held_up(api, links.call, waiting, latency)
    stream_ns = _usual(pause[pause >= 0], _STREAM_NS)
    never = np.iinfo(np.int64).min
    promised = np.maximum.reduce(
        [np.where(has_call, called + launch_ns, never)]
        + [
            np.where(row >= 0, end[np.maximum(row, 0)] + stream_ns, never)
            for row in (links.before, *links.turns)
        ]
    )
    seen_of, seen = _seen_waits(ops, (has_call | has_before) & (start - promised > _SLACK_NS))
    waiter = waiting.event_waiter
    called = np.flatnonzero(has_call)
    return [
        Wish(
            nodes.call_start[links.call[called]], nodes.op_start[called], launch_ns[called],
            Kind.LAUNCH,
        ),
        _after(nodes, links.before, stream_ns, Kind.STREAM),
        _after(nodes, links.turns.engine, 0, Kind.ENGINE),
        _after(nodes, links.turns.device, 0, Kind.DEVICE),
        Wish(
            nodes.op_end[seen], nodes.op_start[seen_of], start[seen_of] - end[seen], Kind.SEEN
        ),
        Wish(
            nodes.op_end[waiting.event_op], nodes.op_start[waiter], stream_ns, Kind.EVENT
        ),
    ]  # fmt: skip


def _after(nodes: Nodes, before: Ints, typical_ns: int, kind: Kind) -> Wish:
    """Each operation starts after the end of the one before it, where there is one."""
    has = np.flatnonzero(before >= 0)
    return Wish(nodes.op_end[before[has]], nodes.op_start[has], typical_ns, kind)


def _held_up(api: pd.DataFrame, call: Ints, waiting: Waiting, latency: Ints) -> Ints:
    """How much longer than usual the call of each operation was held up before it submitted, by
    a lock or by loading code: its excess, where the operation starts that late at least."""
    held = np.zeros(len(call), dtype=np.int64)
    launching = np.isin(api["verb"], [int(v) for v in SUBMITS]) & ~waiting.blocks
    length = (api["end_ns"] - api["start_ns"]).to_numpy()
    usual = pd.Series(length).groupby(api["verb"].to_numpy()).transform("median").to_numpy()
    excess = np.where(launching, length - usual, 0).astype(np.int64)
    rows = np.flatnonzero(call >= 0)
    mine = excess[call[rows]]
    late = (mine > _HELD_NS) & (latency[rows] >= mine)
    held[rows[late]] = mine[late]
    return held


def _run_wishes(ops: pd.DataFrame, nodes: Nodes, collectives: pd.DataFrame) -> list[Wish]:
    """How long operations run; the kernels of one collective end once the last has started and
    its transfer is done."""
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy().copy()
    met = collectives[collectives["meeting"] >= 0]
    length[met["op"].to_numpy()] = met["transfer_ns"].to_numpy()
    pairs = met[["op", "meeting", "transfer_ns"]].merge(met[["op", "meeting"]], on="meeting")
    pairs = pairs[pairs["op_x"] != pairs["op_y"]]
    other, mine = pairs["op_y"].to_numpy(), pairs["op_x"].to_numpy()
    return [
        Wish(nodes.op_start, nodes.op_end, length, Kind.RUN),
        Wish(
            nodes.op_start[other], nodes.op_end[mine], pairs["transfer_ns"].to_numpy(), Kind.MEET
        ),
    ]  # fmt: skip


def _usual(values: Ints, most: int) -> int:
    """The short end of what is seen: what a start costs when nothing else delays it."""
    return int(min(np.percentile(values, 10), most)) if len(values) else most


def _seen_waits(ops: pd.DataFrame, waits: np.ndarray) -> tuple[Ints, Ints]:
    """For operations that start late without reason: the operation of another stream that ended
    just before."""
    waiter = np.flatnonzero(waits)
    start, end, lane = (ops[c].to_numpy() for c in ("start_ns", "end_ns", "lane"))
    order = np.argsort(end, kind="stable")
    index = np.searchsorted(end[order], start[waiter], side="right") - 1
    candidate = order[np.maximum(index, 0)]
    near = (index >= 0) & (start[waiter] - end[candidate] <= _SEEN_NS)
    near &= lane[candidate] != lane[waiter]
    return waiter[near], candidate[near]
