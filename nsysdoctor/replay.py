"""Replaying a trace with edits: what the time line would be if a cure were applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.edited import edited
from nsysdoctor.edits import Cure, Scenario, frames_of
from nsysdoctor.graph import Graph, Numbers, never
from nsysdoctor.intervals import Ints

_BEFORE_ALL = -(1 << 62)
_FAIR_RATIO = 0.05
_COMPILED_NODES = 200_000
"""Below this many nodes compiling the pass takes longer than running it."""


class Finish(NamedTuple):
    """The nodes at which a window ends: a host node with an offset, and operation ends."""

    host: int
    host_offset_ns: int
    ops: Numbers


@dataclass(frozen=True)
class Price:
    """What a set of edits saves: ns, with the bounds where a cure is uncertain."""

    saving_ns: int
    low_ns: int
    high_ns: int


def _pass(first: Any, source: Any, lag: Any, cut: int, time: Any, begin: int, end: int) -> None:
    """Sets the time of each node to the latest of what it waits for; one that waits for nothing
    keeps its time."""
    for node in range(begin, end):
        at = _BEFORE_ALL
        for edge in range(first[node], first[node + 1]):
            if lag[edge] != cut:
                at = max(at, time[source[edge]] + lag[edge])
        if at > _BEFORE_ALL:
            time[node] = at


@cache
def _compiled() -> Callable[..., None]:
    import numba

    made: Callable[..., None] = numba.njit(cache=True)(_pass)
    return made


def run(graph: Graph, begin: int = 0, end: int | None = None, time: Ints | None = None) -> Ints:
    """Returns the times of the nodes up to `end`, ns, in `time` where it is given; where nothing
    was edited exactly the observed ones. Before `begin` nothing may have been edited."""
    size = len(graph.nodes.time)
    end = size if end is None else end
    time = np.empty(size, dtype=np.int64) if time is None else time
    time[:end] = graph.nodes.time[:end]
    first, source, lag = graph.first, graph.edges.source, graph.edges.lag
    if size >= _COMPILED_NODES:
        _compiled()(first, source, lag, never(lag), time, begin, end)
        return time
    # On Python lists, which small traces finish before a compiler starts.
    moved = time[:end].tolist()
    _pass(first.tolist(), source.tolist(), lag.tolist(), never(lag), moved, begin, end)
    time[:end] = moved
    return time


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
        self._end = 1 + max((_last(finish) for finish in finishes), default=-1)
        self._time = np.empty(len(graph.nodes.time), dtype=np.int64)

    def saving_ns(self, cure: Cure, scenario: Scenario) -> int:
        """Returns what the edits save of the window, for the process that gains most."""
        with edited(self.graph, cure, scenario) as (graph, begin):
            if begin >= self._end:
                return 0
            time = run(graph, begin, self._end, self._time)
        gains = [
            before - finish_ns(finish, time)
            for before, finish in zip(self._before, self.finishes, strict=True)
        ]
        return max(0, min(max(gains, default=0), self.window_ns))

    def price(self, cure: Cure) -> Price:
        """Returns the saving with its bounds; equal bounds where the cure is certain."""
        middle = self.saving_ns(cure, "middle")
        low = high = middle
        frames = frames_of(cure)
        if any((frame["slow_ns"] != frame["ns"]).any() for frame in frames):
            low = min(self.saving_ns(cure, "slow"), middle)
        if any(((f["fast_ns"] != f["ns"]) | f["only_fast"]).any() for f in frames):
            high = max(self.saving_ns(cure, "fast"), middle)
        return Price(middle, low, high)


def _last(finish: Finish) -> int:
    """The last of the nodes at which a window ends."""
    return max(finish.host, int(finish.ops.max(initial=-1)))


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
