"""Threads that could launch work and get no CPU to do so."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.host_activity.schedule import READY
from nsysdoctor.trace.recipe import table


@table
def cpu_waits(
    between_calls: pd.DataFrame,
    host_calls: pd.DataFrame,
    loop_calls: np.ndarray,
    schedule: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the times before calls in which their thread was ready and had no CPU.

    Columns: call (row of `host_calls`), api, thread, start_ns, end_ns (of the time since the
    chain's call before), ready_ns, left_ns (what else the thread spends there), idle_ns, device.
    """
    rows = between_calls["call"].to_numpy()
    mine = (between_calls["ready_ns"].to_numpy() > 0) & loop_calls[rows]
    calls = host_calls.iloc[rows[mine]].reset_index(drop=True)
    ready = between_calls["ready_ns"].to_numpy()[mine]
    outside = calls["outside_ns"].to_numpy()
    return pd.DataFrame(
        {
            "call": rows[mine],
            "api": calls["api"],
            "thread": calls["thread"],
            "start_ns": calls["start_ns"] - outside,
            "end_ns": calls["start_ns"],
            "ready_ns": np.minimum(ready, outside),
            "left_ns": np.maximum(outside - ready, 0),
            "idle_ns": calls["idle_ns"],
            "device": calls["device"],
        }
    )


@table
def cpu_starved(
    cpu_waits: pd.DataFrame, thread_labels: list[str], threads: pd.DataFrame, *, min_idle_ns: int
) -> pd.DataFrame:
    """Returns a row per thread that keeps a device waiting for want of a CPU: subject, device,
    count (times), ready_ns, idle_ns (of the device beside it), longest_ns, thread."""
    rows = []
    for code, mine in cpu_waits.groupby("thread", sort=True):
        starved = mine[mine["idle_ns"] > 0]
        idle_ns = int(np.minimum(starved["ready_ns"], starved["idle_ns"]).sum())
        if idle_ns < min_idle_ns:
            continue
        device = int(starved["device"].mode().iloc[0])
        label = thread_labels[int(str(code))]
        same = [n for n, text in enumerate(thread_labels) if text == label]
        label += f" #{same.index(int(str(code))) + 1}" if same[0] != code else ""
        rows.append(
            {
                "subject": f"{label} before GPU {device}",
                "device": device,
                "thread": label,
                "count": len(starved),
                "ready_ns": int(starved["ready_ns"].sum()),
                "idle_ns": idle_ns,
                "longest_ns": int(starved["ready_ns"].max()),
                "_code": int(str(code)),
            }
        )
    return pd.DataFrame(rows)


def cure(cpu_starved: pd.DataFrame, cpu_waits: pd.DataFrame) -> pd.DataFrame:
    """The thread has a CPU whenever it can run."""
    row = {code: row for row, code in enumerate(cpu_starved["_code"])}
    mine = cpu_waits[cpu_waits["thread"].isin(list(row))]
    return edits(Change.OUTSIDE_NS, mine["thread"].map(row), mine["api"], mine["left_ns"])


def evidence(
    cpu_starved: pd.DataFrame, cpu_waits: pd.DataFrame, schedule: pd.DataFrame
) -> pd.DataFrame:
    """Returns when those threads were ready and had no CPU: row, start_ns, end_ns, what."""
    row = {code: row for row, code in enumerate(cpu_starved["_code"])}
    known = schedule["thread"].isin(list(row)) & (schedule["state"] == READY)
    mine = schedule[known]
    return pd.DataFrame(
        {
            "row": mine["thread"].map(row),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": "ready, without a CPU",
        }
    )
