"""The numbers that a gate can hold: what each means, which way is better, what counts as change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nsysdoctor.report.model import LEVELS, Metric, Report

Unit = Literal["ns", "bytes", "ratio", "count"]
Better = Literal["higher", "lower", "neither"]
Level = Literal["off", "warn", "error"]

CAUSES: tuple[str, ...] = (
    "synchronization",
    "blocking_copy",
    "allocation",
    "module_load",
    "launch",
    "input_wait",
    "host_code",
    "os_wait",
    "copy_queue",
    "dependency",
    "communication",
    "profiler",
    "unknown",
)


@dataclass(frozen=True)
class MetricKind:
    """What is known about a metric before any trace is read.

    A difference smaller than the largest of `ratio` x baseline, `floor` and `step_share` x step
    time is no change. `level` is what a regression means unless a limit says otherwise.
    `per_step` is false for metrics that have one value a run, so that only repeats show a spread.
    Of a `sighted` one a change of twice the least must not pass unseen where runs are repeated.
    """

    name: str
    unit: Unit
    better: Better
    title: str
    ratio: float = 0.05
    floor: float = 0.0
    step_share: float = 0.0
    level: Level = "warn"
    per_step: bool = True
    rule: str = "gpu_idle"
    sighted: bool = False


def _idle_kind(cause: str, rule: str) -> MetricKind:
    title = f"GPU idle, cause {cause.replace('_', ' ')}"
    return MetricKind(f"idle_{cause}_ns", "ns", "lower", title, 0.10, 2_000, 0.02, rule=rule)


CAUSE_RULES = {
    "synchronization": "sync_in_loop",
    "blocking_copy": "pageable_copy",
    "allocation": "allocation_churn",
    "module_load": "jit_in_loop",
    "launch": "launch_bound",
    "input_wait": "input_starvation",
    "host_code": "host_bound",
    "copy_queue": "serial_copy",
    "communication": "exposed_communication",
    "profiler": "profiler_overhead",
}

_KINDS: tuple[MetricKind, ...] = (
    MetricKind(
        "utilization_ratio", "ratio", "higher", "GPU utilization", 0.0, 0.02, level="error"
    ),
    MetricKind("busy_ratio", "ratio", "higher", "GPU busy", 0.0, 0.02),
    MetricKind("step_ns", "ns", "lower", "step time", 0.025, 1_000, level="error", sighted=True),
    MetricKind(
        "span_ns", "ns", "lower", "time from the first to the last GPU operation", 0.025, 1_000,
        level="error", sighted=True,
    ),
    MetricKind("idle_ns", "ns", "lower", "GPU idle", 0.05, 2_000, 0.02),
    *(_idle_kind(cause, CAUSE_RULES.get(cause, "gpu_idle")) for cause in CAUSES),
    MetricKind(
        "exposed_communication_ns",
        "ns",
        "lower",
        "communication with no compute beside it",
        0.05,
        2_000,
        0.02,
        rule="exposed_communication",
    ),
    MetricKind(
        "exposed_copy_ns", "ns", "lower", "copies with no compute beside them", 0.05, 2_000, 0.02,
        rule="serial_copy",
    ),
    MetricKind("kernel_ns", "ns", "lower", "kernel time", 0.05, 2_000, 0.02),
    MetricKind(
        "api_ns", "ns", "lower", "time in CUDA calls", 0.10, 2_000, 0.02, rule="launch_bound"
    ),
    MetricKind(
        "pageable_bytes", "bytes", "lower", "bytes copied from or to pageable memory", 0.05, 65_536,
        rule="pageable_copy",
    ),
    MetricKind(
        "pageable_copy_count", "count", "lower", "copies from or to pageable memory", 0.05, 0.5,
        rule="pageable_copy",
    ),
    MetricKind(
        "synchronization_count", "count", "lower", "synchronizations", 0.05, 0.5,
        rule="sync_in_loop",
    ),
    MetricKind(
        "kernel_launch_count", "count", "lower", "kernel launches", 0.05, 1.0, rule="launch_bound"
    ),
    MetricKind("graph_launch_count", "count", "neither", "graph launches", 0.05, 0.5),
    MetricKind(
        "combined_saving_ns", "ns", "lower", "saving of all cures", 0.10, 2_000, 0.02,
        per_step=False,
    ),
    *(
        MetricKind(
            f"{level}_finding_count", "count", "neither", f"findings of level {level}", 0.0, 0.5,
            per_step=False,
        )
        for level in LEVELS
    ),
)  # fmt: skip

METRICS: dict[str, MetricKind] = {kind.name: kind for kind in _KINDS}
METRIC_ORDER: dict[str, int] = {kind.name: place for place, kind in enumerate(_KINDS)}


def report_metrics(report: Report) -> list[Metric]:
    """Returns every metric of a report, in the order of `METRICS`, one per trace and device.

    Takes what the analysis measured and adds what follows from the report itself: the budgets of
    the devices where no finer values exist, the findings per level and the combined saving. The
    saving is per step where steps are known, like every other duration.
    """
    found = {(m.trace, m.device, m.metric): m for m in report.metrics if m.metric in METRICS}
    for metric in (*_budget_metrics(report), *_summary_metrics(report)):
        found.setdefault((metric.trace, metric.device, metric.metric), metric)
    return sorted(found.values(), key=metric_key)


def metric_key(metric: Metric) -> tuple[int, int, int]:
    """Returns the sort key of a metric: trace, device (none first), kind."""
    device = -1 if metric.device is None else metric.device
    return metric.trace, device, METRIC_ORDER[metric.metric]


def _budget_metrics(report: Report) -> list[Metric]:
    """Values for the whole window from the device budgets; used only where no step is known."""
    if report.steps is not None and report.steps.steady_count:
        return []
    metrics = [
        Metric(d.trace, d.device, name, METRICS[name].unit, float(value))
        for d in report.devices
        for name, value in (
            ("utilization_ratio", d.utilization_ratio),
            ("busy_ratio", d.busy_ratio),
            ("span_ns", d.span_ns),
            ("idle_ns", d.idle_ns),
            ("exposed_communication_ns", d.exposed_communication_ns),
            ("exposed_copy_ns", d.exposed_copy_ns),
            ("kernel_ns", d.kernel_work_ns),
        )
    ]
    causes = (c for c in report.idle_causes if f"idle_{c.cause}_ns" in METRICS)
    metrics += [Metric(c.trace, c.device, f"idle_{c.cause}_ns", "ns", c.idle_ns) for c in causes]
    return metrics


def _summary_metrics(report: Report) -> list[Metric]:
    steps = report.steps.steady_count if report.steps else 0
    saving = report.combined_saving_ns / max(steps, 1)
    counts = dict.fromkeys(LEVELS, 0)
    for finding in report.findings:
        counts[finding.level] += 1
    return [
        Metric(0, None, "combined_saving_ns", "ns", saving),
        *(Metric(0, None, f"{level}_finding_count", "count", n) for level, n in counts.items()),
    ]
