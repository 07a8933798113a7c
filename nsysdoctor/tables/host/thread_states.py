"""What each host thread stood in at every moment, as the cause it would give an idle device."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import (
    EMPTY,
    Ints,
    Spans,
    innermost,
    runs,
    spans,
    subtract,
    tiles_met,
    union,
    without,
)
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.activity.gpu_rows import COPY, KERNEL
from nsysdoctor.tables.host.call_kinds import ALLOCATIONS, SYNCS, Verb
from nsysdoctor.trace.recipe import table

CAUSES = (
    "synchronization", "blocking_copy", "allocation", "module_load", "launch", "input_wait",
    "host_code", "os_wait", "copy_queue", "dependency", "communication", "profiler", "unknown",
)  # fmt: skip
"""Why a device idles; `gap_causes.cause` is a code into this tuple."""

CAUSE = {name: code for code, name in enumerate(CAUSES)}

PAGEABLE = 0
_LOADING_NS = 500_000
_VERB_CAUSE = {
    **dict.fromkeys(SYNCS, "synchronization"),
    Verb.QUERY: "synchronization",
    **dict.fromkeys(ALLOCATIONS, "allocation"),
    Verb.COPY: "blocking_copy",
    Verb.MODULE: "module_load",
    **dict.fromkeys(
        (Verb.LAUNCH, Verb.GRAPH_LAUNCH, Verb.COPY_ASYNC, Verb.SET_ASYNC, Verb.SET,
         Verb.STREAM_WAIT, Verb.EVENT_RECORD, Verb.PREFETCH),
        "launch",
    ),
    Verb.GRAPH_BUILD: "host_code",
    Verb.OTHER: "host_code",
}  # fmt: skip


class States(NamedTuple):
    """What one thread stood in, from -2^63 on: each state lasts until the next one's start.

    `cause` is the code of what it would give an idle device as the cause, `api` the call that
    the thread stood in, -1 outside calls.
    """

    start_ns: Ints
    cause: Codes
    api: Codes


OWN_CODE = States(
    np.array([np.iinfo(np.int64).min]),
    np.array([CAUSE["host_code"]], dtype=np.int8),
    np.array([-1], dtype=np.int32),
)
"""The states of a thread of which nothing is known."""


class Layer(NamedTuple):
    """Disjoint sorted stretches of a thread's time, the cause code and the call of each."""

    span: Spans
    cause: Codes
    api: Codes


@table
def pageable_calls(
    launches: pd.DataFrame, ops: pd.DataFrame, memcpy_rows: pd.DataFrame | None = None
) -> Ints:
    """Returns the rows of `api` whose copy has an end in pageable memory, sorted."""
    if memcpy_rows is None:
        return np.empty(0, dtype=np.int64)
    op = launches["op"].to_numpy()
    mine = ops["kind"].to_numpy()[op] == COPY
    row = ops["row"].to_numpy()[op[mine]]
    pageable = (memcpy_rows["src_kind"].to_numpy()[row] == PAGEABLE) | (
        memcpy_rows["dst_kind"].to_numpy()[row] == PAGEABLE
    )
    return np.asarray(np.unique(launches["api"].to_numpy()[mine][pageable]), dtype=np.int64)


@table
def first_launches(
    launches: pd.DataFrame, ops: pd.DataFrame, api: pd.DataFrame, preceding_kernels: pd.DataFrame
) -> Ints:
    """Returns the rows of `api` that launch a kernel for the first time in their process and
    take over half a millisecond: they load its code."""
    op, call = launches["op"].to_numpy(), launches["api"].to_numpy()
    length = (api["end_ns"] - api["start_ns"]).to_numpy()
    name = ops["name"].to_numpy()[op]
    long = np.unique(name[length[call] > _LOADING_NS])
    asked = np.isin(name, long) & (ops["kind"].to_numpy()[op] == KERNEL)
    op, call, name = op[asked], call[asked], name[asked]
    seen = pd.DataFrame(
        {
            "process": ops["process"].to_numpy()[op],
            "name": name,
            "api": call,
            "called_ns": api["start_ns"].to_numpy()[call],
        }
    )
    first = seen.sort_values(["called_ns", "api"]).drop_duplicates(["process", "name"])
    if len(preceding_kernels):
        again = first.merge(preceding_kernels.assign(again=True), "left", ["process", "name"])
        first = first[again["again"].isna().to_numpy()]
    rows = np.unique(first["api"].to_numpy())
    return np.asarray(rows[length[rows] > _LOADING_NS], dtype=np.int64)


