"""Time outside CUDA for which a device starves: waits for input, and the host's own code."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import COPY
from nsysdoctor.tables.host_time import in_loop
from nsysdoctor.tables.step_marks import Marks
from nsysdoctor.tables.steps import in_window
from nsysdoctor.tables.time_budget import BUCKETS
from nsysdoctor.verbs import ALLOCATIONS, Verb

PAUSE_NS = 100_000
"""A host that launches nothing for this long does something else than launching."""

DISPATCH_NS = 10_000
"""What a framework usually takes between two calls."""

_HTOD = 1
_MINORITY_RATIO = 0.4
_OTHERS = frozenset({*ALLOCATIONS, Verb.MODULE})


@table
def opens_input(
    host_calls: pd.DataFrame, ops: pd.DataFrame, memcpy_rows: pd.DataFrame | None = None
) -> np.ndarray:
    """Returns for each row of `host_calls` whether the next operation that its chain submits,
    by this call or a later one, is a copy to the device."""
    count = len(host_calls)
    if memcpy_rows is None or not count:
        return np.zeros(count, dtype=bool)
    op, chain = host_calls["op"].to_numpy(), host_calls["chain"].to_numpy()
    at = np.where(op >= 0, np.arange(count), count)
    following = np.minimum.accumulate(at[::-1])[::-1]
    known = (following < count) & (chain[np.minimum(following, count - 1)] == chain)
    first = op[np.minimum(following, count - 1)]
    copying = known & (ops["kind"].to_numpy()[first] == COPY)
    row = np.where(copying, ops["row"].to_numpy()[first], 0)
    return np.asarray(copying & (memcpy_rows["copy_kind"].to_numpy()[row] == _HTOD))


@table
def step_openers(
    host_calls: pd.DataFrame, steps: pd.DataFrame, step_marks: Marks | None = None
) -> Ints:
    """Returns the rows of `host_calls` that come first in each steady step, on the chain of the
    thread that owns the steps."""
    own = (
        host_calls[host_calls["thread"] == step_marks.thread] if step_marks is not None else None
    )
    if own is None or not len(own):
        return np.empty(0, dtype=np.int64)
    mine = np.flatnonzero(host_calls["chain"].to_numpy() == own["chain"].iloc[0])
    steady = steps.loc[steps["phase"] == "steady", "start_ns"].to_numpy()
    index = np.searchsorted(host_calls["start_ns"].to_numpy()[mine], steady)
    return np.unique(mine[index[index < len(mine)]])


@table
def input_waits(
    host_calls: pd.DataFrame,
    opens_input: np.ndarray,
    step_openers: Ints,
    window: pd.DataFrame,
    waits: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the times before calls of the window in which a thread waits for input.

    Columns: call (row of `host_calls`), waited_ns, typical_ns (what the same wait takes in a
    typical step where a minority waits much longer, else 0), idle_ns, device, basis. A wait for
    input lies in a range named like a loader, or is an OS wait that opens a step or comes before
    a copy to the device. Without any of that a step that opens with such a copy, late in a
    minority of steps, is taken for one (basis inferred).
    """
    inside = _whole_in_window(host_calls, window)
    opener = np.zeros(len(host_calls), dtype=bool)
    opener[step_openers] = True
    asleep = host_calls["wait_ns"].to_numpy() * (opener | opens_input)
    waited = np.maximum(asleep, host_calls["loader_ns"].to_numpy()) * inside
    basis = np.full(len(host_calls), "measured", dtype=object)
    typical = np.zeros(len(host_calls), dtype=np.int64)
    blind = opener & opens_input & inside & ~_watched(host_calls, waits)
    late = _late(host_calls["outside_ns"].to_numpy(), np.flatnonzero(blind & (waited == 0)))
    waited[late], basis[late] = host_calls["outside_ns"].to_numpy()[late], "inferred"
    typical[late] = _median(host_calls["outside_ns"].to_numpy()[np.flatnonzero(blind)])
    seen = np.flatnonzero(opener & inside) if opener.any() else np.flatnonzero(waited)
    if len(_late(waited, seen)):
        typical = np.maximum(typical, _median(waited[seen]))
    rows = np.flatnonzero(waited >= PAUSE_NS / 2)
    return pd.DataFrame(
        {
            "call": rows,
            "waited_ns": waited[rows],
            "typical_ns": np.minimum(typical[rows], waited[rows]),
            "idle_ns": host_calls["idle_ns"].to_numpy()[rows],
            "device": host_calls["device"].to_numpy()[rows],
            "basis": basis[rows],
        }
    )


