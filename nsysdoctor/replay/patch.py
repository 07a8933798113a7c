"""A graph with edits made: edges with other lags or sources, put back as they were in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.replay.edits import Change, Cure, Scenario, Step, steps_of
from nsysdoctor.replay.graph import Graph, Kind, fitting, source_of

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
    Change.FREE_OP: (Kind.STREAM, Kind.OVERLAP, Kind.SEEN, Kind.EVENT),
    Change.FREE_ENGINE: (Kind.ENGINE,),
    Change.UNSEEN: (Kind.SEEN,),
}

_CUT_AFTER = {Change.RELEASE: (Kind.SEEN, Kind.EVENT)}

_PASSED_ON_BY = {
    Change.RELEASE: (Kind.STREAM, Kind.OVERLAP),
    Change.FREE_ENGINE: (Kind.ENGINE,),
}


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
            patch.make(change, steps.pop(change))
        yield Edited(patch.graph, patch.begin())
    finally:
        patch.undo()


class _Patch:
    """Edits made to a graph in place, and what was there before."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._before: list[tuple[npt.NDArray[Any], Numbers, npt.NDArray[Any]]] = []
        self._low = len(graph.edges.source)

    def make(self, change: Change, steps: Sequence[Step]) -> None:
        """Makes all edits of one kind."""
        if change == Change.OP_NS:
            self._run(self._together(steps))
        if change in _LOWERED_BY:
            self._lower(_LOWERED_BY[change], steps)
        row = Step.rows_of(steps)
        for kind in _CUT_BY.get(change, ()):
            self._cut(self.graph.into(kind, row)[0])
        for kind in _CUT_AFTER.get(change, ()):
            self._cut(self.graph.leaving(kind, row)[0])
        if change in _PASSED_ON_BY:
            self._pass_on(_PASSED_ON_BY[change], row)

    def begin(self) -> int:
        """Returns the first node with an edge that was edited, past the last node for none."""
        return int(np.searchsorted(self.graph.first, np.int32(self._low), side="right")) - 1

    def undo(self) -> None:
        """Puts everything back as it was."""
        while self._before:
            values, edge, before = self._before.pop()
            values[edge] = before

    def _lower(self, kind: Kind, steps: Sequence[Step]) -> None:
        """Makes edges that lead to the rows no longer than asked. What steps take of different
        parts of one edge adds up; of one part the step that takes most counts."""
        lag = self.graph.edges.lag
        parts = Step.by_part(steps)
        row = Step.rows_of(parts) if len(parts) > 1 else parts[0].row[:0]
        edge = np.sort(self.graph.into(kind, row)[0])
        left = lag[edge].astype(np.int64)
        for step in parts:
            mine, index = self._over(kind, step)
            if len(parts) > 1:
                place = np.searchsorted(edge, mine)
                left[place] -= lag[mine] - step.ns[index]
            else:
                self._put(lag, mine, step.ns[index])
        self._put(lag, edge, np.maximum(left, 0))

    def _over(self, kind: Kind, step: Step) -> tuple[Numbers, Ints]:
        """The edges of the kind that are longer than asked, with their place in the step."""
        edges, places = [], []
        for low in range(0, len(step.row), _BLOCK):
            edge, index = self.graph.into(kind, step.row[low : low + _BLOCK])
            index = index + low
            over = step.ns[index] < self.graph.edges.lag[edge]
            edges.append(edge[over])
            places.append(index[over])
        return np.concatenate(edges), np.concatenate(places)

    def _together(self, steps: Sequence[Step]) -> Step:
        """How long each operation runs with all steps made: each scales what the others leave."""
        if len(steps) == 1 and steps[0].distinct:
            return steps[0]
        row = Step.rows_of(steps)
        edge, index = self.graph.into(Kind.RUN, row)
        own = np.zeros(len(row))
        own[index] = self.graph.edges.lag[edge]
        ratio = np.ones(len(row))
        for step in steps:
            place = np.searchsorted(row, step.row)
            whole = np.maximum(own[place], 1)
            np.multiply.at(ratio, place, step.ns / whole)
        return Step(row, np.rint(ratio * np.maximum(own, 1)).astype(np.int64))

    def _run(self, step: Step) -> None:
        """Sets how long operations run; one that began before the end of the one before it on its
        stream still begins that long before its end."""
        lag = self.graph.edges.lag
        shorter = np.zeros(len(step.row), dtype=np.int64)
        for low in range(0, len(step.row), _BLOCK):
            edge, index = self.graph.into(Kind.RUN, step.row[low : low + _BLOCK])
            shorter[low + index] = lag[edge] - step.ns[low + index]
            self._put(lag, edge, step.ns[low + index])
        beside, place = self.graph.leaving(Kind.OVERLAP, step.row)
        self._put(lag, beside, np.maximum(lag[beside] - shorter[place], 0))

    def _pass_on(self, kinds: tuple[Kind, ...], row: npt.NDArray[Any]) -> None:
        """Lets what waited for the operations by these kinds wait for what came before them."""
        edges = self.graph.edges
        left = [self.graph.leaving(kind, row) for kind in kinds]
        edge, index = (np.concatenate(column) for column in zip(*left, strict=True))
        if not len(edge):
            return
        origin, kind, offset = (column[index] for column in self._before_all(kinds, row))
        has = origin >= 0
        # What followed at once follows at once, what took a pause takes the usual one.
        usual = self.graph.usual_ns[kinds[0]]
        pause = np.where(edges.kind[edge] == kinds[0], np.minimum(edges.lag[edge], usual), 0)
        self._put(edges.lag, edge, pause + offset)
        self._put(edges.source, edge[has], origin[has])
        self._put(edges.kind, edge[has], kind[has])
        self._cut(edge[~has])

    def _before_all(
        self, kinds: tuple[Kind, ...], row: npt.NDArray[Any]
    ) -> tuple[Numbers, npt.NDArray[np.int8], Ints]:
        """For each operation the node of the last one before it, by edges of the kinds, that is
        none of them, -1 for none; the kind of that edge, and the lag where it leads from start to
        start."""
        edges = self.graph.edges
        before, over = (np.full(len(row), -1, dtype=np.int32) for _ in range(2))
        kind, offset = np.zeros(len(row), dtype=np.int8), np.zeros(len(row), dtype=np.int64)
        for way in kinds:
            edge, index = self.graph.into(way, row)
            before[index] = source_of(edges.source[edge])
            over[index] = _places(self.graph.left(way)[row], before[index])
            kind[index] = way
            offset[index] = edges.lag[edge] if way == Kind.OVERLAP else 0
        # Jump over those that are: the way back doubles in every round.
        while len(going := np.flatnonzero(over >= 0)):
            passed = over[going]
            for column in (before, kind, offset, over):
                column[going] = column[passed]
        return before, kind, offset

    def _cut(self, edge: Numbers) -> None:
        source = self.graph.edges.source
        edge = edge[source[edge] >= 0]
        self._put(source, edge, ~source[edge])

    def _put(self, values: npt.NDArray[Any], edge: Numbers, new: npt.NDArray[Any] | int) -> None:
        if len(edge):
            self._before.append((values, edge, values[edge]))
            self._low = min(self._low, int(edge.min()))
            values[edge] = new


def _places(nodes: Numbers, asked: Numbers) -> Numbers:
    """Where each node that is asked for stands among the nodes, -1 for nowhere."""
    order = np.argsort(nodes, kind="stable").astype(np.int32)
    place = np.minimum(np.searchsorted(nodes[order], asked), len(nodes) - 1)
    found = order[place]
    return np.where(nodes[found] == asked, found, np.int32(-1))
