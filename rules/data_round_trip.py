"""Data that goes down to the host and up again while the host does nothing with it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.loop.loop_copies import same_keys
from nsysdoctor.trace.recipe import table

KEYS = ["device"]
_DIRECTIVES = frozenset({"openmp", "openacc", "fortran", "stdpar"})
"""Programs whose regions map their data down and up by themselves."""

_HOST_BYTES_PER_NS = 40.0
"""What one host thread can read at most; who had less time has not touched all bytes."""

_RUNTIME_NS, _CALL_NS = 20_000, 2_000
"""What the runtime of a directive, and any other program, spends between two calls."""


@table
def round_trips(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    staged_peers: np.ndarray,
    api: pd.DataFrame,
    ecosystem: str,
    *,
    min_bytes: int,
    least_count: int,
) -> pd.DataFrame:
    """Returns the copies of the steps that belong to a trip down and up again.

    Columns as in `copies`, `trip` (a number for each pair of a copy down and the next copy up of
    the same size, device and thread) and `array` (a number for each size). A pair counts if the
    thread had less time of its own between them than reading the bytes takes. Outside programs of
    directives, a single array that comes and goes may be the pieces of a stream; only several
    arrays that return as the same set tell that it is state.
    """
    bus = copies["direction"].isin(("DtoH", "HtoD")) & (copies["bytes"] >= min_bytes)
    found = copies[(bus & (copies["api"] >= 0)).to_numpy() & loop_copies & ~staged_peers]
    found = found.sort_values(["device", "thread", "api"], kind="stable", ignore_index=True)
    by_size = found.groupby(["device", "thread", "bytes"], sort=True)
    found["array"] = by_size.ngroup()
    found["turn"] = _turns(found)
    found["mine_ns"] = _own_time(api, found["api"].to_numpy())
    directive = ecosystem in _DIRECTIVES
    pairs = _pairs(found, _RUNTIME_NS if directive else _CALL_NS)
    if not directive:
        pairs = pairs[_of_a_set(pairs)]
    often = pairs.groupby("array", sort=True)["down"].transform("size") >= least_count
    pairs = pairs[often].reset_index(drop=True)
    trip = np.full(len(found), -1, dtype=np.int64)
    trip[pairs["down"].to_numpy()] = trip[pairs["up"].to_numpy()] = np.arange(len(pairs))
    return found.assign(trip=trip)[trip >= 0]


def _turns(found: pd.DataFrame) -> np.ndarray:
    """A number that grows whenever a thread's copies to or from a device change direction."""
    keys = found[["device", "thread", "direction"]]
    return np.asarray((keys != keys.shift()).any(axis=1).cumsum(), dtype=np.int64)


def _own_time(api: pd.DataFrame, call: np.ndarray) -> np.ndarray:
    """Per call the time that its thread had spent outside CUDA when it began, but for a constant
    of the thread."""
    top = api["top"].to_numpy()
    start, end = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
    taken = np.cumsum(np.where(top, end - start, 0))
    outer = np.maximum.accumulate(np.where(top, np.arange(len(api)), 0))[call]
    return np.asarray(start[outer] - (taken[outer] - (end - start)[outer]), dtype=np.int64)


def _pairs(found: pd.DataFrame, spare_ns: int) -> pd.DataFrame:
    """Returns down, up (rows), array, turn: each copy down with the copy up in the next turn that
    has its size and its place among those of that size."""
    place = found.groupby(["array", "turn"], sort=True).cumcount()
    keyed = found.assign(place=place, row=np.arange(len(found)))
    keyed["left_ns"] = keyed.groupby("turn", sort=True)["mine_ns"].transform("max")
    down = keyed[keyed["direction"] == "DtoH"]
    up = keyed[keyed["direction"] == "HtoD"].assign(turn=lambda rows: rows["turn"] - 1)
    both = down.merge(up, "inner", ["array", "turn", "place"], suffixes=("", "_up"))
    first_up = both.groupby("turn", sort=True)["mine_ns_up"].transform("min")
    free = (first_up - both["left_ns"]).clip(lower=0)
    size = both.groupby("turn", sort=True)["bytes"].transform("sum")
    kept = both[free < spare_ns + size / _HOST_BYTES_PER_NS]
    named = kept.rename(columns={"row": "down", "row_up": "up"})
    return named[["down", "up", "array", "turn"]]


def _of_a_set(pairs: pd.DataFrame) -> np.ndarray:
    """Which pairs are of turns that take at least two arrays down and the same two up."""
    return np.asarray(pairs.groupby("turn", sort=True)["down"].transform("size") >= 2)


@table
def data_round_trip(round_trips: pd.DataFrame, *, least_count: int) -> pd.DataFrame:
    """Returns a row per device: subject, device, count (of trips), array_count, bytes (of both
    ways), work_ns (of the copies), call_ns (of their calls), basis."""
    rows = []
    for device, mine in round_trips.groupby("device", sort=True):
        trips = int(mine["trip"].nunique())
        if trips < least_count:
            continue
        down = mine[mine["direction"] == "DtoH"]
        per_turn = down.groupby("turn", sort=True).size()
        rows.append(
            {
                "subject": f"GPU {device}",
                "device": device,
                "count": trips,
                "array_count": int(per_turn.median()),
                "bytes": int(mine["bytes"].sum()),
                "work_ns": int((mine["end_ns"] - mine["start_ns"]).sum()),
                "call_ns": int((mine["returned_ns"] - mine["called_ns"]).sum()),
                "basis": "inferred",
            }
        )
    return pd.DataFrame(rows)


def cure(data_round_trip: pd.DataFrame, round_trips: pd.DataFrame) -> list[pd.DataFrame]:
    """The data stays on the device: neither the copies nor their calls are left."""
    row = same_keys(round_trips, data_round_trip, KEYS)
    mine, row = round_trips[row >= 0], row[row >= 0]
    call, op = mine["api"].to_numpy(), mine["op"].to_numpy()
    return join(
        edits(Change.CALL_NS, row, call, 0),
        edits(Change.UNBLOCK, row, call, 0),
        edits(Change.OP_NS, row, op, 0),
        edits(Change.FREE_OP, row, op),
        edits(Change.RELEASE, row, op),
    )


def evidence(data_round_trip: pd.DataFrame, round_trips: pd.DataFrame) -> pd.DataFrame:
    """Returns the trips: row, start_ns, end_ns, what."""
    trips = round_trips.assign(row=same_keys(round_trips, data_round_trip, KEYS))
    found = trips.groupby("trip", sort=True).agg(
        row=("row", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max"),
        bytes=("bytes", "first"),
    )  # fmt: skip
    what = [f"{size:,} bytes down and up again" for size in found["bytes"]]
    return found.assign(what=what)[["row", "start_ns", "end_ns", "what"]].reset_index(drop=True)
