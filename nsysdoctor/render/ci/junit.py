"""Verdicts and reports as JUnit XML, which every CI system reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nsysdoctor.gate.fold import printable
from nsysdoctor.gate.verdict import FindingLine, Line, Mismatch, Verdict
from nsysdoctor.render.verdicts import words
from nsysdoctor.report.model import Finding, Outcome, Report

if TYPE_CHECKING:
    from junitparser import TestCase


def verdict_junit(verdict: Verdict) -> str:
    """Returns JUnit XML with one test case per comparison, metric and finding.

    A failed limit is a failure; one at error level that could not be judged is an error. Warnings
    pass and are written to the case's output.
    """
    cases = [_mismatch_case(mismatch) for mismatch in verdict.mismatches]
    cases += [_line_case(line) for line in verdict.lines]
    cases += [_finding_case(line) for line in verdict.findings if line.state != "fixed"]
    return _xml("nsysdoctor gate", cases)


def report_junit(report: Report) -> str:
    """Returns JUnit XML with one test case per rule: findings of level low or above fail it."""
    return _xml("nsysdoctor report", (_outcome_case(o, report.findings) for o in report.outcomes))


def _xml(name: str, cases: Iterable[TestCase]) -> str:
    from xml.etree import ElementTree

    from junitparser import JUnitXml, TestSuite

    suite = TestSuite(name)
    suite.add_testcases(list(cases))
    document: Any = JUnitXml()  # untyped where it is used
    document.add_testsuite(suite)
    document.update_statistics()
    root = ElementTree.fromstring(document.tostring())
    root.attrib.pop("skipped", None)  # Jenkins knows this count on a suite only
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _case(name: str, group: str, seconds: float = 0.0) -> TestCase:
    from junitparser import TestCase

    return TestCase(printable(name), printable(group), round(seconds, 6))


def _problem(case: TestCase, kind: str, message: str, text: str) -> None:
    from junitparser import Error, Failure, Skipped

    made = {"failure": Failure, "error": Error, "skipped": Skipped}[kind](printable(message), kind)
    made.text = printable(text)
    case.result = [made]


def _mismatch_case(mismatch: Mismatch) -> TestCase:
    case = _case(mismatch.what, "nsysdoctor.gate.comparable")
    _problem(case, "error", words.mismatch_text(mismatch), f"next: {mismatch.next}")
    return case


def _line_case(line: Line) -> TestCase:
    case = _case(
        f"{line.metric} ({line.check} {line.relation})",
        f"nsysdoctor.{words.place_text(line) or 'run'}",
    )
    detail = "\n".join(
        text for text in (words.values_text(line), line.why, f"next: {line.next}") if text
    )
    if line.state == "failed":
        _problem(case, "failure", words.sentence(line), detail)
    elif line.state == "unjudged" and line.level == "error":
        _problem(case, "error", f"cannot judge {line.title}: {line.why}", detail)
    elif line.state == "unjudged":
        _problem(case, "skipped", f"cannot judge {line.title}: {line.why}", detail)
    else:
        case.system_out = printable(f"{line.state}: {words.sentence(line)}")
    return case


def _finding_case(line: FindingLine) -> TestCase:
    case = _case(line.subject or line.rule, f"nsysdoctor.findings.{line.rule}")
    text = f"{line.state} finding {words.finding_text(line)}"
    if line.failed:
        _problem(case, "failure", text, line.message)
    else:
        case.system_out = printable(text)
    return case


def _outcome_case(outcome: Outcome, findings: Iterable[Finding]) -> TestCase:
    case = _case(outcome.rule, "nsysdoctor.rules", outcome.seconds)
    mine = [f for f in findings if f.rule == outcome.rule and f.level != "info"]
    if outcome.state == "failed":
        _problem(case, "error", f"the rule {outcome.rule} broke", outcome.reason)
    elif outcome.state == "skipped":
        _problem(case, "skipped", outcome.reason, "")
    elif mine:
        text = "\n".join(f"{f.level}: {f.subject}: {f.message}" for f in mine)
        _problem(case, "failure", mine[0].title, text)
    return case
