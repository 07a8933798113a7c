"""Small copies that queue behind a big one of their direction."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.dependencies.engine_turns import EngineTurns
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.loop.loop_copies import same_keys
from nsysdoctor.trace.recipe import table

KEYS = ["device", "direction"]
_NEAR_NS = 5_000
"""A copy that starts this soon after the engine is free waited for the engine."""

_LAUNCH_NS = 10_000
_BUS = ("HtoD", "DtoH")


@table
def queued(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    ops: pd.DataFrame,
    links: Links,
    engine_turns: EngineTurns,
    *,
    least_times: int,
    min_ns: int,
) -> pd.DataFrame:
    """Returns the copies of the steps that a copy at least `least_times` as large of another
    stream held up for at least `min_ns` and longer than they take themselves.

    Columns as in `copies`, and `ready_ns` (when its stream and its launch allowed it to start)
    and `queued_ns`.
    """
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    op = copies["op"].to_numpy()
    engine, before = engine_turns.engine[op], links.before[op]
    called = copies["called_ns"].to_numpy()
    free = np.where(before >= 0, end[before], np.iinfo(np.int64).min)
    ready = np.maximum(np.where(copies["api"] >= 0, called + _LAUNCH_NS, start[op]), free)
    found = copies.assign(ready_ns=ready, queued_ns=start[op] - ready)
    mine = loop_copies & copies["direction"].isin(_BUS).to_numpy() & (engine >= 0)
    mine &= ops["lane"].to_numpy()[engine] != ops["lane"].to_numpy()[op]
    mine &= (start[op] >= end[engine]) & (start[op] - end[engine] <= _NEAR_NS)
    length = end[op] - start[op]
    mine &= found["queued_ns"].to_numpy() >= np.maximum(min_ns, length)
    mine &= _largest_ahead(found) >= least_times * np.maximum(copies["bytes"].to_numpy(), 1)
    return found[mine]


def _largest_ahead(copies: pd.DataFrame) -> Ints:
    """The size of the largest copy that its engine served while each copy was ready to start."""
    largest = np.zeros(len(copies), dtype=np.int64)
    place = copies.reset_index(drop=True)
    for _, rows in place.groupby(KEYS, sort=True):
        end, size = rows["end_ns"].to_numpy(), rows["bytes"].to_numpy()
        low = np.searchsorted(np.maximum.accumulate(end), rows["ready_ns"], side="right")
        high = np.arange(len(rows))
        # Ranges [low, high) in pairs; the odd entries of the result are the stretches between.
        waits = np.flatnonzero(low < high)
        bounds = np.column_stack([low[waits], high[waits]]).ravel()
        if len(bounds):
            largest[rows.index.to_numpy()[waits]] = np.maximum.reduceat(size, bounds)[::2]
    return largest


@table
def copy_contention(queued: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device and direction: subject, device, direction, count, bytes,
    work_ns (what the copies take themselves), queued_ns."""
    rows = [
        {
            "subject": f"{direction} on GPU {device}",
            "device": device,
            "direction": direction,
            "count": len(mine),
            "bytes": int(mine["bytes"].sum()),
            "typical_bytes": int(mine["bytes"].median()),
            "work_ns": int((mine["end_ns"] - mine["start_ns"]).sum()),
            "queued_ns": int(mine["queued_ns"].sum()),
        }
        for (device, direction), mine in queued.groupby(KEYS, sort=True)
    ]
    return pd.DataFrame(rows)


def cure(copy_contention: pd.DataFrame, queued: pd.DataFrame) -> pd.DataFrame:
    """The small copies wait for no other copy."""
    row = same_keys(queued, copy_contention, KEYS)
    return edits(Change.FREE_ENGINE, row, queued["op"].to_numpy())


def evidence(copy_contention: pd.DataFrame, queued: pd.DataFrame) -> pd.DataFrame:
    """Returns the waits for the copy engine: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": same_keys(queued, copy_contention, KEYS),
            "start_ns": queued["ready_ns"].to_numpy(),
            "end_ns": queued["end_ns"].to_numpy(),
            "what": [f"{d} of {b:,} bytes behind larger copies" for d, b in
                     zip(queued["direction"], queued["bytes"], strict=True)],
        }
    )  # fmt: skip
