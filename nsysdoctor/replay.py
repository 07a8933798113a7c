"""Replaying a trace with edits: what the time line would be if a cure were applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.edits import Change
from nsysdoctor.graph import Graph, Kind
from nsysdoctor.intervals import Ints

_NEVER = -(1 << 61)
_FAIR_RATIO = 0.05
_COMPILED_NODES = 200_000
"""Below this many nodes compiling the pass takes longer than running it."""

Scenario = Literal["slow", "middle", "fast"]


class Finish(NamedTuple):
    """The nodes at which a window ends: a host node with an offset, and operation ends."""

    host: int
    host_offset_ns: int
    ops: Ints


@dataclass(frozen=True)
class Price:
    """What a set of edits saves: ns, with the bounds where a cure is uncertain."""

    saving_ns: int
    low_ns: int
    high_ns: int


def _pass(first: Any, source: Any, lag: Any, observed: Any, time: Any) -> None:
    """Fills `time`: the latest of what each node waits for, as observed for one that waits for
    nothing."""
    for node in range(len(time)):
        low, high = first[node], first[node + 1]
        at = _NEVER
        for edge in range(low, high):
            if lag[edge] > _NEVER:
                promised = time[source[edge]] + lag[edge]
                at = max(at, promised)
        time[node] = at if at > _NEVER else observed[node]


@cache
def _compiled() -> Callable[..., None]:
    import numba

    made: Callable[..., None] = numba.njit(cache=True)(_pass)
    return made


def run(graph: Graph, lag: Ints | None = None, source: Ints | None = None) -> Ints:
    """Returns the time of every node, ns; without changes exactly the observed times."""
    edges = graph.edges
    time = np.empty(len(graph.nodes.time), dtype=np.int64)
    arguments = (
        graph.first,
        edges.source if source is None else source,
        edges.lag if lag is None else lag,
        graph.nodes.time,
        time,
    )
    if len(time) >= _COMPILED_NODES:
        _compiled()(*arguments)
    else:
        _plain(*arguments)
    return time


def _plain(first: Ints, source: Ints, lag: Ints, observed: Ints, time: Ints) -> None:
    """The same pass on Python lists, which small traces finish before a compiler starts."""
    answer = [0] * len(observed)
    _pass(first.tolist(), source.tolist(), lag.tolist(), observed.tolist(), answer)
    time[:] = answer


def edited(graph: Graph, edits: pd.DataFrame, scenario: Scenario) -> tuple[Ints, Ints]:
    """Returns the lags and sources of the graph's edges after the edits."""
    column = {"slow": "slow_ns", "middle": "ns", "fast": "fast_ns"}[scenario]
    applied = edits if scenario == "fast" else edits[~edits["only_fast"]]
    lag, source = graph.edges.lag.copy(), graph.edges.source.copy()
    places = _Places(graph)
    for change, rows in applied.groupby("change", sort=True):
        row = rows["row"].to_numpy()
        value = rows[column].to_numpy()
        _apply(Change(change), row, value, places, lag, source)
    return lag, source


