"""What changed between two reports: per device and step, per kernel, and in the findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from nsysdoctor.diff.kernels import KernelChange, kernel_changes
from nsysdoctor.gate.baseline import Setup, make_baseline, setup_text
from nsysdoctor.gate.case import Case, make_case
from nsysdoctor.gate.known import Pair, findings_of_runs, match_findings
from nsysdoctor.gate.limits import Limits, bound_of
from nsysdoctor.gate.series import Series, middle, value_of
from nsysdoctor.gate.statistics import Sizes, compare
from nsysdoctor.report.metrics import METRICS, Unit
from nsysdoctor.report.model import Report

FORMAT = "nsysdoctor-diff"
FORMAT_VERSION = 1
_SAME_WORK_SHARE = 0.05

MetricState = Literal["worse", "better", "more", "less", "unclear"]


@dataclass(frozen=True)
class MetricChange:
    """A metric that differs by more than floor and noise; `unclear` where noise is not known."""

    state: MetricState
    metric: str
    unit: Unit
    title: str
    trace: int
    device: int | None
    before: float
    after: float
    per_step: bool


@dataclass(frozen=True)
class FindingChange:
    """A finding that is new, gone, worse or better."""

    state: Literal["new", "worse", "better", "fixed"]
    rule: str
    subject: str
    before_ratio: float | None
    after_ratio: float | None


@dataclass(frozen=True)
class Diff:
    """All that changed, most important first; what did not change is only counted."""

    before: str
    after: str
    metrics: list[MetricChange]
    kernels: list[KernelChange]
    findings: list[FindingChange]
    statements: list[str]
    cautions: list[str]
    unchanged_metrics: int
    unchanged_kernels: int
    unchanged_findings: int

    @property
    def neutral(self) -> bool:
        """Returns whether nothing changed."""
        return not (self.metrics or self.kernels or self.findings)

    def to_json(self) -> str:
        """Returns the diff as JSON text; equal diffs give equal text."""
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "neutral": self.neutral}
        return json.dumps(head | asdict(self), indent=1, ensure_ascii=False, allow_nan=False)


def diff_reports(before: Report, after: Report) -> Diff:
    """Returns what changed from one report to the other, and nothing for what did not.

    Metrics change when the gate would say so. Kernels match by name, generated numbers and
    addresses folded away; they change by 5 % per launch or in their count, and by 1 % of a step.
    """
    make_baseline([after])  # refuses a capture without GPU work, on either side
    case = make_case([after], make_baseline([before]), Limits())
    changes, calm = _metric_changes(case)
    kernels, calm_kernels = kernel_changes(before, after)
    pairs = match_findings(findings_of_runs([before]), findings_of_runs([after]))
    findings = [change for change in map(_finding_change, pairs) if change]
    return Diff(
        before=_path(before),
        after=_path(after),
        metrics=changes,
        kernels=kernels,
        findings=sorted(findings, key=_finding_order),
        statements=_statements(case, changes),
        cautions=_cautions(case),
        unchanged_metrics=calm,
        unchanged_kernels=calm_kernels,
        unchanged_findings=len(pairs) - len(findings),
    )


def _path(report: Report) -> str:
    return report.traces[0].path if report.traces else "report"


def _metric_changes(case: Case) -> tuple[list[MetricChange], int]:
    """Changed metrics in the order of their table, and how many did not change."""
    now = {series.key: series for series in case.now}
    shared = [(old, now[old.key]) for old in case.before if old.key in now]
    changes = [change for old, new in shared if (change := _metric_change(case, old, new))]
    return changes, len(shared) - len(changes)


def _metric_change(case: Case, old: Series, new: Series) -> MetricChange | None:
    kind = METRICS[old.metric]
    if not kind.per_step:
        return None  # one value a run shows no spread; the findings themselves are compared
    step = value_of(case.before, old.trace, old.device, "step_ns") or 0.0
    threshold = bound_of(Limits(), old.metric, "").threshold(middle(old), step)
    effect = middle(new) - middle(old)
    if abs(effect) <= threshold:
        return None
    better = "lower" if kind.better == "neither" else kind.better
    # One run a side: what its own steps show is all the noise that is known.
    sizes = Sizes(threshold)
    change = compare(old.runs, new.runs, better=better, sizes=sizes, min_runs=1)
    if change.change not in ("worse", "better", "too_few"):
        return None
    state: MetricState = "unclear"
    known = all(run.error is not None for run in (*old.runs, *new.runs))
    if known and change.change != "too_few":
        state = change.change if kind.better != "neither" else "more" if effect > 0 else "less"
    per_step = any(run.steps for run in new.runs)
    return MetricChange(
        state, old.metric, old.unit, kind.title, old.trace, old.device, middle(old), middle(new),
        per_step,
    )  # fmt: skip


def _finding_change(pair: Pair) -> FindingChange | None:
    old, new = pair.before, pair.after
    shown = new or old
    if shown is None:
        return None
    ratios = (old.saving_ratio if old else None, new.saving_ratio if new else None)
    if old is None:
        return FindingChange("new", shown.rule, shown.subject, *ratios)
    if new is None:
        return FindingChange("fixed", shown.rule, shown.subject, *ratios)
    if pair.worse:
        return FindingChange("worse", shown.rule, shown.subject, *ratios)
    if Pair(new, old).worse:
        return FindingChange("better", shown.rule, shown.subject, *ratios)
    return None


def _finding_order(change: FindingChange) -> tuple[int, float, str, str]:
    place = ("new", "worse", "better", "fixed").index(change.state)
    return place, -(change.after_ratio or change.before_ratio or 0.0), change.rule, change.subject


def _statements(case: Case, changes: Sequence[MetricChange]) -> list[str]:
    """Sentences that one number alone does not tell."""
    texts = []
    launches = _both(case, "kernel_launch_count")
    graphs = _both(case, "graph_launch_count")
    work = _both(case, "kernel_ns")
    if launches and graphs and work and _same(work) and _graphs_replaced(launches, graphs):
        counts = f"{launches[0]:,.0f} launches became {launches[1]:,.0f}"
        texts.append(
            f"the same GPU work, fewer launches: {counts} and {graphs[1]:,.0f} graph launches"
        )
    if work and _same(work) and any(c.metric == "step_ns" for c in changes):
        texts.append("kernel time did not change; the difference lies between the kernels")
    return texts


def _graphs_replaced(launches: tuple[float, float], graphs: tuple[float, float]) -> bool:
    gone, come = launches[0] - launches[1], graphs[1] - graphs[0]
    return come > 0 and gone > come


def _both(case: Case, metric: str) -> tuple[float, float] | None:
    """The value before and after, summed over devices and traces."""
    old = [middle(series) for series in case.before if series.metric == metric]
    new = [middle(series) for series in case.now if series.metric == metric]
    return (sum(old), sum(new)) if old and new else None


def _same(pair: tuple[float, float]) -> bool:
    return abs(pair[1] - pair[0]) <= _SAME_WORK_SHARE * abs(pair[0])


def _cautions(case: Case) -> list[str]:
    """Differences of the set-up that may explain every other one."""
    before: Setup | None = case.baseline.setup if case.baseline else None
    if before is None:
        return []
    after = case.setups[0]
    texts = [
        f"other {name}: {setup_text(old)} before, {setup_text(new)} after"
        for name, old, new in (
            ("GPUs", before.devices, after.devices),
            ("window", before.window, after.window),
            ("steps", before.steps, after.steps),
        )
        if old != new
    ]
    lost = sorted(set(before.tables) - set(after.tables))
    gained = sorted(set(after.tables) - set(before.tables))
    texts += [f"table {table} has rows only before" for table in lost]
    return texts + [f"table {table} has rows only after" for table in gained]
