"""Reports and verdicts as SARIF 2.1.0, for code scanning views.

Format: OASIS Standard "Static Analysis Results Interchange Format", version 2.1.0. The classes hold
the part of its object model that is used here, with its names in snake case.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Literal
from urllib.parse import quote

from nsysdoctor.gate.fold import folded_name, printable
from nsysdoctor.gate.verdict import FindingLine, Line, Verdict
from nsysdoctor.render.verdicts import words
from nsysdoctor.report.model import Finding, Report

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
ResultLevel = Literal["error", "warning", "note", "none"]
BaselineState = Literal["new", "unchanged", "updated", "absent"]


@dataclass(frozen=True)
class Message:
    """Plain text, optionally with a Markdown form."""

    text: str
    markdown: str | None = None


@dataclass(frozen=True)
class ArtifactLocation:
    """A file, as a URI."""

    uri: str


@dataclass(frozen=True)
class Region:
    """A place in a file. A trace has no lines, but viewers require one."""

    start_line: int = 1


@dataclass(frozen=True)
class PhysicalLocation:
    """A file and a place in it."""

    artifact_location: ArtifactLocation
    region: Region = field(default_factory=Region)


@dataclass(frozen=True)
class Location:
    """Where a result was seen."""

    physical_location: PhysicalLocation


@dataclass(frozen=True)
class ReportingDescriptor:
    """A rule."""

    id: str
    short_description: Message
    help: Message


@dataclass(frozen=True)
class ToolComponent:
    """The tool and its rules."""

    name: str
    version: str
    information_uri: str | None
    rules: list[ReportingDescriptor]


@dataclass(frozen=True)
class Tool:
    """The tool that made the results."""

    driver: ToolComponent


@dataclass(frozen=True)
class Result:
    """One finding or one broken limit."""

    rule_id: str
    rule_index: int
    level: ResultLevel
    message: Message
    locations: list[Location]
    partial_fingerprints: dict[str, str]
    baseline_state: BaselineState | None = None
    properties: dict[str, Any] | None = None


@dataclass(frozen=True)
class Run:
    """One run of the tool."""

    tool: Tool
    results: list[Result]
    column_kind: str = "unicodeCodePoints"


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def _data(value: Any) -> Any:
    """Dataclasses to objects with the standard's names, without what is None."""
    if is_dataclass(value):
        pairs = ((one.name, getattr(value, one.name)) for one in fields(value))
        return {_camel(name): _data(part) for name, part in pairs if part is not None}
    if isinstance(value, list):
        return [_data(part) for part in value]
    return printable(value) if isinstance(value, str) else value


def _log(version: str, rules: Sequence[ReportingDescriptor], results: Sequence[Result]) -> str:
    tool = Tool(ToolComponent("nsysdoctor", version, None, list(rules)))
    run = _data(Run(tool, list(results)))
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False, allow_nan=False)


def uri(path: str) -> str:
    """Returns a path as a URI: relative paths stay relative, absolute ones become file URIs."""
    windows = PureWindowsPath(path)
    if windows.drive and windows.root:
        return f"file:///{quote(windows.as_posix(), safe='/:')}"
    posix = PurePosixPath(path)
    encoded = quote(str(posix), safe="/", errors="replace")
    return f"file://{encoded}" if posix.is_absolute() else encoded


def _locations(path: str) -> list[Location]:
    return [Location(PhysicalLocation(ArtifactLocation(uri(path))))] if path else []


def _fingerprint(*parts: object) -> dict[str, str]:
    """An identity that is stable over reruns: addresses and numbers in the subject are ignored."""
    text = "\0".join(folded_name(str(part)) for part in parts)
    return {"subject/v1": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]}


_FINDING_LEVELS: dict[str, ResultLevel] = {"high": "error", "medium": "warning"}


def report_sarif(report: Report) -> str:
    """Returns SARIF text with one rule per rule that found something and one result per finding."""
    rules = _finding_rules(report.findings)
    places = {rule.id: place for place, rule in enumerate(rules)}
    return _log(report.tool_version, rules, [
        _finding_result(finding, places[finding.rule], report) for finding in report.findings
    ])  # fmt: skip


