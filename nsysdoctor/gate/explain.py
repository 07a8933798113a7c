"""Why a metric changed and what to run next, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsysdoctor.gate.baseline import Series
from nsysdoctor.gate.case import Case, value_of
from nsysdoctor.gate.limits import Limits, bound_of
from nsysdoctor.gate.statistics import Comparison
from nsysdoctor.report.metrics import CAUSES, METRICS
from nsysdoctor.units import ns_text

_IDLE_PARTS = tuple(f"idle_{cause}_ns" for cause in CAUSES)
_PARTS = (*_IDLE_PARTS, "exposed_copy_ns", "exposed_communication_ns", "api_ns", "kernel_ns")
_EXPLAINED = ("utilization_ratio", "busy_ratio", "step_ns", "idle_ns")
_NEEDS = {
    "step_ns": "mark the steps with NVTX ranges and record --trace=cuda,nvtx",
    "pageable_bytes": "record with --trace=cuda; older exports name no memory kinds",
    "pageable_copy_count": "record with --trace=cuda; older exports name no memory kinds",
}


@dataclass(frozen=True)
class Explanation:
    """Why, and the next command; both empty where there is nothing to tell."""

    why: str
    next: str


def unmeasured(metric: str) -> Explanation:
    """Returns why a metric has no value, and what to do so that it has one."""
    hint = _NEEDS.get(metric, "record with: nsys profile --trace=cuda,nvtx,osrt ...")
    return Explanation("not measured in every run", hint)


def next_command(rule: str, case: Case) -> str:
    """Returns the command that shows more about the cause."""
    report = f"nsysdoctor report {case.trace_path()} -o report.html"
    return report if rule == "gpu_idle" else f"{report}; nsysdoctor rules explain {rule}"


def why_changed(change: Comparison, new: Series, case: Case) -> Explanation:
    """Returns the reason of a changed, unclear or unjudged line and what to run next."""
    runs = f"{case.limits.min_runs} runs a side"
    if change.change == "too_few":
        steps = f"record {case.limits.min_steps} steady steps or more, or give {runs}"
        return Explanation(change.reason, steps)
    if change.change == "unclear":
        reason = _unclear(change, case, len(new.runs))
        return Explanation(reason, f"give {runs} or more to settle it")
    if change.change != "worse":
        return Explanation("", "")
    kind = METRICS[new.metric]
    parts = part_changes(case, new.trace, new.device) if kind.name in _EXPLAINED else []
    grown = [name for name, growth in parts if growth > 0]
    rule = METRICS[grown[0]].rule if grown else kind.rule
    texts = (_story(parts, case, new), _evidence(change))
    return Explanation("; ".join(text for text in texts if text), next_command(rule, case))


def _unclear(change: Comparison, case: Case, runs: int) -> str:
    if change.method == "rank" and case.baseline:
        return f"beyond the floor, but {case.baseline.runs} and {runs} runs overlap too much"
    return "beyond the floor, but within the spread of the steps"


def _evidence(change: Comparison) -> str:
    if change.method == "rank":
        return f"rank test over the runs: p = {change.p:.2g}"
    if change.margin:
        return "beyond both the floor and the spread of the steps"
    return "beyond the floor; the steps show no spread"


def part_changes(case: Case, trace: int, device: int | None) -> list[tuple[str, float]]:
    """Returns the parts of a step that clearly changed and by how many ns, largest growth first.

    Time in calls comes last: it runs beside the device and is a cause only where it idles.
    """
    step = value_of(case.before, trace, device, "step_ns") or 0.0
    changes = []
    for name in _PARTS:
        before = value_of(case.before, trace, device, name)
        after = value_of(case.now, trace, device, name)
        if before is None or after is None:
            continue
        if abs(after - before) > bound_of(Limits(), name, "").threshold(before, step):
            changes.append((name, after - before))
    return sorted(changes, key=lambda change: (change[0] == "api_ns", -change[1], change[0]))


def _story(parts: Sequence[tuple[str, float]], case: Case, new: Series) -> str:
    """What grew, what shrank, and that kernel time did not change when it did not."""
    texts = [f"{METRICS[name].title} {_signed(growth)}" for name, growth in parts]
    before = value_of(case.before, new.trace, new.device, "kernel_ns")
    after = value_of(case.now, new.trace, new.device, "kernel_ns")
    known = before is not None and after is not None
    if texts and known and all(name != "kernel_ns" for name, _ in parts):
        texts.append(f"kernel time unchanged ({ns_text(before or 0)}, now {ns_text(after or 0)})")
    return ", ".join(texts)


def _signed(growth_ns: float) -> str:
    return f"{'+' if growth_ns > 0 else '-'}{ns_text(abs(growth_ns))}"
