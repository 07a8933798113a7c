"""How short a window can get: the kernels that are left must still run in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsysdoctor.arrays.intervals import Ints, spans, union
from nsysdoctor.replay.edits import Change, Cure, Scenario, steps_of
from nsysdoctor.replay.graph import Graph, Kind
from nsysdoctor.tables.account.window_kernels import WindowKernels

_FREEING = (Change.FREE_OP, Change.UNSEEN)


class WorkLeft:
    """The time that the kernels of each process take in a window, on its busiest device.

    Kernels of one stream run one after the other. So do those of different streams that fill the
    device each, unless a cure frees them from each other.
    """

    def __init__(self, graph: Graph, kernels: WindowKernels, window: tuple[int, int]) -> None:
        time, nodes, op = graph.nodes.time, graph.nodes, kernels.op
        self._kernels = kernels
        start = np.maximum(time[nodes.op_start[op]], window[0])
        end = np.minimum(time[nodes.op_end[op]], window[1])
        self._length = end - start
        self._places: dict[int, list[_Place]] = {}
        lane = kernels.lane
        for process, device in sorted(set(zip(kernels.process, kernels.device, strict=True))):
            own = (kernels.process == process) & (kernels.device == device)
            mine = np.flatnonzero(own[lane])
            if not len(mine):
                continue
            turns = [np.flatnonzero(lane == code) for code in np.flatnonzero(own).tolist()]
            turns.append(mine[kernels.fills[mine]])
            place = _Place(turns, [_union_ns(start[rows], end[rows]) for rows in turns])
            self._places.setdefault(int(process), []).append(place)

    def least_ns(self, graph: Graph, cure: Cure, scenario: Scenario) -> dict[int, int]:
        """Returns how long the kernels of each process take with the edits made to the graph."""
        steps = steps_of(cure, scenario)
        shorter = np.zeros(len(self._length), dtype=np.int64)
        if Change.OP_NS in steps:
            edge, index = graph.into(Kind.RUN, self._kernels.op)
            shorter[index] = np.maximum(self._length[index] - graph.edges.lag[edge], 0)
        loose = [step.row for change in _FREEING for step in steps.get(change, ())]
        freed = any(np.isin(rows, self._kernels.op).any() for rows in loose)
        return {
            process: max(place.least_ns(shorter, freed) for place in places)
            for process, places in self._places.items()
        }


class _Place(NamedTuple):
    """The kernels of one process on one device that run one after the other: the rows of every
    stream, last those that fill the device, and the time that each of these takes, ns."""

    turns: list[Ints]
    length_ns: list[int]

    def least_ns(self, shorter: Ints, freed: bool) -> int:
        """Returns how long they take when each is so much shorter; `freed` streams run side by
        side."""
        left = [
            ns - int(shorter[rows].sum())
            for ns, rows in zip(self.length_ns, self.turns, strict=True)
        ]
        return max(left[:-1] if freed else left)


def _union_ns(start: Ints, end: Ints) -> int:
    covered = union(spans(start, end))
    return int((covered.end - covered.start).sum())