class _Places:
    """Finds the edges of a kind that lead to given rows."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._by_kind: dict[Kind, tuple[Ints, Ints]] = {}

    def edges(self, kind: Kind, row: Ints) -> tuple[Ints, Ints]:
        """Returns (edge, index into `row`) for all edges of the kind that belong to the rows."""
        if kind not in self._by_kind:
            mine = np.flatnonzero(self.graph.edges.kind == kind)
            owner = self.graph.edges.row[mine]
            order = np.argsort(owner, kind="stable")
            self._by_kind[kind] = (mine[order], owner[order])
        mine, owner = self._by_kind[kind]
        low = np.searchsorted(owner, row, side="left")
        count = np.searchsorted(owner, row, side="right") - low
        index = np.repeat(np.arange(len(row)), count)
        offset = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
        return mine[low[index] + offset], index


_LAG_OF = {
    Change.CALL_NS: Kind.CALL,
    Change.OUTSIDE_NS: Kind.OUTSIDE,
    Change.OP_NS: Kind.RUN,
    Change.LAUNCH_NS: Kind.LAUNCH,
    Change.STREAM_NS: Kind.STREAM,
}


_DROPPED_BY = {
    Change.FREE_OP: (Kind.STREAM, Kind.SEEN, Kind.EVENT),
    Change.FREE_ENGINE: (Kind.ENGINE,),
    Change.UNSEEN: (Kind.SEEN,),
}


def _apply(
    change: Change, row: Ints, value: Ints, places: _Places, lag: Ints, source: Ints
) -> None:
    if change in _LAG_OF:
        edge, index = places.edges(_LAG_OF[change], row)
        lag[edge] = np.minimum(value[index], lag[edge]) if change != Change.OP_NS else value[index]
        if change == Change.OP_NS:
            edge, index = places.edges(Kind.MEET, row)
            lag[edge] = np.minimum(value[index], lag[edge])
    elif change == Change.UNBLOCK:
        lag[places.edges(Kind.BLOCK, row)[0]] = _NEVER
        edge, index = places.edges(Kind.CALL, row)
        lag[edge] = np.minimum(value[index], lag[edge])
    elif change in _DROPPED_BY:
        for kind in _DROPPED_BY[change]:
            lag[places.edges(kind, row)[0]] = _NEVER
        if change == Change.FREE_ENGINE:
            _pass_on(Kind.ENGINE, row, places.graph, lag, source)
    else:
        for kind in (Kind.SEEN, Kind.EVENT):
            lag[_leaving(row, places.graph) & (places.graph.edges.kind == kind)] = _NEVER
        _pass_on(Kind.STREAM, row, places.graph, lag, source)


def _leaving(row: Ints, graph: Graph) -> np.ndarray:
    """Which edges start at the end of one of the operations."""
    released = np.zeros(len(graph.nodes.time), dtype=bool)
    released[graph.nodes.op_end[row]] = True
    return np.asarray(released[graph.edges.source], dtype=bool)


def _pass_on(kind: Kind, row: Ints, graph: Graph, lag: Ints, source: Ints) -> None:
    """Lets what waited for the operations by this kind wait for what came before them."""
    changed = np.flatnonzero(_leaving(row, graph) & (graph.edges.kind == kind))
    if not len(changed):
        return
    before = _before(kind, graph)
    # Jump over the operations: the way back doubles in every round.
    skip = np.arange(len(before))
    skip[graph.nodes.op_end[row]] = before[graph.nodes.op_end[row]]
    for _ in range(len(row).bit_length() + 1):
        skip = np.where(skip >= 0, skip[np.maximum(skip, 0)], -1)
    origin = skip[graph.edges.source[changed]]
    has = origin >= 0
    source[changed[has]] = origin[has]
    lag[changed[has]] = np.minimum(lag[changed[has]], _usual_lag(graph, kind))
    lag[changed[~has]] = _NEVER


def _before(kind: Kind, graph: Graph) -> Ints:
    """For the end node of each operation that of the one before it by edges of this kind, -1
    for the first."""
    before = np.full(len(graph.nodes.time), -1, dtype=np.int64)
    mine = graph.edges.kind == kind
    before[graph.nodes.op_end[graph.edges.row[mine]]] = graph.edges.source[mine]
    return before


def _usual_lag(graph: Graph, kind: Kind) -> int:
    lags = graph.edges.lag[graph.edges.kind == kind]
    return int(np.percentile(lags, 10)) if len(lags) else 0


def finish_ns(finish: Finish, time: Ints) -> int:
    """Returns when a window ends on a replayed time line."""
    ends = [int(time[finish.ops].max())] if len(finish.ops) else []
    if finish.host >= 0:
        ends.append(int(time[finish.host]) + finish.host_offset_ns)
    return max(ends, default=0)


class Replay:
    """A trace's graph and the window whose end is watched; prices sets of edits."""

    def __init__(self, graph: Graph, finishes: Sequence[Finish], window_ns: int) -> None:
        self.graph = graph
        self.finishes = finishes
        self.window_ns = window_ns
        self._before = [finish_ns(finish, graph.nodes.time) for finish in finishes]

    def saving_ns(self, edits: pd.DataFrame, scenario: Scenario) -> int:
        """Returns what the edits save of the window, for the process that gains most."""
        if not len(edits):
            return 0
        lag, source = edited(self.graph, edits, scenario)
        time = run(self.graph, lag, source)
        gains = [
            before - finish_ns(finish, time)
            for before, finish in zip(self._before, self.finishes, strict=True)
        ]
        return max(0, min(max(gains, default=0), self.window_ns))

    def price(self, edits: pd.DataFrame) -> Price:
        """Returns the saving with its bounds; equal bounds where the cure is certain."""
        middle = self.saving_ns(edits, "middle")
        low = high = middle
        if (edits["slow_ns"] != edits["ns"]).any():
            low = min(self.saving_ns(edits, "slow"), middle)
        if (edits["fast_ns"] != edits["ns"]).any() or edits["only_fast"].any():
            high = max(self.saving_ns(edits, "fast"), middle)
        return Price(middle, low, high)


