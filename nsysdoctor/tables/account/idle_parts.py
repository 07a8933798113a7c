"""The shares of idle time that reports and rules ask for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, covered, runs, sums, union
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.host.thread_states import CAUSE, CAUSES
from nsysdoctor.trace.recipe import table

_BOUNDS = ("start_ns", "end_ns")


class IdleParts(NamedTuple):
    """What is left of `gap_causes` once its many pieces are not needed.

    `by_cause` tells how long each device idled for each cause: device, cause, idle_ns.
    `main_cause` is the cause of the longest piece of each gap. `calls` has a row per call in
    which the host stood while a device idled: api, device (that idled most), idle_ns (of it),
    launch_ns (of all devices, caused by the launch). `profiled` and `asleep` are the pieces in
    which the profiler held the host, and those in which a thread slept outside calls.
    `before_ns` and `before_device` have a row per row of `chain_calls`: how long the device that
    idled most did so for what its chain did before that call, and which that is, -1 for none.
    """

    by_cause: pd.DataFrame
    main_cause: Codes
    calls: pd.DataFrame
    profiled: pd.DataFrame
    asleep: pd.DataFrame
    before_ns: Ints
    before_device: Codes


@table
def idle_parts(
    gap_causes: pd.DataFrame,
    api: pd.DataFrame | None = None,
    chain_calls: Codes | None = None,
    thread_handoffs: Codes | None = None,
) -> IdleParts:
    """Returns the parts of idle time: by cause, by gap, by call, by what held the host."""
    cause = gap_causes["cause"].to_numpy()
    asleep = (cause == CAUSE["os_wait"]) | (cause == CAUSE["input_wait"])
    asleep &= gap_causes["api"].to_numpy() < 0
    before: tuple[Ints, Codes] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))
    if api is not None and chain_calls is not None and thread_handoffs is not None:
        before = _before(gap_causes, api, chain_calls, thread_handoffs[chain_calls])
    return IdleParts(
        _by_cause(gap_causes),
        _main_cause(gap_causes),
        _calls(gap_causes),
        gap_causes[cause == CAUSE["profiler"]].reset_index(drop=True),
        gap_causes[asleep].reset_index(drop=True),
        *before,
    )


def _by_cause(gap_causes: pd.DataFrame) -> pd.DataFrame:
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


def _before(
    gap_causes: pd.DataFrame, api: pd.DataFrame, calls: Codes, chain: Codes
) -> tuple[Ints, Codes]:
    """For each call how long the device that idled most did so for the time before it, and which
    device that is."""
    start, thread = api["start_ns"].to_numpy()[calls], api["thread"].to_numpy()[calls]
    opens = start - outside_ns(chain, start, api["end_ns"].to_numpy()[calls])
    idle = np.zeros(len(calls), dtype=np.int64)
    device = np.full(len(calls), -1, dtype=gap_causes["device"].dtype)
    outside, whose = gap_causes["api"].to_numpy() < 0, gap_causes["thread"].to_numpy()
    count = max(int(whose.max(initial=0)), int(thread.max(initial=0))) + 1
    for _, rows in runs(chain):
        mine = Spans(opens[rows], start[rows])
        # Of the row behind the last thread, which is -1, none is told.
        in_chain = np.zeros(count + 1, dtype=bool)
        in_chain[thread[rows]] = True
        told = outside & in_chain[whose]
        for number, part in runs(gap_causes["device"].to_numpy()):
            pieces = np.flatnonzero(told[part])
            spent = union(Spans(*(gap_causes[c].to_numpy()[part][pieces] for c in _BOUNDS)))
            share = covered(mine, spent)
            more = share > idle[rows]
            idle[rows][more], device[rows][more] = share[more], number
    return idle, device


def outside_ns(chain: Codes, start: Ints, end: Ints) -> Ints:
    """Returns for each call, by chain and start, the time since the chain's call before it."""
    outside = np.zeros(len(chain), dtype=np.int64)
    outside[1:] = np.where(chain[1:] == chain[:-1], start[1:] - end[:-1], 0)
    return outside


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
