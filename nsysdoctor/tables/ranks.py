"""What a rank tells a job: when it came to each collective and what it did meanwhile.

These are the summary tables that travel from a worker; they hold a row per collective, not per
operation.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.intervals import clip, spans, union
from nsysdoctor.recipe import table
from nsysdoctor.tables.states import CAUSES
from nsysdoctor.tables.time_budget import BUCKETS


@table
def arrivals(
    collectives: pd.DataFrame, names: pd.DataFrame, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns the collectives of the window by device and start.

    Columns: device, name (text), start_ns, end_ns, meeting (code of the collective where ranks
    of this very trace meet, -1 none).
    """
    low, high = int(window["start_ns"].iloc[0]), int(window["end_ns"].iloc[0])
    mine = collectives[(collectives["start_ns"] >= low) & (collectives["end_ns"] <= high)]
    found = mine[["device", "start_ns", "end_ns", "meeting"]].assign(
        name=names["short"].to_numpy(dtype=object)[mine["name"]]
    )
    return found.sort_values(["device", "start_ns", "end_ns"], kind="stable", ignore_index=True)


@table
def rank_activity(
    device_pieces: pd.DataFrame, gap_causes: pd.DataFrame, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns what each device did in the window: device, what (a bucket other than idle, or a
    cause of idle time), ns."""
    low, high = int(window["start_ns"].iloc[0]), int(window["end_ns"].iloc[0])
    rows = []
    for device in np.unique(device_pieces["device"].to_numpy()).tolist():
        pieces = device_pieces[device_pieces["device"] == device]
        for code, bucket in enumerate(BUCKETS[:-1]):
            rows.append((device, bucket, _inside(pieces[pieces["bucket"] == code], low, high)))
        idle = gap_causes[gap_causes["device"] == device]
        for code, cause in enumerate(CAUSES):
            rows.append((device, cause, _inside(idle[idle["cause"] == code], low, high)))
    return pd.DataFrame(rows, columns=["device", "what", "ns"])


def _inside(rows: pd.DataFrame, low: int, high: int) -> int:
    return union(clip(spans(rows["start_ns"], rows["end_ns"]), low, high)).total_ns


@table
def clock(session_rows: pd.DataFrame | None = None, ops: pd.DataFrame | None = None) -> int:
    """Returns what to add to a trace's times to get UTC in ns; 0 where the trace does not tell
    or its times are UTC already."""
    if session_rows is None or not len(session_rows) or ops is None or not len(ops):
        return 0
    utc = int(session_rows["utc_ns"].iloc[0])
    return 0 if int(ops["start_ns"].max()) > utc // 2 else utc
