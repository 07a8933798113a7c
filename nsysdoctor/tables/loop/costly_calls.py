"""CUDA calls that submit nothing and belong to no other rule, and the devices that wait for
them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.tables.account.idle_parts import IdleParts
from nsysdoctor.tables.host.call_kinds import ALLOCATIONS, SUBMITS, SYNCS, Verb
from nsysdoctor.trace.recipe import table

_MIN_CALL_NS = 10_000
"""Shorter calls cost no more than a launch."""

_OTHERS = frozenset(
    {*SUBMITS, *SYNCS, *ALLOCATIONS, Verb.MODULE, Verb.QUERY, Verb.EVENT_RECORD, Verb.STREAM_WAIT}
)
"""Calls that other rules judge, and those that a loop needs."""

_JUDGED_ELSEWHERE = re.compile(r"HostFunc|AddCallback|Profiler|GetLastError|PeekAtLastError")

@table
def costly_calls(
    host_calls: pd.DataFrame,
    api: pd.DataFrame,
    api_names: pd.DataFrame,
    idle_parts: IdleParts,
    loop_calls: np.ndarray,
    thread_labels: list[str],
) -> pd.DataFrame:
    """Returns the calls of the loop that belong to no other rule, with the idle time they cause.

    Columns: call (row of `host_calls`), api, name, thread (label), code (row of `threads`),
    start_ns, end_ns, length_ns, idle_ns (a device idled while the host was in the call or in one
    inside it), device (that one, -1 none).
    """
    names = api_names["name"].astype(str).to_numpy()
    judged_here = np.array([_JUDGED_ELSEWHERE.search(name) is None for name in names], dtype=bool)
    row = host_calls["api"].to_numpy()
    length = (host_calls["end_ns"] - host_calls["start_ns"]).to_numpy()
    chosen = ~np.isin(host_calls["verb"].to_numpy(), [int(v) for v in _OTHERS])
    chosen &= loop_calls & judged_here[api["name"].to_numpy()[row]] & (length >= _MIN_CALL_NS)
    # A call that submits an operation does useful work, whatever its name.
    chosen &= host_calls["op"].to_numpy() < 0
    rows = np.flatnonzero(chosen)
    calls, row = host_calls.iloc[rows], row[rows]
    idle, device = _idle(row, api, idle_parts.calls)
    return pd.DataFrame(
        {
            "call": rows,
            "api": row,
            "name": names[api["name"].to_numpy()[row]],
            "thread": [thread_labels[t] for t in calls["thread"]],
            "code": calls["thread"].to_numpy(),
            "start_ns": calls["start_ns"].to_numpy(),
            "end_ns": calls["end_ns"].to_numpy(),
            "length_ns": length[rows],
            "idle_ns": idle,
            "device": device,
        }
    )


def _idle(row: Ints, api: pd.DataFrame, known: pd.DataFrame) -> tuple[Ints, Ints]:
    """How long a device idled during each outermost call and the calls inside it, and which device
    idled longest."""
    outer = np.flatnonzero(api["top"].to_numpy())
    place = outer[np.searchsorted(outer, known["api"].to_numpy(), side="right") - 1]
    held = known.assign(api=place)
    spent = held.groupby("api")["idle_ns"].sum()
    longest = held.sort_values("idle_ns", kind="stable").drop_duplicates("api", keep="last")
    device = longest.set_index("api")["device"]
    return (
        spent.reindex(row).fillna(0).to_numpy(dtype=np.int64),
        device.reindex(row).fillna(-1).to_numpy(dtype=np.int64),
    )
