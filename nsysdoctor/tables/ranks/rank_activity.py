"""What a rank tells a job: when it came to each collective and what it did meanwhile.

These are the summary tables that travel from a worker; they hold a row per collective, not per
operation.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, rows_of, runs, sums
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.host.thread_states import CAUSES
from nsysdoctor.trace.recipe import table


@table
def arrivals(
    collectives: pd.DataFrame, names: pd.DataFrame, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns the collectives of the window by device and start.

    Columns: device, name (text), start_ns, end_ns, meeting (code of the collective where ranks
    of this very trace meet and all lie in the window, -1 none).
    """
    low, high = int(window["start_ns"].iloc[0]), int(window["end_ns"].iloc[0])
    mine = collectives[(collectives["start_ns"] >= low) & (collectives["end_ns"] <= high)]
    there = mine.groupby("meeting")["meeting"].transform("size")
    found = mine[["device", "start_ns", "end_ns"]].assign(
        meeting=mine["meeting"].where(there == mine["ranks"], -1),
        name=names["short"].to_numpy(dtype=object)[mine["name"]],
    )
    return found.sort_values(["device", "start_ns", "end_ns"], kind="stable", ignore_index=True)


@table
def rank_activity(
    device_pieces: pd.DataFrame, gap_causes: pd.DataFrame, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns what each device did in the window: device, what (a bucket other than idle, or a
    cause of idle time), ns."""
    low, high = int(window["start_ns"].iloc[0]), int(window["end_ns"].iloc[0])
    found: list[tuple[int, str, int]] = []
    for device, rows in runs(device_pieces["device"].to_numpy()):
        spent = _inside(device_pieces, "bucket", len(BUCKETS), rows, low, high)[:-1]
        own = rows_of(device, gap_causes["device"].to_numpy())
        idle = _inside(gap_causes, "cause", len(CAUSES), own, low, high)
        told = zip((*BUCKETS[:-1], *CAUSES), (*spent.tolist(), *idle.tolist()), strict=True)
        found.extend((device, what, ns) for what, ns in told)
    return pd.DataFrame(found, columns=["device", "what", "ns"])


def _inside(
    pieces: pd.DataFrame, code: str, codes: int, rows: slice, low: int, high: int
) -> Ints:
    """How long the pieces of each code last between two times."""
    start, end = (pieces[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
    length = np.minimum(end, high) - np.maximum(start, low)
    return sums(pieces[code].to_numpy()[rows], np.maximum(length, 0), codes)


@table
def clock(session_rows: pd.DataFrame | None = None, ops: pd.DataFrame | None = None) -> int:
    """Returns what to add to a trace's times to get UTC in ns; 0 where the trace does not tell
    or its times are UTC already."""
    if session_rows is None or not len(session_rows) or ops is None or not len(ops):
        return 0
    utc = int(session_rows["utc_ns"].iloc[0])
    return 0 if int(ops["start_ns"].max()) > utc // 2 else utc
