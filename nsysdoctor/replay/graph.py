"""The constraint graph of a trace: what every call and operation had to wait for.

Nodes are the starts and ends of outermost host calls and of GPU operations. An edge says that a
node comes no earlier than another one plus a lag. The edge that bound in reality carries the
observed lag and the others a typical lag no larger than observed, so that without edits the
replay gives back every time exactly. Edges only lead forward in observed order.

A trace of ten million kernels has fifty million edges, hence the narrow types. What node an edge
leads to follows from its place, and the call or operation that it is about from that node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum, unique
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.arrays.intervals import Ints

Lags = npt.NDArray[np.signedinteger[Any]]
"""Lags, ns: int32 where all fit, else int64."""

_BLOCK = 1 << 18
"""How many nodes are looked at together, so that what is made on the way stays small."""


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
    OVERLAP = 4
    """An operation's start to the start of the next on its stream that begins before it ends."""
    SEEN = 5
    """An operation's end to the start of another that is seen to wait for it."""
    ENGINE = 6
    """A copy's end to the start of the next of its direction on the device."""
    RUN = 7
    """An operation's duration."""
    BLOCK = 8
    """An operation's end to the end of the call that waits for it."""
    DEVICE = 9
    """The end of a kernel that fills its device to the start of the next of another stream."""
    MEET = 10
    """The start of one rank's collective to the end of another's: they end together."""
    EVENT = 11
    """An operation's end to the start of another that waits for it by a recorded event."""


_ENTERED = {
    Kind.OUTSIDE: "call_start",
    Kind.CALL: "call_end",
    Kind.BLOCK: "call_end",
    Kind.RUN: "op_end",
    Kind.MEET: "op_end",
}
"""The nodes that edges of a kind lead to, where those are not the starts of operations."""

_SEVERAL = frozenset({Kind.BLOCK, Kind.MEET, Kind.EVENT})
"""The kinds of which several edges may lead to one node."""

_PASSED_ON = (Kind.STREAM, Kind.ENGINE)


class Nodes(NamedTuple):
    """Where the nodes of each thing lie: `call_start[r]` for row r of `api` (-1 if nested)."""

    call_start: Numbers
    call_end: Numbers
    op_start: Numbers
    op_end: Numbers
    time: Ints


class Edges(NamedTuple):
    """Edges by target node, then by kind: source (`~source` for one that is cut), lag, kind."""

    source: Numbers
    lag: Lags
    kind: npt.NDArray[np.int8]


