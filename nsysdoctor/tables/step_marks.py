"""Where the iterations of a program start: marked by ranges, else by what recurs."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.period import MIN_COVER_RATIO, Run, find_period
from nsysdoctor.recipe import table
from nsysdoctor.verbs import SYNCS

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
    {"NCCL", "cuBLAS", "cuDNN", "TSL", "TensorRT", "MPI", "CCCL", "cuSPARSE", "cuFFT", "cuSOLVER"}
)
_DIGITS = re.compile(r"\d+")


class Marks(NamedTuple):
    """Step starts and ends on the host, before phases are told apart."""

    start: Ints
    end: Ints
    basis: str
    label: str
    thread: int
    process: int


@table
def submissions(ops: pd.DataFrame, launches: pd.DataFrame, api: pd.DataFrame) -> pd.DataFrame:
    """Returns the operations in the order in which the host submitted them.

    Columns: op, api, thread, process, called_ns, kind, name, work_ns (the operation's duration),
    sorted by process, call start, op.
    """
    call = api.iloc[launches["api"].to_numpy()]
    found = pd.DataFrame(
        {
            "op": launches["op"].to_numpy(),
            "api": launches["api"].to_numpy(),
            "thread": call["thread"].to_numpy(),
            "process": call["process"].to_numpy(),
            "called_ns": call["start_ns"].to_numpy(),
        }
    )
    found["kind"] = ops["kind"].to_numpy()[found["op"].to_numpy()]
    found["name"] = ops["name"].to_numpy()[found["op"].to_numpy()]
    work = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    found["work_ns"] = work[found["op"].to_numpy()]
    return found.sort_values(["process", "called_ns", "op"], kind="stable", ignore_index=True)


@table
def step_marks(
    ops: pd.DataFrame,
    submissions: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    relay: Ints | None = None,
    ranges: pd.DataFrame | None = None,
    range_names: pd.DataFrame | None = None,
) -> Marks | None:
    """Returns where steps start and end on the host thread that owns them, None without steps.

    Steps that hold little of the work of their process are none: something else is the program.
    """
    if submissions is None or not len(submissions):
        return None
    marks = None
    if ranges is not None and range_names is not None:
        marks = _from_ranges(ranges, range_names, submissions)
    if marks is None and api is not None and relay is not None:
        marks = _from_period(submissions, api, relay)
    return marks if marks is not None and _holds_the_work(marks, submissions, ops) else None


def _holds_the_work(marks: Marks, submissions: pd.DataFrame, ops: pd.DataFrame) -> bool:
    mine = submissions[submissions["process"] == marks.process]
    called = mine["called_ns"]
    inside = (called >= marks.start[0]) & (called < marks.end[-1])
    own = ops[ops["process"] == marks.process]
    work = int((own["end_ns"] - own["start_ns"]).sum())
    return int(mine.loc[inside, "work_ns"].sum()) >= MIN_WORK_RATIO * work


def _from_ranges(
    ranges: pd.DataFrame, range_names: pd.DataFrame, submissions: pd.DataFrame
) -> Marks | None:
    """The best group of ranges whose texts differ only in numbers, by name, cover and depth."""
    usable = ranges[~ranges["domain"].isin(_LIBRARY) & ~ranges["open"]]
    if not len(usable):
        return None
    texts = range_names["text"].astype(str).tolist()
    folded = [_DIGITS.sub("#", text) for text in texts]
    labels, code = np.unique(np.array(folded, dtype=object).astype(str), return_inverse=True)
    usable = usable.assign(label=code[usable["text"].to_numpy()])
    called = submissions["called_ns"].to_numpy()
    low, high = int(called.min()), int(called.max()) + 1
    best: tuple[tuple[int, int, float], Marks] | None = None
    for (label, thread), rows in usable.groupby(["label", "thread"], sort=True):
        scored = _scored(rows, str(labels[label]), int(thread), submissions, (low, high))
        if scored is not None and (best is None or scored[0] > best[0]):
            best = scored
    return best[1] if best else None


def _scored(
    rows: pd.DataFrame, label: str, thread: int, submissions: pd.DataFrame, span: tuple[int, int]
) -> tuple[tuple[int, int, float], Marks] | None:
    """How well one group of ranges marks steps: named so, cover of the launches, outermost."""
    named = int(bool(_STEP.search(label))) - int(bool(_PART.search(label)))
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    if len(start) < MIN_STEPS or named < 0 or (start[1:] < end[:-1]).any():
        return None
    process = int(rows["process"].iloc[0])
    called = submissions.loc[submissions["process"] == process, "called_ns"].to_numpy()
    first, last = np.searchsorted(called, start), np.searchsorted(called, end)
    busy = last > first
    if busy.sum() < max(MIN_STEPS, 0.8 * len(start)):
        return None
    cover = float((last - first).sum()) / max(len(called), 1)
    inside = float((end - start).sum()) / max(int(end[-1] - start[0]), 1)
    # Without a telling name, a group must hold most of the work and leave few holes.
    if cover < MIN_COVER_RATIO or (named == 0 and inside < MIN_COVER_RATIO):
        return None
    depth = int(rows["depth"].min())
    return (named, -depth, round(cover, 3)), Marks(
        start, end, "nvtx", label, thread, process
    )


def _from_period(submissions: pd.DataFrame, api: pd.DataFrame, relay: Ints) -> Marks | None:
    """Steps from what recurs in the order in which the chain of calls that launches most work
    submits and synchronises."""
    chain = relay[submissions["api"].to_numpy()]
    work = submissions["work_ns"].groupby(chain).sum().sort_index()
    if work.max() < MIN_WORK_RATIO * work.sum():
        return None
    symbol, called, thread = _symbols(submissions, api, relay, int(work.idxmax()))
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
    submissions: pd.DataFrame, api: pd.DataFrame, relay: Ints, chain: int
) -> tuple[Ints, Ints, Ints]:
    """What one chain did in order: operations by name, synchronising calls by verb; their times
    and threads."""
    mine = submissions[relay[submissions["api"].to_numpy()] == chain]
    waits = api[(relay == chain) & api["top"].to_numpy()]
    waits = waits[np.isin(waits["verb"], [int(v) for v in SYNCS])]
    called = np.concatenate([mine["called_ns"], waits["start_ns"]])
    symbol = np.concatenate([mine["name"], -1 - waits["verb"].to_numpy(dtype=np.int64)])
    thread = np.concatenate([mine["thread"], waits["thread"]])
    order = np.lexsort((symbol, called))
    return symbol[order], called[order], thread[order]


def _step_start(run: Run, called: Ints) -> Ints:
    """Moves the positions to where the host usually pauses longest within a period."""
    rows = run.position[:-1, None] + np.arange(run.period)[None, :]
    rows = rows[rows[:, -1] < len(called)]
    if not len(rows):
        return run.position
    pause = np.median(np.diff(called, prepend=called[0])[rows], axis=0)
    moved = run.position + int(np.argmax(pause))
    return moved[moved < len(called)]
