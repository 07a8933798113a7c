"""Memory-bound kernels that move FP32 where two bytes per value would do."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.roofline.bound import BOUNDS
from nsysdoctor.roofline.taxonomy import MEMORY_BOUND
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

_LEFT_OUT = frozenset({"optimizer", "layout", "memory"})
"""Optimizer state wants FP32; layout changes and fills go away rather than get smaller."""
_CAST = r"bfloat16_copy|float16_copy|LoadWithCast|StoreWithCast"
_SLOW, _FAST = 0.6, 0.45
"""Statistics and parameters stay FP32, so a little more than half the bytes may remain; of what is
half as large more fits into the cache."""


@table
def moving(
    kernels: Kernels,
    names: pd.DataFrame,
    attention_kernels: pd.DataFrame,
    optimizer_steps: pd.DataFrame,
    chain_kernels: pd.DataFrame,
    kernels_inside: np.ndarray,
    inside_ns: pd.Series[int],
    *,
    min_share_ratio: float,
) -> pd.DataFrame:
    """Returns the memory-bound FP32 kernels of the window that no fusion would remove."""
    cast = names["full"].str.contains(_CAST, regex=True).to_numpy(dtype=bool)
    kinds = kernels.configurations
    wanted = kinds["category"].isin(MEMORY_BOUND - _LEFT_OUT) & (kinds["dtype"] == "fp32")
    wanted &= ~kinds["fused"] & ~cast[kinds["name"]]
    mine = kernels.spread(wanted) & kernels_inside & (kernels["bound"] == BOUNDS.index("memory"))
    for taken in (attention_kernels, optimizer_steps, chain_kernels):
        mine[taken["kernel"].to_numpy()] = False
    found = kernels.at(mine).frame(
        "op", "device", "name", "start_ns", "end_ns", "duration_ns", "bytes"
    )
    total = found.groupby("device")["duration_ns"].transform("sum")
    share = total / found["device"].map(inside_ns)
    found = found.assign(share_ratio=share)
    return found[(share >= min_share_ratio).to_numpy()]


@table
def fp32_memory_traffic(moving: pd.DataFrame, operations: np.ndarray) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, bytes,
    rate_bytes_per_s, kinds, basis."""
    return pd.DataFrame(
        [_row(mine, operations) for _, mine in moving.groupby("device", sort=True)]
    )


def _row(mine: pd.DataFrame, operations: np.ndarray) -> dict[str, object]:
    device, work = int(mine["device"].iloc[0]), int(mine["duration_ns"].sum())
    known = mine[mine["bytes"].notna()]
    known_ns = int(known["duration_ns"].sum())
    times = mine["duration_ns"].groupby(operations[mine["name"].to_numpy()]).sum()
    kinds = [str(word) for _, word in sorted((-ns, word) for word, ns in times.items())]
    return {
        "subject": f"FP32 kernels on GPU {device}",
        "device": device,
        "count": len(mine),
        "work_ns": work,
        "share_ratio": float(mine["share_ratio"].iloc[0]),
        "bytes": int(known["bytes"].sum()) if known_ns else None,
        "rate_bytes_per_s": float(known["bytes"].sum()) / known_ns * 1e9 if known_ns else None,
        "kinds": ", ".join(kinds[:4]),
        "basis": "geometry" if known_ns >= 0.5 * work else "inferred",
    }


def cure(fp32_memory_traffic: pd.DataFrame, moving: pd.DataFrame) -> pd.DataFrame:
    """Half the bytes take half the time."""
    subject = np.unique(moving["device"], return_inverse=True)[1]
    length = moving["duration_ns"].to_numpy()
    return edits(
        Change.OP_NS, subject, moving["op"], length // 2,
        slow_ns=length * _SLOW, fast_ns=length * _FAST,
    )  # fmt: skip


def evidence(
    fp32_memory_traffic: pd.DataFrame, moving: pd.DataFrame, operations: np.ndarray
) -> pd.DataFrame:
    """Returns the kernels: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": np.unique(moving["device"], return_inverse=True)[1],
            "start_ns": moving["start_ns"].to_numpy(),
            "end_ns": moving["end_ns"].to_numpy(),
            "what": labels([f"{word} in FP32" for word in operations], moving["name"].to_numpy()),
        }
    )
