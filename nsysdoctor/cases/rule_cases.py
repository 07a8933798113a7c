"""Cases of rules: a trace as a text table and what a rule must say about it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nsysdoctor.cases.scene_export import write_scene
from nsysdoctor.cases.scene_text import SIZES_BYTES, TIMES_NS, quantity, read_scene
from nsysdoctor.errors import NsysDoctorError, RuleError
from nsysdoctor.report.model import LEVELS, Finding, Report
from nsysdoctor.report.ranking import subjects_of
from nsysdoctor.rulebook.rule import Rule, load_rule

Expectation = Literal["found", "quiet", "passed", "skipped", "failed"]

_COUNTS = {"": 1, "%": 1, **TIMES_NS, **SIZES_BYTES}


class Case(BaseModel):
    """One trace and what the rule must say about it.

    `expect` is how the rule ends; `quiet` allows findings that are only for the record. The
    other expectations are about the first finding, or the one on `subject`. Bounds are texts
    such as `40`, `>= 3ms`, `<= 1%` and `20% .. 30%`; a percentage is a share of the window.
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    trace: str
    expect: Expectation
    without: list[str] = Field(default_factory=list)
    params: dict[str, int | float] = Field(default_factory=dict)
    window: str = "auto"
    subject: str | None = None
    level: str | None = None
    count: int | str | None = None
    findings: int | str | None = None
    saving: str | int | None = None
    facts: dict[str, int | float | str] = Field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Result:
    """The outcome of one case: the faults found; none when the case holds."""

    rule: str
    case: str
    faults: tuple[str, ...]


def load_cases(path: Path) -> list[Case]:
    """Returns the cases of a file, a YAML list; raises RuleError when the file holds no such
    list."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except yaml.YAMLError as error:
        raise RuleError(f"{path} is no YAML: {error}", "correct the file") from error
    if not isinstance(data, list) or not data:
        raise RuleError(f"{path} holds no list of cases", "write one `- name: ...` per case")
    return [_case(path, number, row) for number, row in enumerate(data, 1)]


def _case(path: Path, number: int, row: Any) -> Case:
    try:
        return Case.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the case"
        raise RuleError(
            f"{path}: case {number}: {place}: {first['msg']}", "correct the file"
        ) from error


def write_case(case: Case, path: Path) -> None:
    """Writes the case's trace as a new export; raises RuleError for an invalid line."""
    write_scene(read_scene(case.trace), path, case.without)


def run_case(case: Case, rule: Rule, keep: Path | None = None) -> Result:
    """Returns whether the rule says about the case's trace what the case expects.

    The trace is written to a temporary file, or to `keep`, and read like any other export.
    """
    with tempfile.TemporaryDirectory(prefix="nsysdoctor-") as folder:
        path = keep or Path(folder) / "case.sqlite"
        path.unlink(missing_ok=True)
        try:
            write_case(case, path)
            faults = faults_of(case, _diagnosed(case, rule, path))
        except NsysDoctorError as error:
            faults = [f"{error.message}; {error.hint}"]
    return Result(rule.name, case.name, tuple(faults))


def _diagnosed(case: Case, rule: Rule, path: Path) -> Report:
    from nsysdoctor.diagnosis.diagnose import Options, diagnose
    from nsysdoctor.trace.window import parse_window

    options = Options(
        parse_window(case.window), [rule], {rule.name: case.params}, brief=True
    )
    return diagnose(path, options)


def folder_results(folder: Path, cases: Path, keep: Path | None = None) -> Iterator[Result]:
    """Yields the result of every case of a folder's rules; a rule without cases is a fault.

    Raises RuleError when the folder holds no rules, or a case file belongs to none of them.
    """
    rules = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if not rules:
        raise RuleError(f"{folder} holds no rules", "a rule is NAME.yaml beside NAME.py")
    files = {path.stem: path for path in sorted(cases.glob("*.yaml"))}
    strays = ", ".join(sorted(files.keys() - rules.keys()))
    if strays:
        raise RuleError(f"{cases} holds cases of no rule: {strays}", f"rules are in {folder}")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    for name, path in rules.items():
        if name not in files:
            yield Result(name, "(none)", (f"it has no cases; write {cases / name}.yaml",))
            continue
        rule = load_rule(path)
        for number, case in enumerate(load_cases(files[name]), 1):
            yield run_case(case, rule, keep / f"{name}.{number}.sqlite" if keep else None)


