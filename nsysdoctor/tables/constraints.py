"""The constraint graph of a trace, built from its tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.graph import Graph, Kind, Nodes, Wish, number_nodes, settle
from nsysdoctor.intervals import Ints
from nsysdoctor.table import table
from nsysdoctor.tables.activity import COPY
from nsysdoctor.tables.waiting import Waiting

_LAUNCH_NS = 10_000
_STREAM_NS = 2_000
_SEEN_NS = 5_000
_SLACK_NS = 3_000
"""A start this much later than launch and stream explain was waiting for something else."""


class Links(NamedTuple):
    """Per operation: the outermost call that submits it and its predecessors, -1 for none."""

    call: Ints
    before: Ints
    engine: Ints


@table
def links(ops: pd.DataFrame, api: pd.DataFrame, launches: pd.DataFrame) -> Links:
    """Returns what each operation is linked to by submission, stream and copy engine.

    `before` is the previous operation of its stream, `engine` the previous copy of the same
    kind of copy on its device.
    """
    call = np.full(len(ops), -1, dtype=np.int64)
    top = api["top"].to_numpy()
    outer = np.maximum.accumulate(np.where(top, np.arange(len(api)), 0))
    call[launches["op"].to_numpy()] = outer[launches["api"].to_numpy()]
    copying = ops["kind"].to_numpy() == COPY
    return Links(
        call,
        _previous(ops["lane"].to_numpy(), np.ones(len(ops), dtype=bool)),
        _previous(ops["name"].to_numpy() * 4096 + ops["device"].to_numpy(), copying),
    )


def _previous(group: Ints, mine: np.ndarray) -> Ints:
    """The previous row of the same group for each row that counts, in row order."""
    found = np.full(len(group), -1, dtype=np.int64)
    rows = np.flatnonzero(mine)
    order = rows[np.argsort(group[rows], kind="stable")]
    same = group[order][1:] == group[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found


@table
def constraint_graph(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    links: Links,
    waiting: Waiting,
    relay: Ints,
) -> Graph:
    """Returns the constraint graph of the whole trace; see `nsysdoctor.graph`."""
    nodes = number_nodes(api, ops)
    host = _host_wishes(api, nodes, waiting, relay)
    return settle(nodes, [*host, *_op_wishes(ops, api, nodes, links, waiting)])


def _host_wishes(api: pd.DataFrame, nodes: Nodes, waiting: Waiting, relay: Ints) -> list[Wish]:
    calls = np.flatnonzero(api["top"].to_numpy())
    chain = calls[np.lexsort((calls, api["start_ns"].to_numpy()[calls], relay[calls]))]
    follows = relay[chain][1:] == relay[chain][:-1]
    earlier, later = chain[:-1][follows], chain[1:][follows]
    start, end = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
    outside = start[later] - end[earlier]
    own = np.where(waiting.blocks[calls], waiting.own_ns[calls], end[calls] - start[calls])
    return [
        Wish(nodes.call_end[earlier], nodes.call_start[later], outside, Kind.OUTSIDE, later),
        Wish(nodes.call_start[calls], nodes.call_end[calls], own, Kind.CALL, calls),
        Wish(
            nodes.op_end[waiting.op],
            nodes.call_end[waiting.call],
            waiting.lag_ns,
            Kind.BLOCK,
            waiting.call,
        ),
    ]


def _op_wishes(
    ops: pd.DataFrame, api: pd.DataFrame, nodes: Nodes, links: Links, waiting: Waiting
) -> list[Wish]:
    row = np.arange(len(ops))
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    called = api["start_ns"].to_numpy()[np.maximum(links.call, 0)] if len(api) else start
    has_call, has_before = links.call >= 0, links.before >= 0
    latency = np.where(has_call, start - called, 0)
    pause = np.where(has_before, start - end[np.maximum(links.before, 0)], -1)
    launch_ns = _usual(latency[has_call], _LAUNCH_NS)
    stream_ns = _usual(pause[pause >= 0], _STREAM_NS)
    promised = np.maximum(
        np.where(has_call, called + launch_ns, np.iinfo(np.int64).min),
        np.where(has_before, end[np.maximum(links.before, 0)] + stream_ns, np.iinfo(np.int64).min),
    )
    seen_of, seen = _seen_waits(ops, (has_call | has_before) & (start - promised > _SLACK_NS))
    return [
        Wish(
            _node(nodes.call_start, links.call), nodes.op_start,
            np.full(len(ops), launch_ns), Kind.LAUNCH, row,
        ),
        Wish(
            _node(nodes.op_end, links.before), nodes.op_start,
            np.full(len(ops), stream_ns), Kind.STREAM, row,
        ),
        Wish(
            _node(nodes.op_end, links.engine), nodes.op_start,
            np.zeros(len(ops), dtype=np.int64), Kind.ENGINE, row,
        ),
        Wish(
            nodes.op_end[seen], nodes.op_start[seen_of], start[seen_of] - end[seen],
            Kind.SEEN, seen_of,
        ),
        Wish(
            nodes.op_end[waiting.event_op], nodes.op_start[waiting.event_waiter],
            np.full(len(waiting.event_op), stream_ns), Kind.SEEN, waiting.event_waiter,
        ),
        Wish(nodes.op_start, nodes.op_end, end - start, Kind.RUN, row),
    ]  # fmt: skip


def _node(number: Ints, row: Ints) -> Ints:
    """The node of each row, -1 where there is none."""
    return np.asarray(np.where(row >= 0, number[np.maximum(row, 0)], -1), dtype=np.int64)


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
