"""Slow calls into the driver inside the loop: memory, code, and who waits behind them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.intervals import spans, union
from nsysdoctor.recipe import table
from nsysdoctor.tables.host_time import in_loop
from nsysdoctor.tables.states import CAUSE
from nsysdoctor.verbs import ALLOCATIONS, Verb

_DELAYED_NS = 50_000
_OWNERS = frozenset({*ALLOCATIONS, Verb.MODULE})
_SLICES, _MANY_SLICES = 10, 4
_LEAST_STEPS = 3


@table
def driver_calls(
    host_calls: pd.DataFrame,
    api_names: pd.DataFrame,
    api: pd.DataFrame,
    gap_causes: pd.DataFrame,
    window: pd.DataFrame,
    thread_labels: list[str],
) -> pd.DataFrame:
    """Returns the calls of the window that manage memory or load code.

    Columns: call (row of `host_calls`), api, thread (label), process, verb, name, start_ns,
    end_ns, length_ns, idle_ns (a device idled while the host stood in it), device (which, -1
    none).
    """
    mine = host_calls["verb"].isin([int(v) for v in _OWNERS]).to_numpy()
    rows = np.flatnonzero(mine & in_loop(host_calls, window))
    calls = host_calls.iloc[rows].reset_index(drop=True)
    row = calls["api"].to_numpy()
    idle, device = call_idle(row, gap_causes)
    return pd.DataFrame(
        {
            "call": rows,
            "api": row,
            "thread": [thread_labels[t] for t in calls["thread"]],
            "process": calls["process"],
            "verb": calls["verb"],
            "name": api_names["name"].to_numpy()[api["name"].to_numpy()[row]],
            "start_ns": calls["start_ns"],
            "end_ns": calls["end_ns"],
            "length_ns": calls["end_ns"] - calls["start_ns"],
            "idle_ns": idle,
            "device": device,
        }
    )


def call_idle(row: np.ndarray, gap_causes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each row of `api` how long a device idled while the host stood in the call,
    and which device idled most (-1 none)."""
    near = gap_causes[gap_causes["api"].isin(row) & (gap_causes["cause"] != CAUSE["unknown"])]
    length = (near["end_ns"] - near["start_ns"]).groupby([near["api"], near["device"]]).sum()
    worst = length.reset_index(name="ns").sort_values(["api", "ns", "device"], kind="stable")
    worst = worst.drop_duplicates("api", keep="last").set_index("api")
    found = worst.reindex(row)
    return (
        found["ns"].fillna(0).to_numpy(dtype=np.int64),
        found["device"].fillna(-1).to_numpy(dtype=np.int64),
    )


@table
def lock_delays(
    host_calls: pd.DataFrame, driver_calls: pd.DataFrame
) -> pd.DataFrame:
    """Returns the calls that took long because another thread of their process held the driver
    in one of `driver_calls`.

    Columns: call (row of `host_calls`), api, usual_ns (the lower quartile of calls that do the
    same), process.
    """
    # The short end: with many threads most calls may be delayed.
    usual = host_calls.groupby("verb")["own_ns"].transform("quantile", 0.25).to_numpy()
    own = host_calls["own_ns"].to_numpy()
    slow = (own > 3 * usual + _DELAYED_NS) & ~host_calls["blocks"].to_numpy()
    slow &= ~host_calls["verb"].isin([int(v) for v in _OWNERS]).to_numpy()
    found = np.zeros(len(host_calls), dtype=bool)
    for process, held in driver_calls.groupby("process", sort=True):
        merged = union(spans(held["start_ns"], held["end_ns"]))
        rows = np.flatnonzero(slow & (host_calls["process"].to_numpy() == process))
        start, end = (host_calls[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
        index = np.searchsorted(merged.start, end) - 1
        found[rows] = (index >= 0) & (merged.end[np.maximum(index, 0)] > start)
    rows = np.flatnonzero(found)
    return pd.DataFrame(
        {
            "call": rows,
            "api": host_calls["api"].to_numpy()[rows],
            "usual_ns": usual[rows].astype(np.int64),
            "process": host_calls["process"].to_numpy()[rows],
        }
    )


def recurs(times: np.ndarray, steps: pd.DataFrame, window: pd.DataFrame) -> bool:
    """Returns whether something happens again and again in the window: in several steady steps,
    without steps in many parts of the window."""
    row = window.iloc[0]
    if row["basis"] == "steady":
        starts = steps.loc[steps["phase"] == "steady", "start_ns"].to_numpy()
        met = np.unique(np.searchsorted(starts, times, side="right"))
        return len(met) >= _LEAST_STEPS
    low, high = int(row["host_start_ns"]), int(row["host_end_ns"])
    part = (np.asarray(times) - low) * _SLICES // max(high - low, 1)
    return len(np.unique(part)) >= _MANY_SLICES
