"""Where the iterations of a program start: marked by ranges, else by what recurs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, runs
from nsysdoctor.arrays.order import narrowed, time_order
from nsysdoctor.arrays.period import MIN_COVER_RATIO, Run, find_period
from nsysdoctor.tables.activity.devices import process_code, thread_code
from nsysdoctor.tables.host.call_kinds import SYNCS
from nsysdoctor.tables.host.ranges import depth_of
from nsysdoctor.trace.recipe import table

MIN_STEPS = 4
MIN_WORK_RATIO = 0.5

_STEP = re.compile(
    r"(?i)(^|[^a-z])(step|iter|iteration|batch|epoch|frame|train|token|decode|generate|tick|loop)"
)
_PART = re.compile(
    r"(?i)(^|[^a-z])(layer|block|module|forward|backward|attn|attention|mlp|head|optimizer|"
    r"optim|loss|aten::|autograd|nccl|cublas|cudnn|memcpy|zero_grad|data|load|fetch)"
)
_LIBRARY = frozenset(
    {"NCCL", "cuBLAS", "cuDNN", "TSL", "TensorRT", "MPI", "CCCL", "cuSPARSE", "cuFFT", "cuSOLVER",
     "Python"}
)
_DIGITS = re.compile(r"\d+")
_SYNCS = [int(verb) for verb in SYNCS]


class Marks(NamedTuple):
    """Step starts and ends on the host, before phases are told apart."""

    start: Ints
    end: Ints
    basis: str
    label: str
    thread: int
    process: int

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


@table
def submissions(ops: pd.DataFrame, launches: pd.DataFrame, api: pd.DataFrame) -> pd.DataFrame:
    """Returns the operations in the order in which the host submitted them.

    Columns: op, api, process, called_ns, kind, sorted by process, call start, op.
    """
    op, call = launches["op"].to_numpy(), launches["api"].to_numpy()
    called, process = (api[c].to_numpy()[call] for c in ("start_ns", "process"))
    order = time_order(called, lambda rows: (op[rows],), process)
    op, call = op[order], call[order]
    found = {
        "op": op,
        "api": call,
        "process": process[order],
        "called_ns": called[order],
        "kind": ops["kind"].to_numpy()[op],
    }
    return pd.DataFrame(found, copy=False)


@table
def step_marks(
    ops: pd.DataFrame,
    submissions: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    whole_thread_handoffs: Ints | None = None,
    ranges: pd.DataFrame | None = None,
    range_names: pd.DataFrame | None = None,
    threads: pd.DataFrame | None = None,
) -> Marks | None:
    """Returns where steps start and end on the host thread that owns them, None without steps.

    Steps that hold little of the work of their process are none: something else is the program.
    """
    if submissions is None or not len(submissions):
        return None
    marks = None
    if ranges is not None and range_names is not None and threads is not None:
        marks = _from_ranges(ranges, range_names, threads, _Work(submissions))
    if marks is None and api is not None and whole_thread_handoffs is not None:
        marks = _from_period(submissions, ops, api, whole_thread_handoffs)
    return marks if marks is not None and _holds_the_work(marks, submissions, ops) else None


def _holds_the_work(marks: Marks, submissions: pd.DataFrame, ops: pd.DataFrame) -> bool:
    mine = submissions["process"].to_numpy() == marks.process
    called = submissions["called_ns"].to_numpy()
    inside = mine & (called >= marks.start[0]) & (called < marks.end[-1])
    own = ops["process"].to_numpy() == marks.process
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    held = int(length[submissions["op"].to_numpy()[inside]].sum())
    return held >= MIN_WORK_RATIO * int(length[own].sum())


class _Work:
    """When each process submitted its work."""

    def __init__(self, submissions: pd.DataFrame) -> None:
        self._process = submissions["process"].to_numpy()
        self._called = submissions["called_ns"].to_numpy()
        self._known: dict[int, Ints] = {}

    def of(self, process: int) -> Ints:
        """Returns the call starts of a process in order."""
        if process not in self._known:
            self._known[process] = self._called[self._process == process]
        return self._known[process]


def _from_ranges(
    ranges: pd.DataFrame, range_names: pd.DataFrame, threads: pd.DataFrame, work: _Work
) -> Marks | None:
    """The best group of ranges whose texts differ only in numbers, by name, cover and depth."""
    folded = [_DIGITS.sub("#", text) for text in range_names["text"].astype(str)]
    labels, code = np.unique(np.array(folded, dtype=object).astype(str), return_inverse=True)
    named = [int(bool(_STEP.search(t))) - int(bool(_PART.search(t))) for t in labels.tolist()]
    best: tuple[tuple[int, int, float], Marks] | None = None
    for rows in _groups(ranges, narrowed(code), np.array(named, dtype=np.int64) >= 0):
        label = int(code[ranges["text"].to_numpy()[rows[0]]])
        process = int(threads["process"].iloc[int(ranges["thread"].to_numpy()[rows[0]])])
        scored = _scored(ranges, rows, str(labels[label]), named[label], process, work)
        if scored is not None and (best is None or scored[0] > best[0]):
            best = scored
    return best[1] if best else None


def _groups(ranges: pd.DataFrame, code: np.ndarray, told: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each label and thread with enough ranges, labels in order."""
    domains = ranges["domain"].cat
    library = np.isin(domains.categories.to_numpy(dtype=object).astype(str), [*_LIBRARY])
    label = code[ranges["text"].to_numpy()]
    usable = told[label] & ~library[domains.codes.to_numpy()] & ~ranges["open"].to_numpy()
    rows = np.flatnonzero(usable)
    label = label[rows]
    order = np.argsort(label, kind="stable")
    rows, label = rows[order], label[order]
    thread = ranges["thread"].to_numpy()[rows]
    for _, labelled in runs(label):
        for _, own in runs(thread[labelled]):
            if own.stop - own.start >= MIN_STEPS:
                yield rows[labelled][own]


