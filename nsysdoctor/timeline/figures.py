"""The numbers behind the charts that a report does not hold: steps, copies, latencies, roofline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.roofline.bound import BOUNDS
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.timeline.payload import CopyPoint, Figures, Roof, RoofPoint, StepMark
from nsysdoctor.timeline.rows import Tables, ints, optional
from nsysdoctor.trace.window import holds

MOST_STEPS = 5000
MOST_COPIES = 1500
MOST_KERNELS = 300

ITEM_BYTES = {
    "fp64": 8, "int64": 8, "fp32": 4, "tf32": 4, "int32": 4, "fp16": 2, "bf16": 2, "int16": 2,
    "fp8": 1, "int8": 1,
}  # fmt: skip


def figures(
    tables: Tables, origin_ns: int, window_ns: tuple[int, int] | None = None
) -> Figures:
    """Returns the charts' data for everything that was read, or for what ran or was called in a
    window. Parts whose tables are missing are empty."""
    edges, counts = _latencies(tables, window_ns)
    kernels = optional(tables, "kernels")
    if kernels is not None and window_ns is not None:
        times = (kernels[name] for name in ("start_ns", "end_ns", "called_ns"))
        kernels = kernels.at(holds(window_ns, *times))
    return Figures(
        _steps(tables, origin_ns),
        _copies(tables, window_ns),
        edges,
        counts,
        _roof_points(kernels, optional(tables, "names")),
        _roofs(tables),
        _data_types(kernels),
    )


def _steps(tables: Tables, origin_ns: int) -> list[StepMark]:
    steps, times = optional(tables, "steps"), optional(tables, "step_times")
    if steps is None or times is None:
        return []
    steps = times.assign(phase=steps["phase"].to_numpy())
    steps = steps[steps["phase"] != "outside"]
    return [
        StepMark(int(step), int(start) - origin_ns, int(end) - origin_ns, str(phase))
        for step, start, end, phase in zip(
            steps["step"], steps["start_ns"], steps["end_ns"], steps["phase"], strict=True
        )
    ][:MOST_STEPS]


def _memory(source: str, target: str) -> str:
    ends = {source, target}
    return next((kind for kind in ("pageable", "managed", "pinned") if kind in ends), "device")


def _copies(tables: Tables, window_ns: tuple[int, int] | None) -> list[CopyPoint]:
    copies = optional(tables, "copies")
    if copies is not None and window_ns is not None:
        times = (ints(copies, name) for name in ("start_ns", "end_ns", "called_ns"))
        copies = copies[holds(window_ns, *times)]
    if copies is None or not len(copies):
        return []
    frame = pd.DataFrame(
        {
            "direction": copies["direction"].astype(str),
            "memory": _memory_kinds(copies),
            "bytes": ints(copies, "bytes"),
            "length": ints(copies, "end_ns") - ints(copies, "start_ns"),
        }
    )
    frame = frame[(frame["bytes"] > 0) & (frame["length"] > 0)]
    keys = ["direction", "memory", "bytes"]
    grouped = frame.groupby(keys, sort=True)["length"].agg(["median", "size", "sum"]).reset_index()
    top = grouped.sort_values(["sum", *keys], ascending=[False, True, True, True])
    return [
        CopyPoint(
            str(row.direction),
            str(row.memory),
            int(row.bytes),
            float(row.bytes * 1e9 / row.median),
            int(row.size_),
            int(row.sum_),
        )
        for row in top.head(MOST_COPIES)
        .rename(columns={"size": "size_", "sum": "sum_"})
        .itertuples()
    ]


_KINDS = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device",
          6: "managed"}  # fmt: skip


def _memory_kinds(copies: pd.DataFrame) -> list[str]:
    source = copies["src_kind"].map(_KINDS).fillna("unknown")
    target = copies["dst_kind"].map(_KINDS).fillna("unknown")
    return [_memory(a, b) for a, b in zip(source, target, strict=True)]


def _latencies(
    tables: Tables, window_ns: tuple[int, int] | None
) -> tuple[list[int], list[int]]:
    """A histogram with five bins per decade from 100 ns to 100 s, without the empty bins at its
    ends."""
    launches, ops = optional(tables, "launches"), optional(tables, "ops")
    if launches is not None and ops is not None and window_ns is not None:
        start, end = (ints(ops, name)[launches["op"]] for name in ("start_ns", "end_ns"))
        called = start - ints(launches, "latency_ns")
        launches = launches[holds(window_ns, start, end, called)]
    if launches is None or not len(launches) or "latency_ns" not in launches:
        return [], []
    edges = np.unique(np.round(np.logspace(2, 11, 46)).astype(np.int64))
    latency = np.clip(ints(launches, "latency_ns"), edges[0], edges[-1] - 1)
    counts, _ = np.histogram(latency, edges)
    used = np.flatnonzero(counts)
    low, high = int(used[0]), int(used[-1]) + 1
    return edges[low : high + 1].tolist(), counts[low:high].tolist()


def _data_types(kernels: Kernels | None) -> list[str]:
    """Returns the data types of the kernels that ran, most time first."""
    if kernels is None or not len(kernels):
        return []
    dtype = kernels.configurations["dtype"].astype(str)
    length = np.bincount(kernels["configuration"], kernels["duration_ns"], len(dtype))
    total = pd.Series(length).groupby(dtype.to_numpy(), sort=True).sum()
    ranked = sorted(total.items(), key=lambda pair: (-int(pair[1]), str(pair[0])))
    return [str(dtype) for dtype, _ in ranked if str(dtype) in ITEM_BYTES]


def _roofs(tables: Tables) -> list[Roof]:
    """The roofs of each device: its bandwidth, and its best rate per data type."""
    from nsysdoctor.roofline.peaks import device_peaks

    devices = optional(tables, "devices")
    roofs: list[Roof] = []
    figures_of = ["memory_bandwidth_bytes_per_s", "sm_count", "clock_hz", "compute_major",
                  "compute_minor"]  # fmt: skip
    if devices is None or not set(figures_of) <= set(devices.columns):
        return roofs
    for row in devices[["device", "name", *figures_of]].itertuples(index=False):
        device, name, *figures = row
        peaks = device_peaks(str(name), *(int(figure) for figure in figures))
        if peaks.memory_bytes_per_s:
            roofs.append(Roof(int(device), "memory bandwidth", "memory", peaks.memory_bytes_per_s))
        for units, rates in (
            ("", peaks.simt_flops_per_s),
            (" tensor", peaks.tensor_flops_per_s),
        ):
            roofs += [
                Roof(int(device), f"{dtype}{units}", "compute", float(rate))
                for dtype, rate in sorted(rates.items())
            ]
    return roofs


def _roof_points(kernels: Kernels | None, names: pd.DataFrame | None) -> list[RoofPoint]:
    """One point per kernel and device whose bytes are known: totals over its launches."""
    if kernels is None or names is None or not len(kernels):
        return []
    work = float(kernels["duration_ns"].sum()) or 1.0
    known = kernels.at((kernels["bytes"] > 0) & (kernels["duration_ns"] > 0))
    flops = _operations(known)
    frame = known.frame("device", "name", "bound", "bytes").assign(
        flops=flops, length=known["duration_ns"]
    )[flops > 0]
    total = frame.groupby(["device", "name", "bound"], sort=True).sum().reset_index()
    kinds = kernels.configurations.drop_duplicates(["device", "name"])
    total = total.merge(kinds[["device", "name", "category", "dtype"]], "left")
    for column in ("category", "dtype"):
        total[column] = total[column].astype(str)
    total["bound"] = np.array(BOUNDS)[total["bound"]]
    keys = ["device", "name", "category", "dtype", "bound"]
    total = total.sort_values(["length", *keys], ascending=[False] + [True] * 5)
    full = names["full"].astype(str).to_numpy()
    return [
        RoofPoint(
            str(full[int(row["name"])]),
            str(row["category"]),
            str(row["dtype"]),
            str(row["bound"]),
            int(row["device"]),
            float(row["length"] / work),
            float(row["flops"] / row["bytes"]),
            float(row["flops"] * 1e9 / row["length"]),
        )
        for row in total.head(MOST_KERNELS).to_dict("records")
    ]


def _operations(kernels: Kernels) -> npt.NDArray[np.float64]:
    """Operations of each kernel: the recorded number where known, else one per element moved."""
    dtypes = kernels.configurations["dtype"].astype(str)
    moved = kernels["bytes"] / kernels.spread(dtypes.map(ITEM_BYTES).astype(np.float64))
    flops = kernels["flops"]
    return np.where(flops > 0, flops, moved)
