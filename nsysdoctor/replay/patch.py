"""A graph with edits made: edges with other lags or sources, put back as they were in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.replay.edits import Change, Cure, Scenario, Step, steps_of
from nsysdoctor.replay.graph import Graph, Kind, fitting, never

_BLOCK = 1 << 18
"""How many rows are edited together, so that what is made on the way stays small."""

_LOWERED_BY = {
    Change.CALL_NS: Kind.CALL,
    Change.UNBLOCK: Kind.CALL,
    Change.OUTSIDE_NS: Kind.OUTSIDE,
    Change.OP_NS: Kind.MEET,
    Change.LAUNCH_NS: Kind.LAUNCH,
    Change.STREAM_NS: Kind.STREAM,
}

_CUT_BY = {
    Change.UNBLOCK: (Kind.BLOCK,),
    Change.FREE_OP: (Kind.STREAM, Kind.SEEN, Kind.EVENT),
    Change.FREE_ENGINE: (Kind.ENGINE,),
    Change.UNSEEN: (Kind.SEEN,),
}

_CUT_AFTER = {Change.RELEASE: (Kind.SEEN, Kind.EVENT)}

_PASSED_ON_BY = {Change.RELEASE: Kind.STREAM, Change.FREE_ENGINE: Kind.ENGINE}


class Edited(NamedTuple):
    """A graph with edits made, and the first node that they change anything for."""

    graph: Graph
    begin: int


@contextmanager
def edited(graph: Graph, cure: Cure, scenario: Scenario) -> Iterator[Edited]:
    """Gives the graph with the edits made; it is large, so they are made in place and undone in
    the end."""
    steps = steps_of(cure, scenario)
    lag = graph.edges.lag
    for step in chain.from_iterable(steps.values()):
        lag = fitting(lag, step.ns)
    patch = _Patch(graph._replace(edges=graph.edges._replace(lag=lag)))
    try:
        for change in sorted(steps):
            # How long an operation runs is set, all else gets no longer than asked.
            lowest = change != Change.OP_NS
            patch.make(change, Step.of(steps.pop(change), lowest=lowest))
        yield Edited(patch.graph, patch.begin())
    finally:
        patch.undo()


class _Patch:
    """Edits made to a graph in place, and what was there before."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._before: list[tuple[npt.NDArray[Any], Numbers, npt.NDArray[Any]]] = []
        self._low = len(graph.edges.source)

    def make(self, change: Change, step: Step) -> None:
        """Makes all edits of one kind."""
        for low in range(0, len(step.row), _BLOCK):
            self._make(change, step.row[low : low + _BLOCK], step.ns[low : low + _BLOCK])
        for kind in _CUT_AFTER.get(change, ()):
            self._cut(self.graph.leaving(kind, step.row))
        if change in _PASSED_ON_BY:
            self._pass_on(_PASSED_ON_BY[change], step.row)

    def begin(self) -> int:
        """Returns the first node with an edge that was edited, past the last node for none."""
        return int(np.searchsorted(self.graph.first, np.int32(self._low), side="right")) - 1

    def undo(self) -> None:
        """Puts everything back as it was."""
        while self._before:
            values, edge, before = self._before.pop()
            values[edge] = before

    def _make(self, change: Change, row: npt.NDArray[Any], ns: npt.NDArray[Any]) -> None:
        """Makes edits of edges that lead to the rows."""
        lag = self.graph.edges.lag
        if change == Change.OP_NS:
            edge, index = self.graph.into(Kind.RUN, row)
            self._put(lag, edge, ns[index])
        if change in _LOWERED_BY:
            edge, index = self.graph.into(_LOWERED_BY[change], row)
            lower = ns[index] < lag[edge]
            self._put(lag, edge[lower], ns[index[lower]])
        for kind in _CUT_BY.get(change, ()):
            self._cut(self.graph.into(kind, row)[0])

    def _pass_on(self, kind: Kind, row: npt.NDArray[Any]) -> None:
        """Lets what waited for the operations by this kind wait for what came before them."""
        edges = self.graph.edges
        edge = self.graph.leaving(kind, row)
        if not len(edge):
            return
        end, before = self._before_all(kind, row)
        origin = before[np.searchsorted(end, edges.source[edge])]
        has = origin >= 0
        self._put(edges.lag, edge, np.minimum(edges.lag[edge], self.graph.usual_ns[kind]))
        self._put(edges.source, edge[has], origin[has])
        self._cut(edge[~has])

    def _before_all(self, kind: Kind, row: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
        """The ends of the operations in order, and for each the end of the last operation before
        it, by edges of the kind, that is none of them; -1 for none."""
        edge, index = self.graph.into(kind, row)
        before = np.full(len(row), -1, dtype=np.int32)
        before[index] = self.graph.edges.source[edge]
        end = self.graph.nodes.op_end[row]
        order = np.argsort(end, kind="stable")
        end, before = end[order], before[order]
        place = np.minimum(np.searchsorted(end, before), len(end) - 1)
        over = np.where(end[place] == before, place, -1)
        # Jump over those that are: the way back doubles in every round.
        while len(going := np.flatnonzero(over >= 0)):
            passed = over[going]
            before[going], over[going] = before[passed], over[passed]
        return end, before

    def _cut(self, edge: Numbers) -> None:
        self._put(self.graph.edges.lag, edge, never(self.graph.edges.lag))

    def _put(self, values: npt.NDArray[Any], edge: Numbers, new: npt.NDArray[Any] | int) -> None:
        if len(edge):
            self._before.append((values, edge, values[edge]))
            self._low = min(self._low, int(edge.min()))
            values[edge] = new
