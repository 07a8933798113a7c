"""Runs of which nothing can pass: captures at fault, with too few steps or hardly any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.limits import Limits
from nsysdoctor.gate.refusal import FAULTS, without_kernels
from nsysdoctor.gate.verdict import Mismatch
from nsysdoctor.report.model import Report

_LEAST_OPERATIONS = 16
_EMPTY_STEPS_RATIO = 0.1
_RECORD = "record GPU work: nsys profile --trace=cuda,nvtx,osrt ..."
_OPERATIONS = ("kernel", "graph", "memcpy", "memset")


@dataclass(frozen=True)
class Soundness:
    """The runs that can be judged, and why the others cannot."""

    sound: list[Report]
    faults: list[Mismatch]


def sound_runs(reports: Sequence[Report], limits: Limits) -> Soundness:
    """Returns which runs may be judged at all, by absolute limits too."""
    found = [(report, capture_faults(report, limits)) for report in reports]
    many = len(reports) > 1
    faults = [
        Mismatch(f"{fault.what} of {_path(report)}" if many else fault.what, *_rest(fault))
        for report, wrong in found
        for fault in wrong
    ]
    return Soundness([report for report, wrong in found if not wrong], list(dict.fromkeys(faults)))


def _rest(fault: Mismatch) -> tuple[str, str, str]:
    return fault.baseline, fault.found, fault.next


def _path(report: Report) -> str:
    return report.traces[0].path if report.traces else "a report"


def refuse_unsound(reports: Sequence[Report], limits: Limits) -> None:
    """Raises UsageError when a run may not become part of a baseline."""
    for place, report in enumerate(reports, start=1):
        for fault in capture_faults(report, limits):
            text = f"run {place} ({_path(report)}) is no baseline: {fault.what}: {fault.found}"
            raise UsageError(text, fault.next)


def capture_faults(report: Report, limits: Limits) -> list[Mismatch]:
    """Returns why nothing in a run can be judged; nothing for a sound one."""
    if not any(device.span_ns > 0 for device in report.devices):
        return [Mismatch("GPU activity", "", "none in the capture", _RECORD)]
    lost = without_kernels(report)
    if lost is not None:
        return [Mismatch("trace", "", lost.message, lost.hint)]
    told = [Mismatch(FAULTS[f.kind], "", f.text, f.hint) for f in report.capture_faults]
    return told or [*_few_steps(report, limits), *_empty_steps(report), *_little_work(report)]


def _few_steps(report: Report, limits: Limits) -> list[Mismatch]:
    steps = report.steps
    if steps is None or steps.steady_count >= limits.min_steps:
        return []
    found = f"{steps.steady_count} steady, needed are {limits.min_steps} (gate.min_steps)"
    return [Mismatch("steps", "", found, "record more steps")]


def _empty_steps(report: Report) -> list[Mismatch]:
    """Steady steps in which no GPU ran a kernel, of a program that ran some in others."""
    found = []
    for trace in range(len(report.traces)):
        of_devices = [
            metric.steps for metric in report.metrics
            if metric.metric == "kernel_ns" and metric.trace == trace and metric.steps
        ]  # fmt: skip
        busiest = [max(values) for values in zip(*of_devices, strict=False)]
        empty = sum(value <= 0 for value in busiest)
        if any(busiest) and empty > _EMPTY_STEPS_RATIO * len(busiest):
            text = f"{empty} of {len(busiest)} steady steps hold no kernel"
            hint = "check that the capture covers the whole loop; nsysdoctor report shows the steps"
            found.append(Mismatch("steps", "", text, hint))
    return found[:1]


def _little_work(report: Report) -> list[Mismatch]:
    if report.steps is not None:
        return []
    count = sum(trace.rows.get(name, 0) for trace in report.traces for name in _OPERATIONS)
    if count >= _LEAST_OPERATIONS:
        return []
    found = f"{count} GPU operations and no steps; the program may have ended early"
    return [Mismatch("work", "", found, "check that the program ran to its end")]
