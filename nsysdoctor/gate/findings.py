"""Findings in a verdict: new, worse, known, fixed and waived, and limits no longer needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from nsysdoctor.gate.baseline import Baseline
from nsysdoctor.gate.known import KnownFinding, Pair, findings_of_runs, match_findings
from nsysdoctor.gate.limits import Limits, Waiver, check_rules, matches
from nsysdoctor.gate.verdict import FindingLine, FindingState, Line
from nsysdoctor.report.model import Report

_ORDER: tuple[FindingState, ...] = ("new", "worse", "waived", "known", "fixed", "unjudged")


def judge_findings(
    reports: Sequence[Report],
    baseline: Baseline | None,
    limits: Limits,
    today: date | None,
    silent: frozenset[str] = frozenset(),
) -> list[FindingLine]:
    """Returns one line per finding of the runs and of the baseline, failures first.

    A new or worse finding of level low or above fails when its rule is at error level and no
    waiver holds; without a baseline every finding is new. Rules that are off give no line; what
    the `silent` ones found before, which gave no answer now, is not fixed but not judged.
    """
    check_rules(limits, _rule_names(reports, baseline))
    before = baseline.findings if baseline else []
    pairs = match_findings(before, findings_of_runs(reports))
    lines = [_finding_line(pair, limits, today, silent) for pair in pairs]
    kept = [line for line in lines if limits.rules.get(line.rule) != "off"]
    return sorted(kept, key=_order)


def _rule_names(reports: Sequence[Report], baseline: Baseline | None) -> set[str]:
    names = {outcome.rule for report in reports for outcome in report.outcomes}
    names |= {finding.rule for report in reports for finding in report.findings}
    return names | (set(baseline.setup.rules) if baseline else set())


def _order(line: FindingLine) -> tuple[bool, int, float, str, str, int, int]:
    device = -1 if line.device is None else line.device
    saving = -(line.saving_ratio or 0.0)
    place = _ORDER.index(line.state)
    return not line.failed, place, saving, line.rule, line.subject, line.trace, device


def _finding_line(
    pair: Pair, limits: Limits, today: date | None, silent: frozenset[str]
) -> FindingLine:
    shown = pair.after or pair.before
    assert shown is not None
    state = _state(pair)
    state = "unjudged" if state == "fixed" and shown.rule in silent else state
    waiver = waiver_of(shown, limits.waivers, today) if state in ("new", "worse", "known") else None
    state = "waived" if waiver else state
    acting = shown.level != "info" and state in ("new", "worse")
    return FindingLine(
        state=state,
        failed=acting and limits.rules.get(shown.rule) == "error",
        rule=shown.rule,
        subject=shown.subject,
        trace=shown.trace,
        device=shown.device,
        level=shown.level,
        baseline_level=pair.before.level if pair.before else None,
        saving_ratio=pair.after.saving_ratio if pair.after else None,
        baseline_saving_ratio=pair.before.saving_ratio if pair.before else None,
        message=shown.message,
        reason=_waiver_text(waiver) if waiver else "",
    )


def _state(pair: Pair) -> FindingState:
    if pair.before is None:
        return "new"
    if pair.after is None:
        return "fixed"
    return "worse" if pair.worse else "known"


def waiver_of(
    finding: KnownFinding, waivers: Sequence[Waiver], today: date | None
) -> Waiver | None:
    """Returns the waiver that holds for a finding today, else None."""
    for waiver in waivers:
        if not _expired(waiver, today) and _covers(waiver, finding):
            return waiver
    return None


def _covers(waiver: Waiver, finding: KnownFinding) -> bool:
    return waiver.rule == finding.rule != "" and matches(waiver.subject, finding.subject)


def _expired(waiver: Waiver, today: date | None) -> bool:
    return waiver.expires is not None and today is not None and today > waiver.expires


def _waiver_text(waiver: Waiver) -> str:
    until = f" (until {waiver.expires.isoformat()})" if waiver.expires else ""
    return f"{waiver.reason}{until}"


def waived_lines(lines: Sequence[Line], limits: Limits, today: date | None) -> list[Line]:
    """Returns the lines, those that failed and are waived today with the reason of that."""
    waivers = {w.metric: w for w in reversed(limits.waivers) if w.metric and not _expired(w, today)}
    return [_waived(line, waivers.get(line.metric)) for line in lines]


def _waived(line: Line, waiver: Waiver | None) -> Line:
    if waiver is None or line.state not in ("failed", "unclear"):
        return line
    why = "; ".join(part for part in (_waiver_text(waiver), line.why) if part)
    return replace(line, state="waived", why=why)


def obsolete_texts(
    reports: Sequence[Report], limits: Limits, today: date | None, lines: Sequence[Line] = ()
) -> list[str]:
    """Returns which waivers and relaxed limits the runs no longer need, and which expired."""
    return [
        *_obsolete_waivers(reports, limits, today),
        *_obsolete_metrics(limits, today, lines),
        *_obsolete_rules(reports, limits),
    ]


def _obsolete_waivers(reports: Sequence[Report], limits: Limits, today: date | None) -> list[str]:
    findings = findings_of_runs(reports)
    texts = []
    for waiver in (w for w in limits.waivers if w.rule):
        name = waiver.rule if waiver.subject == "*" else f"{waiver.rule} ({waiver.subject})"
        if not any(_covers(waiver, finding) for finding in findings):
            if all(_answered(report, waiver.rule) for report in reports):
                texts.append(f"waiver of {name} is no longer needed: nothing is found")
        elif _expired(waiver, today):
            texts.append(f"waiver of {name} expired on {waiver.expires}; the finding counts again")
    return texts


def _obsolete_metrics(limits: Limits, today: date | None, lines: Sequence[Line]) -> list[str]:
    texts = []
    for waiver in (w for w in limits.waivers if w.metric):
        states = {line.state for line in lines if line.metric == waiver.metric}
        if _expired(waiver, today) and states & {"failed", "unclear"}:
            texts.append(f"waiver of {waiver.metric} expired on {waiver.expires}; it counts again")
        elif states and not states & {"waived", "failed", "unclear", "unjudged"}:
            texts.append(f"waiver of {waiver.metric} is no longer needed: it holds its limits")
    return texts


def _answered(report: Report, rule: str) -> bool:
    return any(o.rule == rule and o.state in ("found", "passed") for o in report.outcomes)


def _obsolete_rules(reports: Sequence[Report], limits: Limits) -> list[str]:
    texts = []
    for rule, level in sorted(limits.rules.items()):
        states = {o.state for report in reports for o in report.outcomes if o.rule == rule}
        if level == "off" and states == {"passed"}:
            texts.append(f'rules.{rule} = "off" is no longer needed: the rule passes')
    return texts
