"""Every kernel with what it does, how many bytes it moved and which roof binds it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.roofline.bound import BASES, Roofline, roofs_of
from nsysdoctor.roofline.geometry_work import launch_traffic, limit_bytes
from nsysdoctor.roofline.kernel_work import Writes, operation_of, writes_of
from nsysdoctor.roofline.launch_geometry import layout_of
from nsysdoctor.roofline.peaks import DevicePeaks, device_peaks
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.tables.kernels.kernel_columns import Column, Floats, Kernels
from nsysdoctor.tables.kernels.launch_shapes import Configurations
from nsysdoctor.tables.kernels.operators import Annotated
from nsysdoctor.tables.kernels.recorded_work import KernelWork, measured_work
from nsysdoctor.tables.steps.steps import work_in_window
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request, holds

LONG_ENOUGH_NS = 10_000
"""Shorter kernels spend much of their time on ramp-up and say little about bandwidth."""

Flags = npt.NDArray[np.bool_]

_FROM_NAMES = ("category", "dtype", "math")
_NOTHING, _MEASURED, _GEOMETRY = (
    np.int8(BASES.index(basis)) for basis in ("", "measured", "geometry")
)


@table
def peaks(devices: pd.DataFrame, request: Request | None = None) -> dict[int, DevicePeaks]:
    """Returns the roofs of every device that ran work: measured ones where the request has a
    profile of its model, else published ones."""
    figures = (
        "memory_bandwidth_bytes_per_s", "sm_count", "clock_hz", "compute_major", "compute_minor"
    )  # fmt: skip
    profile = request.profile if request is not None else None
    found = {}
    for row in devices.to_dict("records"):
        name = str(row["name"])
        roof = device_peaks(name, *(int(row[f]) for f in figures))
        measured = profile is not None and profile.is_of(name)
        found[int(row["device"])] = profile.peaks(roof) if profile and measured else roof
    return found


@table
def operations(names: pd.DataFrame) -> np.ndarray:
    """Returns for each name a word for what the kernel computes, in the order of `names`."""
    rows = zip(names["full"], names["short"], names["category"], strict=True)
    return np.array([operation_of(f, s, c) for f, s, c in rows], dtype=object)


@table
def kernels(
    ops: pd.DataFrame,
    names: pd.DataFrame,
    configurations: Configurations,
    peaks: dict[int, DevicePeaks],
    request: Request,
    launches: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    launch_marks: pd.DataFrame | None = None,
    annotated: Annotated | None = None,
) -> Kernels:
    """Returns every kernel in the order of `ops`, see `Kernels`.

    Its configurations have those columns of `configurations` except the sides of grid and block,
    and also blocks, threads (per block), batch (grid_z), category, dtype, math (categorical),
    fused, the roofs (see `roofs_of`), launch_bytes, launch_bytes_low, launch_bytes_high (estimated
    from the geometry), written_ratio and written_most_bytes (the largest possible result).

    Bytes and flops are those of the annotated operator that launched the kernel where its shapes
    were recorded (traffic_basis measured). Otherwise bytes are estimated from the launch geometry,
    by the durations of the kernels in the given window, if there is one.
    """
    kinds = _described(configurations.rows, names)
    kinds = kinds.join(roofs_of(kinds, peaks)).join(_writes(kinds, names))
    op = np.flatnonzero(ops["kind"].to_numpy() == KERNEL).astype(np.int32)
    each: dict[str, Column] = {"op": op, "configuration": configurations.code}
    found = Kernels(kinds, each | _calls(op, len(ops), launches, api), ops, api)
    reference = found.at(_in_given_window(found, request))
    found.configurations = kinds.join(_traffic(reference, names, peaks))
    work = None
    if launch_marks is not None and annotated is not None:
        work = _recorded(found, names, launch_marks, annotated)
    return _judged(found, work)


def _described(rows: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """The configurations with what follows from their sizes and names."""
    grid, block = ([rows[f"{what}_{axis}"] for axis in "xyz"] for what in ("grid", "block"))
    name = rows["name"].to_numpy()
    return rows.drop(columns=[side.name for side in (*grid, *block)]).assign(
        blocks=grid[0] * grid[1] * grid[2],
        threads=block[0] * block[1] * block[2],
        batch=grid[2],
        fused=names["fused"].to_numpy(dtype=bool)[name],
        **{column: labels(names[column].to_numpy(), name) for column in _FROM_NAMES},
    )


def _writes(kinds: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Which part of the bytes of each configuration is the result, and how much at most."""
    used, place = np.unique(kinds["name"], return_inverse=True)
    rows = names.iloc[used]
    writes = [tuple(writes_of(f, c)) for f, c in zip(rows["full"], rows["category"], strict=True)]
    table = np.array(writes, dtype=np.float64).reshape(-1, len(Writes._fields))
    ratio, per_thread, out_bytes = table[place].T
    most = (kinds["blocks"] * kinds["threads"]).to_numpy() * per_thread * out_bytes
    return pd.DataFrame(
        {"written_ratio": ratio, "written_most_bytes": np.where(out_bytes > 0, most, np.nan)}
    )