def faults_of(case: Case, report: Report) -> list[str]:
    """Returns where the report on one rule differs from what the case expects."""
    outcome = report.outcomes[0]
    found = report.findings
    if not _ended(case.expect, outcome.state, found):
        said = "; ".join(f"{f.level}: {f.message}" for f in found) or outcome.reason
        return [f"expected {case.expect}, is {outcome.state} ({said})"]
    faults = []
    if case.reason is not None and case.reason not in outcome.reason:
        faults.append(f"reason: expected {case.reason} in: {outcome.reason}")
    told = [one for finding in found for one in _by_subject(finding)]
    if case.findings is not None and not within(len(told), case.findings):
        subjects = ", ".join(f.subject for f in told)
        faults.append(f"findings: expected {case.findings}, are {len(told)} ({subjects})")
    expectations = (case.subject, case.level, case.count, case.saving, *case.facts)
    if all(value is None for value in expectations):
        return faults
    chosen = [f for f in told if case.subject in (None, f.subject)]
    if not chosen:
        subjects = ", ".join(f.subject for f in told) or "none"
        return [*faults, f"subject: expected {case.subject}, are {subjects}"]
    return faults + _finding_faults(case, chosen[0], report.window.span_ns)


def _by_subject(finding: Finding) -> list[Finding]:
    """The finding on each of its subjects alone, the level that of all together."""
    return [
        replace(
            finding, subject=s.subject, device=s.device, count=s.count, saving_ns=s.saving_ns,
            message=s.message, facts=s.facts,
        )
        for s in subjects_of(finding)
    ]  # fmt: skip


def _ended(expected: Expectation, state: str, found: list[Finding]) -> bool:
    if expected == "quiet":
        return state in ("passed", "found") and all(f.level == "info" for f in found)
    return state == expected


def _finding_faults(case: Case, finding: Finding, window_ns: int) -> list[str]:
    faults = []
    if case.level is not None and finding.level not in _levels(case.level):
        faults.append(f"level: expected {case.level}, is {finding.level}")
    values: dict[str, tuple[object, int | float | str | None]] = {
        "count": (finding.count, case.count),
        "saving": (finding.saving_ns, case.saving),
        **{name: (finding.facts.get(name), wanted) for name, wanted in case.facts.items()},
    }
    for name, (value, wanted) in values.items():
        whole = window_ns if name == "saving" else 1
        if wanted is not None and not within(value, wanted, whole):
            faults.append(f"{name}: expected {wanted}, is {value}{_share(name, value, window_ns)}")
    return faults


def _levels(text: str) -> list[str]:
    """The levels that `medium`, `>= low` or `<= info` allows; LEVELS begins with the severest."""
    wanted = text.lstrip("<>= ")
    if wanted not in LEVELS:
        raise RuleError(f"{wanted} is no level", f"levels are: {', '.join(LEVELS)}")
    at = LEVELS.index(wanted)
    if text.startswith(">="):
        return list(LEVELS[: at + 1])
    return list(LEVELS[at:] if text.startswith("<=") else [wanted])


def _share(name: str, value: object, window_ns: int) -> str:
    if name != "saving" or not isinstance(value, int) or not window_ns:
        return ""
    return f" ({value / window_ns:.1%} of the window)"


def within(value: object, bounds: int | float | str, whole: float = 1) -> bool:
    """Returns whether a value is as the bounds say; percentages are of `whole`.

    Bounds are a number, a text, `>= A`, `<= A` or `A .. B`, with units of time or size.
    """
    if isinstance(value, str) or value is None:
        return value == bounds
    if not isinstance(bounds, str):
        return bool(value == bounds)
    low, high = _bounds(bounds, whole)
    return low <= float(value) <= high  # type: ignore[arg-type]


def _bounds(text: str, whole: float) -> tuple[float, float]:
    if ".." in text:
        low, _, high = text.partition("..")
        return _number(low, whole), _number(high, whole)
    if text[:2] in (">=", "<="):
        limit = _number(text[2:], whole)
        return (limit, float("inf")) if text[0] == ">" else (float("-inf"), limit)
    exact = _number(text, whole)
    return exact, exact


def _number(text: str, whole: float) -> float:
    text = text.strip().replace("_", "")
    if text.endswith("%"):
        return float(text[:-1]) / 100 * whole
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return float(text)
    try:
        return float(quantity(text, _COUNTS))
    except ValueError as error:
        raise RuleError(f"{error}", "write bounds such as 40, >= 3ms or 20% .. 30%") from error
