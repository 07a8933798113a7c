"""Replaying a trace with edits: what the time line would be if a cure were applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.arrays.compiled import run_pass
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.replay.edits import Cure, Scenario, differs, parted
from nsysdoctor.replay.graph import Graph
from nsysdoctor.replay.patch import edited
from nsysdoctor.replay.work_left import WorkLeft

_BEFORE_ALL = -(1 << 62)
_FAIR_RATIO = 0.05
_PASSES = 10
"""So many passes over a graph on lists take as long as it takes to compile one."""

class Finish(NamedTuple):
    """The nodes at which a window ends for a process: a host node with an offset, and operation
    ends."""

    host: int
    host_offset_ns: int
    ops: Numbers
    process: int = 0


@dataclass(frozen=True)
class Price:
    """What a set of edits saves: ns, with the bounds where a cure is uncertain."""

    saving_ns: int
    low_ns: int
    high_ns: int


def _pass(first: Any, source: Any, lag: Any, bounds: Any, time: Any) -> None:
    """Sets the time of each node to the latest of what it waits for. Where all of that is cut, it
    comes as early as the first of it would have allowed, at the latest when it did.
    `bounds`: the first node and the one after the last."""
    begin, end = bounds
    for node in range(begin, end):
        at = _BEFORE_ALL
        free = time[node]
        for edge in range(first[node], first[node + 1]):
            origin = source[edge]
            if origin >= 0:
                promised = time[origin] + lag[edge]
                # Faster on lists than a call of max.
                if promised > at:  # noqa: PLR1730
                    at = promised
            else:
                promised = time[~origin] + lag[edge]
                if promised < free:  # noqa: PLR1730
                    free = promised
        time[node] = at if at > _BEFORE_ALL else free


def run(
    graph: Graph, begin: int = 0, end: int | None = None, time: Ints | None = None,
    passed: int = 0,
) -> Ints:  # fmt: skip
    """Returns the times of the nodes up to `end`, ns, in `time` where it is given; where nothing
    was edited exactly the observed ones. Before `begin` nothing may have been edited. `passed`
    nodes were looked at before: many passes over a small graph are worth compiling as well."""
    size = len(graph.nodes.time)
    end = size if end is None else end
    time = np.empty(size, dtype=np.int64) if time is None else time
    time[:end] = graph.nodes.time[:end]
    bounds = np.array([begin, end], dtype=np.int64)
    told = (graph.first, graph.edges.source, graph.edges.lag, bounds)
    run_pass(_pass, max(size, passed // _PASSES), told, (time[:end],))
    return time


def finish_ns(finish: Finish, time: Ints) -> int:
    """Returns when a window ends on a replayed time line."""
    ends = [int(time[finish.ops].max())] if len(finish.ops) else []
    if finish.host >= 0:
        ends.append(int(time[finish.host]) + finish.host_offset_ns)
    return max(ends, default=0)


class Replay:
    """A trace's graph and the window whose end is watched; prices sets of edits.

    No saving is more than the window without the work that is left in it.
    """

    def __init__(
        self,
        graph: Graph,
        finishes: Sequence[Finish],
        window_ns: int,
        work_left: WorkLeft | None = None,
    ) -> None:
        self.graph = graph
        self.finishes = finishes
        self.window_ns = window_ns
        self._work_left = work_left
        self._before = [finish_ns(finish, graph.nodes.time) for finish in finishes]
        self._end = 1 + max((_last(finish) for finish in finishes), default=-1)
        self._time = np.empty(len(graph.nodes.time), dtype=np.int64)
        self._passed = 0

    @property
    def size(self) -> int:
        """Returns how many nodes the graph has."""
        return len(self.graph.nodes.time)

    def saving_ns(self, cure: Cure, scenario: Scenario = "middle") -> int:
        """Returns what the edits save of the window, for the process that gains most."""
        with edited(self.graph, cure, scenario) as (graph, begin):
            return self._saving_ns(graph, begin, cure, scenario)

    def price(self, cure: Cure) -> Price:
        """Returns the saving with its bounds; equal bounds where the cure is certain."""
        certain, uncertain = parted(cure)
        with edited(self.graph, certain, "middle") as (common, start):

            def saving_ns(scenario: Scenario) -> int:
                with edited(common, uncertain, scenario) as (graph, begin):
                    return self._saving_ns(graph, min(start, begin), cure, scenario)

            middle = saving_ns("middle")
            low = high = middle
            # Without a saving there is no lower one.
            if middle and any(differs(frame, "slow") for frame in uncertain):
                low = min(saving_ns("slow"), middle)
            if any(differs(frame, "fast") for frame in uncertain):
                high = max(saving_ns("fast"), middle)
        return Price(middle, low, high)

    def _saving_ns(self, graph: Graph, begin: int, cure: Cure, scenario: Scenario) -> int:
        if begin >= self._end:
            return 0
        time = run(graph, begin, self._end, self._time, self._passed)
        self._passed += self._end - begin
        left = self._work_left.least_ns(graph, cure, scenario) if self._work_left else {}
        gains = [
            min(before - finish_ns(finish, time), self.window_ns - left.get(finish.process, 0))
            for before, finish in zip(self._before, self.finishes, strict=True)
        ]
        return max(0, max(gains, default=0))


def _last(finish: Finish) -> int:
    """The last of the nodes at which a window ends."""
    return max(finish.host, int(finish.ops.max(initial=-1)))


def finishes_of(
    graph: Graph,
    api: pd.DataFrame,
    submissions: pd.DataFrame,
    window: Any,
    marks: Any,
    thread_handoffs: Ints,
) -> list[Finish]:
    """Returns the ends of the window, one per process that launches a fair part of the work.

    A process ends with what it launched in the window; the one that owns the steps not before
    its host is through the last of them. Without steps the last operation counts, of a window told
    by its times the last to end in it. `window` holds start_ns, end_ns, basis and host bounds;
    `marks` the owner of the steps or None; `thread_handoffs` the chain of each row of `api`. A
    chain that launches little at a pace of its own, such as a monitor's, ends when it ends and
    must not hide what the others gain.
    """
    if window.basis == "given":
        ends = graph.nodes.time[graph.nodes.op_end[submissions["op"].to_numpy()]]
        submissions = submissions[(ends > window.start_ns) & (ends <= window.end_ns)]
    op_ends = graph.nodes.op_end[submissions["op"].to_numpy()]
    inside = graph.nodes.time[op_ends] <= window.end_ns
    if marks is not None and window.basis == "steady":
        called = submissions["called_ns"].to_numpy()
        inside = (called >= window.host_start_ns) & (called < window.host_end_ns)
    inside &= _leading(graph, submissions, thread_handoffs)
    process = submissions["process"].to_numpy()
    found = []
    for owner in np.unique(process[inside]).tolist():
        node, offset = -1, 0
        if marks is not None and window.basis == "steady" and owner == marks.process:
            node, offset = _host_end(graph, api, marks.thread, int(window.host_end_ns))
        found.append(Finish(node, offset, op_ends[inside & (process == owner)], owner))
    return found


def _leading(graph: Graph, submissions: pd.DataFrame, thread_handoffs: Ints) -> np.ndarray:
    """Which submissions come from chains that launch a fair part of the work."""
    chain = thread_handoffs[submissions["api"].to_numpy()]
    op, nodes = submissions["op"], graph.nodes
    work = nodes.time[nodes.op_end[op]]
    work -= nodes.time[nodes.op_start[op]]
    place, _ = pd.factorize(chain)
    share = pd.Series(work).groupby(place, sort=True).sum().to_numpy()
    return np.asarray((share >= _FAIR_RATIO * int(work.sum()))[place])


def _host_end(graph: Graph, api: pd.DataFrame, thread: int, end_ns: int) -> tuple[int, int]:
    """The node nearest to a time on a thread, and the time's distance from it."""
    own = np.flatnonzero((api["thread"].to_numpy() == thread) & api["top"].to_numpy())
    index = int(np.searchsorted(api["start_ns"].to_numpy()[own], end_ns))
    if index < len(own):
        call = int(own[index])
        return int(graph.nodes.call_start[call]), end_ns - int(api["start_ns"].to_numpy()[call])
    call = int(own[-1])
    return int(graph.nodes.call_end[call]), end_ns - int(api["end_ns"].to_numpy()[call])
