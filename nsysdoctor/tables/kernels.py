"""Every kernel with what it does, how many bytes it moved and which roof binds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.bound import BASES, BOUNDS, bound
from nsysdoctor.measured import measured_work
from nsysdoctor.operations import Writes, operation_of, writes_of
from nsysdoctor.peaks import DevicePeaks, device_peaks
from nsysdoctor.recipe import table
from nsysdoctor.roofline import kernel_traffic
from nsysdoctor.tables.activity import KERNEL
from nsysdoctor.tables.operators import Annotated
from nsysdoctor.window import Request

_GEOMETRY = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_OF_OPS = ("device", "lane", "name", "start_ns", "end_ns", "node")
_BYTES = ("bytes", "bytes_low", "bytes_high")
_TOLD = ("category", "dtype", "math", "library", "phase")
TELLING_NS = 10_000
"""Shorter kernels spend much of their time on ramp-up and say little about bandwidth."""


@table
def peaks(devices: pd.DataFrame, request: Request | None = None) -> dict[int, DevicePeaks]:
    """Returns the roofs of every device that ran work: measured ones where the request brings a
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
    """Returns a word per name for what the kernel computes, in the order of `names`."""
    rows = zip(names["full"], names["short"], names["category"], strict=True)
    return np.array([operation_of(f, s, c) for f, s, c in rows], dtype=object)


@table
def kernels(
    ops: pd.DataFrame,
    names: pd.DataFrame,
    kernel_rows: pd.DataFrame,
    peaks: dict[int, DevicePeaks],
    launches: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    launch_marks: pd.DataFrame | None = None,
    annotated: Annotated | None = None,
) -> pd.DataFrame:
    """Returns one row per kernel in the order of `ops`.

    Columns: op, device, lane, name, start_ns, end_ns, duration_ns, node, category, dtype, math,
    library, phase (categorical), fused, blocks, threads (per block), batch (grid_z), registers,
    local_bytes_per_thread, bytes, bytes_low, bytes_high, rate_bytes_per_s, written_bytes, flops
    (floats, NaN where unknown), traffic_basis, bound, basis (categorical), api (the launching
    call, -1 without), thread, called_ns (start_ns without a call), alone (bool: its call launches
    nothing else), outside_ns (the thread's time outside CUDA before the call), call_ns (the
    call's own). Bytes and flops are those of the annotated operator that launched the kernel
    where its shapes were recorded (traffic_basis measured), else what the launch geometry tells.
    """
    mine = np.flatnonzero(ops["kind"].to_numpy() == KERNEL)
    found = pd.DataFrame({name: ops[name].to_numpy()[mine] for name in _OF_OPS}).assign(op=mine)
    found["duration_ns"] = found["end_ns"] - found["start_ns"]
    code, row = found["name"].to_numpy(), ops["row"].to_numpy()[mine]
    for column in _TOLD:
        found[column] = _told(names[column], code)
    found["fused"] = names["fused"].to_numpy(dtype=bool)[code]
    grid = pd.DataFrame({name: kernel_rows[name].to_numpy()[row] for name in _GEOMETRY})
    found["blocks"] = grid["grid_x"] * grid["grid_y"] * grid["grid_z"]
    found["threads"] = grid["block_x"] * grid["block_y"] * grid["block_z"]
    found["batch"] = grid["grid_z"]
    for column in ("registers", "local_bytes_per_thread"):
        found[column] = kernel_rows[column].to_numpy()[row]
    launched = grid.assign(**{name: found[name] for name in ("name", "start_ns", "end_ns")})
    found = found.join(_traffic(launched.assign(device=found["device"]), names, peaks))
    found = _with_calls(found, launches, api).assign(flops=np.nan)
    if launch_marks is not None and annotated is not None:
        found = _measured(found, names, launch_marks, annotated, peaks)
    found["written_bytes"] = _written(found, names)
    verdict = _bound(found, peaks)
    found["bound"], found["basis"] = verdict["bound"], verdict["basis"]
    return found


def _told(column: pd.Series[str], code: npt.NDArray[np.int64]) -> pd.Categorical:
    distinct, number = np.unique(column.to_numpy(dtype=str), return_inverse=True)
    return pd.Categorical.from_codes(number[code], categories=pd.Index(distinct))


