"""What each host thread stood in at every moment, as the cause it would give an idle device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints, Spans, innermost, spans
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import COPY, KERNEL
from nsysdoctor.verbs import ALLOCATIONS, SYNCS, Verb

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
    """One thread's states: disjoint sorted pieces, the cause code and the call of each (-1)."""

    pieces: Spans
    cause: Ints
    api: Ints


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
def first_launches(launches: pd.DataFrame, ops: pd.DataFrame, api: pd.DataFrame) -> Ints:
    """Returns the rows of `api` that launch a kernel for the first time in their process and
    take over half a millisecond: they load its code."""
    op, call = launches["op"].to_numpy(), launches["api"].to_numpy()
    seen = pd.DataFrame(
        {
            "process": ops["process"].to_numpy()[op],
            "name": ops["name"].to_numpy()[op],
            "api": call,
            "called_ns": api["start_ns"].to_numpy()[call],
        }
    )[ops["kind"].to_numpy()[op] == KERNEL]
    first = seen.sort_values(["called_ns", "api"]).drop_duplicates(["process", "name"])["api"]
    rows = np.unique(first.to_numpy())
    length = (api["end_ns"] - api["start_ns"]).to_numpy()[rows]
    return np.asarray(rows[length > _LOADING_NS], dtype=np.int64)


@table
def call_cause(api: pd.DataFrame, pageable_calls: Ints, first_launches: Ints) -> Ints:
    """Returns the cause code of a device that idles while each call of `api` runs."""
    by_verb = np.full(max(Verb) + 1, CAUSE["host_code"], dtype=np.int64)
    for verb, cause in _VERB_CAUSE.items():
        by_verb[verb] = CAUSE[cause]
    found: Ints = by_verb[api["verb"].to_numpy()]
    found[pageable_calls] = CAUSE["blocking_copy"]
    found[first_launches] = CAUSE["module_load"]
    return found


@table
def thread_states(
    api: pd.DataFrame,
    call_cause: Ints,
    threads: pd.DataFrame,
    waits: pd.DataFrame | None = None,
    pauses: pd.DataFrame | None = None,
    loader_ranges: pd.DataFrame | None = None,
) -> dict[int, States]:
    """Returns the states of every thread that made CUDA calls, by thread code.

    Inside a call the innermost call counts; outside calls a blocking OS call is `os_wait`, or
    `input_wait` inside a range that is named like a data loader; a pause of the profiler beats
    both. What no piece covers is the thread's own code.
    """
    found = {}
    for thread in np.unique(api["thread"].to_numpy()).tolist():
        calls = np.flatnonzero(api["thread"].to_numpy() == thread)
        process = int(threads["process"].to_numpy()[thread])
        layers = [
            _waiting(waits, loader_ranges, thread),
            (spans(api["start_ns"].to_numpy()[calls], api["end_ns"].to_numpy()[calls]),
             call_cause[calls], calls),
            _paused(pauses, thread, process),
        ]  # fmt: skip
        found[thread] = _stacked(layers)
    return found


def _waiting(
    waits: pd.DataFrame | None, loader: pd.DataFrame | None, thread: int
) -> tuple[Spans, Ints, Ints]:
    if waits is None:
        return spans([], []), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    mine = waits[(waits["thread"].to_numpy() == thread) & waits["blocking"].to_numpy()]
    start, end = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
    cause = np.full(len(mine), CAUSE["os_wait"], dtype=np.int64)
    if loader is not None:
        near = loader[loader["thread"] == thread]
        opened = np.searchsorted(np.sort(near["start_ns"].to_numpy()), start, side="right")
        closed = np.searchsorted(np.sort(near["end_ns"].to_numpy()), start, side="right")
        cause[opened > closed] = CAUSE["input_wait"]
    return spans(start, end), cause, np.full(len(mine), -1, dtype=np.int64)


def _paused(
    pauses: pd.DataFrame | None, thread: int, process: int
) -> tuple[Spans, Ints, Ints]:
    if pauses is None:
        return spans([], []), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    whole = (pauses["thread"] == -1) & (pauses["process"] == process)
    mine = pauses[whole | (pauses["thread"] == thread)]
    count = len(mine)
    return (
        spans(mine["start_ns"], mine["end_ns"]),
        np.full(count, CAUSE["profiler"], dtype=np.int64),
        np.full(count, -1, dtype=np.int64),
    )


def _stacked(layers: list[tuple[Spans, Ints, Ints]]) -> States:
    """Lays later layers over earlier ones; inside a layer the innermost interval counts."""
    start = np.concatenate([layer[0].start for layer in layers])
    end = np.concatenate([layer[0].end for layer in layers])
    height = np.repeat(np.arange(len(layers)), [len(layer[1]) for layer in layers])
    rank = np.empty(len(start), dtype=np.int64)
    rank[np.lexsort((-end, start, height))] = np.arange(len(start))
    pieces, owner = innermost(Spans(start, end), rank)
    cause = np.concatenate([layer[1] for layer in layers])[owner]
    return States(pieces, cause, np.concatenate([layer[2] for layer in layers])[owner])
