"""Launches that take long because an OS call or another thread's call into CUDA holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, covered, spans, union
from nsysdoctor.replay.edits import join
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.tables.account.idle_parts import IdleParts, of_calls
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.tables.host.call_kinds import SUBMITS, SYNCS, Verb
from nsysdoctor.tables.loop.driver_calls import recurs, slow_calls
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_LONG_NS = 20_000
_HELD_RATIO = 0.5
"""What holds a call covers at least this much of it."""

_BLOCKING = (Verb.COPY, Verb.SET)
_WAITS = frozenset({*SYNCS, Verb.QUERY})
"""Calls that wait without the driver's lock."""


@table
def held_launches(
    host_calls: pd.DataFrame,
    api: pd.DataFrame,
    api_names: pd.DataFrame,
    waiting: Waiting,
    idle_parts: IdleParts,
    loop_calls: np.ndarray,
    lock_delays: pd.DataFrame,
    first_launches: Ints,
    pageable_calls: Ints,
    request: Request,
    thread_labels: list[str],
    waits: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the launches and asynchronous copies of the loop that something holds up.

    Columns: api, thread (label), start_ns, end_ns, usual_ns (what such a call takes), holder
    (name of the OS call inside, or of the CUDA call of another thread), inside (bool: an OS
    call), idle_ns, device. Those behind memory management and loading of code are left to the
    rules about that.
    """
    slow, usual = slow_calls(host_calls, waiting, request)
    row = host_calls["api"].to_numpy()
    submits = np.isin(host_calls["verb"], [int(v) for v in SUBMITS - set(_BLOCKING)])
    chosen = slow & submits & loop_calls & (host_calls["op"].to_numpy() >= 0)
    for told in (lock_delays["api"], first_launches, pageable_calls):
        chosen &= ~np.isin(row, told)
    rows = np.flatnonzero(chosen)
    calls, row = host_calls.iloc[rows], row[rows]
    names = api_names["name"].astype(str).to_numpy()
    # An OS call inside says more than who else was in the driver, so it is asked last.
    holders = (*_others(calls, api, names), *_os_calls(calls, waits))
    share, holder, inside = _longest(calls, holders)
    found = pd.DataFrame(
        {
            "api": row,
            "thread": [thread_labels[t] for t in calls["thread"]],
            "start_ns": calls["start_ns"].to_numpy(),
            "end_ns": calls["end_ns"].to_numpy(),
            "usual_ns": usual[rows],
            "holder": holder,
            "inside": inside,
            "idle_ns": of_calls(row, idle_parts.calls, "idle_ns"),
            "device": of_calls(row, idle_parts.calls, "device", -1),
        }
    )
    length = found["end_ns"] - found["start_ns"]
    return found[(share >= _HELD_RATIO * length).to_numpy()].reset_index(drop=True)


def _longest(
    calls: pd.DataFrame, holders: Sequence[Holder]
) -> tuple[Ints, np.ndarray, np.ndarray]:
    """For each call the time that what covers it most does so, its name, and whether that is an
    OS call."""
    share, holder = np.zeros(len(calls), dtype=np.int64), np.full(len(calls), "", dtype=object)
    inside = np.zeros(len(calls), dtype=bool)
    for at, name, merged, is_os in holders:
        held = covered(Spans(*(calls[c].to_numpy()[at] for c in ("start_ns", "end_ns"))), merged)
        more = held >= np.maximum(share[at], 1)
        share[at[more]], holder[at[more]], inside[at[more]] = held[more], name, is_os
    return share, holder, inside


Holder = tuple[Ints, str, Spans, bool]


def _others(calls: pd.DataFrame, api: pd.DataFrame, names: np.ndarray) -> Iterator[Holder]:
    """For each slow thread the long calls of the other threads of its process, by name."""
    long = api["top"].to_numpy() & ((api["end_ns"] - api["start_ns"]).to_numpy() > _LONG_NS)
    long &= ~np.isin(api["verb"].to_numpy(), [int(v) for v in _WAITS])
    rows = api[long]
    thread = calls["thread"].to_numpy()
    for code in np.unique(thread).tolist():
        at = np.flatnonzero(thread == code)
        process = api["process"].to_numpy()[calls["api"].to_numpy()[at[0]]]
        mine = rows[(rows["process"] == process) & (rows["thread"] != code)]
        for name, held in mine.groupby("name", sort=True):
            yield at, names[name], union(spans(held["start_ns"], held["end_ns"])), False


def _os_calls(calls: pd.DataFrame, waits: pd.DataFrame | None) -> Iterator[Holder]:
    """The OS calls of each slow thread, by name."""
    if waits is None:
        return
    thread = calls["thread"].to_numpy()
    for code in np.unique(thread).tolist():
        at = np.flatnonzero(thread == code)
        mine = waits[(waits["thread"] == code).to_numpy()]
        for name, held in mine.groupby(mine["name"].astype(str), sort=True):
            yield at, str(name), union(spans(held["start_ns"], held["end_ns"])), True


@table
def launch_held_up(
    held_launches: pd.DataFrame, steps: pd.DataFrame, window: pd.DataFrame, *, min_ratio: float
) -> pd.DataFrame:
    """Returns a row per thread and what holds its launches: subject, device, thread, holder,
    count, call_ns, typical_ns, usual_ns, longest_ns, idle_ns, by, variant."""
    span_ns = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    rows = []
    for (thread, holder, inside), mine in held_launches.groupby(
        ["thread", "holder", "inside"], sort=True
    ):
        idle_ns = int(mine["idle_ns"].sum())
        late = mine[mine["idle_ns"] > 0]
        if idle_ns <= min_ratio * span_ns or not recurs(
            late["start_ns"].to_numpy(), steps, window
        ):
            continue
        length = (mine["end_ns"] - mine["start_ns"]).to_numpy()
        rows.append(
            {
                "subject": f"launches of {thread} behind {holder}",
                "device": int(late["device"].mode().iloc[0]),
                "thread": thread,
                "holder": holder,
                "_cause": str(holder),
                "count": len(mine),
                "call_ns": int(length.sum()),
                "typical_ns": int(np.median(length)),
                "usual_ns": int(mine["usual_ns"].median()),
                "longest_ns": int(length.max()),
                "idle_ns": idle_ns,
                "by": f"{holder} inside them" if inside else f"{holder} of another thread",
                "variant": "os" if inside else "",
                "_inside": bool(inside),
            }
        )
    return pd.DataFrame(rows)


def _row(launch_held_up: pd.DataFrame, held_launches: pd.DataFrame) -> pd.Series:
    """The row of the finding for each held launch, NaN for none."""
    keys = zip(*(launch_held_up[c] for c in ("thread", "holder", "_inside")), strict=True)
    row = {key: place for place, key in enumerate(keys)}
    mine = zip(*(held_launches[c] for c in ("thread", "holder", "inside")), strict=True)
    return pd.Series([row.get(key, np.nan) for key in mine], index=held_launches.index, dtype=float)


def cure(
    launch_held_up: pd.DataFrame,
    held_launches: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
) -> list[pd.DataFrame]:
    """The launches take what is usual."""
    row = _row(launch_held_up, held_launches)
    return join(
        *(
            shorten_calls(place, mine["api"].to_numpy(), mine["usual_ns"].to_numpy(), api, launches)
            for place, mine in ((p, held_launches[row == p]) for p in range(len(launch_held_up)))
        )
    )


def evidence(launch_held_up: pd.DataFrame, held_launches: pd.DataFrame) -> pd.DataFrame:
    """Returns the launches that were held up: row, start_ns, end_ns, what."""
    row = _row(launch_held_up, held_launches)
    mine = held_launches[row.notna()]
    return pd.DataFrame(
        {
            "row": row[row.notna()].astype(int),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": "a launch behind " + mine["holder"].astype(str),
        }
    )
