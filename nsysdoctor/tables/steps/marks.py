"""Where steps start and end on the host, and the work that the host submitted meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.tables.activity.devices import process_code, thread_code
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL

Floats = npt.NDArray[np.float64]


class Marks(NamedTuple):
    """Step starts and ends on the host, before phases are told apart."""

    start: Ints
    end: Ints
    basis: str
    label: str
    thread: int
    process: int
    evidence: str = ""
    """What told the steps, in words."""

    opening_ns: int = 0
    """When the program's own ranges say that its warm-up was done, on the host; 0 without."""

    def renumbered(
        self,
        threads: pd.DataFrame,
        processes: pd.DataFrame,
        own_threads: pd.DataFrame,
        own_processes: pd.DataFrame,
    ) -> Marks:
        """Returns the marks with the codes that thread and process have in other tables, -1 where
        those lack them."""
        thread = threads["global_tid"].iloc[[self.thread]]
        process = processes["global_pid"].iloc[[self.process]]
        return self._replace(
            thread=int(thread_code(own_threads, thread)[0]),
            process=int(process_code(own_processes, process)[0]),
        )


class Submitted(NamedTuple):
    """The work of one process in the order in which it was called: when, how much of the work it
    is (ns, as `work_of` tells), and when it began on the device that works most, -1 elsewhere."""

    called: Ints
    work: Floats
    begun: Ints


def work_of(ops: pd.DataFrame) -> Floats:
    """Returns how much of its program's work each operation is: the time of kernels and graph
    replays. Where there are none, of all; what is copied before a loop is no work of it."""
    kind = ops["kind"].to_numpy()
    kernel = (kind == KERNEL) | (kind == GRAPH)
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy().astype(np.float64)
    return np.where(kernel, length, 0.0) if kernel.any() else length


class Work:
    """What each process submitted, and when."""

    def __init__(self, submissions: pd.DataFrame, ops: pd.DataFrame) -> None:
        self._submissions, self._ops = submissions, ops
        self._work = work_of(ops)
        self._known: dict[int, Submitted] = {}

    def of(self, process: int) -> Submitted:
        """Returns what a process submitted."""
        if process not in self._known:
            rows = np.flatnonzero(self._submissions["process"].to_numpy() == process)
            op = self._submissions["op"].to_numpy()[rows]
            device, work = self._ops["device"].to_numpy()[op], self._work[op]
            begun = self._ops["start_ns"].to_numpy()[op]
            called = self._submissions["called_ns"].to_numpy()[rows]
            self._known[process] = Submitted(
                called, work, np.where((device == busiest(device, work)) & (work > 0), begun, -1)
            )
        return self._known[process]

    def begun(self, marks: Marks) -> Ints:
        """Returns when the work of each step began on the device that works most; of steps
        without work there, the begin of the step before."""
        mine = self.of(marks.process)
        real = np.flatnonzero(mine.begun >= 0)
        if not len(real):
            return marks.start
        place = np.searchsorted(mine.called[real], marks.start)
        begun = mine.begun[real[np.minimum(place, len(real) - 1)]]
        return np.asarray(np.maximum.accumulate(begun), dtype=np.int64)

    def done(self, marks: Marks) -> Floats:
        """Returns how much work each step submitted."""
        mine = self.of(marks.process)
        total = np.concatenate(([0.0], np.cumsum(mine.work)))
        first, last = (np.searchsorted(mine.called, times) for times in (marks.start, marks.end))
        return np.asarray(total[last] - total[first])


def busiest(device: npt.NDArray[np.integer], work: Floats) -> int:
    """Returns the device that does most of some work, of equals the first; -1 without any."""
    known, place = np.unique(device, return_inverse=True)
    return int(known[int(np.bincount(place, work).argmax())]) if len(known) else -1
