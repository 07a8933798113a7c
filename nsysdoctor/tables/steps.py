"""Iterations of the program, and the phases that the rest of the trace falls into.

Steps come from NVTX ranges that repeat, else from the period of the launch sequence. A step
reaches to the start of the next one, so that a wait between two ranges belongs to a step; where
other GPU work or a long pause lies between, that stretch is a phase of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import COPY, KERNEL
from nsysdoctor.verbs import ALLOCATIONS, Verb
from nsysdoctor.window import Request

MIN_STEPS = 4
MIN_COVER_RATIO = 0.5
MIN_WORK_RATIO = 0.5
_QUEUE = 4096
"""More operations than a host can have queued."""

MIN_PERIOD = 3
"""Fewer launches than this repeat by accident."""

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
    marks = marks or _from_period(submissions)
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


def _from_period(submissions: pd.DataFrame) -> Marks | None:
    """Steps from the kernel that recurs at the most regular distance in the launch order."""
    process = int(submissions["process"].value_counts(sort=True).index[0])
    mine = submissions[submissions["process"] == process]
    name, called = mine["name"].to_numpy(), mine["called_ns"].to_numpy()
    is_kernel = (mine["kind"] == KERNEL).to_numpy()
    if not is_kernel.any():
        is_kernel = np.ones(len(mine), dtype=bool)
    anchor = _anchor(name, is_kernel)
    if anchor is None:
        return None
    first = _step_start(anchor, called)
    start = called[first]
    thread = int(mine["thread"].to_numpy()[first[0]])
    end = np.append(start[1:], called[min(2 * first[-1] - first[-2], len(called) - 1)] + 1)
    return Marks(start, end, "period", "period of the launch sequence", thread, process)


def _anchor(name: Ints, is_kernel: np.ndarray) -> Ints | None:
    """Positions of the operation that recurs most regularly, at least `MIN_PERIOD` apart."""
    count = len(name)
    order = np.lexsort((np.arange(count), name))
    order = order[is_kernel[order]]
    cuts = np.flatnonzero(np.diff(name[order])) + 1
    best: tuple[float, int, Ints] | None = None
    for position in np.split(order, cuts):
        found = _regular_run(position) if len(position) > MIN_STEPS else None
        if found is None or len(found) <= MIN_STEPS:
            continue
        cover = (found[-1] - found[0]) / count
        period = int(np.median(np.diff(found)))
        if period < MIN_PERIOD or cover < MIN_COVER_RATIO:
            continue
        # Rounded so that equally good anchors fall back to the shorter period.
        score = (round(_regularity(found), 2), -period, found)
        if best is None or score[:2] > best[:2]:
            best = score
    return None if best is None else best[2]


def _regularity(position: Ints) -> float:
    """The share of the stretch whose distances are within 10 % (or 2) of the median."""
    distance = np.diff(position)
    typical = np.median(distance)
    near = np.abs(distance - typical) <= max(2.0, 0.1 * float(typical))
    return float(distance[near].sum() / distance.sum())


def _regular_run(position: Ints) -> Ints | None:
    """The positions from the first to the last regular distance, if most lie regularly."""
    distance = np.diff(position)
    typical = float(np.median(distance))
    near = np.abs(distance - typical) <= max(2.0, 0.1 * typical)
    if near.mean() < 0.7:
        return None
    inside = np.flatnonzero(near)
    return position[inside[0] : inside[-1] + 2]


def _step_start(anchor: Ints, called: Ints) -> Ints:
    """Moves the anchors to where the host usually pauses longest within a period."""
    period = int(np.median(np.diff(anchor)))
    offsets = np.arange(period)
    rows = anchor[:-1, None] + offsets[None, :]
    rows = rows[rows[:, -1] < len(called)]
    if not len(rows) or period > 200_000:
        return anchor
    pause = np.median(np.diff(called, prepend=called[0])[rows], axis=0)
    moved = anchor + int(np.argmax(pause))
    return moved[moved < len(called)]


@table
def steps(
    step_marks: Marks | None,
    submissions: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    ops: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns one row per step in order.

    Columns: step, start_ns, end_ns (host time; a step ends where the next begins unless
    something else lies between), marked_end_ns (where its own mark ends), phase (warmup,
    steady, tail), op_count. Empty without steps. The first step is warm-up and so are further
    ones at the head that still load modules, allocate or take much longer; the last is tail.
    """
    if step_marks is None or submissions is None or api is None or ops is None:
        columns = ["step", "start_ns", "end_ns", "marked_end_ns", "op_count"]
        empty = pd.DataFrame({c: np.empty(0, dtype=np.int64) for c in columns})
        return empty.assign(phase=np.empty(0, dtype=object))
    called = np.sort(submissions["called_ns"].to_numpy())
    start, marked = step_marks.start, step_marks.end
    end = _reach(step_marks, called)
    found = pd.DataFrame(
        {
            "step": np.arange(len(start)),
            "start_ns": start,
            "end_ns": end,
            "marked_end_ns": marked,
            "op_count": np.searchsorted(called, marked) - np.searchsorted(called, start),
        }
    )
    found["phase"] = _phases(found, api)
    return found


def _reach(marks: Marks, called: Ints) -> Ints:
    """Where each step ends: at the next one's start unless other work or a long pause lies
    between."""
    start, end = marks.start, marks.end.copy()
    inside = np.searchsorted(called, end) - np.searchsorted(called, start)
    between = np.searchsorted(called, start[1:]) - np.searchsorted(called, end[:-1])
    pause = start[1:] - end[:-1]
    typical_ops = max(float(np.median(inside)), 1.0)
    typical_ns = float(np.median(np.diff(start))) if len(start) > 1 else 0.0
    joined = (between <= 0.2 * typical_ops) & (pause <= 5 * typical_ns)
    end[:-1] = np.where(joined, start[1:], end[:-1])
    return end


