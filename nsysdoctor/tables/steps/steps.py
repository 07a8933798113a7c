"""Iterations of the program, and the phases that the rest of the trace falls into.

Steps come from NVTX ranges that repeat, else from the period of the launch sequence. A step
reaches to the start of the next one, so that a wait between two ranges belongs to a step; where
other GPU work or a long pause lies between, that stretch is a phase of its own.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, spans, union
from nsysdoctor.tables.activity.gpu_rows import COPY, KERNEL
from nsysdoctor.tables.host.call_kinds import ALLOCATIONS, Verb
from nsysdoctor.tables.steps.marks import Marks
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_QUEUE = 4096
"""More operations than a host can have queued."""


@table
def every_step(
    step_marks: Marks | None,
    submissions: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    ops: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns one row per step of the capture in order.

    Columns: step, start_ns, end_ns (host time; a step ends where the next begins unless
    something else lies between), marked_end_ns (where its own mark ends), phase (warmup,
    steady, tail), op_count. Empty without steps. The first step is warm-up and so are further
    ones at the head that still load modules, allocate or take much longer; the last is tail.
    """
    if step_marks is None or submissions is None or api is None or ops is None:
        columns = ["step", "start_ns", "end_ns", "marked_end_ns", "op_count"]
        empty = pd.DataFrame({c: np.empty(0, dtype=np.int64) for c in columns})
        return empty.assign(phase=np.empty(0, dtype=object))
    mine = submissions["process"].to_numpy() == step_marks.process
    called = np.sort(submissions["called_ns"].to_numpy()[mine])
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
    found["phase"] = _phases(found, api, step_marks.opening_ns)
    return found


@table
def steps(every_step: pd.DataFrame, request: Request) -> pd.DataFrame:
    """Returns `every_step`; where a window was asked for by its times, a step that does not lie
    in it whole has the phase `outside`."""
    if not isinstance(request.window, tuple):
        return every_step
    low, high = request.window
    outside = (every_step["start_ns"] < low) | (every_step["end_ns"] > high)
    return every_step.assign(phase=every_step["phase"].mask(outside, "outside"))


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


