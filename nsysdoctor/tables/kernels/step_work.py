"""What a step consists of, by name: kernels, copies, sets, graph replays and CUDA calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.tables.activity.gpu_rows import COPY, GRAPH, KERNEL, SET
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

KINDS = {KERNEL: "kernel", COPY: "copy", SET: "set", GRAPH: "graph"}
CALL = "call"
MOST = 150
"""Of each kind and device so many names are told; the rest is one row without a name."""

_COLUMNS = ("device", "kind", "name", "count", "ns", "size")


@table
def step_work(
    ops: pd.DataFrame,
    names: pd.DataFrame,
    device_steps: pd.DataFrame,
    horizon: pd.DataFrame,
    steps: pd.DataFrame,
    kernels: Kernels | None = None,
    api: pd.DataFrame | None = None,
    api_names: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns one row per device, kind and name, longest first; calls have the device -1.

    Columns: device, kind (kernel, copy, set, graph, call), name ("" sums up what is not told by
    name), count and ns per steady step (of the whole window where no steady step is known), size
    (of kernels the mean blocks of a launch, of copies and sets the mean bytes, else NaN). What
    begins in a step counts to it whole; calls inside other calls do not count.
    """
    size = ops["bytes"].to_numpy().astype(np.float64)
    if kernels is not None:
        size[kernels["op"]] = kernels["blocks"]
    parts = [
        _named(
            pd.DataFrame(
                {
                    "kind": ops["kind"].to_numpy()[rows],
                    "code": ops["name"].to_numpy()[rows],
                    "ns": (ops["end_ns"].to_numpy() - ops["start_ns"].to_numpy())[rows],
                    "size": size[rows],
                }
            ),
            names["full"],
            count,
        ).assign(device=device)
        for device, rows, count in _of_devices(ops, device_steps, horizon)
    ]
    if api is not None and api_names is not None:
        parts.append(_calls(api, api_names, steps))
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(_COLUMNS))
    return found[list(_COLUMNS)]


def _of_devices(
    ops: pd.DataFrame, device_steps: pd.DataFrame, horizon: pd.DataFrame
) -> Iterator[tuple[int, Ints, int]]:
    """Each device with the operations that begin in its steady steps, and how many those are."""
    on, start = ops["device"].to_numpy(), ops["start_ns"].to_numpy()
    for row in horizon.itertuples(index=False):
        mine = device_steps[
            (device_steps["device"] == row.device) & (device_steps["phase"] == "steady")
        ]
        here = on == row.device
        if len(mine):
            low, high = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
            here &= _within(start, low, high)
        else:
            here &= (start >= row.start_ns) & (start < row.end_ns)
        yield int(row.device), np.flatnonzero(here), max(len(mine), 1)


def _within(times: Ints, low: Ints, high: Ints) -> np.ndarray:
    """Whether each time lies in one of the steps, which follow one another."""
    place = np.searchsorted(low, times, side="right") - 1
    return np.asarray((place >= 0) & (times < high[np.maximum(place, 0)]))


def _named(rows: pd.DataFrame, texts: pd.Series[str], steps: int) -> pd.DataFrame:
    """Sums by kind and name, per step; the longest by name and the rest as one row a kind."""
    grouped = rows.groupby(["kind", "code"], sort=True)
    sums = grouped.agg(count=("ns", "size"), ns=("ns", "sum"), size=("size", "sum")).reset_index()
    sums = sums.sort_values(["kind", "ns", "code"], ascending=[True, False, True])
    place = sums.groupby("kind").cumcount()
    sums["name"] = np.where(place < MOST, texts.to_numpy()[sums["code"].to_numpy()], "")
    told = sums.groupby(["kind", "name"], sort=False, as_index=False)[["count", "ns", "size"]].sum()
    told["size"] = told["size"] / np.maximum(told["count"], 1)
    told.loc[told["kind"] == GRAPH, "size"] = np.nan
    told[["count", "ns"]] = told[["count", "ns"]] / steps
    return told.assign(kind=told["kind"].map(KINDS))


def _calls(api: pd.DataFrame, api_names: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    kept = steps[steps["phase"] == "steady"]
    here = api["top"].to_numpy(dtype=bool).copy()
    if len(kept):
        low, high = kept["start_ns"].to_numpy(), kept["end_ns"].to_numpy()
        here &= _within(api["start_ns"].to_numpy(), low, high)
    rows = np.flatnonzero(here)
    length = api["end_ns"].to_numpy()[rows] - api["start_ns"].to_numpy()[rows]
    frame = pd.DataFrame({"kind": 0, "code": api["name"].to_numpy()[rows], "ns": length})
    found = _named(frame.assign(size=np.nan), api_names["name"], max(len(kept), 1))
    return found.assign(kind=CALL, device=-1, size=np.nan)