@table
def call_cause(api: pd.DataFrame, pageable_calls: Ints, first_launches: Ints) -> Codes:
    """Returns the cause code of a device that idles while each call of `api` runs."""
    by_verb = np.full(max(Verb) + 1, CAUSE["host_code"], dtype=np.int8)
    for verb, cause in _VERB_CAUSE.items():
        by_verb[verb] = CAUSE[cause]
    found: Codes = by_verb[api["verb"].to_numpy()]
    found[pageable_calls] = CAUSE["blocking_copy"]
    found[first_launches] = CAUSE["module_load"]
    return found


@table
def thread_states(
    api: pd.DataFrame,
    call_cause: Codes,
    threads: pd.DataFrame,
    waits: pd.DataFrame | None = None,
    pauses: pd.DataFrame | None = None,
    loader_ranges: pd.DataFrame | None = None,
) -> dict[int, States]:
    """Returns the states of every thread that made CUDA calls, by thread code.

    Inside a call the innermost call counts; outside calls a blocking OS call is `os_wait`, or
    `input_wait` inside a range that is named like a data loader; a pause of the profiler beats
    both. While a thread sleeps in `os_wait` the CUDA calls of the other threads of its process
    count, which it may wait for. All else is the thread's own code.
    """
    found, processes = {}, {}
    for thread, rows in runs(api["thread"].to_numpy()):
        processes[thread] = process = int(threads["process"].to_numpy()[thread])
        layers = [
            _waiting(waits, loader_ranges, thread),
            _calling(api, call_cause, rows),
            _paused(pauses, thread, process),
        ]
        found[thread] = _states(reduce(_laid_over, layers))
    return {
        thread: reduce(
            _with_calls,
            [found[t] for t in found if t != thread and processes[t] == processes[thread]],
            own,
        )
        for thread, own in found.items()
    }


def _with_calls(own: States, other: States) -> States:
    """The states of a thread with the calls of another one while it sleeps."""
    until = np.append(own.start_ns[1:], np.iinfo(np.int64).max)
    asleep = np.flatnonzero(own.cause == CAUSE["os_wait"])
    first, count = tiles_met(Spans(own.start_ns[asleep], until[asleep]), other.start_ns)
    mine = np.repeat(asleep, count)
    begins = np.cumsum(count) - count
    state = np.arange(len(mine)) + np.repeat(first - begins, count)
    calling = other.api[state] >= 0
    if not calling.any():
        return own
    # What the other thread does outside calls is one stretch of sleep.
    opens = np.ones(len(mine), dtype=bool)
    opens[1:] = calling[1:] | calling[:-1] | (mine[1:] != mine[:-1])
    parts = States(
        np.maximum(own.start_ns[mine], other.start_ns[state])[opens],
        np.where(calling, other.cause[state], own.cause[mine])[opens],
        np.where(calling, other.api[state], -1)[opens],
    )
    kept = own.cause != CAUSE["os_wait"]
    joined = States(
        *(np.concatenate((a[kept], b)) for a, b in zip(own, parts, strict=True))
    )
    order = np.argsort(joined.start_ns, kind="stable")
    return States(*(column[order] for column in joined))


class Rests(NamedTuple):
    """When a thread slept in OS calls, and when the profiler held it up; both are merged."""

    asleep: Spans
    paused: Spans