def _phases(steps: pd.DataFrame, api: pd.DataFrame, opening_ns: int) -> np.ndarray:
    count = len(steps)
    phase = np.full(count, "steady", dtype=object)
    # What the program itself calls its warm-up.
    phase[steps["start_ns"].to_numpy() < opening_ns] = "warmup"
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
    every_step: pd.DataFrame,
    ops: pd.DataFrame,
    request: Request,
    submissions: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the phases that tile the capture on the host's clock, or the window asked for.

    Columns: phase (startup, warmup, steady, evaluation, checkpoint, tail), start_ns, end_ns,
    steps (that lie in it whole). Between two steps, other kernels make an evaluation; none (copies
    to the host, or nothing) a checkpoint. Without steps everything is one phase, `all`.
    """
    asked = request.window if isinstance(request.window, tuple) else None
    # Around a window in a long pause nothing may run.
    low, high = asked or (0, 0)
    if len(ops):
        low, high = int(ops["start_ns"].min()), int(ops["end_ns"].max())
    if submissions is not None and len(submissions):
        low = min(low, int(submissions["called_ns"].min()))
    rows = _tiles(every_step, submissions, low, high)
    if asked is not None:
        rows = _clipped(rows, *asked)
    run = (rows["phase"] != rows["phase"].shift()).cumsum()
    return rows.groupby(run, sort=True).agg(
        phase=("phase", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max"),
        steps=("steps", "sum"),
    ).reset_index(drop=True)  # fmt: skip


def _tiles(
    steps: pd.DataFrame, submissions: pd.DataFrame | None, low: int, high: int
) -> pd.DataFrame:
    """Every step and every stretch beside them: phase, start_ns, end_ns, steps."""
    rows: list[tuple[str, int, int, int]] = []
    at = min(low, int(steps["start_ns"].iloc[0])) if len(steps) else low
    for step in steps.itertuples(index=False):
        if step.start_ns > at:
            name = "startup" if not rows else _between(submissions, at, int(step.start_ns))
            rows.append((name, at, int(step.start_ns), 0))
        rows.append((str(step.phase), int(step.start_ns), int(step.end_ns), 1))
        at = int(step.end_ns)
    if high > at or not rows:
        rows.append(("tail" if rows else "all", at, high, 0))
    return pd.DataFrame(rows, columns=["phase", "start_ns", "end_ns", "steps"])


def _clipped(rows: pd.DataFrame, low: int, high: int) -> pd.DataFrame:
    """What of the rows lies in a window; a step that is cut counts no more."""
    start, end = rows["start_ns"].clip(lower=low), rows["end_ns"].clip(upper=high)
    whole = (start == rows["start_ns"]) & (end == rows["end_ns"])
    found = rows.assign(start_ns=start, end_ns=end, steps=rows["steps"].where(whole, 0))
    return found[start < end]


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
    """Returns the one window that savings refer to: a row per stretch of it on the host.

    Columns: start_ns, end_ns, basis (all, steady, given), host_start_ns, host_end_ns (the same
    in every row), part_start_ns, part_end_ns, part_done_ns (when the work that the part submitted
    is done). The window is the one asked for; else the steady
    steps where at least three were recognised; else all. A steady window reaches from where the
    work launched before it is done to where its own is done, so that a host that runs ahead
    does not shorten it; its parts leave out evaluation and checkpoints between steps.
    """
    steady = steps[steps["phase"] == "steady"]
    if isinstance(request.window, tuple):
        return _window_rows(request.window, "given", request.window)
    if request.window == "all" or len(steady) < 3 or ops is None or submissions is None:
        low, high = int(horizon["start_ns"].min()), int(horizon["end_ns"].max())
        return _window_rows((low, high), "all", (_earliest(submissions, low), high))
    low, high = int(steady["start_ns"].min()), int(steady["end_ns"].max())
    process = step_marks.process if step_marks is not None else 0
    mine = submissions[submissions["process"] == process]
    done = ops["end_ns"].to_numpy()[mine["op"].to_numpy()]
    called = mine["called_ns"].to_numpy()
    start = max([low, *done[called < low][-_QUEUE:].tolist()])
    own = done[(called >= low) & (called < high)]
    end = max(high, int(own.max()) if len(own) else high)
    parts = union(spans(steady["start_ns"], steady["end_ns"]))
    found = _window_rows((min(start, end - 1), end), "steady", (low, high), parts)
    return found.assign(part_done_ns=_done_after(parts, called, done))


def _done_after(parts: Spans, called_ns: np.ndarray, done_ns: np.ndarray) -> np.ndarray:
    """When the work that was submitted in each part is done, at the end of the part at the
    earliest."""
    starts, ends = parts
    part = np.searchsorted(starts, called_ns, side="right") - 1
    inside = (part >= 0) & (called_ns < ends[np.maximum(part, 0)])
    found = ends.copy()
    np.maximum.at(found, part[inside], done_ns[inside])
    return found


def _earliest(submissions: pd.DataFrame | None, low: int) -> int:
    """When the host submitted the first operation, which is before the device began."""
    if submissions is None or not len(submissions):
        return low
    return min(low, int(submissions["called_ns"].min()))


def window_span_ns(window: pd.DataFrame) -> int:
    """Returns how long the window is without what lies between its parts: evaluations and pauses
    are no time of the steps. While a device still works on what a part submitted it is no pause,
    however far the host runs ahead."""
    done = np.maximum.accumulate(window["part_done_ns"].to_numpy())
    between = window["part_start_ns"].to_numpy()[1:] - done[:-1]
    whole = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    return max(whole - int(np.maximum(between, 0).sum()), 1)


def in_window(times: np.ndarray, window: pd.DataFrame) -> np.ndarray:
    """Returns which host times lie in the window: calls of the steps that savings are about."""
    starts, ends = window["part_start_ns"].to_numpy(), window["part_end_ns"].to_numpy()
    index = np.searchsorted(starts, times, side="right") - 1
    return np.asarray((index >= 0) & (times < ends[np.maximum(index, 0)]))


def work_in_window(start_ns: np.ndarray, called_ns: np.ndarray, window: pd.DataFrame) -> np.ndarray:
    """Returns which operations belong to the window: those launched in it; those that begin in it
    where it was told by its times, since a host that runs ahead launches other work then."""
    return in_window(called_ns if tells_outside(window) else start_ns, window)


def tells_outside(window: pd.DataFrame) -> bool:
    """Returns whether what lies outside the window is told of as well: what a program does once
    belongs to a report on the capture, but not to one on a window told by its times."""
    return str(window["basis"].iloc[0]) != "given"


def _window_rows(
    window: tuple[int, int], basis: str, host: tuple[int, int], parts: Spans | None = None
) -> pd.DataFrame:
    low, high = parts if parts is not None else (host[:1], host[1:])
    return pd.DataFrame({"part_start_ns": low, "part_end_ns": high}).assign(
        part_done_ns=high,
        start_ns=window[0],
        end_ns=window[1],
        basis=basis,
        host_start_ns=host[0],
        host_end_ns=host[1],
    )
