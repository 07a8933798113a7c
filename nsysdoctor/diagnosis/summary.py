"""The parts of a report that describe a trace before any rule is asked."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pandas as pd

from nsysdoctor.diagnosis.capture_faults import OVERLAPS
from nsysdoctor.ingest.schema import EXPORT_SCHEMA, EXPORT_VERSION, SOURCES
from nsysdoctor.report.model import (
    DeviceBudget,
    Dropped,
    Gpu,
    IdleCause,
    Metric,
    Note,
    Phase,
    Steps,
    TraceInfo,
    Window,
)
from nsysdoctor.report.work import Work
from nsysdoctor.tables.account.time_budget import ran_between
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.tables.host.thread_states import CAUSES
from nsysdoctor.tables.steps.steps import window_span_ns
from nsysdoctor.trace.trace import Trace, table_recipes
from nsysdoctor.units import clock_text, ratio_text

_SLIVER_RATIO = 0.2
_BEYOND_RATIO = 0.01
"""A window that reaches further out of the capture than this is told of."""


def trace_info(trace: Trace) -> TraceInfo:
    """Returns what export was analysed: versions, GPUs used, rows, dropped rows."""
    metadata = trace.export.metadata()
    identity = trace.identity
    overruns = trace.table("overruns")
    sources = ("kernel", "memcpy", "memset", "graph")
    dropped = [Dropped(table, reason, rows) for table, reason, rows in trace.dropped()]
    for kind, rows in overruns.groupby("kind", sort=True):
        dropped.append(Dropped(sources[int(kind)], OVERLAPS, len(rows)))
    return TraceInfo(
        path=os.fsencode(trace.export.path).decode("utf-8", "replace"),
        rank=identity.rank,
        host=identity.host,
        nsys_version=metadata.get(EXPORT_VERSION),
        schema_version=metadata.get(EXPORT_SCHEMA),
        gpus=[_gpu(row) for row in trace.table("devices").to_dict("records")],
        rows=trace.row_counts(),
        dropped=dropped,
    )


def _gpu(row: dict[str, object]) -> Gpu:
    def known(name: str) -> int | None:
        return int(str(row[name])) or None

    major = known("compute_major")
    return Gpu(
        device=int(str(row["device"])),
        name=str(row["name"]),
        memory_bandwidth_bytes_per_s=known("memory_bandwidth_bytes_per_s"),
        sm_count=known("sm_count"),
        clock_hz=known("clock_hz"),
        compute_capability=f"{major}.{row['compute_minor']}" if major else None,
        total_memory_bytes=known("total_memory_bytes"),
    )


def window_of(trace: Trace) -> Window:
    """Returns the window that savings refer to."""
    window = trace.table("window")
    row = window.iloc[0]
    start, end = int(row["start_ns"]), int(row["end_ns"])
    paused = end - start - window_span_ns(window) if end > start else 0
    return Window(start, end, str(row["basis"]), max(paused, 0))  # type: ignore[arg-type]


def steps_of(trace: Trace) -> Steps | None:
    """Returns the steps, None when none were recognised; times are of the steady ones."""
    steps, marks = trace.table("steps"), trace.table("step_marks")
    mine = (steps["phase"] != "outside").to_numpy()
    if marks is None or not mine.any():
        return None
    steady = (steps["phase"] == "steady").to_numpy()
    length = trace.table("step_lengths")[steady if steady.any() else mine]
    return Steps(
        count=int(mine.sum()),
        steady_count=int(steady.sum()),
        basis=marks.basis,
        label=marks.label,
        median_ns=int(np.median(length)),
        p90_ns=int(np.percentile(length, 90)),
        evidence=marks.evidence,
    )


def phases_of(trace: Trace, index: int) -> list[Phase]:
    """Returns the phases in order; none when no steps were recognised."""
    if not len(trace.table("steps")):
        return []
    return [
        Phase(index, str(r["phase"]), int(r["start_ns"]), int(r["end_ns"]), int(r["steps"]))
        for r in trace.table("phases").to_dict("records")
    ]


def budgets_of(trace: Trace, index: int) -> list[DeviceBudget]:
    """Returns each device's budget; the four buckets sum to the span."""
    names = dict(zip(*(trace.table("devices")[c] for c in ("device", "name")), strict=True))
    return [
        _budget(row, str(names[row["device"]]), index)
        for row in trace.table("time_budget").to_dict("records")
    ]


def _budget(row: dict[str, int], name: str, index: int) -> DeviceBudget:
    span = int(row["span_ns"])
    compute, communication = int(row["compute_ns"]), int(row["exposed_communication_ns"])
    idle = int(row["idle_ns"])
    return DeviceBudget(
        trace=index,
        device=int(row["device"]),
        name=name,
        span_ns=span,
        compute_ns=compute,
        exposed_communication_ns=communication,
        exposed_copy_ns=int(row["exposed_copy_ns"]),
        idle_ns=idle,
        utilization_ratio=(compute + communication) / span if span else 1.0,
        busy_ratio=(span - idle) / span if span else 1.0,
        kernel_work_ns=int(row["kernel_work_ns"]),
        start_ns=int(row["start_ns"]),
        processes=int(row["processes"]),
    )


