"""Copies from and to pinned memory that compute waits for all the same."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.account.copies import PINNED
from nsysdoctor.tables.loop.loop_copies import require_kinds, same_keys
from nsysdoctor.tables.steps.steps import window_span_ns
from nsysdoctor.trace.recipe import table

KEYS = ["device", "direction"]


@table
def serial(
    copies: pd.DataFrame, loop_copies: np.ndarray, staged_peers: np.ndarray
) -> pd.DataFrame:
    """Returns the asynchronous copies of the steps between pinned memory and a device during
    which the device computes nothing, for a part of their time at least; pieces of copies
    between devices apart."""
    require_kinds(copies)
    up = (copies["direction"] == "HtoD") & (copies["src_kind"] == PINNED)
    down = (copies["direction"] == "DtoH") & (copies["dst_kind"] == PINNED)
    queued = copies["async_call"] | (copies["api"] < 0)
    mine = (up | down) & queued & (copies["exposed_ns"] > 0)
    return copies[mine.to_numpy() & loop_copies & ~staged_peers]


@table
def serial_copy(
    serial: pd.DataFrame, window: pd.DataFrame, *, min_ratio: float, min_bytes: int
) -> pd.DataFrame:
    """Returns a row per device and direction: subject, device, direction, count, bytes,
    rate_bytes_per_s, exposed_ns, exposed_ratio (of the window).

    Only where copies of at least `min_bytes` are exposed for at least `min_ratio` of the window:
    what costs set-up and not time is cured by fewer copies.
    """
    span = window_span_ns(window)
    rows = []
    for (device, direction), mine in serial.groupby(KEYS, sort=True):
        if mine.loc[mine["bytes"] >= min_bytes, "exposed_ns"].sum() < min_ratio * span:
            continue
        exposed = int(mine["exposed_ns"].sum())
        length = int((mine["end_ns"] - mine["start_ns"]).sum())
        rows.append(
            {
                "subject": f"{direction} on GPU {device}",
                "device": device,
                "direction": direction,
                "count": len(mine),
                "bytes": int(mine["bytes"].sum()),
                "rate_bytes_per_s": int(mine["bytes"].sum()) * 1e9 / max(length, 1),
                "exposed_ns": exposed,
                "exposed_ratio": min(exposed / max(span, 1), 1.0),
            }
        )
    return pd.DataFrame(rows)


def cure(serial_copy: pd.DataFrame, serial: pd.DataFrame) -> list[pd.DataFrame]:
    """A stream of their own: uploads run one step ahead, so that nothing waits for them and they
    for nothing but the copy engine; downloads wait for their source, but nothing for them."""
    row = same_keys(serial, serial_copy, KEYS)
    serial, row = serial[row >= 0], row[row >= 0]
    op = serial["op"].to_numpy()
    up = (serial["direction"] == "HtoD").to_numpy()
    return join(
        edits(Change.FREE_OP, row[up], op[up]),
        edits(Change.RELEASE, row, op),
    )


def evidence(serial_copy: pd.DataFrame, serial: pd.DataFrame) -> pd.DataFrame:
    """Returns the copies: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": same_keys(serial, serial_copy, KEYS),
            "start_ns": serial["start_ns"].to_numpy(),
            "end_ns": serial["end_ns"].to_numpy(),
            "what": [f"{d} of {b:,} bytes, nothing computes" for d, b in
                     zip(serial["direction"], serial["bytes"], strict=True)],
        }
    )  # fmt: skip
