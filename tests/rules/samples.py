"""What the tests of rules ask about the sample programs."""

from __future__ import annotations

from functools import cache

from nsysdoctor.report.model import Finding, Report
from tests.accuracy import Row, judged, reported


@cache
def row_of(name: str) -> Row:
    """Predicted against true saving of a program."""
    return judged(name)


def report_of(name: str, cured: bool = False) -> Report:
    """The report on a program with its fault, or without it."""
    return reported(name, cured=cured)


def to_act(name: str, rule: str, cured: bool = False) -> list[Finding]:
    """The findings of a rule on a program that are more than a note."""
    found = report_of(name, cured).findings
    return [f for f in found if f.rule == rule and f.level != "info"]


def first_rule(name: str) -> str:
    """The rule of the finding that stands first."""
    return next((f.rule for f in report_of(name).findings if f.level != "info"), "")


def ended(name: str, rule: str) -> str:
    """How a rule ended on a program."""
    return next(o.state for o in report_of(name).outcomes if o.rule == rule)