def _calls(
    op: Column, op_count: int, launches: pd.DataFrame | None, api: pd.DataFrame | None
) -> dict[str, Column]:
    """The launching call of each kernel, and whether it launches nothing else."""
    call = np.full(op_count, -1, dtype=np.int32)
    if launches is None or api is None:
        return {"api": call[op], "alone": np.zeros(len(op), dtype=bool)}
    launching = launches["api"].to_numpy()
    call[launches["op"].to_numpy()] = launching
    single = np.bincount(launching, minlength=1) == 1
    call = call[op]
    return {"api": call, "alone": (call >= 0) & single[np.maximum(call, 0)]}


def _in_given_window(kernels: Kernels, request: Request) -> Flags | slice:
    """The kernels that run in a given window or were launched in it; all without one."""
    if not isinstance(request.window, tuple):
        return slice(None)
    times = (kernels[name] for name in ("start_ns", "end_ns", "called_ns"))
    return holds(request.window, *times)


def _traffic(
    found: Kernels, names: pd.DataFrame, peaks: dict[int, DevicePeaks]
) -> pd.DataFrame:
    """Estimates of each configuration's bytes from its geometry, NaN where there is none."""
    kinds, full = found.configurations, names["full"].tolist()
    used = np.unique(kinds["name"])
    readable = kinds[kinds["name"].isin([n for n in used if layout_of(full[n]) is not None])]
    launches, launch = _launches(found, readable)
    parts = [
        launch_traffic(of_device, full, roof.memory_bytes_per_s, roof.sm_count)
        for device, of_device in launches.groupby("device", sort=True)
        for roof in [peaks.get(int(str(device)), DevicePeaks())]
    ]
    columns = ["bytes", "bytes_low", "bytes_high"]
    estimates = pd.concat(parts) if parts else pd.DataFrame(columns=columns, dtype=np.float64)
    return estimates.reindex(launch).set_axis(kinds.index).add_prefix("launch_")


def _launches(
    found: Kernels, kinds: pd.DataFrame
) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """The distinct launches (device, name, blocks, threads) of some configurations with the median
    and the sum of their durations; and the launch of each configuration, -1 for others."""
    key = ["device", "name", "blocks", "threads"]
    launch = np.full(len(found.configurations), -1, dtype=np.int64)
    launch[kinds.index] = kinds.groupby(key, sort=False).ngroup()
    launched = found.at(found.spread(launch >= 0))
    of, took = launched.spread(launch), pd.Series(launched["duration_ns"].astype(np.float64))
    launches = kinds[key].drop_duplicates(ignore_index=True)
    spent = took.groupby(of).agg(median_ns="median", total_ns="sum")
    return launches.join(spent, how="inner"), launch


def _recorded(
    found: Kernels, names: pd.DataFrame, launch_marks: pd.DataFrame, annotated: Annotated
) -> KernelWork | None:
    """The work of kernels by the recorded shapes of their operators, None where nothing was
    recorded.

    The nodes of a graph share one call, made in the range that launched the graph, so they get
    none.
    """
    op = found["op"]
    own = found["alone"] & (found["node"] == 0)
    instance = np.where(own, launch_marks["operator"].to_numpy()[op], -1)
    if not (instance >= 0).any():
        return None
    marked = annotated.annotations_in(launch_marks[["operator", "module"]].iloc[op])
    full = names["full"].tolist()
    return measured_work(found, full, instance, marked, annotated.annotations)


