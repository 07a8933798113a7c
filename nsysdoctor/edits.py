"""Edits: what a cure changes in a trace, as rows that the replay applies.

A cure returns a frame made by `edits` and joined with `pd.concat`: one row per change, labelled
with the row of the measured table (the subject) that it cures.
"""

from __future__ import annotations

from enum import IntEnum, unique

import numpy as np
import numpy.typing as npt
import pandas as pd


@unique
class Change(IntEnum):
    """What an edit does; `row` counts in `api` for calls and in `ops` for operations."""

    CALL_NS = 0
    """The call itself costs `ns`, waiting for operations apart."""
    UNBLOCK = 1
    """The call waits for no operation any more and costs `ns`."""
    OUTSIDE_NS = 2
    """The thread spends `ns` outside CUDA before the call."""
    OP_NS = 3
    """The operation runs for `ns`."""
    FREE_OP = 4
    """The operation waits for its launch only, not for other operations."""
    RELEASE = 5
    """No operation waits for this one any more; its stream goes on without it."""
    LAUNCH_NS = 6
    """The operation starts `ns` after the start of its launching call, its turn permitting."""
    STREAM_NS = 7
    """The operation starts `ns` after the one before it on its stream, its launch permitting."""
    FREE_ENGINE = 8
    """The copy waits for no other copy of its direction; the next one waits for those before."""
    UNSEEN = 9
    """The operation waits for nothing that it is merely seen to wait for: launch, stream, copy
    engine, device and recorded events still count."""


COLUMNS = ("subject", "change", "row", "ns", "slow_ns", "fast_ns", "only_fast")

Values = npt.ArrayLike


def edits(
    change: Change,
    subject: Values,
    row: Values,
    ns: Values = 0,
    *,
    slow_ns: Values | None = None,
    fast_ns: Values | None = None,
    only_fast: bool = False,
) -> pd.DataFrame:
    """Returns one edit per row, columns subject, change, row, ns, slow_ns, fast_ns, only_fast.

    `ns` is the expected value; `slow_ns` and `fast_ns` bound it where it is uncertain and give
    the low and the high saving. `only_fast` edits count for the high saving alone.
    """
    rows = np.asarray(row, dtype=np.int64)
    size = len(rows)

    def whole(values: Values) -> npt.NDArray[np.int64]:
        return np.broadcast_to(np.asarray(values), (size,)).astype(np.int64)

    middle = whole(ns)
    return pd.DataFrame(
        {
            "subject": whole(subject),
            "change": np.full(size, int(change), dtype=np.int8),
            "row": rows,
            "ns": middle,
            "slow_ns": middle if slow_ns is None else whole(slow_ns),
            "fast_ns": middle if fast_ns is None else whole(fast_ns),
            "only_fast": np.full(size, only_fast),
        }
    )


def join(*parts: pd.DataFrame) -> pd.DataFrame:
    """Returns the edits of all parts in one frame, an empty one for no parts."""
    return pd.concat(parts, ignore_index=True) if parts else edits(Change.CALL_NS, 0, [])
