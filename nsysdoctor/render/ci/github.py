"""GitHub workflow commands: annotations that show in a pull request's checks.

Format: docs.github.com, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

from nsysdoctor.gate.fold import printable
from nsysdoctor.gate.verdict import Verdict
from nsysdoctor.render.verdicts import words
from nsysdoctor.report.model import Report
from nsysdoctor.units import ratio_text

_DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY = (*_DATA, (":", "%3A"), (",", "%2C"))
_LEVELS = {"high": "error", "medium": "warning", "low": "notice"}
_STATES = {"failed": "error", "warned": "warning", "unclear": "notice"}


def _escaped(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    safe = printable(text)
    for char, code in pairs:
        safe = safe.replace(char, code)
    return safe


def _command(kind: str, title: str, text: str) -> str:
    return f"::{kind} title={_escaped(title, _PROPERTY)}::{_escaped(text, _DATA)}"


def verdict_github(verdict: Verdict) -> str:
    """Returns one annotation per thing that needs attention, and the answer as the last line."""
    lines = [
        _command("error", f"cannot judge: {m.what}", f"{words.mismatch_text(m)}\nnext: {m.next}")
        for m in verdict.mismatches
    ]
    for line in verdict.lines:
        kind = _STATES.get(line.state)
        if line.state == "unjudged":
            kind = "error" if line.level == "error" else "notice"
        if kind:
            parts = (
                words.sentence(line),
                words.values_text(line),
                line.why,
                f"next: {line.next}" if line.next else "",
            )
            lines.append(_command(kind, line.title, "\n".join(part for part in parts if part)))
    for finding in verdict.findings:
        if finding.state in ("new", "worse") and finding.level != "info":
            kind = "error" if finding.failed else "warning"
            lines.append(_command(kind, f"{finding.state} finding", words.finding_text(finding)))
    lines += [_command("notice", "limit no longer needed", text) for text in verdict.obsolete]
    kind = "notice" if verdict.answer == "pass" else "error"
    lines.append(_command(kind, "nsysdoctor gate", words.headline(verdict)))
    return "\n".join(lines) + "\n"


def report_github(report: Report) -> str:
    """Returns one annotation per finding of level low or above; empty text when there is none."""
    lines = [
        _command(_LEVELS[f.level], f"{f.rule}: {f.title}", f"{f.subject}: {f.message}{_saving(f)}")
        for f in report.findings
        if f.level != "info"
    ]
    return "".join(f"{line}\n" for line in lines)


def _saving(finding: object) -> str:
    ratio = getattr(finding, "saving_ratio", None)
    return "" if ratio is None else f"\ncure saves up to {ratio_text(ratio)}"
