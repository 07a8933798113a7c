"""Slow driver calls inside the loop that manage memory or load code, and the calls delayed by
them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, spans, union
from nsysdoctor.tables.account.idle_parts import IdleParts, of_calls
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.tables.host.call_kinds import ALLOCATIONS, Verb
from nsysdoctor.tables.loop.host_time import own_cost
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_DELAYED_NS = 50_000
_OWNERS = frozenset({*ALLOCATIONS, Verb.MODULE})
_SLICES, _MANY_SLICES = 10, 4
_LEAST_STEPS = 3


@table
def driver_calls(
    host_calls: pd.DataFrame,
    api_names: pd.DataFrame,
    api: pd.DataFrame,
    idle_parts: IdleParts,
    loop_calls: np.ndarray,
    thread_labels: list[str],
) -> pd.DataFrame:
    """Returns the calls of the window that manage memory or load code.

    Columns: call (row of `host_calls`), api, thread (label), process, verb, name, start_ns, end_ns,
    length_ns, idle_ns (a device idled while the host was in the call), device (which, -1 none).
    """
    owning = np.isin(host_calls["verb"].to_numpy(), [int(v) for v in _OWNERS])
    rows = np.flatnonzero(owning & loop_calls)
    calls = host_calls.iloc[rows].reset_index(drop=True)
    row = calls["api"].to_numpy()
    return pd.DataFrame(
        {
            "call": rows,
            "api": row,
            "thread": [thread_labels[t] for t in calls["thread"]],
            "process": api["process"].to_numpy()[row],
            "verb": calls["verb"],
            "name": api_names["name"].take(api["name"].to_numpy()[row]).array,
            "start_ns": calls["start_ns"],
            "end_ns": calls["end_ns"],
            "length_ns": calls["end_ns"] - calls["start_ns"],
            "idle_ns": of_calls(row, idle_parts.calls, "idle_ns"),
            "device": of_calls(row, idle_parts.calls, "device", -1),
        }
    )


@table
def lock_delays(
    host_calls: pd.DataFrame,
    driver_calls: pd.DataFrame,
    api: pd.DataFrame,
    waiting: Waiting,
    request: Request,
) -> pd.DataFrame:
    """Returns the calls that took long because another thread of their process held the driver
    in one of `driver_calls`.

    Columns: call (row of `host_calls`), api, usual_ns (the lower quartile of calls that do the
    same), process.
    """
    if not len(driver_calls):
        columns = ("call", "api", "usual_ns", "process")
        return pd.DataFrame({c: np.empty(0, dtype=np.int64) for c in columns})
    process = api["process"].to_numpy()[host_calls["api"].to_numpy()]
    slow, usual = slow_calls(host_calls, waiting, request)
    start, end = (host_calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    found = [np.empty(0, dtype=np.int64)]
    for code, held in driver_calls.groupby("process", sort=True):
        merged = union(spans(held["start_ns"], held["end_ns"]))
        rows = np.flatnonzero(slow & (process == code))
        index = np.searchsorted(merged.start, end[rows]) - 1
        found.append(rows[(index >= 0) & (merged.end[np.maximum(index, 0)] > start[rows])])
    rows = np.sort(np.concatenate(found))
    return pd.DataFrame(
        {
            "call": rows,
            "api": host_calls["api"].to_numpy()[rows],
            "usual_ns": usual[rows],
            "process": process[rows],
        }
    )


def slow_calls(
    host_calls: pd.DataFrame, waiting: Waiting, request: Request
) -> tuple[np.ndarray, Ints]:
    """Returns which rows of `host_calls` take much longer than usual without waiting for an
    operation, and the usual time for each row, ns."""
    own, verb = own_cost(host_calls, waiting), host_calls["verb"].to_numpy()
    usual = np.zeros(int(verb.max(initial=0)) + 1)
    given = request.in_given_window(host_calls)
    for code in np.unique(verb if given is None else verb[given]).tolist():
        sample = own[verb == code if given is None else (verb == code) & given]
        # A low quantile, because with many threads most calls may be delayed.
        usual[code] = np.quantile(sample, 0.25)
    slow = (own > 3 * usual[verb] + _DELAYED_NS) & ~host_calls["blocks"].to_numpy()
    slow &= ~np.isin(verb, [int(v) for v in _OWNERS])
    return slow, usual.astype(np.int64)[verb]


def recurs(times: np.ndarray, steps: pd.DataFrame, window: pd.DataFrame) -> bool:
    """Returns whether something recurs throughout the window: in several steady steps, or without
    steps in many parts of the window."""
    row = window.iloc[0]
    if row["basis"] == "steady":
        starts = steps.loc[steps["phase"] == "steady", "start_ns"].to_numpy()
        met = np.unique(np.searchsorted(starts, times, side="right"))
        return len(met) >= _LEAST_STEPS
    low, high = int(row["host_start_ns"]), int(row["host_end_ns"])
    part = (np.asarray(times) - low) * _SLICES // max(high - low, 1)
    return len(np.unique(part)) >= _MANY_SLICES
