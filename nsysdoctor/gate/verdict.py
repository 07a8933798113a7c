"""A verdict: reports held against limits and a baseline. Plain data, no judging."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from nsysdoctor.report.metrics import Unit
from nsysdoctor.report.model import Level as FindingLevel

FORMAT = "nsysdoctor-verdict"
FORMAT_VERSION = 1

Answer = Literal["pass", "fail", "cannot_judge"]
LineState = Literal["failed", "warned", "unjudged", "unclear", "waived", "improved", "passed"]
Relation = Literal[">=", "<="]
FindingState = Literal["new", "worse", "known", "fixed", "waived", "unjudged"]

EXIT_CODES: dict[Answer, int] = {"pass": 0, "fail": 1, "cannot_judge": 2}


CulpritKind = Literal["kernel", "graph", "copy", "idle", "rest"]


@dataclass(frozen=True)
class Culprit:
    """One part of a step and how much it takes before and after; all of a line add up to the
    change of the step. `beside` names the calls that grew with it."""

    kind: CulpritKind
    name: str
    before_ns: float
    after_ns: float
    beside: str = ""

    @property
    def growth_ns(self) -> float:
        """Returns how much more time the part takes per step."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class Line:
    """One metric on one device, held against one limit.

    `expected` is the bound that `found` had to keep, `relation` how (`>=` or `<=`). Values are
    in the metric's unit, per steady step where `per_step`. `method` says how noise was measured.
    """

    state: LineState
    level: Literal["off", "warn", "error"]
    check: Literal["limit", "baseline"]
    metric: str
    unit: Unit
    title: str
    trace: int
    device: int | None
    device_name: str
    relation: Relation
    expected: float | None
    found: float | None
    baseline: float | None
    values: list[float]
    baseline_values: list[float]
    per_step: bool
    method: str
    p: float | None
    margin: float | None
    why: str
    next: str
    culprits: list[Culprit] = field(default_factory=list)


@dataclass(frozen=True)
class FindingLine:
    """One finding, matched with the baseline's by rule and subject, one for one."""

    state: FindingState
    failed: bool
    rule: str
    subject: str
    trace: int
    device: int | None
    level: FindingLevel
    baseline_level: FindingLevel | None
    saving_ratio: float | None
    baseline_saving_ratio: float | None
    message: str
    reason: str = ""


@dataclass(frozen=True)
class Mismatch:
    """What forbids a judgement: how runs and baseline differ, with both values.

    `baseline` is empty where the run alone is at fault.
    """

    what: str
    baseline: str
    found: str
    next: str


@dataclass(frozen=True)
class Verdict:
    """The answer, and everything it rests on; regressions come first."""

    answer: Answer
    tool_version: str
    runs: int
    baseline_runs: int | None
    lines: list[Line]
    findings: list[FindingLine]
    mismatches: list[Mismatch]
    obsolete: list[str]
    notes: list[str]
    traces: list[str] = field(default_factory=list)
    format: str = FORMAT
    format_version: int = FORMAT_VERSION

    @property
    def exit_code(self) -> int:
        """Returns 0 for pass, 1 for fail, 2 for cannot judge."""
        return EXIT_CODES[self.answer]

    def to_json(self) -> str:
        """Returns the verdict as JSON text with its exit code; equal verdicts give equal text."""
        data = asdict(self)
        head = {key: data.pop(key) for key in ("format", "format_version", "answer")}
        head["exit_code"] = self.exit_code
        return json.dumps(head | data, indent=1, ensure_ascii=False, allow_nan=False)
