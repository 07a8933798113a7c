"""The kernels of a trace, summed by name and device, for tables and charts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.report.model import KernelRow
from nsysdoctor.roofline.bound import BASES, BOUNDS
from nsysdoctor.roofline.peaks import DevicePeaks
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.trace import Trace

LIMIT = 200
_UNKNOWN = 50
"""Kernels that the taxonomy does not know are listed as well, the longest ones of them."""


def kernel_summary(trace: Trace, index: int) -> list[KernelRow]:
    """Returns the kernels that took most time, at most 200 per trace, by time, device and name;
    unclassified ones below those as well, at most 50.

    They are those of the devices and the time that the budgets cover; of a kernel that reaches
    over an edge only the time inside counts, so that the sums are the budgets' kernel work.
    """
    kernels = trace.optional("kernels")
    if kernels is None or not len(kernels):
        return []
    kernels, inside_ns = _inside(kernels, trace.table("horizon"))
    if not len(kernels):
        return []
    names, peaks = trace.table("names"), trace.table("peaks")
    sums = _sums(kernels, inside_ns)
    known = (names["category"] != "other").to_numpy()[sums["name"].to_numpy()]
    below = sums.index[LIMIT:][~known[LIMIT:]][:_UNKNOWN]
    chosen = sums.loc[[*sums.index[:LIMIT], *below]]
    return [_row(row, names, peaks, index) for row in chosen.to_dict("records")]


def _inside(kernels: Kernels, horizon: pd.DataFrame) -> tuple[Kernels, Ints]:
    """The kernels that run in the horizon of their device, and how long each does."""
    known = horizon["device"].to_numpy()
    place = np.searchsorted(known, kernels.configurations["device"].to_numpy())
    place = np.minimum(place, len(known) - 1)
    row = kernels.spread(place.astype(np.int32))
    mine = kernels.spread(known[place] == kernels.configurations["device"].to_numpy())
    start, end, took = (kernels[name] for name in ("start_ns", "end_ns", "duration_ns"))
    low, high = (horizon[name].to_numpy()[row] for name in ("start_ns", "end_ns"))
    inside = np.minimum(end, high) - np.maximum(start, low)
    mine &= (inside > 0) | ((inside == 0) & (took == 0))
    return (kernels, inside) if mine.all() else (kernels.at(mine), inside[mine])


def _sums(kernels: Kernels, inside_ns: Ints) -> pd.DataFrame:
    """Per device and name, longest first: size, sum, median, share, rate and what binds most."""
    key = ["device", "name"]
    grouped = kernels.configurations.groupby(key, sort=True)
    sums = pd.DataFrame(grouped.size().index.to_frame(index=False))
    group = kernels.spread(grouped.ngroup().astype(np.int32))
    took = kernels["duration_ns"]
    sums["size"] = np.bincount(group, minlength=len(sums))
    sums["sum"] = np.bincount(group, inside_ns, len(sums)).astype(np.int64)
    sums["median"] = pd.Series(took).groupby(group).median()
    known = ~np.isnan(kernels["bytes"])
    moved = pd.Series(kernels["bytes"][known]).groupby(group[known]).sum()
    time = np.bincount(group[known], took[known], len(sums))
    sums["rate"] = moved / np.where(time > 0, time, np.nan)[moved.index] * 1e9
    sums = sums.join(_verdict(group, kernels))
    sums = sums[sums["size"] > 0]
    sums["share"] = sums["sum"] / np.maximum(sums.groupby("device")["sum"].transform("sum"), 1)
    return sums.sort_values(
        ["sum", "device", "name"], ascending=[False, True, True], ignore_index=True
    )


def _verdict(group: npt.NDArray[np.int32], kernels: Kernels) -> pd.DataFrame:
    """What binds the launches of each name for most of their time, and how that is known."""
    kinds = len(BOUNDS) * len(BASES)
    place = group.astype(np.int64) * kinds + kernels["bound"] * len(BASES) + kernels["basis"]
    spent = np.bincount(place, kernels["duration_ns"], (int(group.max()) + 1) * kinds)
    # Of equals the last; what took no time at all still counts above what did not occur.
    occurs = np.bincount(place, minlength=len(spent)) > 0
    by_kind = np.where(occurs, spent, -1.0).reshape(-1, kinds)
    most = kinds - 1 - by_kind[:, ::-1].argmax(axis=1)
    bound, basis = np.divmod(most, len(BASES))
    return pd.DataFrame({"bound": np.array(BOUNDS)[bound], "basis": np.array(BASES)[basis]})


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