def _phases(steps: pd.DataFrame, api: pd.DataFrame) -> np.ndarray:
    count = len(steps)
    phase = np.full(count, "steady", dtype=object)
    phase[count - 1] = "tail"
    phase[: _warm_up(steps, api)] = "warmup"
    return phase


def _warm_up(steps: pd.DataFrame, api: pd.DataFrame) -> int:
    """How many steps at the head differ from the rest: slow, or with one-off calls of their own.

    At most a third of the steps: calls that go on are no warm-up.
    """
    count = len(steps)
    length = (steps["end_ns"] - steps["start_ns"]).to_numpy()
    typical = float(np.median(length[count // 2 :]))
    one_off = np.isin(api["verb"], [int(v) for v in (*ALLOCATIONS, Verb.MODULE)])
    times = np.sort(api["start_ns"].to_numpy()[one_off])
    calls = np.searchsorted(times, steps["end_ns"]) - np.searchsorted(times, steps["start_ns"])
    usual = float(np.median(calls[count // 2 :]))
    cold = (length > 1.5 * typical) | (calls > 2 * usual)
    head = 1
    while head < count // 3 and cold[head]:
        head += 1
    return head if head < max(count // 3, 2) or not cold[head] else 1


@table
def phases(
    steps: pd.DataFrame,
    ops: pd.DataFrame,
    submissions: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the phases that tile the capture on the host's clock.

    Columns: phase (startup, warmup, steady, evaluation, checkpoint, tail), start_ns, end_ns,
    steps. Between two steps, other kernels make an evaluation; none (copies to the host, or
    nothing) a checkpoint. Without steps everything is one phase, `all`.
    """
    low, high = int(ops["start_ns"].min()), int(ops["end_ns"].max())
    if submissions is not None and len(submissions):
        low = min(low, int(submissions["called_ns"].min()))
    if not len(steps):
        return pd.DataFrame({"phase": ["all"], "start_ns": [low], "end_ns": [high], "steps": [0]})
    rows: list[tuple[str, int, int, int]] = []
    at = min(low, int(steps["start_ns"].iloc[0]))
    for step in steps.itertuples(index=False):
        if step.start_ns > at:
            name = "startup" if not rows else _between(submissions, at, int(step.start_ns))
            rows.append((name, at, int(step.start_ns), 0))
        rows.append((str(step.phase), int(step.start_ns), int(step.end_ns), 1))
        at = int(step.end_ns)
    if high > at:
        rows.append(("tail", at, high, 0))
    frame = pd.DataFrame(rows, columns=["phase", "start_ns", "end_ns", "steps"])
    run = (frame["phase"] != frame["phase"].shift()).cumsum()
    return frame.groupby(run, sort=True).agg(
        phase=("phase", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max"),
        steps=("steps", "sum"),
    ).reset_index(drop=True)  # fmt: skip


def _between(submissions: pd.DataFrame | None, low: int, high: int) -> str:
    if submissions is None:
        return "checkpoint"
    inside = (submissions["called_ns"] >= low) & (submissions["called_ns"] < high)
    kinds = submissions.loc[inside, "kind"]
    return "evaluation" if (kinds == KERNEL).sum() > (kinds == COPY).sum() else "checkpoint"


@table
def window(
    steps: pd.DataFrame,
    horizon: pd.DataFrame,
    request: Request,
    step_marks: Marks | None = None,
    ops: pd.DataFrame | None = None,
    submissions: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the one window that savings refer to, one row.

    Columns: start_ns, end_ns, basis (all, steady, given), host_start_ns, host_end_ns. The one
    asked for; else the steady steps where at least three were recognised; else all. A steady
    window reaches from where the work launched before it is done to where its own is done, so
    that a host that runs ahead does not shorten it; the host bounds are the steps' own.
    """
    steady = steps[steps["phase"] == "steady"]
    if isinstance(request.window, tuple):
        return _window_row(*request.window, "given", *request.window)
    if request.window == "all" or len(steady) < 3 or ops is None or submissions is None:
        low, high = int(horizon["start_ns"].min()), int(horizon["end_ns"].max())
        return _window_row(low, high, "all", _earliest(submissions, low), high)
    low, high = int(steady["start_ns"].min()), int(steady["end_ns"].max())
    process = step_marks.process if step_marks is not None else 0
    mine = submissions[submissions["process"] == process]
    done = ops["end_ns"].to_numpy()[mine["op"].to_numpy()]
    called = mine["called_ns"].to_numpy()
    start = max([low, *done[called < low].tolist()[-_QUEUE:]])
    own = done[(called >= low) & (called < high)]
    end = max(high, int(own.max()) if len(own) else high)
    return _window_row(min(start, end - 1), end, "steady", low, high)


def _earliest(submissions: pd.DataFrame | None, low: int) -> int:
    """When the host submitted the first operation, which is before the device began."""
    if submissions is None or not len(submissions):
        return low
    return min(low, int(submissions["called_ns"].min()))


def in_window(times: np.ndarray, window: pd.DataFrame) -> np.ndarray:
    """Returns which host times lie in the window: calls of the steps that savings are about."""
    row = window.iloc[0]
    return np.asarray((times >= row["host_start_ns"]) & (times < row["host_end_ns"]))


def _window_row(start: int, end: int, basis: str, low: int, high: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "start_ns": [start], "end_ns": [end], "basis": [basis],
            "host_start_ns": [low], "host_end_ns": [high],
        }
    )  # fmt: skip
