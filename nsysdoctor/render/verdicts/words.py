"""A verdict in words: the sentences that terminal, Markdown, JUnit, SARIF and GitHub share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nsysdoctor.gate.verdict import Answer, FindingLine, Line, LineState, Mismatch, Verdict
from nsysdoctor.report.metrics import Unit
from nsysdoctor.units import count_text, quantity_text, ratio_text

ANSWERS: dict[Answer, str] = {"pass": "pass", "fail": "fail", "cannot_judge": "cannot judge"}
STATES: dict[LineState, str] = {
    "failed": "FAIL",
    "unjudged": "????",
    "warned": "WARN",
    "unclear": "????",
    "waived": "waived",
    "improved": "BETTER",
    "passed": "ok",
}
MAX_VALUES = 10


def value_text(unit: Unit, value: float | None) -> str:
    """Returns a metric's value with its unit; small counts keep their fraction."""
    if value is None:
        return "not measured"
    if unit == "count" and value != int(value):
        return f"{value:,.3g}"
    return quantity_text(unit, value)


def place_text(line: Line | FindingLine) -> str:
    """Returns the GPU that a line is about; empty when it is about the whole run."""
    rank = f"trace {line.trace}, " if line.trace else ""
    if line.device is None:
        return rank.removesuffix(", ")
    name = getattr(line, "device_name", "")
    return f"{rank}GPU {line.device}" + (f" ({name})" if name else "")


def expected_text(line: Line) -> str:
    """Returns what the limit asked for, with the baseline it comes from."""
    if line.expected is None:
        return "a value"
    text = f"{line.relation} {value_text(line.unit, line.expected)}"
    if line.check == "baseline":
        text += f" (baseline {value_text(line.unit, line.baseline)})"
    return text


def found_text(line: Line) -> str:
    """Returns the value found, with `per step` where it is one."""
    text = value_text(line.unit, line.found)
    per_step = line.per_step and line.unit != "ratio" and line.metric != "step_ns"
    return f"{text} per step" if per_step and line.found is not None else text


def sentence(line: Line) -> str:
    """Returns a line as one sentence: metric, place, found, expected."""
    return f"{subject(line)}: {found_text(line)}, expected {expected_text(line)}"


def subject(line: Line) -> str:
    """Returns the metric and its place."""
    place = place_text(line)
    return f"{line.title} on {place}" if place else line.title


def values_text(line: Line) -> str:
    """Returns the values of all runs; empty where each side has only one."""
    parts = []
    if len(line.values) > 1:
        parts.append(f"runs: {_list(line.unit, line.values)}")
    if len(line.baseline_values) > 1:
        parts.append(f"baseline runs: {_list(line.unit, line.baseline_values)}")
    return "; ".join(parts)


def _list(unit: Unit, values: Sequence[float]) -> str:
    shown = ", ".join(value_text(unit, value) for value in values[:MAX_VALUES])
    return f"{shown}, …" if len(values) > MAX_VALUES else shown


def mismatch_text(mismatch: Mismatch) -> str:
    """Returns what differs, with both values."""
    if not mismatch.baseline:
        return f"{mismatch.what}: {mismatch.found}"
    return f"{mismatch.what}: {mismatch.baseline} in the baseline, {mismatch.found} now"


def finding_text(line: FindingLine) -> str:
    """Returns a finding with its saving then and now."""
    parts = [f"{line.rule}: {line.subject}"]
    if line.saving_ratio is not None:
        parts.append(f"cure saves up to {ratio_text(line.saving_ratio)}")
    if line.baseline_saving_ratio is not None and line.state in ("worse", "fixed"):
        parts.append(f"in the baseline {ratio_text(line.baseline_saving_ratio)}")
    if line.reason:
        parts.append(line.reason)
    return ", ".join(parts)


def shown_lines(verdict: Verdict) -> list[Line]:
    """Returns the lines worth showing: those that failed or changed, and those at error level that
    could not be judged."""
    return [line for line in verdict.lines if _is_news(line)]


def _is_news(line: Line) -> bool:
    if line.state in ("unjudged", "unclear"):
        return line.level == "error"
    return line.state != "passed"


def news(verdict: Verdict) -> list[FindingLine]:
    """Returns the findings that are new information: all but the known ones."""
    return [line for line in verdict.findings if line.state != "known"]


def headline(verdict: Verdict) -> str:
    """Returns the answer and its first reason, in one line."""
    answer = ANSWERS[verdict.answer]
    if verdict.answer == "pass":
        held = sum(line.state in ("passed", "improved") for line in verdict.lines)
        return f"{answer}: {_counted(held, 'metric')} held{_warnings(verdict)}"
    return f"{answer}: {_first_reason(verdict)}"


def _warnings(verdict: Verdict) -> str:
    """What a pass must not hide: the first warning and how many there are."""
    warned = [line for line in verdict.lines if line.state == "warned"]
    warned += [line for line in verdict.lines if line.state == "unclear" and line.level == "error"]
    texts = [change_text(line) for line in warned]
    texts += [
        f"{line.state} finding {line.rule}"
        for line in verdict.findings
        if line.state in ("new", "worse") and line.level != "info"
    ]
    if not texts:
        return ""
    rest = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f"; warning: {texts[0]}{rest}"


def change_text(line: Line) -> str:
    """Returns a metric with both values, or with its limit where no baseline was held."""
    if line.baseline is None or line.found is None:
        return f"{subject(line)} {found_text(line)}"
    before, after = (value_text(line.unit, value) for value in (line.baseline, line.found))
    return f"{line.title} {before} -> {after}"


def _first_reason(verdict: Verdict) -> str:
    if verdict.answer == "fail":
        failed = [line for line in verdict.lines if line.state == "failed"]
        findings = [finding_text(line) for line in verdict.findings if line.failed]
        reasons = [sentence(line) for line in failed] + findings
    else:
        reasons = [mismatch_text(mismatch) for mismatch in verdict.mismatches]
        reasons += [
            f"{subject(line)}: {line.why}"
            for line in verdict.lines
            if line.state in ("unjudged", "unclear") and line.level == "error"
        ]
    rest = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0]}{rest}" if reasons else "no reason given"


def basis_text(verdict: Verdict) -> str:
    """Returns how many runs were compared with what."""
    runs = _counted(verdict.runs, "run")
    if verdict.baseline_runs is None:
        return f"{runs} against absolute limits"
    return f"{runs} against a baseline of {_counted(verdict.baseline_runs, 'run')}"


def summary(verdict: Verdict) -> str:
    """Returns how many lines have each result, and how many findings are in each state."""
    lines: Counter[str] = Counter(line.state for line in verdict.lines)
    names = {
        "failed": "failed",
        "unjudged": "not judged",
        "warned": "warned",
        "unclear": "unclear",
        "waived": "waived",
        "improved": "improved",
        "passed": "passed",
    }
    parts = [f"{count_text(lines[state])} {name}" for state, name in names.items() if lines[state]]
    text = f"metrics: {', '.join(parts) or 'none'}"
    findings: Counter[str] = Counter(line.state for line in verdict.findings)
    order = ("new", "worse", "fixed", "waived", "known", "unjudged")
    states = [f"{findings[state]} {state}" for state in order if findings[state]]
    return f"{text}; findings: {', '.join(states) or 'none'}"


def _counted(count: int, noun: str) -> str:
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"