def _by_device(
    found: pd.DataFrame, columns: dict[str, Sequence[str] | None]
) -> tuple[pd.DataFrame, list[tuple[int, npt.NDArray[np.int64]]]]:
    """An empty frame of the columns (categorical where categories are given), and the rows of
    each device."""
    empty = {
        name: np.full(len(found), np.nan)
        if kinds is None
        else pd.Categorical.from_codes(np.zeros(len(found), dtype=np.int8), kinds)
        for name, kinds in columns.items()
    }
    devices = found["device"].to_numpy()
    return pd.DataFrame(empty, index=found.index), [
        (int(device), np.flatnonzero(devices == device)) for device in np.unique(devices)
    ]


def _traffic(
    launched: pd.DataFrame, names: pd.DataFrame, peaks: dict[int, DevicePeaks]
) -> pd.DataFrame:
    wanted: dict[str, Sequence[str] | None] = dict.fromkeys(
        ("bytes", "bytes_low", "bytes_high", "rate_bytes_per_s")
    )
    table, devices = _by_device(launched, wanted | {"basis": BASES})
    full = names["full"].tolist()
    for device, rows in devices:
        roof = peaks.get(device, DevicePeaks())
        told = kernel_traffic(launched.iloc[rows], full, roof.memory_bytes_per_s, roof.sm_count)
        table = told if len(devices) == 1 else _placed(table, told, rows)
    return table.rename(columns={"basis": "traffic_basis"})


def _placed(
    table: pd.DataFrame, told: pd.DataFrame, rows: npt.NDArray[np.int64]
) -> pd.DataFrame:
    for column in told.columns:
        table.iloc[rows, table.columns.get_loc(column)] = told[column].to_numpy()
    return table


def _bound(found: pd.DataFrame, peaks: dict[int, DevicePeaks]) -> pd.DataFrame:
    table, devices = _by_device(found, {"bound": BOUNDS, "basis": BASES})
    asked = found.rename(columns={"traffic_basis": "basis"})
    for device, rows in devices:
        told = bound(asked.iloc[rows], peaks.get(device, DevicePeaks()))
        table = told if len(devices) == 1 else _placed(table, told, rows)
    return table


def _measured(
    found: pd.DataFrame,
    names: pd.DataFrame,
    launch_marks: pd.DataFrame,
    annotated: Annotated,
    peaks: dict[int, DevicePeaks],
) -> pd.DataFrame:
    """The kernels with the work that recorded shapes tell, no faster than memory delivers.

    The nodes of a graph share one call, which stands in the range that launched the graph.
    """
    marks = launch_marks.iloc[found["op"].to_numpy()].reset_index(drop=True)
    own = found["alone"].to_numpy(dtype=bool) & (found["node"].to_numpy() == 0)
    instance = marks["operator"].where(own, -1).to_numpy()
    if not (instance >= 0).any():
        return found
    said = annotated.said_in(marks[["operator", "module"]])
    full = names["full"].tolist()
    flops, moved = measured_work(found, full, instance, said, annotated.said)
    roof = found["device"].map({d: p.memory_bytes_per_s or np.inf for d, p in peaks.items()})
    took = found["duration_ns"].to_numpy()
    moved = np.minimum(moved, roof.fillna(np.inf).to_numpy() * took / 1e9)
    known = ~np.isnan(moved)
    seconds = np.where(took > 0, took, np.nan) / 1e9
    basis = np.where(known, BASES.index("measured"), found["traffic_basis"].cat.codes)
    columns = {name: found[name].where(~known, moved) for name in _BYTES}
    return found.assign(
        **columns,
        rate_bytes_per_s=found["rate_bytes_per_s"].where(~known, moved / seconds),
        flops=np.where(flops <= _most_flops(found, peaks), flops, np.nan),
        traffic_basis=pd.Categorical.from_codes(basis, BASES),
    )