class Graph(NamedTuple):
    """Nodes numbered in processing order; edges `first[n]` to `first[n + 1]` lead to node n.

    `kinds` are those of the edges, `usual_ns` is what following on the same stream or copy engine
    usually takes.
    """

    nodes: Nodes
    edges: Edges
    first: Numbers
    kinds: frozenset[Kind]
    usual_ns: Mapping[Kind, int]

    def into(self, kind: Kind, row: npt.NDArray[Any]) -> tuple[Numbers, Ints]:
        """Returns (edge, index into `row`) for all edges of the kind that lead to the calls or
        operations."""
        if kind not in self.kinds:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        node = getattr(self.nodes, _ENTERED.get(kind, "op_start"))[row]
        edge, end = self.first[node], self.first[node + 1]
        if kind in _SEVERAL:
            count = np.where(node >= 0, end - edge, 0)
            index = np.repeat(np.arange(len(row)), count)
            edge = np.repeat(edge - (np.cumsum(count, dtype=np.int32) - count), count)
            edge += np.arange(len(edge), dtype=np.int32)
            mine = self.edges.kind[edge] == kind
            return edge[mine], index[mine]
        at = self.edges.kind.take(edge, mode="clip")
        while (behind := (at < kind) & (edge < end)).any():
            edge += behind
            at = self.edges.kind.take(edge, mode="clip")
        mine = (at == kind) & (edge < end)
        return edge[mine], np.flatnonzero(mine)

    def left(self, kind: Kind) -> Numbers:
        """Returns the nodes of the operations at which edges of the kind start."""
        return self.nodes.op_start if kind == Kind.OVERLAP else self.nodes.op_end

    def leaving(self, kind: Kind, row: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
        """Returns (edge, index into `row`) for the edges of the kind that start at the
        operations and are not cut."""
        if kind not in self.kinds:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        of = np.full(len(self.nodes.time) + 1, -1, dtype=np.int32)
        of[self.left(kind)[row]] = np.arange(len(row), dtype=np.int32)
        edge = np.flatnonzero(self.edges.kind == kind).astype(np.int32)
        # A cut edge starts nowhere: behind the last node.
        index = of[np.maximum(self.edges.source[edge], -1)]
        return edge[index >= 0], index[index >= 0]


def source_of(source: Numbers) -> Numbers:
    """Returns the nodes at which edges start, those of cut edges as well."""
    return np.where(source < 0, ~source, source)


def fitting(lag: Lags, values: npt.NDArray[Any]) -> Lags:
    """Returns the lags in a type that can hold the values as well: themselves where it can."""
    limit = np.iinfo(np.int32)
    fits = not len(values) or (values.min() > limit.min and values.max() <= limit.max)
    return lag if fits or lag.dtype == np.int64 else lag.astype(np.int64)


def number_nodes(api: pd.DataFrame, ops: pd.DataFrame) -> Nodes:
    """Returns nodes numbered in observed order, ends before the starts they allow."""
    top = np.flatnonzero(api["top"].to_numpy())
    called, returned = (api[c].to_numpy()[top] for c in ("start_ns", "end_ns"))
    began, ended = (ops[c].to_numpy() for c in ("start_ns", "end_ns"))
    call_lasts, op_lasts = called != returned, began != ended
    # At one instant: operations end, calls end, calls start, operations start.
    parts = (ended[op_lasts], returned[call_lasts], called, began)
    time = np.empty(2 * (len(top) + len(ops)), dtype=np.int64)
    number = _ranks(np.concatenate(parts, out=time[: sum(map(len, parts))]))
    op_ends, call_ends, call_start, op_start = np.split(number, np.cumsum([*map(len, parts)])[:-1])
    # Things of no length start and end in the order of their rows.
    instants = np.append(call_start[~call_lasts], op_start[~op_lasts])
    if len(instants):
        number += np.searchsorted(np.sort(instants), number).astype(np.int32)
    call_end, op_end = call_start + 1, op_start + 1
    call_end[call_lasts], op_end[op_lasts] = call_ends, op_ends
    time[call_start], time[call_end], time[op_start], time[op_end] = called, returned, began, ended
    of_call = np.full((2, len(api)), -1, dtype=np.int32)
    of_call[:, top] = call_start, call_end
    return Nodes(of_call[0], of_call[1], op_start.copy(), op_end, time)


def _ranks(values: Ints) -> Numbers:
    """The place of each value among all in order, equal ones as they come."""
    rank = np.empty(len(values), dtype=np.int32)
    rank[np.argsort(values, kind="stable")] = np.arange(len(values), dtype=np.int32)
    return rank


class Wish(NamedTuple):
    """Edges of a kind before their lags are settled: the typical lag, of each or of all."""

    source: Numbers
    target: Numbers
    typical_ns: Ints | int
    kind: Kind


def settle(
    nodes: Nodes, wishes: Iterable[Wish], window: tuple[int, int] | None = None
) -> Graph:
    """Returns the graph: of the edges into a node the one that promises the latest time binds
    and gets the observed lag; the others get their typical lag, at most the observed one. What
    is usual is that of the window, if any."""
    parts = sorted((_part(wish, nodes.time) for wish in wishes), key=lambda part: part.kind)
    kinds = frozenset(part.kind for part in parts if len(part.source))
    first = np.zeros(len(nodes.time) + 1, dtype=np.int32)
    for part in parts:
        if part.kind in _SEVERAL:
            np.add.at(first, part.target, 1)
        else:
            first[part.target] += 1
    np.cumsum(first, dtype=np.int32, out=first)
    edges = _by_target(parts, first)
    edges = edges._replace(lag=_bound(edges, first, nodes.time))
    told = _told(nodes.time, first, window)
    usual = {kind: _usual_ns(edges.lag[told & (edges.kind == kind)]) for kind in _PASSED_ON}
    return Graph(nodes, edges, first, kinds, usual)


def _told(time: Ints, first: Numbers, window: tuple[int, int] | None) -> np.ndarray | bool:
    """Which edges lead into the window; all without one."""
    if window is None:
        return True
    return np.repeat((time >= window[0]) & (time < window[1]), np.diff(first))


class _Part(NamedTuple):
    """Edges of a kind with lags no larger than observed."""

    source: Numbers
    target: Numbers
    lag: Lags
    kind: Kind


def _part(wish: Wish, time: Ints) -> _Part:
    """The edges that lead forward; of several into one node the latest source comes first."""
    source, target, typical = wish.source, wish.target, np.asarray(wish.typical_ns)
    kept = np.flatnonzero((source >= 0) & (source < target))
    if wish.kind in _SEVERAL:
        kept = kept[np.lexsort((-source[kept], target[kept]))]
    if wish.kind in _SEVERAL or len(kept) < len(source):
        source, target = source[kept], target[kept]
        typical = typical[kept] if typical.ndim else typical
    lag = np.minimum(typical, time[target] - time[source])
    narrow = fitting(np.empty(0, dtype=np.int32), lag).dtype
    return _Part(source, target, lag.astype(narrow, copy=False), wish.kind)


def _by_target(parts: list[_Part], first: Numbers) -> Edges:
    """The edges by target, those into one node in the order of the parts, which are used up.

    `first` tells where the edges into each node end, and after that where they begin.
    """
    size = int(first[-1])
    source, kind = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int8)
    lag = np.empty(size, dtype=np.result_type(np.int32, *(part.lag for part in parts)))
    while parts:
        part = parts.pop()
        if part.kind in _SEVERAL:
            begin, end = (np.searchsorted(part.target, part.target, s) for s in ("left", "right"))
            place = first[part.target] - (end - np.arange(len(end)))
            first[part.target] -= end - begin
        else:
            place = first[part.target] - 1
            first[part.target] = place
        source[place], lag[place], kind[place] = part.source, part.lag, part.kind
    return Edges(source, lag, kind)


def _bound(edges: Edges, first: Numbers, time: Ints) -> Lags:
    """The lags, with the observed one for the first of those edges into each node that promise
    the latest time."""
    lag = edges.lag
    for low in range(0, len(time), _BLOCK):
        ahead = first[low : low + _BLOCK + 1]
        entered = np.flatnonzero(ahead[1:] > ahead[:-1])
        if not len(entered):
            continue
        here = slice(int(ahead[0]), int(ahead[-1]))
        promised = time[edges.source[here]] + lag[here]
        latest = np.maximum.reduceat(promised, ahead[entered] - ahead[0])
        count = np.diff(ahead)[entered]
        best = np.flatnonzero(promised == np.repeat(latest, count))
        node = np.repeat(low + entered, count)[best]
        opens = np.append(True, node[1:] != node[:-1])
        edge, node = here.start + best[opens], node[opens]
        observed = time[node] - time[edges.source[edge]]
        lag = fitting(lag, observed)
        lag[edge] = observed
    return lag


def _usual_ns(lag: Lags) -> int:
    """The short end of lags."""
    return int(np.percentile(lag.astype(np.int64), 10)) if len(lag) else 0