def _judged(found: Kernels, work: KernelWork | None) -> Kernels:
    """The kernels with the bytes that they moved and the roof that binds them."""
    roofline = Roofline(found.configurations)
    columns: dict[str, Column] = {"bytes": np.empty(len(found))}
    for name in ("traffic_basis", "bound", "basis"):
        columns[name] = np.empty(len(found), dtype=np.int8)
    if work is not None:
        columns["flops"] = work.flops
    for rows, part in found.blocks():
        took = part["duration_ns"]
        moved, traffic_basis = _moved(part, took, None if work is None else work.bytes[rows])
        flops = None
        if work is not None:
            flops = _possible(work.flops[rows], took, part["peak_flops_per_s"])
            columns["flops"][rows] = flops
        columns["bytes"][rows], columns["traffic_basis"][rows] = moved, traffic_basis
        columns["bound"][rows], columns["basis"][rows] = roofline.bound(
            part["configuration"], took, moved, traffic_basis, flops
        )
    return found.with_columns(**columns)


def _moved(part: Kernels, took: Column, recorded: Floats | None) -> tuple[Floats, Column]:
    """Bytes by recorded shapes, else by geometry, at most what memory delivers; and their basis."""
    limit = limit_bytes(took, part["peak_bytes_per_s"])
    moved = np.minimum(part["launch_bytes"], limit)
    basis = np.where(np.isnan(moved), _NOTHING, _GEOMETRY)
    if recorded is not None:
        measured = ~np.isnan(recorded)
        moved = np.where(measured, np.minimum(recorded, limit), moved)
        basis = np.where(measured, _MEASURED, basis)
    return moved, basis


def _possible(flops: Floats, took: Column, peak_flops_per_s: Floats) -> Floats:
    """Operations where the units can do so many in the time, else NaN: the shapes were misread
    then."""
    return np.where(flops > peak_flops_per_s * took / 1e9, np.nan, flops)


@table
def reference_kernels(kernels: Kernels, request: Request) -> Flags | slice:
    """Returns, in a form that `Kernels.at` takes, the kernels from which rules learn what is usual:
    those that run in a given window or were launched in it, all without one. They do not depend on
    how much was read around the window."""
    return _in_given_window(kernels, request)


@table
def kernels_inside(kernels: Kernels, window: pd.DataFrame) -> Flags:
    """Returns for each kernel whether it belongs to the window, see `work_in_window`."""
    return work_in_window(kernels["start_ns"], kernels["called_ns"], window)


@table
def inside_ns(kernels: Kernels, kernels_inside: Flags) -> pd.Series[int]:
    """Returns per device the time of all kernels that belong to the window."""
    inside = kernels.at(kernels_inside)
    return inside.frame("duration_ns").groupby(inside["device"])["duration_ns"].sum()


@table
def reached_rates(
    kernels: Kernels, reference_kernels: Flags | slice, peaks: dict[int, DevicePeaks]
) -> dict[int, float]:
    """Returns the bandwidth in bytes/s that memory-bound kernels reach, per device.

    It is that of all kernels of known traffic that last 10 µs or more; without any, 80 % of the
    peak, and 1e12 where the peak is unknown too.
    """
    reference = kernels.at(reference_kernels)
    counts = ~np.isnan(reference["bytes"]) & (reference["duration_ns"] >= LONG_ENOUGH_NS)
    long = reference.at(counts)
    traffic = long.frame("bytes", "duration_ns")
    grouped = traffic.groupby(long["device"], sort=True).sum()
    rates = {
        device: 0.8 * (roof.memory_bytes_per_s or 1.25e12) for device, roof in peaks.items()
    }
    for device, row in grouped.iterrows():
        rates[int(str(device))] = float(row["bytes"] / row["duration_ns"] * 1e9)
    return rates