def _most_flops(found: pd.DataFrame, peaks: dict[int, DevicePeaks]) -> npt.NDArray[np.float64]:
    """The operations that the units of each kernel can do in its time, infinite where the roof
    is unknown; more than that means that the shapes were misread, and is not shown."""
    keys = found[["device", "dtype", "math"]].astype({"dtype": str, "math": str})
    place, distinct = pd.factorize(pd.MultiIndex.from_frame(keys))
    roofs = [
        (peaks[int(device)].flops_per_s(dtype, math) if int(device) in peaks else None) or np.inf
        for device, dtype, math in distinct
    ]
    return np.asarray(np.array(roofs)[place] * found["duration_ns"].to_numpy() / 1e9)


def _written(found: pd.DataFrame, names: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Bytes of the result, where the traffic is known."""
    told = np.array(
        [
            tuple(writes_of(full, category)) if kind == KERNEL else (0.0, 0, 0)
            for full, category, kind in zip(
                names["full"], names["category"], names["kind"], strict=True
            )
        ],
        dtype=np.float64,
    ).reshape(-1, len(Writes._fields))
    ratio, per_thread, out = told[found["name"].to_numpy()].T
    moved = found["bytes"].to_numpy()
    elements = (found["blocks"] * found["threads"]).to_numpy() * per_thread
    known = np.where(out > 0, np.minimum(elements * out, moved), moved * ratio)
    return np.asarray(known, dtype=np.float64)


def _with_calls(
    found: pd.DataFrame, launches: pd.DataFrame | None, api: pd.DataFrame | None
) -> pd.DataFrame:
    call = np.full(int(found["op"].max()) + 1 if len(found) else 0, -1, dtype=np.int64)
    if launches is None or api is None or not len(found):
        return found.assign(api=-1, thread=-1, called_ns=found["start_ns"], alone=False,
                            outside_ns=0, call_ns=0)  # fmt: skip
    inside = launches["op"].to_numpy() < len(call)
    call[launches["op"].to_numpy()[inside]] = launches["api"].to_numpy()[inside]
    mine = call[found["op"].to_numpy()]
    has, row = mine >= 0, np.maximum(mine, 0)
    users = np.bincount(launches["api"].to_numpy(), minlength=max(len(api), 1))
    columns = ("start_ns", "end_ns", "thread")
    empty = np.zeros(1, dtype=np.int64)
    start, end, thread = (api[c].to_numpy() if len(api) else empty for c in columns)
    return found.assign(
        api=mine,
        thread=np.where(has, thread[row], -1),
        called_ns=np.where(has, start[row], found["start_ns"]),
        alone=has & (users[row] == 1),
        outside_ns=np.where(has, _outside(api)[row], 0) if len(api) else 0,
        call_ns=np.where(has, end[row] - start[row], 0),
    )


def _outside(api: pd.DataFrame) -> npt.NDArray[np.int64]:
    """For each outermost call the time since the one before it on its thread, else 0."""
    found = np.zeros(len(api), dtype=np.int64)
    top = np.flatnonzero(api["top"].to_numpy())
    thread, start, end = (api[c].to_numpy()[top] for c in ("thread", "start_ns", "end_ns"))
    same = thread[1:] == thread[:-1]
    found[top[1:]] = np.where(same, np.maximum(start[1:] - end[:-1], 0), 0)
    return found


@table
def reached_rates(kernels: pd.DataFrame, peaks: dict[int, DevicePeaks]) -> dict[int, float]:
    """Returns the bandwidth in bytes/s that memory-bound kernels reach, per device.

    That of all kernels of known traffic that last 10 µs or more; without any 80 % of the peak,
    and 1e12 where that is unknown too.
    """
    moved, length = kernels["bytes"].to_numpy(), kernels["duration_ns"].to_numpy()
    telling = ~np.isnan(moved) & (length >= TELLING_NS)
    told = pd.DataFrame({"bytes": moved[telling], "duration_ns": length[telling]})
    grouped = told.groupby(kernels["device"].to_numpy()[telling], sort=True).sum()
    rates = {
        device: 0.8 * (roof.memory_bytes_per_s or 1.25e12) for device, roof in peaks.items()
    }
    for device, row in grouped.iterrows():
        rates[int(str(device))] = float(row["bytes"] / row["duration_ns"] * 1e9)
    return rates