def _whole_in_window(host_calls: pd.DataFrame, window: pd.DataFrame) -> np.ndarray:
    """Calls of the window whose time outside CUDA before them lies in it as well."""
    start = host_calls["start_ns"].to_numpy()
    opens = start - host_calls["outside_ns"].to_numpy()
    return np.asarray(in_loop(host_calls, window) & in_window(opens, window))


def _watched(host_calls: pd.DataFrame, waits: pd.DataFrame | None) -> np.ndarray:
    """Calls of threads whose OS calls were recorded."""
    if waits is None:
        return np.zeros(len(host_calls), dtype=bool)
    return np.asarray(host_calls["thread"].isin(waits["thread"].unique()))


def _median(values: Ints) -> int:
    return int(np.median(values)) if len(values) else 0


def _late(length: Ints, rows: Ints) -> Ints:
    """The rows that take much longer than the median, if they are a minority of several."""
    values = length[rows]
    late = values > 2 * _median(values) + PAUSE_NS
    if late.sum() < 2 or late.mean() > _MINORITY_RATIO:
        return np.empty(0, dtype=np.int64)
    return np.asarray(rows[late], dtype=np.int64)


@table
def host_load(
    host_calls: pd.DataFrame,
    input_waits: pd.DataFrame,
    device_pieces: pd.DataFrame,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns how much of the window each chain works and how long the busiest device does.

    Columns: chain, own_ns (its code and calls; waits for input, the profiler, memory and loading
    of code apart), busy_ns, bound (bool: its own work is at least half of the device's). A host
    that needs less than half of the device's time runs ahead of it unless something makes it
    wait, so its own code is not what binds.
    """
    own = _own_outside(host_calls, input_waits)
    others = host_calls["verb"].isin([int(v) for v in _OTHERS]).to_numpy()
    work = own + np.where(others, 0, host_calls["own_ns"].to_numpy())
    inside = in_loop(host_calls, window)
    by_chain = pd.Series(work[inside]).groupby(host_calls["chain"].to_numpy()[inside]).sum()
    row = window.iloc[0]
    busy = device_pieces[device_pieces["bucket"] != BUCKETS.index("idle")]
    end = np.minimum(busy["end_ns"], row["end_ns"])
    length = (end - np.maximum(busy["start_ns"], row["start_ns"])).clip(lower=0)
    most = int(length.groupby(busy["device"]).sum().max()) if len(busy) else 0
    return pd.DataFrame(
        {
            "chain": by_chain.index.to_numpy(),
            "own_ns": by_chain.to_numpy(),
            "busy_ns": most,
            "bound": by_chain.to_numpy() >= 0.5 * most,
        }
    )


def _own_outside(host_calls: pd.DataFrame, input_waits: pd.DataFrame) -> Ints:
    """The time before each call in which the thread runs code of its own, or sleeps while a
    device idles for no other reason than that."""
    apart = host_calls[["wait_ns", "loader_ns"]].max(axis=1).to_numpy().copy()
    asleep = host_calls["idle_wait_ns"].to_numpy().copy()
    call = input_waits["call"].to_numpy()
    apart[call] = np.maximum(apart[call], (input_waits["waited_ns"]).to_numpy())
    asleep[call] = 0
    own = host_calls["outside_ns"].to_numpy() - apart - host_calls["pause_ns"].to_numpy()
    return np.asarray(np.maximum(own, 0) + asleep, dtype=np.int64)


@table
def host_pauses(
    host_calls: pd.DataFrame,
    input_waits: pd.DataFrame,
    host_load: pd.DataFrame,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the times before calls of the window in which a thread that binds the device runs
    code of its own for long and submits nothing.

    Columns: call (row of `host_calls`), chain, own_ns (what it runs itself), kept_ns (what the
    chain usually takes between two calls), idle_ns, device.
    """
    own = _own_outside(host_calls, input_waits)
    chain = host_calls["chain"].to_numpy()
    bound = np.isin(chain, host_load.loc[host_load["bound"], "chain"])
    inside = _whole_in_window(host_calls, window)
    rows = np.flatnonzero(bound & inside & (own >= PAUSE_NS))
    # What a framework takes before a launch, where it takes anything.
    launching = inside & (own > 0) & (own < PAUSE_NS) & (host_calls["op"].to_numpy() >= 0)
    usual = pd.Series(own[launching]).groupby(chain[launching]).median()
    kept = pd.Series(chain[rows]).map(usual).fillna(DISPATCH_NS).clip(upper=DISPATCH_NS)
    return pd.DataFrame(
        {
            "call": rows,
            "chain": chain[rows],
            "own_ns": own[rows],
            "kept_ns": kept.to_numpy().astype(np.int64),
            "idle_ns": host_calls["idle_ns"].to_numpy()[rows],
            "device": host_calls["device"].to_numpy()[rows],
        }
    )
