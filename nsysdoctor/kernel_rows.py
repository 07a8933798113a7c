"""The kernels of a trace, summed by name and device, for tables and charts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.peaks import DevicePeaks
from nsysdoctor.report import KernelRow
from nsysdoctor.trace import Trace

LIMIT = 200
_UNKNOWN = 50
"""Kernels that the taxonomy does not know are listed as well, the longest ones of them."""


def kernel_summary(trace: Trace, index: int) -> list[KernelRow]:
    """Returns the kernels that took most time, at most 200 per trace, by time, device and name;
    unclassified ones below those as well, at most 50."""
    kernels = trace.optional("kernels")
    if kernels is None or not len(kernels):
        return []
    names, peaks = trace.table("names"), trace.table("peaks")
    sums = _sums(kernels)
    known = (names["category"] != "other").to_numpy()[sums["name"].to_numpy()]
    below = sums.index[LIMIT:][~known[LIMIT:]][:_UNKNOWN]
    chosen = sums.loc[[*sums.index[:LIMIT], *below]]
    return [_row(row, names, peaks, index) for row in chosen.to_dict("records")]


def _sums(kernels: pd.DataFrame) -> pd.DataFrame:
    """Per device and name, longest first: size, sum, median, share, rate and what binds most."""
    key = ["device", "name"]
    grouped = kernels.groupby(key, sort=True)["duration_ns"]
    sums = grouped.agg(["size", "sum", "median"])
    told = kernels[kernels["bytes"].notna()].groupby(key, sort=True)
    moved = told[["bytes", "duration_ns"]].sum()
    time = moved["duration_ns"].where(moved["duration_ns"] > 0)
    sums["rate"] = moved["bytes"] / time * 1e9
    sums = sums.join(_verdict(kernels)).reset_index()
    sums["share"] = sums["sum"] / np.maximum(sums.groupby("device")["sum"].transform("sum"), 1)
    return sums.sort_values(
        ["sum", "device", "name"], ascending=[False, True, True], ignore_index=True
    )


def _verdict(kernels: pd.DataFrame) -> pd.DataFrame:
    """What binds the launches of each name for most of their time, and how that is known."""
    key = ["device", "name"]
    asked = kernels[[*key, "duration_ns"]].assign(
        bound=kernels["bound"].cat.codes, basis=kernels["basis"].cat.codes
    )
    by = asked.groupby([*key, "bound", "basis"], sort=True)["duration_ns"].sum().reset_index()
    by = by.sort_values([*key, "duration_ns", "bound", "basis"], ascending=[True] * 2 + [False] * 3)
    first = by.drop_duplicates(key).set_index(key)
    for column in ("bound", "basis"):
        first[column] = kernels[column].cat.categories.to_numpy()[first[column].to_numpy()]
    return first[["bound", "basis"]]


def _row(
    row: dict[str, float], names: pd.DataFrame, peaks: dict[int, DevicePeaks], index: int
) -> KernelRow:
    named = names.iloc[int(row["name"])]
    device = int(row["device"])
    rate = None if np.isnan(row["rate"]) else float(row["rate"])
    peak = peaks[device].memory_bytes_per_s if device in peaks else None
    return KernelRow(
        trace=index,
        device=device,
        name=str(named["full"]),
        short=str(named["short"]),
        category=str(named["category"]),
        dtype=str(named["dtype"]),
        library=str(named["library"]),
        bound=str(row["bound"]),
        basis=str(row["basis"]) or "inferred",
        count=int(row["size"]),
        total_ns=int(row["sum"]),
        median_ns=int(row["median"]),
        share_ratio=float(row["share"]),
        rate_bytes_per_s=rate,
        peak_ratio=min(rate / peak, 1.0) if rate is not None and peak else None,
    )
