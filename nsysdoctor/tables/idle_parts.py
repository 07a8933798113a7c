"""The shares of idle time that rules about calls, sleep and the profiler ask for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints, sums
from nsysdoctor.recipe import table
from nsysdoctor.tables.states import CAUSE

_SLEEP = (CAUSE["os_wait"], CAUSE["input_wait"])


class IdleParts(NamedTuple):
    """What is left of `gap_causes` once its many pieces of plain host code are not needed.

    `calls` has a row per call in which the host stood while a device idled: api, device (that
    idled most), idle_ns (of it), launch_ns (of all devices, caused by the launch). `profiled`
    and `asleep` are the pieces in which the profiler held the host, and those in which a thread
    slept outside calls: rows of `gap_causes`.
    """

    calls: pd.DataFrame
    profiled: pd.DataFrame
    asleep: pd.DataFrame


@table
def idle_parts(gap_causes: pd.DataFrame) -> IdleParts:
    """Returns the parts of idle time by call, by the profiler, and asleep."""
    cause = gap_causes["cause"].to_numpy()
    outside = np.isin(cause, _SLEEP) & (gap_causes["api"].to_numpy() < 0)
    profiled = gap_causes[cause == CAUSE["profiler"]]
    return IdleParts(
        _calls(gap_causes), profiled.reset_index(drop=True),
        gap_causes[outside].reset_index(drop=True),
    )  # fmt: skip


def _calls(gap_causes: pd.DataFrame) -> pd.DataFrame:
    cause, api, device = (gap_causes[c].to_numpy() for c in ("cause", "api", "device"))
    mine = np.flatnonzero((api >= 0) & (cause != CAUSE["unknown"]))
    cause, api, device = cause[mine], api[mine], device[mine]
    length = (gap_causes["end_ns"].to_numpy() - gap_causes["start_ns"].to_numpy())[mine]
    launch = cause == CAUSE["launch"]
    size = int(api.max(initial=-1)) + 1
    where = np.full(size, -1, dtype=np.int64)
    most = np.zeros(size, dtype=np.int64)
    # Of devices that idle equally long the last one counts.
    for number in np.unique(device).tolist():
        rows = device == number
        idle = sums(api[rows], length[rows], size)
        more = (idle > 0) & (idle >= most)
        where[more], most[more] = number, idle[more]
    calls = np.flatnonzero(where >= 0)
    return pd.DataFrame(
        {
            "api": calls.astype(np.int32),
            "device": where[calls].astype(device.dtype),
            "idle_ns": most[calls],
            "launch_ns": sums(api[launch], length[launch], size)[calls],
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
