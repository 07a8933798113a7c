"""When threads were off their CPU, and whether they could have run then."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, covered_before, rows_of, runs, union
from nsysdoctor.arrays.order import Codes, narrowed, time_order
from nsysdoctor.ingest.export_codes import FAR_NS
from nsysdoctor.tables.activity.devices import thread_code
from nsysdoctor.trace.recipe import table

STATES = ("ready", "blocked", "off")
"""`schedule.state`: it could have run and got no CPU; it waited in a call; not told which."""

READY, BLOCKED, OFF = range(3)
_RUNNABLE, _WAITING = (1, 6), (2, 3, 4, 7, 8)
"""Values of ENUM_SAMPLING_THREAD_STATE at the moment a thread leaves its CPU."""

_ENDED = 5
_TAKEN_NS = 20_000
"""Another thread that gets the CPU this soon has taken it."""


@table
def schedule(
    sched_rows: pd.DataFrame,
    threads: pd.DataFrame,
    api: pd.DataFrame | None = None,
    waits: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns when the known threads were off their CPU, by thread and start.

    Columns: thread, start_ns, end_ns, state (code into `STATES`). Where the export tells the state
    in which a thread left its CPU, that counts. Else a thread that stood in a CUDA or OS call was
    blocked; one that stood in none, though OS calls were recorded, and whose CPU another thread of
    the capture took at once, was ready; of all others it is not told.
    """
    rows = _in_order(sched_rows, threads)
    thread, start = rows["thread"].to_numpy(), rows["start_ns"].to_numpy()
    runs_then, told = rows["runs"].to_numpy(), rows["thread_state"].to_numpy()
    leaves = np.flatnonzero(
        (runs_then[:-1] == 0) & (runs_then[1:] == 1) & (thread[:-1] == thread[1:])
        & (thread[:-1] >= 0) & (told[:-1] != _ENDED)
    )  # fmt: skip
    thread, low, high = thread[leaves], start[leaves], start[leaves + 1]
    state = np.full(len(leaves), OFF, dtype=np.int8)
    inside = _standing(waits, thread, low) | _standing(api, thread, low)
    state[inside] = BLOCKED
    if waits is not None:
        state[~inside & rows["taken"].to_numpy()[leaves]] = READY
    state[np.isin(told[leaves], _RUNNABLE)] = READY
    state[np.isin(told[leaves], _WAITING)] = BLOCKED
    kept = np.flatnonzero(high > low)
    kept = kept[np.argsort(thread[kept], kind="stable")]
    return pd.DataFrame(
        {
            "thread": narrowed(thread[kept]),
            "start_ns": low[kept],
            "end_ns": high[kept],
            "state": state[kept],
        }
    )


def _in_order(sched_rows: pd.DataFrame, threads: pd.DataFrame) -> pd.DataFrame:
    """The events of all threads by thread and time, with whether another one took the CPU."""
    start = sched_rows["start_ns"].to_numpy()
    sound = np.flatnonzero((start >= 0) & (start < FAR_NS))
    ids = pd.factorize(sched_rows["global_tid"])[0].astype(np.int64)
    rows = sched_rows.iloc[sound].assign(
        thread=thread_code(threads, sched_rows["global_tid"])[sound], number=ids[sound]
    )
    rows = rows.assign(taken=_taken(rows))
    order = time_order(rows["start_ns"].to_numpy(), group=rows["number"].to_numpy())
    return rows.iloc[order].reset_index(drop=True)


def _taken(rows: pd.DataFrame) -> np.ndarray:
    """Which events are followed on their CPU, at once, by another thread that begins to run."""
    start, number = rows["start_ns"].to_numpy(), rows["number"].to_numpy()
    runs_then = rows["runs"].to_numpy()
    order = time_order(start, lambda tied: (runs_then[tied],), rows["cpu"].to_numpy())
    cpu = rows["cpu"].to_numpy()[order]
    found = np.zeros(len(rows), dtype=bool)
    here, after = order[:-1], order[1:]
    found[here] = (
        (cpu[:-1] == cpu[1:]) & (cpu[:-1] >= 0) & (runs_then[after] == 1)
        & (number[after] != number[here]) & (start[after] - start[here] <= _TAKEN_NS)
    )  # fmt: skip
    return found


def _standing(calls: pd.DataFrame | None, thread: Codes, at: Ints) -> np.ndarray:
    """Whether each thread stood in one of some calls, which are by thread, at a time."""
    found = np.zeros(len(thread), dtype=bool)
    if calls is None:
        return found
    whose = calls["thread"].to_numpy()
    for code, mine in runs(thread):
        rows = rows_of(code, whose)
        merged = union(Spans(*(calls[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))))
        found[mine] = covered_before(merged, at[mine] + 1) > covered_before(merged, at[mine])
    return found


def off_cpu(schedule: pd.DataFrame | None, thread: int, states: tuple[int, ...]) -> Spans:
    """Returns when a thread was off its CPU in one of some states, merged."""
    if schedule is None:
        none = np.empty(0, dtype=np.int64)
        return Spans(none, none)
    rows = rows_of(thread, schedule["thread"].to_numpy())
    mine = np.isin(schedule["state"].to_numpy()[rows], states)
    return union(
        Spans(*(schedule[c].to_numpy()[rows][mine] for c in ("start_ns", "end_ns")))
    )
