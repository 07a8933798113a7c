"""Time outside CUDA during which a device idles: waits for input, and the host's own code."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, covered_before, runs, spans, union
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.activity.gpu_rows import COPY
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.tables.host.call_kinds import ALLOCATIONS, Verb
from nsysdoctor.tables.loop.host_time import own_cost
from nsysdoctor.tables.steps.marks import Marks
from nsysdoctor.tables.steps.steps import in_window
from nsysdoctor.trace.recipe import table

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
    if memcpy_rows is None or not len(memcpy_rows) or not count:
        return np.zeros(count, dtype=bool)
    op, chain = host_calls["op"].to_numpy(), host_calls["chain"].to_numpy()
    at = np.where(op >= 0, np.arange(count, dtype=np.int32), count)
    following = np.minimum.accumulate(at[::-1])[::-1]
    known = np.flatnonzero(following < count)
    known = known[chain[following[known]] == chain[known]]
    first = op[following[known]]
    copying = ops["kind"].to_numpy()[first] == COPY
    known, row = known[copying], ops["row"].to_numpy()[first[copying]]
    found = np.zeros(count, dtype=bool)
    found[known] = memcpy_rows["copy_kind"].to_numpy()[row] == _HTOD
    return found


@table
def step_openers(
    host_calls: pd.DataFrame, steps: pd.DataFrame, step_marks: Marks | None = None
) -> Ints:
    """Returns the first row of `host_calls` in each steady step, on the chain of the thread that
    owns the steps."""
    none = np.empty(0, dtype=np.int64)
    if step_marks is None:
        return none
    own = host_calls["thread"].to_numpy() == step_marks.thread
    if not own.any():
        return none
    chain = host_calls["chain"].to_numpy()
    owner_calls = np.flatnonzero(chain == chain[np.argmax(own)])
    steady = steps.loc[steps["phase"] == "steady", "start_ns"].to_numpy()
    index = np.searchsorted(host_calls["start_ns"].to_numpy()[owner_calls], steady)
    return np.unique(owner_calls[index[index < len(owner_calls)]])


@table
def input_waits(
    host_calls: pd.DataFrame,
    between_calls: pd.DataFrame,
    opens_input: np.ndarray,
    step_openers: Ints,
    loop_calls: np.ndarray,
    window: pd.DataFrame,
    waits: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the times before calls of the window in which a thread waits for input.

    Columns: call (row of `host_calls`), waited_ns, typical_ns (what the same wait takes in a
    typical step where a minority waits much longer, else 0), idle_ns, device, basis. A wait for
    input lies in a range named like a loader, or is an OS wait that opens a step or precedes a copy
    to the device. If nothing of that was recorded, a step that opens with such a copy and is late
    in a minority of steps counts as one (basis inferred).
    """
    inside = loop_calls & _begins_in_window(host_calls, window)
    outside = host_calls["outside_ns"].to_numpy()
    opener = np.zeros(len(host_calls), dtype=bool)
    opener[step_openers] = True
    waited = _waited(len(host_calls), between_calls, opener | opens_input) * inside
    typical = np.zeros(len(host_calls), dtype=np.int64)
    # If OS calls were recorded, a thread without any did not sleep.
    blind = np.flatnonzero(opener & opens_input & inside & (waits is None))
    late = _late(outside, blind[waited[blind] == 0])
    waited[late] = outside[late]
    typical[late] = _median(outside[blind])
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
            "basis": np.where(np.isin(rows, late), "inferred", "measured").astype(object),
        }
    )


def _waited(count: int, between_calls: pd.DataFrame, asks: np.ndarray) -> Ints:
    """How long the thread waited before each call: in a loader's range, or asleep where `asks` says
    that the call needs input."""
    waited = np.zeros(count, dtype=np.int64)
    call = between_calls["call"].to_numpy()
    asleep = between_calls["wait_ns"].to_numpy() * asks[call]
    waited[call] = np.maximum(asleep, between_calls["loader_ns"].to_numpy())
    return waited


def _begins_in_window(host_calls: pd.DataFrame, window: pd.DataFrame) -> np.ndarray:
    """Calls whose time outside CUDA before them begins in the window and is mostly of its steps:
    what comes between two of them is an evaluation or a pause of its own."""
    start, outside = host_calls["start_ns"].to_numpy(), host_calls["outside_ns"].to_numpy()
    parts = union(spans(window["part_start_ns"], window["part_end_ns"]))
    within = covered_before(parts, start) - covered_before(parts, start - outside)
    last = start >= int(window["part_end_ns"].max())
    mostly = np.asarray((2 * within >= outside) | last)
    return np.asarray(in_window(start - outside, window) & mostly)


