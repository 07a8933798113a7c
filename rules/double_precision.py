"""Kernels in FP64 on GPUs that have few units for it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.errors import MissingTableError
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.roofline.peaks import DevicePeaks
from nsysdoctor.roofline.taxonomy import COMPUTE_HEAVY
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

_USUAL, _LEAST = 0.6, 0.25
"""Shares of the ratio of peaks that products gain in FP32: at the lower rate they are nearer to
their peak than at the higher one, where memory comes in."""

_BYTES_GAIN = 2.0
"""What any other kernel that fills the device gains by half the bytes; more only where its
operations bind it. One that waits for latency may gain nothing."""

_ARRAYS = r"double(?: const)? ?\*|<(?:[^()]*[ ,<])?double\b"
"""Arrays and templates of doubles; a mere argument of that type makes no FP64 kernel."""

_LIBRARY = frozenset({"sparse", "sort_scan", "solver", "rng", "fft"})
"""Families whose time goes by latency or by what the library chose, not by the type alone."""

_BLOCKS_PER_SM = 2

_FLOOR_NS = 2_000


@table
def ratios(
    devices: pd.DataFrame, peaks: dict[int, DevicePeaks], *, least_times: float
) -> pd.Series[float]:
    """Returns by device how many times as fast FP32 is as FP64, where that is at least
    `least_times`."""
    if not (devices["compute_major"] > 0).any():
        raise MissingTableError(
            "the export does not tell the compute capability of its GPUs",
            "export with a newer nsys",
        )
    found = {}
    for device in devices["device"].tolist():
        double = peaks[device].flops_per_s("fp64", "unknown")
        single = peaks[device].flops_per_s("fp32", "simt")
        if double and single and single >= least_times * double:
            found[device] = single / double
    return pd.Series(found, dtype="float64")


@table
def doubles(
    kernels: Kernels,
    names: pd.DataFrame,
    devices: pd.DataFrame,
    ratios: pd.Series[float],
    kernels_inside: np.ndarray,
    inside_ns: pd.Series[int],
) -> pd.DataFrame:
    """Returns the FP64 kernels of the window on such GPUs.

    Columns: op, device, name, start_ns, end_ns, duration_ns, times (FP32 over FP64 of the card),
    heavy (bool: a product, which the operations bind), wide (bool: fills the device), whole_ns
    (of all kernels).
    """
    kinds = kernels.configurations
    heavy = kinds["category"].isin(COMPUTE_HEAVY)
    arrays = names["full"].str.contains(_ARRAYS, regex=True).to_numpy(dtype=bool)
    double = (kinds["dtype"] == "fp64") & (heavy | arrays[kinds["name"].to_numpy()])
    count = kinds["device"].map(devices.set_index("device")["sm_count"]).fillna(0)
    wide = (kinds["blocks"] >= _BLOCKS_PER_SM * count) & ~kinds["category"].isin(_LIBRARY)
    mine = kernels.at(kernels.spread(double) & kernels_inside)
    found = mine.frame("op", "device", "name", "start_ns", "end_ns", "duration_ns")
    places = mine["configuration"]
    found["heavy"] = heavy.to_numpy()[places]
    found["wide"] = wide.to_numpy()[places]
    found["times"] = found["device"].map(ratios)
    return found[found["times"].notna()].assign(whole_ns=lambda rows: rows["device"].map(inside_ns))


@table
def double_precision(doubles: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio (of all kernel time),
    times (words: FP32 over FP64 of the card), kernel, basis."""
    rows = []
    for device, mine in doubles.groupby("device", sort=True):
        by_name = mine.groupby("name", sort=True)["duration_ns"].sum()
        work = int(mine["duration_ns"].sum())
        rows.append(
            {
                "subject": f"FP64 kernels on GPU {device}",
                "device": device,
                "count": len(mine),
                "work_ns": work,
                "share_ratio": min(work / max(int(mine["whole_ns"].iloc[0]), 1), 1.0),
                "times": f"1/{round(mine['times'].iloc[0])}",
                "kernel": " ".join(str(names["short"].iloc[int(by_name.idxmax())]).split())[:80],
                "basis": "inferred",
            }
        )
    return pd.DataFrame(rows)


def cure(double_precision: pd.DataFrame, doubles: pd.DataFrame) -> pd.DataFrame:
    """The same kernels in FP32: products gain by the card's ratio, others that fill the device by
    half the bytes, and at most by the ratio."""
    length, times = (doubles[c].to_numpy(dtype=np.float64) for c in ("duration_ns", "times"))
    heavy = doubles["heavy"].to_numpy()
    floor = np.minimum(length, _FLOOR_NS)
    bytes_gain = np.where(doubles["wide"], _BYTES_GAIN, 1.0)

    def at(products: np.ndarray, others: np.ndarray) -> np.ndarray:
        return np.maximum(length / np.where(heavy, products, others), floor)

    return edits(
        Change.OP_NS, np.unique(doubles["device"], return_inverse=True)[1], doubles["op"],
        at(_USUAL * times, bytes_gain),
        slow_ns=at(_LEAST * times, np.ones_like(times)), fast_ns=at(times, times),
    )  # fmt: skip


def evidence(
    double_precision: pd.DataFrame, doubles: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """Returns the kernels: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": np.unique(doubles["device"], return_inverse=True)[1],
            "start_ns": doubles["start_ns"].to_numpy(),
            "end_ns": doubles["end_ns"].to_numpy(),
            "what": labels(names["short"], doubles["name"].to_numpy()),
        }
    )
