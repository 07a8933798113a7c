"""Large copies in one piece whose kernels could start on the first part."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, covered, spans, union
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.account.copies import PINNED
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.loop.loop_copies import require_kinds, same_keys
from nsysdoctor.trace.recipe import table

KEYS = ["device", "direction"]
_FRAMEWORKS = frozenset({"pytorch", "jax"})
"""Programs whose large copies at the start are weights: nothing can begin on a part of them."""


@table
def unsplit(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    staged_peers: np.ndarray,
    device_pieces: pd.DataFrame,
    window: pd.DataFrame,
    ecosystem: str,
    *,
    min_bytes: int,
    min_ratio: float,
    tiles: int,
) -> pd.DataFrame:
    """Returns the large copies of a program without steps during which its device computes
    nothing, for half of their time at least, and beside which kernels could run in parts.

    Columns as in `copies`, `beside_ns` (compute after a copy up until the next one, or before a
    copy down since the last one) and `left_ns`: what of the copy stays visible in `tiles` parts,
    the first (up) or last (down) of them and what the kernels of the others do not cover. Queued
    copies of pinned memory between kernels are left out, as another rule moves them whole.
    """
    require_kinds(copies)
    if str(window["basis"].iloc[0]) == "steady" or ecosystem in _FRAMEWORKS:
        return copies.iloc[:0].assign(beside_ns=0, left_ns=0)
    span = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    length = copies["end_ns"] - copies["start_ns"]
    host = copies["src_kind"].where(copies["direction"] == "HtoD", copies["dst_kind"])
    queued = (host == PINNED) & copies["async_call"] & loop_copies
    large = copies["direction"].isin(("HtoD", "DtoH")) & (copies["bytes"] >= min_bytes)
    mine = (length >= min_ratio * span) & (copies["exposed_ns"] * 2 >= length)
    mine &= ~queued & ~staged_peers
    found = copies[large].assign(beside_ns=0)
    for (device, direction), rows in found.groupby(KEYS, sort=True):
        beside = _beside(rows, device_pieces, int(device), up=direction == "HtoD")
        found.loc[rows.index, "beside_ns"] = beside
    found = found[mine[large]]
    took = found["end_ns"] - found["start_ns"]
    left = np.maximum(took / tiles, took - found["beside_ns"] * (1 - 1 / tiles))
    found = found.assign(left_ns=left.astype("int64"))
    return found[found["left_ns"] < took]


def _beside(rows: pd.DataFrame, device_pieces: pd.DataFrame, device: int, *, up: bool) -> Ints:
    """How long the device computes between each copy and the next (up) or the last (down) one."""
    pieces = device_pieces[device_pieces["bucket"] == BUCKETS.index("compute")]
    pieces = pieces[pieces["device"] == device]
    work = union(spans(pieces["start_ns"], pieces["end_ns"]))
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    if up:
        edge = int(work.end[-1]) if len(work.end) else int(end[-1])
        return covered(spans(end, np.maximum(np.append(start[1:], edge), end)), work)
    edge = int(work.start[0]) if len(work.start) else int(start[0])
    return covered(spans(np.minimum(np.append(edge, end[:-1]), start), start), work)


@table
def unsplit_copy(unsplit: pd.DataFrame, *, tiles: int) -> pd.DataFrame:
    """Returns a row per device and direction: subject, device, direction, count, bytes,
    rate_bytes_per_s, work_ns (of the copies), kernel_ns (that could run beside them), tile_count,
    basis."""
    rows = []
    for (device, direction), mine in unsplit.groupby(KEYS, sort=True):
        length = int((mine["end_ns"] - mine["start_ns"]).sum())
        rows.append(
            {
                "subject": f"{direction} on GPU {device}",
                "device": device,
                "direction": direction,
                "count": len(mine),
                "bytes": int(mine["bytes"].sum()),
                "rate_bytes_per_s": int(mine["bytes"].sum()) * 1e9 / max(length, 1),
                "work_ns": length,
                "kernel_ns": int(mine["beside_ns"].sum()),
                "tile_count": tiles,
                "basis": "inferred",
            }
        )
    return pd.DataFrame(rows)


def cure(unsplit_copy: pd.DataFrame, unsplit: pd.DataFrame) -> pd.DataFrame:
    """The copy in parts, each with its kernels at once: what no kernel covers stays; at worst
    half of the gain, as where kernels need more than their part."""
    took = (unsplit["end_ns"] - unsplit["start_ns"]).to_numpy()
    left = unsplit["left_ns"].to_numpy()
    return edits(
        Change.OP_NS, same_keys(unsplit, unsplit_copy, KEYS), unsplit["op"].to_numpy(), left,
        slow_ns=(left + took) // 2, fast_ns=left,
    )  # fmt: skip


def evidence(unsplit_copy: pd.DataFrame, unsplit: pd.DataFrame) -> pd.DataFrame:
    """Returns the copies: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": same_keys(unsplit, unsplit_copy, KEYS),
            "start_ns": unsplit["start_ns"].to_numpy(),
            "end_ns": unsplit["end_ns"].to_numpy(),
            "what": [f"{d} of {b:,} bytes in one piece" for d, b in
                     zip(unsplit["direction"], unsplit["bytes"], strict=True)],
        }
    )  # fmt: skip
