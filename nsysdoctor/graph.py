"""The constraint graph of a trace: what every call and operation had to wait for.

Nodes are the starts and ends of outermost host calls and of GPU operations. An edge says that a
node comes no earlier than another one plus a lag. The edge that bound in reality carries the
observed lag and the others a typical lag no larger than observed, so that without edits the
replay gives back every time exactly. Edges only lead forward in observed order.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints


@unique
class Kind(IntEnum):
    """What an edge stands for."""

    OUTSIDE = 0
    """A thread's time between two calls, or before the call that another thread waited for."""
    CALL = 1
    """A call's own cost: its start to its end."""
    LAUNCH = 2
    """A call's start to the start of an operation it submits."""
    STREAM = 3
    """An operation's end to the start of the next on its stream."""
    SEEN = 4
    """An operation's end to the start of another that is seen to wait for it."""
    ENGINE = 5
    """A copy's end to the start of the next of its direction on the device."""
    RUN = 6
    """An operation's duration."""
    BLOCK = 7
    """An operation's end to the end of the call that waits for it."""
    DEVICE = 8
    """The end of a kernel that fills its device to the start of the next of another stream."""
    MEET = 9
    """The start of one rank's collective to the end of another's: they end together."""
    EVENT = 10
    """An operation's end to the start of another that waits for it by a recorded event."""


class Nodes(NamedTuple):
    """Where the nodes of each thing lie: `call_start[r]` for row r of `api` (-1 if nested)."""

    call_start: Ints
    call_end: Ints
    op_start: Ints
    op_end: Ints
    time: Ints


class Edges(NamedTuple):
    """Edges by target node: source, target, lag, kind, and the row of the thing they lead to."""

    source: Ints
    target: Ints
    lag: Ints
    kind: Ints
    row: Ints


class Graph(NamedTuple):
    """Nodes numbered in processing order, edges sorted by target, first edge of each node."""

    nodes: Nodes
    edges: Edges
    first: Ints


def number_nodes(api: pd.DataFrame, ops: pd.DataFrame) -> Nodes:
    """Returns nodes numbered in observed order, ends before the starts they allow."""
    calls = np.flatnonzero(api["top"].to_numpy())
    n, m = len(calls), len(ops)
    time = np.concatenate(
        [
            api["start_ns"].to_numpy()[calls], api["end_ns"].to_numpy()[calls],
            ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy(),
        ]
    )  # fmt: skip
    index = np.concatenate([np.arange(n), np.arange(n), np.arange(m), np.arange(m)])
    # At one instant: operations end, calls end, calls start, operations start; things of no
    # length start and end in the order of their rows.
    length = np.concatenate([np.tile(time[n : 2 * n] - time[:n], 2),
                             np.tile(time[2 * n + m :] - time[2 * n : 2 * n + m], 2)])  # fmt: skip
    role = np.repeat([2, 1, 3, 0], [n, n, m, m])
    instant = length == 0
    role = np.where(instant & (role == 1), 2, np.where(instant & (role == 0), 3, role))
    is_end = np.concatenate([np.zeros(n), np.ones(n), np.zeros(m), np.ones(m)]).astype(np.int8)
    order = np.lexsort((is_end, index, role, time))
    number = np.empty(len(time), dtype=np.int64)
    number[order] = np.arange(len(time))
    call_start = np.full(len(api), -1, dtype=np.int64)
    call_end = np.full(len(api), -1, dtype=np.int64)
    call_start[calls], call_end[calls] = number[:n], number[n : 2 * n]
    return Nodes(
        call_start, call_end, number[2 * n : 2 * n + m], number[2 * n + m :], time[order]
    )


class Wish(NamedTuple):
    """Edges before their lags are settled: the typical lag of each, and whether it must bind."""

    source: Ints
    target: Ints
    typical: Ints
    kind: Kind
    row: Ints


def settle(nodes: Nodes, wishes: list[Wish]) -> Graph:
    """Returns the graph: of the edges into a node the one that promises the latest time binds
    and gets the observed lag; the others get their typical lag, at most the observed one."""
    source = np.concatenate([w.source for w in wishes])
    target = np.concatenate([w.target for w in wishes])
    typical = np.concatenate([w.typical for w in wishes])
    kind = np.repeat([int(w.kind) for w in wishes], [len(w.source) for w in wishes])
    row = np.concatenate([w.row for w in wishes])
    forward = (source >= 0) & (target >= 0) & (source < target)
    source, target, typical = source[forward], target[forward], typical[forward]
    kind, row = kind[forward].astype(np.int64), row[forward]
    order = np.lexsort((source, kind, target))
    source, target, typical = source[order], target[order], typical[order]
    kind, row = kind[order], row[order]
    observed = nodes.time[target] - nodes.time[source]
    lag = np.minimum(typical, observed)
    first = np.searchsorted(target, np.arange(len(nodes.time) + 1))
    promised = nodes.time[source] + typical
    # The last edge of each target after sorting by promise binds.
    rank = np.lexsort((-kind, promised, target))
    has = first[1:] > first[:-1]
    binding = rank[first[1:][has] - 1]
    lag[binding] = observed[binding]
    return Graph(nodes, Edges(source, target, lag, kind, row), first)