def finishes_of(
    graph: Graph,
    api: pd.DataFrame,
    submissions: pd.DataFrame,
    window: Any,
    marks: Any,
    relay: Ints,
) -> list[Finish]:
    """Returns the ends of the window, one per process that launches a fair part of the work.

    A process ends with what it launched in the window; the one that owns the steps not before
    its host is through the last of them. Without steps the last operation counts. `window` holds
    start_ns, end_ns, basis and host bounds; `marks` the owner of the steps or None; `relay` the
    chain of calls of each row of `api`. A chain that launches little at a pace of its own, such
    as a monitor's, ends when it ends and must not hide what the others gain.
    """
    op_ends = graph.nodes.op_end[submissions["op"].to_numpy()]
    inside = graph.nodes.time[op_ends] <= window.end_ns
    if marks is not None and window.basis == "steady":
        called = submissions["called_ns"].to_numpy()
        inside = (called >= window.host_start_ns) & (called < window.host_end_ns)
    inside &= _leading(submissions, relay)
    process = submissions["process"].to_numpy()
    found = []
    for owner in np.unique(process[inside]).tolist():
        node, offset = -1, 0
        if marks is not None and window.basis == "steady" and owner == marks.process:
            node, offset = _host_end(graph, api, marks.thread, int(window.host_end_ns))
        found.append(Finish(node, offset, op_ends[inside & (process == owner)]))
    return found


def _leading(submissions: pd.DataFrame, relay: Ints) -> np.ndarray:
    """Which submissions come from chains that launch a fair part of the work."""
    chain = relay[submissions["api"].to_numpy()]
    work = submissions["work_ns"].groupby(chain).transform("sum").to_numpy()
    return np.asarray(work >= _FAIR_RATIO * int(submissions["work_ns"].sum()))


def _host_end(graph: Graph, api: pd.DataFrame, thread: int, end_ns: int) -> tuple[int, int]:
    """The node nearest to a time on a thread, and the time's distance from it."""
    own = np.flatnonzero((api["thread"].to_numpy() == thread) & api["top"].to_numpy())
    index = int(np.searchsorted(api["start_ns"].to_numpy()[own], end_ns))
    if index < len(own):
        call = int(own[index])
        return int(graph.nodes.call_start[call]), end_ns - int(api["start_ns"].to_numpy()[call])
    call = int(own[-1])
    return int(graph.nodes.call_end[call]), end_ns - int(api["end_ns"].to_numpy()[call])