def _finding_rules(findings: Iterable[Finding]) -> list[ReportingDescriptor]:
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.rule, finding)
    return [
        ReportingDescriptor(
            rule, Message(finding.title or rule), Message(_help(finding) or finding.title or rule)
        )
        for rule, finding in sorted(first.items())
    ]


def _help(finding: Finding) -> str:
    return "\n\n".join(part for part in (finding.why, finding.fix) if part)


def _finding_result(finding: Finding, place: int, report: Report) -> Result:
    traces = report.traces
    path = traces[finding.trace].path if finding.trace < len(traces) else ""
    return Result(
        rule_id=finding.rule,
        rule_index=place,
        level=_FINDING_LEVELS.get(finding.level, "note"),
        message=Message(f"{finding.subject}: {finding.message}"),
        locations=_locations(path),
        partial_fingerprints=_fingerprint(finding.rule, finding.device, finding.subject),
        properties={"saving_ns": finding.saving_ns, "saving_ratio": finding.saving_ratio},
    )


def verdict_sarif(verdict: Verdict) -> str:
    """Returns SARIF text with broken limits, what cannot be judged, and findings by state."""
    path = verdict.traces[0] if verdict.traces else ""
    drafts = [*_mismatch_drafts(verdict), *_line_drafts(verdict), *_finding_drafts(verdict)]
    ids = sorted({draft.rule for draft in drafts})
    titles = {draft.rule: draft.title for draft in reversed(drafts)}
    rules = [ReportingDescriptor(id_, Message(titles[id_]), Message(titles[id_])) for id_ in ids]
    results = [
        Result(
            rule_id=draft.rule,
            rule_index=ids.index(draft.rule),
            level=draft.level,
            message=Message(draft.text),
            locations=_locations(path),
            partial_fingerprints=_fingerprint(draft.rule, draft.subject),
            baseline_state=draft.state,
        )
        for draft in drafts
    ]
    return _log(verdict.tool_version, rules, results)


@dataclass(frozen=True)
class _Draft:
    rule: str
    title: str
    level: ResultLevel
    text: str
    subject: str
    state: BaselineState | None = None


def _mismatch_drafts(verdict: Verdict) -> list[_Draft]:
    return [
        _Draft("gate/comparable", "Runs that can be compared with the baseline", "error",
               f"cannot judge: {words.mismatch_text(m)}; next: {m.next}", m.what)
        for m in verdict.mismatches
    ]  # fmt: skip


_LINE_LEVELS: dict[str, ResultLevel] = {"failed": "error", "warned": "warning", "unclear": "note"}


def _line_drafts(verdict: Verdict) -> list[_Draft]:
    return [_line_draft(line) for line in words.shown_lines(verdict) if line.state != "improved"]


def _line_draft(line: Line) -> _Draft:
    level = _LINE_LEVELS.get(line.state, "error" if line.level == "error" else "note")
    parts = [words.sentence(line), line.why, f"next: {line.next}" if line.next else ""]
    text = "; ".join(part for part in parts if part)
    return _Draft(f"gate/{line.metric}", line.title, level, text, words.place_text(line))


_STATES: dict[str, BaselineState] = {
    "new": "new", "worse": "updated", "known": "unchanged", "waived": "unchanged",
    "fixed": "absent", "unjudged": "unchanged",
}  # fmt: skip


def _finding_drafts(verdict: Verdict) -> list[_Draft]:
    return [_finding_draft(line, verdict) for line in verdict.findings]


def _finding_draft(line: FindingLine, verdict: Verdict) -> _Draft:
    level: ResultLevel = "error" if line.failed else "warning"
    if line.level == "info" or line.state in ("known", "waived", "fixed", "unjudged"):
        level = "note"
    state = _STATES[line.state] if verdict.baseline_runs is not None else None
    text = f"{line.state} finding {words.finding_text(line)}"
    return _Draft(line.rule, line.rule.replace("_", " "), level, text, line.subject, state)
