"""Device code that is loaded, built or tried out in the loop instead of once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes
from nsysdoctor.errors import MissingTableError
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.tables.account.idle_parts import IdleParts, of_calls
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.tables.host.call_kinds import SYNCS, Verb
from nsysdoctor.tables.loop.driver_calls import recurs
from nsysdoctor.tables.steps.steps import in_window
from nsysdoctor.trace.recipe import table

_LAUNCH_NS = 5_000
_LOADING_NS = 50_000
_UNIT_LAUNCHES = 4
_DISTINCT_RATIO = 0.75
_MEMORY = (Verb.ALLOC, Verb.FREE)
_TUNED = ("conv", "gemm")


@table
def loading_calls(
    host_calls: pd.DataFrame,
    first_launches: Ints,
    idle_parts: IdleParts,
    window: pd.DataFrame,
    thread_labels: list[str],
) -> pd.DataFrame:
    """Returns the calls of the window that load device code: module loads, and first launches of
    a kernel that take much longer than a launch.

    Columns: call (row of `host_calls`), api, thread (label), start_ns, end_ns, keeps (bool: the
    call itself is needed), idle_ns, device.
    """
    first = host_calls["api"].isin(first_launches).to_numpy()
    module = (host_calls["verb"] == int(Verb.MODULE)).to_numpy()
    long = (host_calls["end_ns"] - host_calls["start_ns"]).to_numpy() >= _LOADING_NS
    inside = in_window(host_calls["start_ns"].to_numpy(), window)
    rows = np.flatnonzero((first | module) & long & inside)
    calls = host_calls.iloc[rows].reset_index(drop=True)
    row = calls["api"].to_numpy()
    return pd.DataFrame(
        {
            "call": rows,
            "api": calls["api"],
            "thread": [thread_labels[t] for t in calls["thread"]],
            "start_ns": calls["start_ns"],
            "end_ns": calls["end_ns"],
            "keeps": first[rows],
            "idle_ns": of_calls(row, idle_parts.calls, "idle_ns"),
            "device": of_calls(row, idle_parts.calls, "device", -1),
        }
    )


@table
def trials(
    host_calls: pd.DataFrame,
    ops: pd.DataFrame,
    names: pd.DataFrame,
    loop_calls: np.ndarray,
    thread_labels: list[str],
    *,
    min_trials: int,
) -> pd.DataFrame:
    """Returns the calls of the window that try out kernels, as an autotuner does: several
    different convolutions or products after one another, each launched alone, waited for, and
    with memory of its own or an event around it.

    Columns: call (row of `host_calls`), api, trial (code of the group), thread (label), start_ns,
    end_ns, kernel (bool: launches the kernel tried), device.
    """
    units = _units(host_calls, ops, names, loop_calls)
    breaks = ~units["alone"] | (units["chain"] != units["chain"].shift())
    units = units.assign(group=breaks.cumsum())[units["alone"]]
    told = units.groupby("group").agg(
        first=("first", "min"), last=("last", "max"), count=("name", "size"),
        kinds=("name", "nunique"), device=("device", "first"),
    )  # fmt: skip
    told = told[(told["kinds"] >= min_trials) & (told["kinds"] >= _DISTINCT_RATIO * told["count"])]
    first, size = told["first"].to_numpy(), (told["last"] - told["first"] + 1).to_numpy()
    rows = np.repeat(first - np.cumsum(size) + size, size) + np.arange(size.sum())
    calls = host_calls.iloc[rows].reset_index(drop=True)
    return pd.DataFrame(
        {
            "call": rows,
            "trial": np.repeat(np.arange(len(told)), size),
            "device": np.repeat(told["device"].to_numpy(), size),
            "api": calls["api"],
            "thread": [thread_labels[t] for t in calls["thread"]],
            "start_ns": calls["start_ns"],
            "end_ns": calls["end_ns"],
            "kernel": calls["op"] >= 0,
        }
    )


def _units(
    host_calls: pd.DataFrame, ops: pd.DataFrame, names: pd.DataFrame, loop_calls: np.ndarray
) -> pd.DataFrame:
    """What each chain launches from one wait to the next: chain, first and last (rows of
    `host_calls`; behind another's work only from the last call that manages memory on), name and
    device of the kernel that could be tried, alone (bool: little else, a wait, and memory or an
    event of its own)."""
    verb, chain = host_calls["verb"].to_numpy(), host_calls["chain"].to_numpy()
    op = np.maximum(host_calls["op"].to_numpy(), 0)
    kernel = (host_calls["op"].to_numpy() >= 0) & (ops["kind"].to_numpy()[op] == KERNEL)
    sync = np.isin(verb, [int(v) for v in SYNCS])
    memory = np.isin(verb, [int(v) for v in _MEMORY])
    rows = np.flatnonzero(loop_calls)
    starts = np.flatnonzero(np.diff(_unit(chain, kernel, sync, memory)[rows], prepend=0))
    name = ops["name"].to_numpy()[op]
    tunable = kernel & names["category"].isin(_TUNED).to_numpy()[name]
    side = memory | (verb == int(Verb.EVENT_RECORD))

    def most(values: np.ndarray) -> np.ndarray:
        return np.maximum.reduceat(values[rows], starts)

    kernels = np.add.reduceat(kernel[rows], starts, dtype=np.int64)
    told = pd.DataFrame(
        {
            "chain": chain[rows[starts]],
            "first": rows[starts],
            "last": rows[np.append(starts, len(rows))[1:] - 1],
            "name": most(np.where(tunable, name, -1)),
            "device": most(np.where(kernel, ops["device"].to_numpy()[op], -1)),
            "alone": (kernels <= _UNIT_LAUNCHES) & most(tunable) & most(sync) & most(side),
        }
    )
    return told[kernels > 0].reset_index(drop=True)


def _unit(
    chain: Codes, kernel: np.ndarray, sync: np.ndarray, memory: np.ndarray
) -> Codes:
    """The unit of each call: a wait ends one, and memory taken behind launches opens the next."""
    launched = np.cumsum(kernel, dtype=np.int32)
    ends = np.maximum.accumulate(np.where(sync | memory, launched, 0))
    opens = np.ones(len(chain), dtype=bool)
    opens[1:] = sync[:-1] | (memory & (launched > np.append(0, ends[:-1])))[1:]
    opens[1:] |= chain[1:] != chain[:-1]
    return np.cumsum(opens, dtype=np.int32)


@table
def jit_in_loop(
    loading_calls: pd.DataFrame,
    trials: pd.DataFrame,
    steps: pd.DataFrame,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns a row per thread that keeps loading code, and one per thread that keeps trying
    kernels out: subject, device, thread, kind, count, call_ns, longest_ns, what."""
    if len(loading_calls) and window["basis"].iloc[0] == "all":
        raise MissingTableError(
            "no steps were recognised, so loading code once cannot be told from loading it again",
            "mark the steps with NVTX ranges, or name a steady stretch with --window",
        )
    rows = []
    for thread, mine in loading_calls.groupby("thread", sort=True):
        if recurs(mine["start_ns"].to_numpy(), steps, window):
            length = mine["end_ns"] - mine["start_ns"]
            rows.append(_row(thread, "loading", mine["device"], len(mine), length))
    for thread, mine in trials.groupby("thread", sort=True):
        groups = mine.groupby("trial").agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
        if recurs(groups["start_ns"].to_numpy(), steps, window):
            length = groups["end_ns"] - groups["start_ns"]
            rows.append(_row(thread, "trials", mine["device"], int(mine["kernel"].sum()), length))
    return pd.DataFrame(rows)


def _row(
    thread: str, kind: str, device: pd.Series, count: int, length: pd.Series
) -> dict[str, object]:
    known = device[device >= 0]
    place = int(known.mode().iloc[0]) if len(known) else -1
    what = (
        "loads or builds device code" if kind == "loading"
        else "tries out convolutions or products"
    )  # fmt: skip
    return {
        "subject": f"{kind} by {thread}",
        "device": place,
        "thread": thread,
        "kind": kind,
        "_cause": kind,
        "count": count,
        "call_ns": int(length.sum()),
        "longest_ns": int(length.max()),
        "what": what,
    }


def cure(
    jit_in_loop: pd.DataFrame,
    loading_calls: pd.DataFrame,
    trials: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
) -> list[pd.DataFrame]:
    """Loading is gone, first launches cost what launches cost; trials are gone with their
    kernels. At best the time before a load, in which code may have been built, is gone too."""
    parts = []
    for row, (thread, kind) in enumerate(
        zip(jit_in_loop["thread"], jit_in_loop["kind"], strict=True)
    ):
        if kind == "loading":
            mine = loading_calls[loading_calls["thread"] == thread]
            cost = np.where(mine["keeps"], _LAUNCH_NS, 0)
            parts.append(shorten_calls(row, mine["api"].to_numpy(), cost, api, launches))
            parts.append(edits(Change.OUTSIDE_NS, row, mine["api"], _LAUNCH_NS, only_fast=True))
        else:
            tried = trials.loc[trials["thread"] == thread, "api"].to_numpy()
            ops = launches.loc[launches["api"].isin(tried), "op"]
            parts.append(edits(Change.UNBLOCK, row, tried))
            parts.append(edits(Change.OUTSIDE_NS, row, tried))
            parts.append(edits(Change.OP_NS, row, ops))
    return join(*parts)


def evidence(
    jit_in_loop: pd.DataFrame, loading_calls: pd.DataFrame, trials: pd.DataFrame
) -> pd.DataFrame:
    """Returns the loads and the groups of trials: row, start_ns, end_ns, what."""
    parts = []
    for row, (thread, kind) in enumerate(
        zip(jit_in_loop["thread"], jit_in_loop["kind"], strict=True)
    ):
        if kind == "loading":
            mine = loading_calls[loading_calls["thread"] == thread]
        else:
            own = trials[trials["thread"] == thread].groupby("trial")
            mine = own.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
        place = mine[["start_ns", "end_ns"]].assign(row=row, what=f"{kind} of device code")
        parts.append(place)
    return pd.concat(parts, ignore_index=True)
