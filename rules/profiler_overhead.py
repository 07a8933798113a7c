"""Idle time that the profiler itself makes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Spans, covered, spans, union
from nsysdoctor.replay.edits import Change, Part, edits, join
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.tables.account.idle_parts import IdleParts
from nsysdoctor.tables.steps.steps import in_window
from nsysdoctor.trace.recipe import table


@table
def held_calls(
    host_calls: pd.DataFrame,
    pauses: pd.DataFrame,
    loop_calls: np.ndarray,
    threads: pd.DataFrame,
    *,
    min_pause_ns: int,
) -> pd.DataFrame:
    """Returns the calls of the window that the profiler holds up, or the time before them.

    Columns: api, in_call_ns, before_ns (held in the call and before it), length_ns, outside_ns.
    """
    long = pauses[pauses["end_ns"] - pauses["start_ns"] >= min_pause_ns]
    start, end = host_calls["start_ns"].to_numpy(), host_calls["end_ns"].to_numpy()
    outside = host_calls["outside_ns"].to_numpy()
    within, before = (np.zeros(len(host_calls), dtype=np.int64) for _ in range(2))
    for thread, process in enumerate(threads["process"].tolist()):
        whole = (long["thread"] < 0) & (long["process"] == process)
        mine = long[(long["thread"] == thread) | whole]
        if not len(mine):
            continue
        held = union(spans(mine["start_ns"], mine["end_ns"]))
        rows = np.flatnonzero(host_calls["thread"].to_numpy() == thread)
        within[rows] = covered(Spans(start[rows], end[rows]), held)
        before[rows] = covered(Spans((start - outside)[rows], start[rows]), held)
    rows = np.flatnonzero(loop_calls & (within + before > 0))
    return pd.DataFrame(
        {
            "api": host_calls["api"].to_numpy()[rows],
            "in_call_ns": within[rows],
            "before_ns": before[rows],
            "length_ns": (end - start)[rows],
            "outside_ns": outside[rows],
        }
    )


@table
def profiler_overhead(
    held_calls: pd.DataFrame, idle_parts: IdleParts, pauses: pd.DataFrame, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns one row where a device idles in the window because of the profiler: subject,
    device, count, pause_ns, longest_ns, idle_ns, names."""
    mine = _profiled(idle_parts, window)
    if not len(mine) or not len(held_calls):
        return pd.DataFrame()
    by_device = (mine["end_ns"] - mine["start_ns"]).groupby(mine["device"]).sum().sort_index()
    inside = _holding(pauses, mine, window)
    length = inside["end_ns"] - inside["start_ns"]
    device = int(by_device.idxmax())
    return pd.DataFrame(
        [
            {
                "subject": f"GPU {device}",
                "device": device,
                "count": len(held_calls),
                "pause_ns": int((held_calls["in_call_ns"] + held_calls["before_ns"]).sum()),
                "longest_ns": int(length.max()) if len(length) else 0,
                "idle_ns": int(by_device.max()),
                "names": ", ".join(sorted(inside["name"].astype(str).unique())) or "overhead",
            }
        ]
    )


def _profiled(idle_parts: IdleParts, window: pd.DataFrame) -> pd.DataFrame:
    """The idle time of the window in which the profiler held a thread."""
    mine = idle_parts.profiled
    return mine[in_window(mine["start_ns"].to_numpy(), window)]


def _holding(pauses: pd.DataFrame, profiled: pd.DataFrame, window: pd.DataFrame) -> pd.DataFrame:
    """The pauses of the window that hold threads for which a device idles."""
    held = pauses["thread"].isin([-1, *profiled["thread"].unique()])
    return pauses[in_window(pauses["start_ns"].to_numpy(), window) & held.to_numpy()]


def cure(
    profiler_overhead: pd.DataFrame,
    held_calls: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
) -> list[pd.DataFrame]:
    """The profiler holds up nothing."""
    call = held_calls["api"].to_numpy()
    cost = (held_calls["length_ns"] - held_calls["in_call_ns"]).to_numpy()
    outside = held_calls["outside_ns"] - held_calls["before_ns"]
    return join(
        shorten_calls(0, call, cost, api, launches, part=Part.PROFILER),
        edits(Change.OUTSIDE_NS, 0, call, outside, part=Part.PROFILER),
    )


def evidence(
    profiler_overhead: pd.DataFrame,
    pauses: pd.DataFrame,
    idle_parts: IdleParts,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the profiler's pauses in the window: row, start_ns, end_ns, what."""
    mine = _holding(pauses, _profiled(idle_parts, window), window)
    return mine[["start_ns", "end_ns"]].assign(row=0, what=mine["name"])
