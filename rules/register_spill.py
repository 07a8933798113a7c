"""Kernels whose threads keep values in local memory, which is memory of the device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table


@table
def spilling(
    kernels: Kernels,
    kernels_inside: np.ndarray,
    inside_ns: pd.Series[int],
    *,
    min_bytes: int,
    min_registers: int,
    min_share_ratio: float,
) -> pd.DataFrame:
    """Returns the kernels of the window with much local memory and no registers left."""
    kinds = kernels.configurations
    wanted = (kinds["local_bytes_per_thread"] >= min_bytes) & (kinds["registers"] >= min_registers)
    mine = kernels.at(kernels.spread(wanted) & kernels_inside)
    found = mine.frame(
        "device", "name", "start_ns", "end_ns", "duration_ns", "local_bytes_per_thread",
        "registers",
    )  # fmt: skip
    total = found.groupby("device")["duration_ns"].transform("sum")
    share = total / found["device"].map(inside_ns)
    return found.assign(share_ratio=share)[(share >= min_share_ratio).to_numpy()]


@table
def register_spill(spilling: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, kernel,
    local_bytes, register_count, level."""
    return pd.DataFrame([_row(mine, names) for _, mine in spilling.groupby("device", sort=True)])


def _row(mine: pd.DataFrame, names: pd.DataFrame) -> dict[str, object]:
    device = int(mine["device"].iloc[0])
    by_name = mine.groupby("name", sort=True)["duration_ns"].sum()
    longest = mine[mine["name"] == by_name.idxmax()]
    return {
        "subject": f"local memory on GPU {device}",
        "device": device,
        "count": len(mine),
        "work_ns": int(mine["duration_ns"].sum()),
        "share_ratio": float(mine["share_ratio"].iloc[0]),
        "kernel": " ".join(str(names["short"].iloc[int(by_name.idxmax())]).split())[:80],
        "local_bytes": int(longest["local_bytes_per_thread"].max()),
        "register_count": int(longest["registers"].max()),
        "basis": "inferred",
        "level": "info",
    }


def evidence(
    register_spill: pd.DataFrame, spilling: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """Returns the launches: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": np.unique(spilling["device"], return_inverse=True)[1],
            "start_ns": spilling["start_ns"].to_numpy(),
            "end_ns": spilling["end_ns"].to_numpy(),
            "what": labels(names["short"], spilling["name"].to_numpy()),
        }
    )
