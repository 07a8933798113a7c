"""Copies asked to be asynchronous that cannot be."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.edits import Change, edits, join
from nsysdoctor.errors import MissingTableError
from nsysdoctor.recipe import table
from nsysdoctor.tables.steps import in_window
from nsysdoctor.tables.transfer import pinned_ns

CALL_NS = 5_000
"""What a call costs that only queues a copy."""


@table
def blocked(copies: pd.DataFrame, window: pd.DataFrame, *, min_bytes: int) -> pd.DataFrame:
    """Returns the copies of the window that block although their call is asynchronous."""
    if len(copies) and (copies["src_kind"] < 0).all():
        raise MissingTableError(
            "the export does not record the memory kinds of copies", "export with a newer nsys"
        )
    mine = copies["pageable"] & copies["async_call"] & (copies["bytes"] >= min_bytes)
    return copies[mine & in_window(copies["called_ns"].to_numpy(), window)]


@table
def pageable_copy(blocked: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device and direction: subject, device, direction, count, bytes,
    rate_bytes_per_s, blocked_ns."""
    rows = [
        {
            "subject": f"{direction} on GPU {device}",
            "device": device,
            "direction": direction,
            "count": len(mine),
            "bytes": int(mine["bytes"].sum()),
            "rate_bytes_per_s": float(mine["rate_bytes_per_s"].median()),
            "blocked_ns": int((mine["returned_ns"] - mine["called_ns"]).sum()),
        }
        for (device, direction), mine in blocked.groupby(["device", "direction"], sort=True)
    ]
    return pd.DataFrame(rows)


def cure(
    pageable_copy: pd.DataFrame, blocked: pd.DataFrame, pinned_rates: pd.DataFrame
) -> pd.DataFrame:
    """Pinned memory: calls only queue, copies run at the pinned rate; at best on a side stream,
    one step ahead."""
    return join(
        *(_row(int(row), subject, blocked, pinned_rates) for row, subject in _keys(pageable_copy))
    )


def _row(
    row: int, subject: tuple[int, str], blocked: pd.DataFrame, rates: pd.DataFrame
) -> pd.DataFrame:
    device, direction = subject
    mine = blocked[(blocked["device"] == device) & (blocked["direction"] == direction)]
    call, op = mine["api"].to_numpy(), mine["op"].to_numpy()
    return join(
        edits(Change.UNBLOCK, row, call, CALL_NS),
        edits(Change.LAUNCH_NS, row, op, CALL_NS),
        edits(
            Change.OP_NS, row, op, pinned_ns(mine, rates),
            slow_ns=pinned_ns(mine, rates, "slow_bytes_per_s"),
            fast_ns=pinned_ns(mine, rates, "fast_bytes_per_s"),
        ),
        edits(Change.FREE_OP, row, op, only_fast=True),
        edits(Change.RELEASE, row, op, only_fast=True),
    )  # fmt: skip


def _keys(rows: pd.DataFrame) -> list[tuple[int, tuple[int, str]]]:
    return list(enumerate(zip(rows["device"], rows["direction"], strict=True)))


def evidence(pageable_copy: pd.DataFrame, blocked: pd.DataFrame) -> pd.DataFrame:
    """Returns the calls that blocked: row, start_ns, end_ns, what."""
    row = {key: row for row, key in _keys(pageable_copy)}
    keys = zip(blocked["device"], blocked["direction"], strict=True)
    return pd.DataFrame(
        {
            "row": [row[key] for key in keys],
            "start_ns": blocked["called_ns"].to_numpy(),
            "end_ns": blocked["returned_ns"].to_numpy(),
            "what": [f"{d} of {b:,} bytes" for d, b in
                     zip(blocked["direction"], blocked["bytes"], strict=True)],
        }
    )  # fmt: skip
