"""Why a metric changed and what to run next, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nsysdoctor.gate.case import Case
from nsysdoctor.gate.reasons.culprits import culprit_text
from nsysdoctor.gate.series import Series
from nsysdoctor.gate.statistics import Comparison
from nsysdoctor.gate.verdict import Culprit
from nsysdoctor.report.metrics import CAUSE_RULES, METRICS
from nsysdoctor.units import ns_text, quantity_text

_EXPLAINED = ("utilization_ratio", "busy_ratio", "step_ns", "span_ns", "idle_ns", "kernel_ns")
_NEEDS = {
    "step_ns": "mark the steps with NVTX ranges and record --trace=cuda,nvtx",
    "pageable_bytes": "record with --trace=cuda; older exports name no memory kinds",
    "pageable_copy_count": "record with --trace=cuda; older exports name no memory kinds",
}
_TOLD = 4


@dataclass(frozen=True)
class Explanation:
    """Why, and the next command; both empty where there is nothing to tell."""

    why: str
    next: str
    culprits: list[Culprit] = field(default_factory=list)


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
        return Explanation(_unclear(change, new), _more_runs(case, len(new.runs)))
    if change.change != "worse":
        return Explanation(_outliers(change), "")
    kind = METRICS[new.metric]
    parts = case.culprits(new.trace, new.device) if kind.name in _EXPLAINED else []
    grown = [part for part in parts if part.growth_ns > 0]
    rule = _rule(grown[0]) if grown else ""
    texts = (_story(parts, case, new), _evidence(change, new), _outliers(change))
    told = "; ".join(text for text in texts if text)
    return Explanation(told, next_command(rule or kind.rule, case), parts)


def _more_runs(case: Case, runs: int) -> str:
    need = max(case.limits.min_runs, runs + 2)
    return f"give {need} runs or more a side to settle it"


def _rule(part: Culprit) -> str:
    """The rule that knows most about a part."""
    if part.kind == "idle":
        return CAUSE_RULES.get(part.name, "gpu_idle")
    return "serial_copy" if part.kind == "copy" else "gpu_idle"


def _unclear(change: Comparison, new: Series) -> str:
    margin = quantity_text(new.unit, change.margin or 0.0)
    noise = "runs" if change.method == "runs" else "runs, as stated in gate.noise,"
    if change.effect and change.most is not None and abs(change.effect) <= change.threshold:
        most = quantity_text(new.unit, max(change.most, 0.0))
        return f"the noise between {noise} hides changes up to {most}"
    return f"a change beyond the limit, but noise between {noise} reaches {margin}"


def _evidence(change: Comparison, new: Series) -> str:
    noise = "between the runs" if change.method == "runs" else "stated in gate.noise"
    margin = quantity_text(new.unit, change.margin or 0.0)
    return f"noise {noise} reaches {margin}" if change.margin else "the runs show no noise"


def _outliers(change: Comparison) -> str:
    sides = zip(("baseline run", "run"), change.outliers, strict=True)
    texts = [f"{name} {place + 1}" for name, places in sides for place in places]
    return f"{', '.join(texts)} stands apart from the others" if texts else ""


def _story(parts: Sequence[Culprit], case: Case, new: Series) -> str:
    """What grew, what shrank, and that kernel time did not change when it did not."""
    told = [culprit_text(part) for part in parts[:_TOLD] if part.kind != "rest"]
    rest = sum(p.growth_ns for p in parts) - sum(
        p.growth_ns for p in parts[:_TOLD] if p.kind != "rest"
    )
    if told and abs(rest) >= 1_000:
        told.append(f"the rest {'+' if rest > 0 else '-'}{ns_text(abs(rest))}")
    before, after = (
        case.value(side, new.trace, new.device, "kernel_ns") for side in ("before", "now")
    )
    if told and before and after and abs(after - before) <= max(0.05 * before, 2_000):
        told.append(f"kernel time unchanged ({ns_text(before)}, now {ns_text(after)})")
    return ", ".join(told)
