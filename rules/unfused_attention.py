"""Attention that writes its matrix of scores to memory between several kernels."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.fused_kernels import fuse
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.tables.steps.steps import work_in_window
from nsysdoctor.trace.recipe import table

_PRODUCTS = {
    True: "products in FP32 on ordinary units (sgemm), as the maths fallback of "
    "scaled_dot_product_attention runs them: look for an explicit mask or FP32 inputs",
    False: "products on tensor cores",
}


@table
def in_loop(
    attention_kernels: pd.DataFrame, kernels: Kernels, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns the kernels of attention in the window, with their times and `row` in the
    findings."""
    mine = kernels.at(attention_kernels["kernel"].to_numpy())
    whole = attention_kernels.assign(
        duration_ns=mine["duration_ns"], called_ns=mine["called_ns"], start_ns=mine["start_ns"],
        end_ns=mine["end_ns"], written=np.nan_to_num(mine["written_bytes"]),
    )  # fmt: skip
    first = whole.groupby("unit")[["start_ns", "called_ns"]].transform("min")
    inside = work_in_window(*(first[name].to_numpy() for name in first), window)
    found = whole[inside].reset_index(drop=True)
    found["row"] = found.groupby("device", sort=True).ngroup()
    return found


@table
def unfused_attention(in_loop: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, forward_count, backward_count,
    kernel_count, work_ns, product_ns, between_ns, bytes, products, basis."""
    return pd.DataFrame([_row(mine) for _, mine in in_loop.groupby("row", sort=True)])


def _row(mine: pd.DataFrame) -> dict[str, object]:
    units = mine.drop_duplicates("unit")
    between = mine[~mine["product"]]
    backward = int(units["backward"].sum())
    simt = bool((units["simt"] * units["work_ns"]).sum() > 0.5 * units["work_ns"].sum())
    return {
        "subject": f"attention on GPU {int(mine['device'].iloc[0])}",
        "device": int(mine["device"].iloc[0]),
        "count": len(units),
        "forward_count": len(units) - backward,
        "backward_count": backward,
        "kernel_count": len(mine),
        "work_ns": int(mine["duration_ns"].sum()),
        "between_ns": int(between["duration_ns"].sum()),
        "written_bytes": int(between["written"].sum()),
        "products": _PRODUCTS[simt],
        "basis": "inferred",
    }


def cure(
    unfused_attention: pd.DataFrame, in_loop: pd.DataFrame, kernels: Kernels
) -> list[pd.DataFrame]:
    """One fused kernel per attention, about as long as the products alone."""
    times = in_loop.drop_duplicates("unit").set_index("unit")
    return fuse(
        kernels.at(in_loop["kernel"].to_numpy()), in_loop["row"].to_numpy(),
        in_loop["unit"].to_numpy(), times,
    )  # fmt: skip


def evidence(unfused_attention: pd.DataFrame, in_loop: pd.DataFrame) -> pd.DataFrame:
    """Returns the attention kernels: row, start_ns, end_ns, what."""
    units = in_loop.groupby("unit", sort=True)
    found = units.agg(row=("row", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    direction = units["backward"].first().to_numpy()
    sizes = units.size().to_numpy()
    found["what"] = [
        f"{'gradient of an attention' if back else 'attention'} in {size} kernels"
        for back, size in zip(direction.tolist(), sizes.tolist(), strict=True)
    ]
    return found.reset_index(drop=True)