def idle_causes_of(trace: Trace, index: int) -> list[IdleCause]:
    """Returns idle time by device and cause, largest first; per device it sums to `idle_ns`."""
    rows = [
        IdleCause(index, row["device"], CAUSES[row["cause"]], row["idle_ns"])
        for row in trace.table("idle_parts").by_cause.to_dict("records")
        if row["idle_ns"]
    ]
    return sorted(rows, key=lambda r: (r.device, -r.idle_ns, r.cause))


def notes_of(trace: Trace, index: int) -> list[Note]:
    """Returns what limits or qualifies the numbers."""
    notes = [Note(index, text) for text in _device_notes(trace.table("devices"))]
    notes += [Note(index, text) for text in (*trace.export.warnings(), *_profile_notes(trace))]
    notes += [Note(index, text) for text in (*_window_notes(trace), *_recorded_notes(trace))]
    return notes


def _recorded_notes(trace: Trace) -> list[str]:
    """What was not recorded: kernels, calls, or some of the calls."""
    launches, ops = trace.optional("launches"), trace.table("ops")
    notes = []
    if not ops["kind"].isin((KERNEL, GRAPH)).any() and not _holds_kernels(trace):
        notes.append("no kernels were recorded; had any run, their time would be counted as idle")
    if launches is None:
        return [*notes, "no CUDA calls were recorded; idle time has no known cause"]
    running = _in_horizon(ops, trace.table("horizon"))
    count = int(running.sum())
    missing = count - int(running[launches["op"].to_numpy()].sum())
    if missing > 0.02 * count:
        notes.append(
            f"{missing:,} of {count:,} GPU operations have no recorded call "
            "(outside the capture, or trimmed)"
        )
    return notes


def _holds_kernels(trace: Trace) -> bool:
    """Whether the export has kernels or graph replays, if only outside the window."""
    sources = (source for source in SOURCES if source.name in ("kernel", "graph"))
    return any(trace.export.holds(source) for source in sources)


def _in_horizon(ops: pd.DataFrame, horizon: pd.DataFrame) -> np.ndarray:
    """Which operations run at a time that some budget covers."""
    low, high = int(horizon["start_ns"].min()), int(horizon["end_ns"].max())
    return np.asarray((ops["end_ns"] >= low) & (ops["start_ns"] <= high))


def _profile_notes(trace: Trace) -> list[str]:
    """For which devices a measured profile stands in for published figures."""
    profile = trace.request.profile
    if profile is None:
        return []
    names = sorted(set(trace.table("devices")["name"]))
    other = [name for name in names if not profile.is_of(name)]
    notes = [f"roofs and copy rates of {n} are measured ones" for n in names if n not in other]
    return notes + [f"the profile of {profile.name} says nothing about {name}" for name in other]


def _window_notes(trace: Trace) -> list[str]:
    """A word where the steady steps are a small part of the capture, or a window reaches out of
    it."""
    window, ops = window_of(trace), trace.table("ops")
    if window.basis == "given":
        first, last = ran_between(ops, trace.table("capture"))
        beyond = max(first - window.start_ns, 0) + max(window.end_ns - last, 0)
        if beyond < _BEYOND_RATIO * window.span_ns:
            return []
        return [
            f"the GPU ran in {clock_text(first)}:{clock_text(last)}; the rest of the window, "
            f"{ratio_text(beyond / window.span_ns)}, counts as idle"
        ]
    whole = int(ops["end_ns"].max()) - int(ops["start_ns"].min())
    if window.basis != "steady" or window.span_ns >= _SLIVER_RATIO * whole:
        return []
    share = ratio_text(window.span_ns / whole)
    return [f"the steady steps are {share} of the capture; --window all prices savings on all"]


def _device_notes(devices: pd.DataFrame) -> list[str]:
    apart = devices.loc[devices["kept_apart"], "device"].tolist()
    return [
        f"device {d} may be the same GPU as another one: several processes use its CUDA ordinal "
        "and the export does not map ordinals to hardware, so processes are kept apart"
        for d in apart
    ]


def metrics_of(trace: Trace, index: int) -> list[Metric]:
    """Returns the numbers that a gate holds against limits; see the table `metrics`."""
    if "metrics" not in table_recipes():
        return []
    return [replace(metric, trace=index) for metric in trace.optional("metrics") or []]


def work_of(trace: Trace, index: int) -> list[Work]:
    """Returns what a steady step does, by device, kind and name; see the table `step_work`."""
    rows = trace.table("step_work").to_dict("records")
    return [
        Work(
            trace=index,
            device=None if row["device"] < 0 else int(row["device"]),
            kind=row["kind"],
            name=str(row["name"]),
            count=round(float(row["count"]), 4),
            ns=round(float(row["ns"]), 1),
            size=None if np.isnan(row["size"]) else round(float(row["size"]), 1),
        )
        for row in rows
    ]