def _median(values: Ints) -> int:
    return int(np.median(values)) if len(values) else 0


def _late(length: Ints, rows: Ints) -> Ints:
    """The rows that take much longer than the median, if there are several rows and these are a
    minority."""
    values = length[rows]
    late = values > 2 * _median(values) + PAUSE_NS
    if late.sum() < 2 or late.mean() > _MINORITY_RATIO:
        return np.empty(0, dtype=np.int64)
    return np.asarray(rows[late], dtype=np.int64)


@table
def host_load(
    host_calls: pd.DataFrame,
    own_outside: Ints,
    waiting: Waiting,
    rank_activity: pd.DataFrame,
    loop_calls: np.ndarray,
) -> pd.DataFrame:
    """Returns how long each chain and the busiest device work in the window.

    Columns: chain, own_ns (its code and calls, without waits for input, profiler, memory and code
    loading), busy_ns, bound (bool: its own work is at least half of the device's). A host that
    needs less than half of the device's time runs ahead of the device unless something makes it
    wait, so its own code is not the bottleneck.
    """
    others = np.isin(host_calls["verb"].to_numpy(), [int(v) for v in _OTHERS])
    work = own_outside + np.where(others, 0, own_cost(host_calls, waiting))
    chain = [(code, rows) for code, rows in runs(host_calls["chain"].to_numpy())
             if loop_calls[rows].any()]  # fmt: skip
    own = np.array([work[rows][loop_calls[rows]].sum() for _, rows in chain], dtype=np.int64)
    busy = rank_activity[rank_activity["what"].isin(BUCKETS)]
    most = int(busy.groupby("device")["ns"].sum().max()) if len(busy) else 0
    return pd.DataFrame(
        {
            "chain": np.array([code for code, _ in chain], dtype=np.int64),
            "own_ns": own,
            "busy_ns": most,
            "bound": own >= 0.5 * most,
        }
    )


@table
def own_outside(
    host_calls: pd.DataFrame, between_calls: pd.DataFrame, input_waits: pd.DataFrame
) -> Ints:
    """Returns for each row of `host_calls` the part of the time before it in which the thread runs
    its own code, or sleeps while a device idles for that reason alone."""
    apart, asleep = (np.zeros(len(host_calls), dtype=np.int64) for _ in range(2))
    call, waits = between_calls["call"].to_numpy(), input_waits["call"].to_numpy()
    apart[call] = between_calls[["wait_ns", "loader_ns"]].max(axis=1)
    apart[waits] = np.maximum(apart[waits], input_waits["waited_ns"].to_numpy())
    apart[call] += between_calls[["pause_ns", "ready_ns"]].sum(axis=1).to_numpy()
    asleep[call] = between_calls["idle_wait_ns"]
    asleep[waits] = 0
    return np.asarray(np.maximum(host_calls["outside_ns"].to_numpy() - apart, 0) + asleep)


@table
def host_pauses(
    host_calls: pd.DataFrame,
    own_outside: Ints,
    host_load: pd.DataFrame,
    loop_calls: np.ndarray,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the long times before calls of the window in which a thread that limits the device
    runs its own code and submits nothing.

    Columns: call (row of `host_calls`), chain, own_ns (its own code), kept_ns (what the chain
    usually takes between two calls), idle_ns, device.
    """
    own, chain = own_outside, host_calls["chain"].to_numpy()
    bound = np.isin(chain, host_load.loc[host_load["bound"], "chain"].to_numpy())
    inside = loop_calls & _begins_in_window(host_calls, window)
    rows = np.flatnonzero(bound & inside & (own >= PAUSE_NS))
    # The usual time that a framework takes before a launch; launches without any do not count.
    launching = inside & (own > 0) & (own < PAUSE_NS) & (host_calls["op"].to_numpy() >= 0)
    kept = np.full(len(rows), DISPATCH_NS, dtype=np.int64)
    for _, part in runs(chain):
        usual = own[part][launching[part]]
        mine = slice(*np.searchsorted(rows, (part.start, part.stop)))
        if len(usual):
            kept[mine] = min(_median(usual), DISPATCH_NS)
    return pd.DataFrame(
        {
            "call": rows,
            "chain": chain[rows],
            "own_ns": own[rows],
            "kept_ns": kept,
            "idle_ns": host_calls["idle_ns"].to_numpy()[rows],
            "device": host_calls["device"].to_numpy()[rows],
        }
    )