def _scored(
    ranges: pd.DataFrame, rows: np.ndarray, label: str, named: int, process: int, work: _Work
) -> tuple[tuple[int, int, float], Marks] | None:
    """How well one group of ranges marks steps: named so, cover of the launches, outermost."""
    start, end = (ranges[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
    if (start[1:] < end[:-1]).any():
        return None
    called = work.of(process)
    first, last = np.searchsorted(called, start), np.searchsorted(called, end)
    busy = last > first
    if busy.sum() < max(MIN_STEPS, 0.8 * len(start)):
        return None
    cover = float((last - first).sum()) / max(len(called), 1)
    inside = float((end - start).sum()) / max(int(end[-1] - start[0]), 1)
    # Without a telling name, a group must hold most of the work and leave few holes.
    if cover < MIN_COVER_RATIO or (named == 0 and inside < MIN_COVER_RATIO):
        return None
    depth, thread = int(depth_of(ranges, rows).min()), int(ranges["thread"].to_numpy()[rows[0]])
    return (named, -depth, round(cover, 3)), Marks(
        start, end, "nvtx", label, thread, process
    )


def _from_period(
    submissions: pd.DataFrame, ops: pd.DataFrame, api: pd.DataFrame, thread_handoffs: Ints
) -> Marks | None:
    """Steps from what recurs in the order in which the chain of calls that launches most work
    submits and synchronises."""
    chain = thread_handoffs[submissions["api"].to_numpy()]
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()[submissions["op"].to_numpy()]
    work = pd.Series(length).groupby(chain).sum().sort_index()
    if work.max() < MIN_WORK_RATIO * work.sum():
        return None
    symbol, called, thread = _symbols(submissions, ops, api, thread_handoffs == int(work.idxmax()))
    process = int(submissions["process"].to_numpy()[chain == work.idxmax()][0])
    run = find_period(symbol)
    if run is None:
        return None
    first = _step_start(run, called)
    start = called[first]
    end = np.append(start[1:], called[min(first[-1] + run.period, len(called) - 1)] + 1)
    label = "period of the launch sequence"
    return Marks(start, end, "period", label, int(thread[first[0]]), process)


def _symbols(
    submissions: pd.DataFrame, ops: pd.DataFrame, api: pd.DataFrame, chained: np.ndarray
) -> tuple[Ints, Ints, Ints]:
    """What one chain did in order: operations by name, synchronising calls by verb; their times
    and threads. `chained` tells which calls belong to it."""
    start, verb, thread = (api[c].to_numpy() for c in ("start_ns", "verb", "thread"))
    call, op = submissions["api"].to_numpy(), submissions["op"].to_numpy()
    call, op = call[chained[call]], op[chained[call]]
    waits = np.flatnonzero(chained & api["top"].to_numpy() & np.isin(verb, _SYNCS))
    symbol = np.concatenate([ops["name"].to_numpy()[op], -1 - verb[waits].astype(np.int64)])
    call = np.concatenate([call, waits])
    order = np.lexsort((symbol, start[call]))
    call = call[order]
    return symbol[order], start[call], thread[call]


def _step_start(run: Run, called: Ints) -> Ints:
    """Moves the positions to where the host usually pauses longest within a period."""
    rows = run.position[:-1, None] + np.arange(run.period)[None, :]
    rows = rows[rows[:, -1] < len(called)]
    if not len(rows):
        return run.position
    pause = np.median(np.diff(called, prepend=called[0])[rows], axis=0)
    moved = run.position + int(np.argmax(pause))
    return moved[moved < len(called)]