@table
def thread_rests(
    api: pd.DataFrame,
    threads: pd.DataFrame,
    waits: pd.DataFrame | None = None,
    pauses: pd.DataFrame | None = None,
) -> dict[int, Rests]:
    """Returns when every thread that made CUDA calls rested outside of them, by thread code."""
    found = {}
    for thread, rows in runs(api["thread"].to_numpy()):
        process = int(threads["process"].to_numpy()[thread])
        paused = union(_paused(pauses, thread, process).span)
        asleep = union(_waiting(waits, None, thread).span)
        if len(asleep.start):
            asleep = subtract(subtract(asleep, union(_call_spans(api, rows))), paused)
        found[thread] = Rests(asleep, paused)
    return found


def _call_spans(api: pd.DataFrame, rows: slice) -> Spans:
    return Spans(api["start_ns"].to_numpy()[rows], api["end_ns"].to_numpy()[rows])


def _calling(api: pd.DataFrame, call_cause: Codes, rows: slice) -> Layer:
    pieces, owner = innermost(_call_spans(api, rows))
    owner = (owner + rows.start).astype(np.int32)
    return Layer(pieces, call_cause[owner], owner)


def _waiting(waits: pd.DataFrame | None, loader: pd.DataFrame | None, thread: int) -> Layer:
    if waits is None:
        return _layer(EMPTY, "os_wait")
    mine = np.flatnonzero((waits["thread"].to_numpy() == thread) & waits["blocking"].to_numpy())
    span, owner = innermost(spans(*(waits[c].to_numpy()[mine] for c in ("start_ns", "end_ns"))))
    found = _layer(span, "os_wait")
    if loader is not None:
        near = loader[loader["thread"] == thread]
        start = waits["start_ns"].to_numpy()[mine]
        opened = np.searchsorted(np.sort(near["start_ns"].to_numpy()), start, side="right")
        closed = np.searchsorted(np.sort(near["end_ns"].to_numpy()), start, side="right")
        found.cause[(opened > closed)[owner]] = CAUSE["input_wait"]
    return found


def _paused(pauses: pd.DataFrame | None, thread: int, process: int) -> Layer:
    if pauses is None:
        return _layer(EMPTY, "profiler")
    whole = (pauses["thread"] == -1) & (pauses["process"] == process)
    mine = pauses[whole | (pauses["thread"] == thread)]
    return _layer(innermost(spans(mine["start_ns"], mine["end_ns"]))[0], "profiler")


def _layer(span: Spans, cause: str) -> Layer:
    """Stretches of one cause outside calls."""
    count = len(span.start)
    return Layer(span, np.full(count, CAUSE[cause], np.int8), np.full(count, -1, np.int32))


def _laid_over(lower: Layer, upper: Layer) -> Layer:
    """Both layers in one; where both have a stretch the upper one counts."""
    if not len(lower.api) or not len(upper.api):
        return upper if len(upper.api) else lower
    left, row = without(lower.span, upper.span)
    start, end, cause, api = (
        np.concatenate(pair)
        for pair in (
            (left.start, upper.span.start), (left.end, upper.span.end),
            (lower.cause[row], upper.cause), (lower.api[row], upper.api),
        )
    )  # fmt: skip
    order = np.argsort(start, kind="stable")
    return Layer(Spans(start[order], end[order]), cause[order], api[order])


def _states(layer: Layer) -> States:
    """The stretches with the thread's own code between them."""
    count = 2 * len(layer.api) + 1
    start = np.full(count, np.iinfo(np.int64).min)
    start[1::2], start[2::2] = layer.span
    cause, api = np.full(count, CAUSE["host_code"], np.int8), np.full(count, -1, np.int32)
    cause[1::2], api[1::2] = layer.cause, layer.api
    lasts = np.append(start[1:] > start[:-1], True)
    return States(start[lasts], cause[lasts], api[lasts])
