"""Host memory that is page-locked again and again in the loop."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.tables.loop.driver_calls import recurs
from nsysdoctor.trace.recipe import table


@table
def locking_calls(driver_calls: pd.DataFrame) -> pd.DataFrame:
    """Returns the calls of the window that page-lock or unlock host memory."""
    mine = driver_calls["verb"].isin([int(Verb.HOST_ALLOC), int(Verb.HOST_FREE)])
    return driver_calls[mine].reset_index(drop=True)


@table
def pinned_allocation_in_loop(
    locking_calls: pd.DataFrame, lock_delays: pd.DataFrame, steps: pd.DataFrame,
    window: pd.DataFrame,
) -> pd.DataFrame:  # fmt: skip
    """Returns a row per process that keeps page-locking: subject, device, process, count,
    thread_count, call_ns, longest_ns, idle_ns, delayed_count (calls of other threads that waited
    behind), names."""
    rows = []
    for process, mine in locking_calls.groupby("process", sort=True):
        if not recurs(mine["start_ns"].to_numpy(), steps, window):
            continue
        idle = mine[mine["idle_ns"] > 0]
        threads = sorted(mine["thread"].unique())
        rows.append(
            {
                "subject": threads[0] if len(threads) == 1 else f"{threads[0]} and others",
                "device": int(idle["device"].mode().iloc[0]) if len(idle) else -1,
                "_process": process,
                "count": len(mine),
                "call_ns": int(mine["length_ns"].sum()),
                "longest_ns": int(mine["length_ns"].max()),
                "idle_ns": int(mine["idle_ns"].sum()),
                "delayed_count": int((lock_delays["process"] == process).sum()),
                "names": ", ".join(sorted(mine["name"].unique())),
            }
        )
    return pd.DataFrame(rows)


def cure(
    pinned_allocation_in_loop: pd.DataFrame,
    locking_calls: pd.DataFrame,
    lock_delays: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
) -> list[pd.DataFrame]:
    """The calls are gone, and no other thread waits behind them."""
    parts = []
    for row, process in enumerate(pinned_allocation_in_loop["_process"]):
        mine = locking_calls[locking_calls["process"] == process]
        behind = lock_delays[lock_delays["process"] == process]
        parts.append(edits(Change.UNBLOCK, row, mine["api"]))
        parts.append(
            shorten_calls(row, behind["api"].to_numpy(), behind["usual_ns"].to_numpy(), api,
                          launches)
        )  # fmt: skip
    return join(*parts)


def evidence(
    pinned_allocation_in_loop: pd.DataFrame, locking_calls: pd.DataFrame
) -> pd.DataFrame:
    """Returns the calls: row, start_ns, end_ns, what."""
    row = {process: row for row, process in enumerate(pinned_allocation_in_loop["_process"])}
    mine = locking_calls[locking_calls["process"].isin(row)]
    return pd.DataFrame(
        {
            "row": mine["process"].map(row).to_numpy(dtype=np.int64),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": mine["name"],
        }
    )
