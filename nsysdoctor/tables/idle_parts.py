"""The shares of idle time that reports and rules ask for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints, runs, sums
from nsysdoctor.order import Codes
from nsysdoctor.recipe import table
from nsysdoctor.tables.states import CAUSE, CAUSES

_SLEEP = (CAUSE["os_wait"], CAUSE["input_wait"])


@table
def idle_by_cause(gap_causes: pd.DataFrame) -> pd.DataFrame:
    """Returns how long each device idled for each cause: device, cause (code into `CAUSES`),
    idle_ns."""
    length = (gap_causes["end_ns"] - gap_causes["start_ns"]).to_numpy()
    cause = gap_causes["cause"].to_numpy()
    found = {
        device: sums(cause[rows], length[rows], len(CAUSES))
        for device, rows in runs(gap_causes["device"].to_numpy())
    }
    return pd.DataFrame(
        {
            "device": np.repeat(np.array(list(found), dtype=np.int64), len(CAUSES)),
            "cause": np.tile(np.arange(len(CAUSES)), len(found)),
            "idle_ns": np.concatenate([np.empty(0, dtype=np.int64), *found.values()]),
        }
    )


class IdleParts(NamedTuple):
    """What is left of `gap_causes` once its many pieces are not needed.

    `main_cause` is the cause of the longest piece of each gap. `calls` has a row per call in
    which the host stood while a device idled: api, device (that idled most), idle_ns (of it),
    launch_ns (of all devices, caused by the launch). `profiled` and `asleep` are the pieces in
    which the profiler held the host, and those in which a thread slept outside calls.
    """

    main_cause: Codes
    calls: pd.DataFrame
    profiled: pd.DataFrame
    asleep: pd.DataFrame


@table
def idle_parts(gap_causes: pd.DataFrame) -> IdleParts:
    """Returns the parts of idle time by gap, by call, by the profiler, and asleep."""
    cause = gap_causes["cause"].to_numpy()
    outside = np.isin(cause, _SLEEP) & (gap_causes["api"].to_numpy() < 0)
    return IdleParts(
        _main_cause(gap_causes),
        _calls(gap_causes),
        gap_causes[cause == CAUSE["profiler"]].reset_index(drop=True),
        gap_causes[outside].reset_index(drop=True),
    )


def _main_cause(gap_causes: pd.DataFrame) -> Codes:
    """Of equally long pieces the last of `CAUSES` counts."""
    gap, cause = gap_causes["gap"].to_numpy(), gap_causes["cause"].to_numpy()
    if not len(gap):
        return np.empty(0, dtype=np.int8)
    length = (gap_causes["end_ns"] - gap_causes["start_ns"]).to_numpy()
    first = np.flatnonzero(np.diff(gap, prepend=-1))
    longest = np.repeat(np.maximum.reduceat(length, first), np.diff(first, append=len(gap)))
    return np.asarray(
        np.maximum.reduceat(np.where(length == longest, cause, np.int8(-1)), first)
    )


def _calls(gap_causes: pd.DataFrame) -> pd.DataFrame:
    api = gap_causes["api"].to_numpy()
    size = int(api.max(initial=-1)) + 1
    device = np.full(size, -1, dtype=gap_causes["device"].dtype)
    most, launch = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for number, rows in runs(gap_causes["device"].to_numpy()):
        cause = gap_causes["cause"].to_numpy()[rows]
        length = (gap_causes["end_ns"] - gap_causes["start_ns"]).to_numpy()[rows]
        # Calls are counted from 1, so that 0 takes what belongs to none.
        call = api[rows] + 1
        launch += sums(call, length * (cause == CAUSE["launch"]), size + 1)[1:]
        idle = sums(call, length * (cause != CAUSE["unknown"]), size + 1)[1:]
        # Of devices that idle equally long the last one counts.
        more = (idle > 0) & (idle >= most)
        device[more], most[more] = number, idle[more]
    calls = np.flatnonzero(most).astype(np.int32)
    return pd.DataFrame(
        {
            "api": calls,
            "device": device[calls],
            "idle_ns": most[calls],
            "launch_ns": launch[calls],
        },
        copy=False,
    )


def of_calls(asked: np.ndarray, calls: pd.DataFrame, column: str, none: int = 0) -> Ints:
    """Returns a column of `IdleParts.calls` for each row of `api` asked for, `none` where a call
    has no row there."""
    known = calls["api"].to_numpy()
    found = np.full(len(asked), none, dtype=np.int64)
    if len(known):
        place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        has = np.flatnonzero(known[place] == asked)
        found[has] = calls[column].to_numpy()[place[has]]
    return found
