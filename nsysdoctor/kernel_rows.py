"""The kernels of a trace, summed by name and device, for tables and charts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.report import KernelRow
from nsysdoctor.trace import Trace

LIMIT = 200


def kernel_summary(trace: Trace, index: int) -> list[KernelRow]:
    """Returns the kernels that took most time, at most 200 per trace, by device and name."""
    ops, names = trace.table("ops"), trace.table("names")
    mine = ops[ops["kind"] == 0]
    if not len(mine):
        return []
    length = (mine["end_ns"] - mine["start_ns"]).rename("ns")
    frame = pd.DataFrame({"device": mine["device"], "name": mine["name"], "ns": length})
    grouped = frame.groupby(["device", "name"], sort=True)["ns"]
    sums = grouped.agg(["size", "sum", "median"]).reset_index()
    sums["share"] = sums["sum"] / np.maximum(sums.groupby("device")["sum"].transform("sum"), 1)
    sums = sums.sort_values(["sum", "device", "name"], ascending=[False, True, True])
    return [_row(row, names, index) for row in sums.head(LIMIT).to_dict("records")]


def _row(row: dict[str, float], names: pd.DataFrame, index: int) -> KernelRow:
    named = names.iloc[int(row["name"])]
    return KernelRow(
        trace=index,
        device=int(row["device"]),
        name=str(named["full"]),
        short=str(named["short"]),
        category=str(named["category"]),
        dtype=str(named["dtype"]),
        library=str(named["library"]),
        bound="unknown",
        basis="inferred",
        count=int(row["size"]),
        total_ns=int(row["sum"]),
        median_ns=int(row["median"]),
        share_ratio=float(row["share"]),
        rate_bytes_per_s=None,
        peak_ratio=None,
    )
