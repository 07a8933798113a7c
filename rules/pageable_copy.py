"""Copies asked to be asynchronous that cannot be."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import covered, nearest_before, spans, union
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.loop.loop_copies import pinned_ns, require_kinds, same_keys
from nsysdoctor.tables.steps.steps import tells_outside
from nsysdoctor.trace.recipe import table

CALL_NS = 5_000
"""What a call costs that only queues a copy."""

NEAR_NS = 200_000
"""Streams that work this shortly before and after a copy, but not beside it, pause for it."""

KEYS = ["_where", "_way", "_when"]
ALIKE = ["device", "direction", "bytes"]
_WHEN = ("in the loop", "in the loop, for which other streams pause,", "outside the steady steps")
_WHICH = ("", "small ", "one-off ")
LOOP, SMALL, ONCE = range(3)


@table
def blocked(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    staged_peers: np.ndarray,
    ops: pd.DataFrame,
    window: pd.DataFrame,
    *,
    min_bytes: int,
) -> pd.DataFrame:
    """Returns the copies that block although their call is asynchronous.

    Columns as in `copies`, and `when`: LOOP for those of the steps, SMALL for small downloads of
    the steps for which other streams pause, ONCE for those before, between or after the steps
    that no step repeats; `where` and `way`, the device and direction, or -1 and all directions
    for ONCE.
    """
    require_kinds(copies)
    mine = (copies["pageable"] & copies["async_call"]).to_numpy() & ~staged_peers
    if not tells_outside(window):
        mine = mine & loop_copies
    large = (copies["bytes"] >= min_bytes).to_numpy()
    small = mine & ~large & loop_copies & (copies["direction"] == "DtoH").to_numpy()
    when = np.full(len(copies), -1)
    when[mine & large] = np.where(loop_copies, LOOP, ONCE)[mine & large]
    when[np.flatnonzero(small)[_paused_for(copies[small], ops)]] = SMALL
    found = copies.assign(_when=when)[when >= 0]
    repeated = found[found["_when"] == LOOP].drop_duplicates(ALIKE)
    found = found[(found["_when"] != ONCE) | (same_keys(found, repeated, ALIKE) < 0)]
    once = found["_when"] == ONCE
    ways = " and ".join(sorted(found.loc[once, "direction"].unique(), reverse=True))
    return found.assign(
        _where=found["device"].mask(once, -1), _way=found["direction"].mask(once, ways)
    )


def _paused_for(small: pd.DataFrame, ops: pd.DataFrame) -> np.ndarray:
    """Which of the copies other streams of their process pause for, on the same device."""
    paused = np.zeros(len(small), dtype=bool)
    place = small.reset_index(drop=True)
    for (process, device, lane), rows in place.groupby(["process", "device", "lane"], sort=True):
        beside = (ops["process"] == process) & (ops["device"] == device) & (ops["lane"] != lane)
        work = union(spans(ops.loc[beside, "start_ns"], ops.loc[beside, "end_ns"]))
        if not len(work.start):
            continue
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        before = nearest_before(work.end, start)
        after = np.minimum(before + 1, len(work.start) - 1)
        free = covered(spans(start, end), work) == 0
        free &= (before >= 0) & (start - work.end[before] <= NEAR_NS)
        free &= (work.start[after] >= end) & (work.start[after] - end <= NEAR_NS)
        paused[rows.index.to_numpy()] = free
    return paused


@table
def pageable_copy(blocked: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device and direction, another for small downloads, and one (info) for all
    copies outside the steps: subject, device, direction, where, way, when, place (words), count,
    bytes, rate_bytes_per_s, blocked_ns, level."""
    rows = [
        {
            "subject": f"{_WHICH[when]}{way}{f' on GPU {where}' if where >= 0 else ''}",
            "device": where,
            "direction": way,
            "_where": where,
            "_way": way,
            "_when": when,
            "place": _WHEN[when],
            "count": len(mine),
            "bytes": int(mine["bytes"].sum()),
            "rate_bytes_per_s": float(mine["rate_bytes_per_s"].median()),
            "blocked_ns": int((mine["returned_ns"] - mine["called_ns"]).sum()),
            "level": "info" if when == ONCE else "",
        }
        for (where, way, when), mine in blocked.groupby(KEYS, sort=True)
    ]
    return pd.DataFrame(rows)


def cure(
    pageable_copy: pd.DataFrame, blocked: pd.DataFrame, pinned_rates: pd.DataFrame
) -> list[pd.DataFrame]:
    """Pinned memory: calls only queue, copies run at the pinned rate; at best on a side stream,
    uploads one step ahead."""
    row = same_keys(blocked, pageable_copy, KEYS)
    loop = (blocked["_when"] != ONCE).to_numpy()
    mine, row = blocked[loop], row[loop]
    call, op = mine["api"].to_numpy(), mine["op"].to_numpy()
    up = (mine["direction"] == "HtoD").to_numpy()
    return join(
        edits(Change.UNBLOCK, row, call, CALL_NS),
        edits(Change.LAUNCH_NS, row, op, CALL_NS),
        edits(
            Change.OP_NS, row, op, pinned_ns(mine, pinned_rates),
            slow_ns=pinned_ns(mine, pinned_rates, "slow_bytes_per_s"),
            fast_ns=pinned_ns(mine, pinned_rates, "fast_bytes_per_s"),
        ),
        edits(Change.FREE_OP, row[up], op[up], only_fast=True),
        edits(Change.RELEASE, row, op, only_fast=True),
    )  # fmt: skip


def evidence(pageable_copy: pd.DataFrame, blocked: pd.DataFrame) -> pd.DataFrame:
    """Returns the calls that blocked: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": same_keys(blocked, pageable_copy, KEYS),
            "start_ns": blocked["called_ns"].to_numpy(),
            "end_ns": blocked["returned_ns"].to_numpy(),
            "what": [f"{d} of {b:,} bytes" for d, b in
                     zip(blocked["direction"], blocked["bytes"], strict=True)],
        }
    )  # fmt: skip
