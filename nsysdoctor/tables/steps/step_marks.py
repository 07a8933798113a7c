"""Where the iterations of a program start: marked by ranges, else by what recurs."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, runs
from nsysdoctor.arrays.order import time_order
from nsysdoctor.arrays.tandem import MIN_REPEATS
from nsysdoctor.tables.host.ranges import depth_of
from nsysdoctor.tables.steps.launch_marks import Launches, marked_by_launches
from nsysdoctor.tables.steps.marks import Floats, Marks, Work
from nsysdoctor.tables.steps.range_marks import marked_by_ranges
from nsysdoctor.trace.recipe import table

MIN_WORK_RATIO, _NAMED_WORK_RATIO, _MANY = 0.5, 0.1, 10
"""The share of the work that steps hold; less is enough for many that ranges mark."""

_ACCOUNTED_RATIO, _PAUSE_RATIO = 0.5, 0.2
_NEARLY_ALL_RATIO, _SLOW, _FEW_SLOW_RATIO = 0.8, 5, 0.4
_OPENING = re.compile(r"(?i)warm[ _-]?up|^(init|set[ _-]?up|build|compil|autotun)|initiali[sz]")
"""Names of what comes before the steady steps, among the outermost ranges."""

_FEW = 2


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
    op_names: pd.DataFrame,
    submissions: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    whole_thread_handoffs: Ints | None = None,
    ranges: pd.DataFrame | None = None,
    range_names: pd.DataFrame | None = None,
    threads: pd.DataFrame | None = None,
) -> Marks | None:
    """Returns where steps start and end on the host thread that owns them, None without steps.

    Ranges that repeat count first, where they run the same work; else the longest sequence of
    launches that repeats whole. Steps that hold little of the work of their process, or that
    account for little of the time in which they follow one another, are none: something else is
    the program. What the program calls its warm-up is no step if there are others.
    """
    if submissions is None or not len(submissions):
        return None
    work = Work(submissions, ops)
    told = None
    if api is not None and whole_thread_handoffs is not None:
        told = Launches(submissions, ops, api, whole_thread_handoffs, op_names)
    marked = ranges is not None and range_names is not None and threads is not None
    opening = _opening(ranges, range_names) if ranges is not None else 0
    for limit in dict.fromkeys((opening, 0)):
        found = []
        if marked:
            found.append(marked_by_ranges(ranges, range_names, threads, work, limit))
        if not _is_real(found, work, limit) and told is not None:
            found += [marked_by_launches(told, low) for low in dict.fromkeys((0, limit))]
        real = [marks for marks in found if _is_real([marks], work, limit)]
        if real and real[0] is not None:
            return real[0]._replace(opening_ns=limit)
    return None


def _is_real(found: list[Marks | None], work: Work, limit: int) -> bool:
    """Whether some marks are steps, of which enough lie behind a time."""
    return any(
        marks is not None
        and int((marks.start >= limit).sum()) >= MIN_REPEATS
        and _holds_the_work(marks, work)
        and _accounts_for_its_time(marks, work)
        for marks in found
    )


def _opening(ranges: pd.DataFrame, range_names: pd.DataFrame | None) -> int:
    """When the last of the outer ranges ends that are named as a warm-up or a start, 0 without."""
    if range_names is None:
        return 0
    named = np.array([bool(_OPENING.search(str(t))) for t in range_names["text"]], dtype=bool)
    text = ranges["text"].to_numpy()
    few = np.bincount(text, minlength=len(named)) <= _FEW
    rows = np.flatnonzero((named & few)[text] & ~ranges["open"].to_numpy())
    if not len(rows):
        return 0
    depth = np.concatenate(
        [depth_of(ranges, rows[own]) for _, own in runs(ranges["thread"].to_numpy()[rows])]
    )
    ends = ranges["end_ns"].to_numpy()[rows[depth <= 1]]
    return int(ends.max()) if len(ends) else 0


def _holds_the_work(marks: Marks, work: Work) -> bool:
    """Whether what runs from the first step to the last is most of the work, or much of it where
    the program itself names many steps."""
    mine = work.of(marks.process)
    low, high = np.searchsorted(mine.called, [marks.start[0], marks.end[-1]])
    named = marks.basis == "nvtx" and len(marks.start) >= _MANY
    least = _NAMED_WORK_RATIO if named else MIN_WORK_RATIO
    return float(mine.work[low:high].sum()) >= least * float(mine.work.sum())


def _accounts_for_its_time(marks: Marks, work: Work) -> bool:
    """Whether steps as usual make up most of what happens while they follow one another: of the
    time on the device or, where ranges mark the steps, of the work. Of many that hold nearly all
    the work a few may take long: they wait, or fetch pages."""
    took = np.diff(marks.start)
    follows = marks.start[1:] - marks.end[:-1] <= _PAUSE_RATIO * took
    # The first one still loads modules.
    follows[: int(follows.sum() > MIN_REPEATS)] = False
    length = np.diff(work.begun(marks))[follows].astype(np.float64)
    if _usual_share(length) >= _ACCOUNTED_RATIO:
        return True
    done = work.done(marks)
    if marks.basis == "nvtx":
        return _usual_share(done[:-1][follows]) >= _ACCOUNTED_RATIO
    slow = float((length > _SLOW * np.median(length)).mean())
    held = float(done.sum()) >= _NEARLY_ALL_RATIO * float(work.of(marks.process).work.sum())
    return len(length) >= _MANY and slow <= _FEW_SLOW_RATIO and held


def _usual_share(amount: Floats) -> float:
    """How much of a sum the usual amount makes up if all had it, 1 without any."""
    return float(np.median(amount)) * len(amount) / float(amount.sum()) if amount.any() else 1.0
