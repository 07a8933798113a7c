"""Small copies, one after another, that could travel as one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.host.call_kinds import SYNCS
from nsysdoctor.tables.loop.loop_copies import moved_ns, same_keys
from nsysdoctor.trace.recipe import table

KEYS = ["device", "direction"]
_BUS = ("HtoD", "DtoH")


@table
def small_runs(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    links: Links,
    api: pd.DataFrame,
    *,
    small_bytes: int,
    least_count: int,
) -> pd.DataFrame:
    """Returns the small copies of the steps that stand in a run of at least `least_count`.

    Columns as in `copies`, and `run` and `last` (bool: the last of its run). A run has one
    stream, one direction and one thread, and nothing between: no other operation of its stream
    and no synchronisation of the thread.
    """
    small = copies["direction"].isin(_BUS) & (copies["bytes"] <= small_bytes)
    found = copies[(small & (copies["api"] >= 0)).to_numpy() & loop_copies]
    found = found.assign(waited=_waited(api, found["api"].to_numpy()))
    found = found.sort_values(["lane", "op"], kind="stable")
    same = ["lane", "direction", "thread", "waited"]
    follows = (found[same] == found[same].shift()).all(axis=1)
    follows &= links.before[found["op"]] == found["op"].shift()
    found["run"] = (~follows).cumsum()
    size = found.groupby("run", sort=True)["run"].transform("size")
    found["last"] = ~found["run"].duplicated(keep="last")
    return found[size >= least_count].sort_values("op", ignore_index=True)


def _waited(api: pd.DataFrame, call: Ints) -> Ints:
    """How many synchronisations the threads have made up to each of some calls."""
    syncs = np.flatnonzero(np.isin(api["verb"].to_numpy(), [int(v) for v in SYNCS]))
    return np.asarray(np.searchsorted(syncs, call, side="right"), dtype=np.int64)


@table
def many_small_copies(small_runs: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device and direction: subject, device, direction, count, run_count,
    bytes, typical_bytes, work_ns (of the copies), call_ns (of their calls)."""
    rows = [
        {
            "subject": f"{direction} on GPU {device}",
            "device": device,
            "direction": direction,
            "count": len(mine),
            "run_count": int(mine["last"].sum()),
            "bytes": int(mine["bytes"].sum()),
            "typical_bytes": int(mine["bytes"].median()),
            "work_ns": int((mine["end_ns"] - mine["start_ns"]).sum()),
            "call_ns": int((mine["returned_ns"] - mine["called_ns"]).sum()),
        }
        for (device, direction), mine in small_runs.groupby(KEYS, sort=True)
    ]
    return pd.DataFrame(rows)


def cure(
    many_small_copies: pd.DataFrame, small_runs: pd.DataFrame, pinned_rates: pd.DataFrame
) -> list[pd.DataFrame]:
    """One copy of the total size in place of each run's last one; the others, their calls and the
    time between the calls vanish. At worst that time is spent on gathering the pieces."""
    row = same_keys(small_runs, many_small_copies, KEYS)
    call, op = small_runs["api"].to_numpy(), small_runs["op"].to_numpy()
    last = small_runs["last"].to_numpy()
    first = ~small_runs["run"].duplicated().to_numpy()
    gone, later = ~last, ~first
    outside = _outside(small_runs)
    total = small_runs.groupby("run", sort=True)["bytes"].transform("sum")
    whole = small_runs.assign(bytes=total)[last]
    return join(
        edits(Change.CALL_NS, row[gone], call[gone], 0),
        edits(Change.UNBLOCK, row[gone], call[gone], 0),
        edits(Change.OUTSIDE_NS, row[later], call[later], 0, slow_ns=outside[later]),
        edits(Change.OP_NS, row[gone], op[gone], 0),
        edits(Change.FREE_OP, row[gone], op[gone]),
        edits(Change.RELEASE, row[gone], op[gone]),
        edits(
            Change.OP_NS, row[last], op[last], moved_ns(whole, pinned_rates),
            slow_ns=moved_ns(whole, pinned_rates, "slow_bytes_per_s"),
            fast_ns=moved_ns(whole, pinned_rates, "fast_bytes_per_s"),
        ),
    )  # fmt: skip


def _outside(small_runs: pd.DataFrame) -> Ints:
    """The time before each call since the call before it in the run returned, 0 for the first."""
    before = small_runs.groupby("run", sort=True)["returned_ns"].shift()
    gap = (small_runs["called_ns"] - before).fillna(0).clip(lower=0)
    return np.asarray(gap, dtype=np.int64)


def evidence(many_small_copies: pd.DataFrame, small_runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs: row, start_ns, end_ns, what."""
    runs = small_runs.assign(row=same_keys(small_runs, many_small_copies, KEYS))
    found = runs.groupby("run", sort=True).agg(
        row=("row", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max"),
        count=("op", "size"), bytes=("bytes", "sum"), direction=("direction", "first"),
    )  # fmt: skip
    what = [f"{n} {d} copies of {b:,} bytes together" for n, d, b in
            zip(found["count"], found["direction"], found["bytes"], strict=True)]  # fmt: skip
    return found.assign(what=what)[["row", "start_ns", "end_ns", "what"]].reset_index(drop=True)
