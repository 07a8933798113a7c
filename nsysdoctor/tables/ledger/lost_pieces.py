"""What of a device's time is lost, before anything is named."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Spans, innermost
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.account.gaps import NEAR_NS
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.activity.gpu_rows import COPY, SET
from nsysdoctor.tables.activity.ops import COMMUNICATION
from nsysdoctor.tables.host.thread_states import CAUSE, CAUSES
from nsysdoctor.tables.ledger.tiles import Columns, cut, taken, tiles_of
from nsysdoctor.trace.recipe import table

LOST_CAUSES = (*CAUSES, "copy")
"""The values of `lost_time.cause`: those of idle time, and copying where nothing else runs."""

IDLE, EXPOSED_COPY = BUCKETS.index("idle"), BUCKETS.index("exposed_copy")
EXPOSED_COMMUNICATION = BUCKETS.index("exposed_communication")


@table
def exposed_pieces(
    device_pieces: pd.DataFrame, ops: pd.DataFrame, op_category: pd.Series[str]
) -> Columns:
    """Returns the stretches in which a device only copies or communicates, one operation each.

    Columns: device, start_ns, end_ns, bucket (code into `BUCKETS`), cause (code into
    `LOST_CAUSES`), op. Where several operations run at once the one that started last counts.
    """
    kind, collective = ops["kind"].to_numpy(), (op_category == COMMUNICATION).to_numpy()
    parts = [
        _owned(device_pieces, ops, bucket, mine, cause)
        for bucket, mine, cause in (
            (EXPOSED_COPY, (kind == COPY) | (kind == SET), len(CAUSES)),
            (EXPOSED_COMMUNICATION, collective, CAUSE["communication"]),
        )
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _owned(
    device_pieces: pd.DataFrame, ops: pd.DataFrame, bucket: int, mine: np.ndarray, cause: int
) -> Columns:
    """The pieces of one bucket cut by the operations that fill it."""
    kept = np.flatnonzero(device_pieces["bucket"].to_numpy() == bucket)
    pieces: Columns = {
        name: device_pieces[name].to_numpy()[kept]
        for name in ("device", "start_ns", "end_ns", "bucket")
    }
    device, tiles = ops["device"].to_numpy(), {}
    for code in np.unique(pieces["device"]).tolist():
        rows = np.flatnonzero(mine & (device == code))
        span, owner = innermost(Spans(*(ops[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))))
        tiles[code] = tiles_of(span, rows[owner])
    found = cut(pieces, "device", tiles, "op")
    return found | {"cause": np.full(len(found["op"]), cause, dtype=np.int8)}


@table
def idle_pieces(
    gap_causes: pd.DataFrame,
    gaps: pd.DataFrame,
    ops: pd.DataFrame,
    api: pd.DataFrame | None = None,
) -> Columns:
    """Returns the pieces of `gap_causes` that take time, with what a device waited for.

    Columns: device, start_ns, end_ns, bucket, cause, thread (whose doing it is, -1 for none), api
    (the call it stood in, -1), op (the operation waited for, -1), next_op (the one that ends the
    gap, -1).
    """
    real = np.flatnonzero((gap_causes["end_ns"] > gap_causes["start_ns"]).to_numpy())
    pieces: Columns = {
        name: gap_causes[name].to_numpy()[real]
        for name in ("device", "start_ns", "end_ns", "cause", "thread", "api")
    }
    pieces["bucket"] = np.full(len(real), IDLE, dtype=np.int8)
    pieces["next_op"] = gaps["op"].to_numpy()[gap_causes["gap"].to_numpy()[real]]
    pieces["op"] = _waited_for(pieces, ops)
    if api is not None:
        called = np.flatnonzero((pieces["api"] >= 0) & (pieces["thread"] < 0))
        pieces["thread"] = pieces["thread"].astype(np.int32)
        pieces["thread"][called] = api["thread"].to_numpy()[pieces["api"][called]]
    return pieces


def _waited_for(pieces: Columns, ops: pd.DataFrame) -> Codes:
    """The operation that each piece caused by an operation waited for, -1 for others.

    What ended just before the gap's end, on another device; else, for a collective, itself, which
    waits for its peers; else what ended last before the gap.
    """
    op = np.full(len(pieces["cause"]), -1, dtype=np.int32)
    cause, by_peers = pieces["cause"], CAUSE["communication"]
    mine = np.flatnonzero((cause == CAUSE["dependency"]) | (cause == by_peers))
    if not len(mine):
        return op
    low, high = pieces["start_ns"][mine], pieces["end_ns"][mine]
    order = np.argsort(ops["end_ns"].to_numpy(), kind="stable")
    ends = ops["end_ns"].to_numpy()[order]
    before, last = (
        np.maximum(np.searchsorted(ends, at, side="right") - 1, 0) for at in (low, high)
    )
    own = np.where(cause[mine] == by_peers, pieces["next_op"][mine], order[before])
    elsewhere = (ends[last] > low) & (high - ends[last] <= NEAR_NS)
    op[mine] = np.where(elsewhere, order[last], own)
    return op


def by_device(pieces: Columns) -> Columns:
    """Returns the pieces in order of device and start."""
    order = np.argsort(pieces["start_ns"], kind="stable")
    order = order[np.argsort(pieces["device"][order], kind="stable")]
    return taken(pieces, order)

