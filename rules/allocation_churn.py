"""Device memory that is allocated and freed again in the loop."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.tables.loop.driver_calls import recurs
from nsysdoctor.trace.recipe import table


@table
def churn_calls(driver_calls: pd.DataFrame, *, min_async_ns: int) -> pd.DataFrame:
    """Returns the calls of the window that allocate or free device memory: the columns of
    `driver_calls`. Stream-ordered calls count only where they really cost."""
    mine = driver_calls[driver_calls["verb"].isin([int(Verb.ALLOC), int(Verb.FREE)])]
    ordered = mine["name"].str.contains("Async")
    return mine[~ordered | (mine["length_ns"] >= min_async_ns)].reset_index(drop=True)


@table
def allocation_churn(
    churn_calls: pd.DataFrame, steps: pd.DataFrame, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns a row per thread that keeps allocating or freeing: subject, device, thread, count,
    alloc_count, free_count, call_ns, idle_ns, names."""
    rows = []
    for thread, mine in churn_calls.groupby("thread", sort=True):
        freed = int((mine["verb"] == int(Verb.FREE)).sum())
        # Without steps, memory that is taken and kept is a program setting up.
        setting_up = window["basis"].iloc[0] == "all" and 4 * freed < len(mine)
        if setting_up or not recurs(mine["start_ns"].to_numpy(), steps, window):
            continue
        idle = mine[mine["idle_ns"] > 0]
        rows.append(
            {
                "subject": str(thread),
                "device": int(idle["device"].mode().iloc[0]) if len(idle) else -1,
                "thread": thread,
                "count": len(mine),
                "alloc_count": int((mine["verb"] == int(Verb.ALLOC)).sum()),
                "free_count": freed,
                "call_ns": int(mine["length_ns"].sum()),
                "idle_ns": int(mine["idle_ns"].sum()),
                "names": ", ".join(sorted(mine["name"].unique())),
            }
        )
    return pd.DataFrame(rows)


def cure(
    allocation_churn: pd.DataFrame,
    churn_calls: pd.DataFrame,
    lock_delays: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
) -> list[pd.DataFrame]:
    """The calls are gone, and no other thread waits behind them."""
    parts = []
    for row, thread in enumerate(allocation_churn["thread"]):
        mine = churn_calls[churn_calls["thread"] == thread]
        behind = lock_delays[lock_delays["process"].isin(mine["process"].unique())]
        parts.append(edits(Change.UNBLOCK, row, mine["api"]))
        parts.append(
            shorten_calls(row, behind["api"].to_numpy(), behind["usual_ns"].to_numpy(), api,
                          launches)
        )  # fmt: skip
    return join(*parts)


def evidence(allocation_churn: pd.DataFrame, churn_calls: pd.DataFrame) -> pd.DataFrame:
    """Returns the calls: row, start_ns, end_ns, what."""
    row = {thread: row for row, thread in enumerate(allocation_churn["thread"])}
    mine = churn_calls[churn_calls["thread"].isin(row)]
    return pd.DataFrame(
        {
            "row": mine["thread"].map(row).to_numpy(dtype=np.int64),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": mine["name"],
        }
    )
