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
_WAYS = (*_BUS, "DtoD", "PtoP")
_ARGUMENT_BYTES = 4_096
"""What the arguments of a launch hold on any CUDA version."""

_DIRECTIVES = frozenset({"openmp", "openacc", "fortran", "stdpar"})

_ON_DEVICE_NS = 2_000
"""What a kernel takes that moves small pieces within device memory, beside the bytes."""


@table
def small_runs(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    staged_peers: np.ndarray,
    links: Links,
    api: pd.DataFrame,
    window: pd.DataFrame,
    *,
    small_bytes: int,
    least_count: int,
    short_ratio: float,
) -> pd.DataFrame:
    """Returns the small copies of the steps that stand in a run of at least `least_count`, and
    those of shorter runs where their calls take `short_ratio` of the window.

    Columns as in `copies`, and `run` and `last` (bool: the last of its run). A run has one
    stream, one direction and one thread, and nothing between: no other operation of its stream
    and no synchronisation of the thread.
    """
    small = copies["direction"].isin(_WAYS) & (copies["bytes"] <= small_bytes)
    small &= copies["api"] >= 0
    found = copies[small.to_numpy() & loop_copies & ~staged_peers]
    found = found.assign(waited=_waited(api, found["api"].to_numpy()))
    found = found.sort_values(["lane", "op"], kind="stable")
    same = ["lane", "direction", "thread", "waited"]
    follows = (found[same] == found[same].shift()).all(axis=1)
    follows &= links.before[found["op"]] == found["op"].shift()
    found["run"] = (~follows).cumsum()
    size = found.groupby("run", sort=True)["run"].transform("size")
    found["last"] = ~found["run"].duplicated(keep="last")
    short = (size >= 2) & (size < least_count)
    span = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    busy = (found["returned_ns"] - found["called_ns"]).where(short, 0)
    much = busy.groupby([found[key] for key in KEYS], sort=False).transform("sum")
    kept = (size >= least_count) | (short & (much >= short_ratio * span))
    return found[kept].sort_values("op", ignore_index=True)


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
            "variant": "on_bus" if direction in _BUS else "on_device",
        }
        for (device, direction), mine in small_runs.groupby(KEYS, sort=True)
    ]
    return pd.DataFrame(rows)


def cure(
    many_small_copies: pd.DataFrame,
    small_runs: pd.DataFrame,
    pinned_rates: pd.DataFrame,
    devices: pd.DataFrame,
    ecosystem: str,
) -> list[pd.DataFrame]:
    """One copy of the total size in place of each run's last one; the others, their calls and the
    time between the calls vanish. At worst that time is spent on gathering the pieces; so it is
    where the pieces lie on the device, since the host tells a kernel where. Uploads that fit in
    a launch's arguments need no copy at best, nor do descriptors that a directive maps once."""
    row = same_keys(small_runs, many_small_copies, KEYS)
    call, op = small_runs["api"].to_numpy(), small_runs["op"].to_numpy()
    last = small_runs["last"].to_numpy()
    first = ~small_runs["run"].duplicated().to_numpy()
    gone, later = ~last, ~first
    outside = _outside(small_runs)
    total = small_runs.groupby("run", sort=True)["bytes"].transform("sum")
    whole = small_runs.assign(bytes=total)[last]
    inside = ~whole["direction"].isin(_BUS).to_numpy()

    def moved(column: str) -> Ints:
        took = moved_ns(whole, pinned_rates, column)
        return np.where(inside, _on_device_ns(whole, devices), took)

    spared = last & (total <= _ARGUMENT_BYTES).to_numpy()
    spared &= (small_runs["direction"] == "HtoD").to_numpy()
    between = np.where(small_runs["direction"].isin(_BUS), 0, outside)
    return join(
        *_spared(row[spared], call[spared], op[spared], outside[spared],
                 only_fast=ecosystem not in _DIRECTIVES),
        edits(Change.CALL_NS, row[gone], call[gone], 0),
        edits(Change.UNBLOCK, row[gone], call[gone], 0),
        edits(
            Change.OUTSIDE_NS, row[later], call[later], between[later],
            slow_ns=outside[later], fast_ns=0,
        ),
        edits(Change.OP_NS, row[gone], op[gone], 0),
        edits(Change.FREE_OP, row[gone], op[gone]),
        edits(Change.RELEASE, row[gone], op[gone]),
        edits(
            Change.OP_NS, row[last], op[last], moved("bytes_per_s"),
            slow_ns=moved("slow_bytes_per_s"), fast_ns=moved("fast_bytes_per_s"),
        ),
    )  # fmt: skip


def _spared(
    row: Ints, call: Ints, op: Ints, outside: Ints, *, only_fast: bool
) -> list[pd.DataFrame]:
    """No copy and no call; the time before the call goes with it."""
    return [
        edits(Change.UNBLOCK, row, call, 0, only_fast=only_fast),
        edits(Change.OUTSIDE_NS, row, call, 0, slow_ns=outside, only_fast=only_fast),
        edits(Change.OP_NS, row, op, 0, only_fast=only_fast),
        edits(Change.FREE_OP, row, op, only_fast=only_fast),
        edits(Change.RELEASE, row, op, only_fast=only_fast),
    ]


def _on_device_ns(whole: pd.DataFrame, devices: pd.DataFrame) -> Ints:
    """What one kernel takes that reads and writes the bytes in device memory."""
    rate = whole["device"].map(devices.set_index("device")["memory_bandwidth_bytes_per_s"])
    known = rate.fillna(0).replace(0, np.inf).to_numpy(dtype=np.float64)
    moved = _ON_DEVICE_NS + 2e9 * whole["bytes"].to_numpy() / known
    return np.asarray(moved, dtype=np.int64)


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
