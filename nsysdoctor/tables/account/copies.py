"""Explicit copies: direction, memory kinds, rate, and whether the host stood in them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import covered, spans, union
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.activity.gpu_rows import COPY
from nsysdoctor.tables.activity.ops import COPY_NAMES
from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.tables.host.thread_states import PAGEABLE
from nsysdoctor.trace.recipe import table

PINNED = 1


@table
def copies(
    ops: pd.DataFrame,
    memcpy_rows: pd.DataFrame,
    device_pieces: pd.DataFrame,
    launches: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns one row per explicit copy, in the order of `ops`.

    Columns: op, device, process, lane, direction (HtoD, DtoH, DtoD, HtoH, PtoP, …), src_kind,
    dst_kind (0 pageable, 1 pinned, 2 device …; -1 not recorded), pageable (bool: an end lies in
    pageable memory and the direction crosses the bus), bytes, start_ns, end_ns,
    rate_bytes_per_s (0 for an instant), exposed_ns (no compute and no collective beside it),
    api, thread (-1 without a call), called_ns, returned_ns (the copy's own start without a call),
    async_call (bool: the call's name promises not to block), sync_call (bool: it promises to
    wait), in_call (bool: the copy ended before its call returned).
    """
    mine = np.flatnonzero(ops["kind"].to_numpy() == COPY)
    start, end, size, row = (
        ops[c].to_numpy()[mine] for c in ("start_ns", "end_ns", "bytes", "row")
    )
    kind, source, target = (
        memcpy_rows[c].to_numpy()[row] for c in ("copy_kind", "src_kind", "dst_kind")
    )
    found = pd.DataFrame(
        {
            "op": mine.astype(np.int32),
            "device": ops["device"].to_numpy()[mine],
            "process": ops["process"].to_numpy()[mine],
            "lane": ops["lane"].to_numpy()[mine],
            "direction": _direction(kind),
            "src_kind": source,
            "dst_kind": target,
            "pageable": ((source == PAGEABLE) | (target == PAGEABLE)) & np.isin(kind, (1, 2)),
            "bytes": size,
            "start_ns": start,
            "end_ns": end,
            "rate_bytes_per_s": _rate(size, end - start),
        }
    )
    found["exposed_ns"] = _exposed(found, device_pieces)
    return _with_calls(found, launches, api)


def _direction(kind: np.ndarray) -> pd.Series[str]:
    """The name of each copy's direction."""
    distinct, code = np.unique(kind, return_inverse=True)
    names = pd.Series([COPY_NAMES.get(k, "unknown") for k in distinct.tolist()], dtype="str")
    return names.take(code).reset_index(drop=True)


def _rate(size: np.ndarray, length_ns: np.ndarray) -> np.ndarray:
    return np.where(length_ns > 0, size * 1e9 / np.maximum(length_ns, 1), 0.0)


def _exposed(found: pd.DataFrame, device_pieces: pd.DataFrame) -> np.ndarray:
    exposed = np.zeros(len(found), dtype=np.int64)
    copying = device_pieces[device_pieces["bucket"] == BUCKETS.index("exposed_copy")]
    for device, rows in found.groupby("device", sort=True):
        here = copying[copying["device"] == device]
        merged = union(spans(here["start_ns"], here["end_ns"]))
        exposed[rows.index.to_numpy()] = covered(spans(rows["start_ns"], rows["end_ns"]), merged)
    return exposed


def _with_calls(
    found: pd.DataFrame, launches: pd.DataFrame | None, api: pd.DataFrame | None
) -> pd.DataFrame:
    call = np.full(len(found), -1, dtype=np.int32)
    if launches is not None and api is not None and len(launches):
        known = launches["op"].to_numpy()
        index = np.minimum(np.searchsorted(known, found["op"]), len(known) - 1)
        hit = known[index] == found["op"].to_numpy()
        call[hit] = launches["api"].to_numpy()[index[hit]]
    has, row = call >= 0, np.maximum(call, 0)
    start = found["start_ns"].to_numpy()
    none = np.full(len(found), -1, dtype=np.int32)
    columns = {"thread": none, "start_ns": start, "end_ns": start, "verb": none}
    taken = {
        name: np.where(has, api[name].to_numpy()[row], missing)
        if api is not None and len(api)
        else missing
        for name, missing in columns.items()
    }
    return found.assign(
        api=call,
        thread=taken["thread"],
        called_ns=taken["start_ns"],
        returned_ns=taken["end_ns"],
        async_call=taken["verb"] == Verb.COPY_ASYNC,
        sync_call=taken["verb"] == Verb.COPY,
        in_call=has & (taken["end_ns"] >= found["end_ns"].to_numpy()),
    )
