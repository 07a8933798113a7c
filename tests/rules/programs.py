"""Reports of single rules on the sample programs, with and without their cure."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from nsysdoctor.diagnosis.diagnose import Options, diagnose
from nsysdoctor.report.model import Finding, Report
from nsysdoctor.rulebook.rule import Rule, built_in_folder, load_rule
from sample_traces import Recording, record, steady_saving_ns, write

LAYOUT = "2025"


@cache
def rule_named(name: str) -> Rule:
    """Returns the built-in rule of that name."""
    return load_rule(built_in_folder() / f"{name}.yaml")


def report_on(recording: Recording, *rules: str, layout: str = LAYOUT) -> Report:
    """Returns what the rules say of a recording."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        write(recording, path, layout=layout)
        return diagnose(path, Options(rules=[rule_named(rule) for rule in rules]))


@cache
def found_on(program: str, rule: str, *, cured: bool = False) -> tuple[Finding, ...]:
    """Returns the rule's findings that are to act on, on a program."""
    report = report_on(record(program, cured=cured), rule)
    assert [outcome.state for outcome in report.outcomes] != ["failed"], report.outcomes
    return tuple(finding for finding in report.findings if finding.level != "info")


def saving_of(findings: tuple[Finding, ...]) -> tuple[int, int, int]:
    """Returns low, expected and high saving of the first finding, ns."""
    first = findings[0]
    return first.saving_low_ns or 0, first.saving_ns or 0, first.saving_high_ns or 0


def misses(program: str, rule: str, *, ranged: bool) -> str:
    """Returns how the rule's saving on a program differs from the truth, empty where it holds:
    within 15 % of it or 2 points of the window, or inside the range of an uncertain cure."""
    findings = found_on(program, rule)
    if not findings:
        return "nothing found"
    low, expected, high = saving_of(findings)
    truth = steady_saving_ns(program)
    window_ns = round(expected / (findings[0].saving_ratio or 1.0))
    if ranged and low <= truth <= high:
        return ""
    near = abs(expected - truth) <= max(0.15 * truth, 0.02 * window_ns)
    return "" if near else f"says {low} … {expected} … {high} ns, true are {truth} ns"
