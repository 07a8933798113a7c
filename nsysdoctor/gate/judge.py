"""The gate: reports held against limits and a baseline. Pure; knows no trace and reads no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.baseline import Baseline, Series
from nsysdoctor.gate.case import Case, make_case, middle, value_of
from nsysdoctor.gate.comparable import mismatches_of
from nsysdoctor.gate.explain import Explanation, next_command, unmeasured, why_changed
from nsysdoctor.gate.findings import judge_findings, obsolete_texts
from nsysdoctor.gate.limits import Bound, Limits, bound_of, check_limits
from nsysdoctor.gate.refusal import refused, unfit, without_kernels
from nsysdoctor.gate.statistics import Change, Comparison, compare
from nsysdoctor.gate.verdict import (
    Answer,
    FindingLine,
    Line,
    LineState,
    Mismatch,
    Relation,
    Verdict,
)
from nsysdoctor.report.metrics import METRIC_ORDER, METRICS
from nsysdoctor.report.model import Report

_STATE_ORDER: tuple[LineState, ...] = (
    "failed",
    "unjudged",
    "warned",
    "unclear",
    "improved",
    "passed",
)
_STATE_OF_CHANGE: dict[Change, LineState] = {
    "worse": "failed",
    "too_few": "unjudged",
    "unclear": "unclear",
    "better": "improved",
    "unchanged": "passed",
    "identical": "passed",
}


def judge(
    reports: Sequence[Report],
    baseline: Baseline | None,
    limits: Limits,
    today: date | None = None,
) -> Verdict:
    """Returns the verdict on the runs: every limit, every change, and what was not comparable.

    `reports` are repeats of one program. Without a baseline only absolute limits and findings are
    judged. `today` decides whether a waiver has expired; None lets none expire. Raises UsageError
    for limits that cannot be meant.
    """
    check_limits(limits)
    if not reports:
        raise UsageError("there is nothing to judge", "give traces or report.json files")
    empty = next((e for e in map(without_kernels, reports) if e is not None), None)
    if empty is not None:
        return refused(empty, [trace.path for report in reports for trace in report.traces])
    if any(report.capture_faults for report in reports):
        return unfit(reports)
    case = make_case(reports, baseline, limits)
    mismatches = mismatches_of(case.setups, baseline, limits)
    comparable = None if mismatches else baseline
    lines = [*_limit_lines(case), *_missing_lines(case)]
    _check_purpose(lines, baseline, limits)
    if comparable:
        lines += [*_baseline_lines(case), *_absent_lines(case)]
        mismatches += _nothing_judged(lines)
    findings = judge_findings(reports, comparable, limits, today)
    return Verdict(
        answer=_answer(lines, findings, mismatches),
        tool_version=reports[0].tool_version,
        runs=len(reports),
        baseline_runs=baseline.runs if baseline else None,
        lines=sorted(lines, key=_line_order),
        findings=findings,
        mismatches=mismatches,
        obsolete=obsolete_texts(reports, limits, today),
        notes=_notes(case),
        traces=[trace.path for report in reports for trace in report.traces],
    )


def _check_purpose(lines: Sequence[Line], baseline: Baseline | None, limits: Limits) -> None:
    """A gate that nothing can fail would pass without a word."""
    if baseline is None and not lines and "error" not in limits.rules.values():
        raise UsageError(
            "the gate has nothing to hold the runs against",
            "give --baseline FILE, --min-utilization 0.8 or limits in nsysdoctor.toml",
        )


def _nothing_judged(lines: Sequence[Line]) -> list[Mismatch]:
    if lines:
        return []
    hint = "switch a metric on in the limits, or save the baseline anew"
    return [Mismatch("metrics to judge", "at least one", "none", hint)]


def _answer(
    lines: Sequence[Line], findings: Sequence[FindingLine], mismatches: Sequence[Mismatch]
) -> Answer:
    """A proven failure stands even where other things cannot be judged; never the other way."""
    if any(line.state == "failed" for line in lines) or any(f.failed for f in findings):
        return "fail"
    unjudged = any(line.state == "unjudged" and line.level == "error" for line in lines)
    return "cannot_judge" if mismatches or unjudged else "pass"


def _line_order(line: Line) -> tuple[int, int, int, int, int, str, str]:
    device = -1 if line.device is None else line.device
    place = METRIC_ORDER[line.metric]
    level = 0 if line.level == "error" else 1
    state = _STATE_ORDER.index(line.state)
    return state, level, line.trace, place, device, line.check, line.relation


def _line(
    state: LineState,
    series: Series,
    bound: Bound,
    case: Case,
    *,
    relation: Relation,
    expected: float | None,
    told: Explanation,
    old: Series | None = None,
    change: Comparison | None = None,
) -> Line:
    return Line(
        state="warned" if state == "failed" and bound.level == "warn" else state,
        level=bound.level,
        check="baseline" if old else "limit",
        metric=series.metric,
        unit=series.unit,
        title=bound.kind.title,
        trace=series.trace,
        device=series.device,
        device_name=case.device_name(series.trace, series.device),
        relation=relation,
        expected=expected,
        found=middle(series) if series.runs else None,
        baseline=middle(old) if old else None,
        values=series.values,
        baseline_values=old.values if old else [],
        per_step=any(run.steps for run in (*series.runs, *(old.runs if old else ()))),
        method=change.method if change else "none",
        p=change.p if change else None,
        margin=change.margin if change else None,
        why=told.why,
        next=told.next,
    )


def _bound(case: Case, series: Series) -> Bound:
    name = case.device_name(series.trace, series.device)
    return bound_of(case.limits, series.metric, name)


def _change_bound(bound: Bound) -> Bound:
    """The bound with the level that a regression has."""
    return replace(bound, level=bound.change_level)


def _absolute(bound: Bound) -> list[tuple[Relation, float]]:
    """The absolute limits that are set and on."""
    pairs: tuple[tuple[Relation, float | None], ...] = ((">=", bound.min), ("<=", bound.max))
    return [(r, limit) for r, limit in pairs if limit is not None and bound.level != "off"]


def _limit_lines(case: Case) -> list[Line]:
    return [
        _limit_line(case, series, bound, relation, limit)
        for series in case.now
        for bound in (_bound(case, series),)
        for relation, limit in _absolute(bound)
    ]


def _limit_line(case: Case, series: Series, bound: Bound, relation: Relation, limit: float) -> Line:
    found = middle(series)
    held = found >= limit if relation == ">=" else found <= limit
    runs = f"median of {len(series.runs)} runs" if len(series.runs) > 1 else ""
    told = Explanation("", "") if held else Explanation(runs, next_command(bound.kind.rule, case))
    state: LineState = "passed" if held else "failed"
    return _line(state, series, bound, case, relation=relation, expected=limit, told=told)


def _missing_lines(case: Case) -> list[Line]:
    """An absolute limit on something that was not measured can never pass."""
    measured = {series.metric for series in case.now}
    names = sorted({device.name for setup in case.setups for device in setup.devices})
    lines = []
    for metric in (name for name in METRICS if name not in measured):
        bounds = [bound_of(case.limits, metric, name) for name in names or [""]]
        found = [(bound, *pair) for bound in bounds for pair in _absolute(bound)]
        for bound, relation, limit in dict.fromkeys(found):
            empty = Series(0, None, metric, METRICS[metric].unit, [])
            told = unmeasured(metric)
            lines.append(
                _line("unjudged", empty, bound, case, relation=relation, expected=limit, told=told)
            )
    return lines


def _baseline_lines(case: Case) -> list[Line]:
    """One line for every metric of the baseline that its limits watch."""
    current = {series.key: series for series in case.now}
    lines = []
    for old in case.before:
        bound = _change_bound(_bound(case, old))
        if bound.level == "off" or bound.kind.better == "neither":
            continue
        new = current.get(old.key)
        line = _change_line(case, old, new, bound) if new else _lost_line(case, old, bound)
        lines += [line] if line else []
    return lines


def _absent_lines(case: Case) -> list[Line]:
    """A metric at error level that the baseline lacks: its regression would go unseen."""
    known = {series.metric for series in case.before}
    names = sorted({device.name for device in case.setups[0].devices})
    lines = []
    for metric in (name for name in METRICS if name not in known):
        bounds = (_change_bound(bound_of(case.limits, metric, name)) for name in names)
        for bound in dict.fromkeys(bounds):
            watched = bound.level == "error" and bound.kind.better != "neither"
            if watched and not _absolute(bound):
                told = Explanation("not measured in the baseline", unmeasured(metric).next)
                empty = Series(0, None, metric, bound.kind.unit, [])
                lines.append(_unjudged(case, empty, bound, told))
    return lines


def _lost_line(case: Case, old: Series, bound: Bound) -> Line:
    told = unmeasured(old.metric)
    told = Explanation(f"measured in the baseline, {told.why}", told.next)
    return _unjudged(case, Series(*old.key, old.unit, []), bound, told, old)


def _unjudged(
    case: Case, series: Series, bound: Bound, told: Explanation, old: Series | None = None
) -> Line:
    relation = _relation(bound)
    return _line(
        "unjudged", series, bound, case, relation=relation, expected=None, told=told, old=old
    )


def _relation(bound: Bound) -> Relation:
    return ">=" if bound.kind.better == "higher" else "<="


def _change_line(case: Case, old: Series, new: Series, bound: Bound) -> Line | None:
    step_ns = value_of(case.before, old.trace, old.device, "step_ns") or 0.0
    threshold = bound.threshold(middle(old), step_ns)
    change = compare(
        old.runs,
        new.runs,
        better=bound.kind.better,
        threshold=threshold,
        min_runs=case.limits.min_runs,
    )
    # One value a run shows no spread: it is told only to those who asked for it to be held.
    if change.change == "too_few" and not (bound.kind.per_step or bound.explicit):
        return None
    return _line(
        _STATE_OF_CHANGE[change.change],
        new,
        bound,
        case,
        relation=_relation(bound),
        expected=middle(old) + (-threshold if bound.kind.better == "higher" else threshold),
        told=why_changed(change, new, case),
        old=old,
        change=change,
    )


def _notes(case: Case) -> list[str]:
    version, baseline = case.reports[0].tool_version, case.baseline
    if baseline is None:
        return ["no baseline: only absolute limits and findings were judged"]
    if baseline.tool_version == version:
        return []
    made = f"the baseline was made with nsysdoctor {baseline.tool_version}, this report"
    return [f"{made} with {version}"]
