"""A report: what was analysed, how the time was spent, what was found. Plain data, no trace."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from nsysdoctor.errors import UsageError
from nsysdoctor.report.faults import CaptureFault
from nsysdoctor.report.work import Work

FORMAT = "nsysdoctor-report"
FORMAT_VERSION = 1

Level = Literal["high", "medium", "low", "info"]
State = Literal["found", "passed", "skipped", "failed"]
Basis = Literal["measured", "geometry", "inferred"]
Quantity = int | float | str | None

FAILURES = "failures"
"""The category of rules about work that the device refused; nothing else counts before that."""

START_UP = "start_up"
"""The category of what is slow before the work and after it, which no cure in the loop saves."""

LEVELS: tuple[Level, ...] = ("high", "medium", "low", "info")


@dataclass(frozen=True)
class Gpu:
    """A GPU that ran work in the trace; figures are null where the export lacks them."""

    device: int
    name: str
    memory_bandwidth_bytes_per_s: int | None = None
    sm_count: int | None = None
    clock_hz: int | None = None
    compute_capability: str | None = None
    total_memory_bytes: int | None = None


@dataclass(frozen=True)
class Dropped:
    """Rows of one table that were left out because they are impossible, and the reason."""

    table: str
    reason: str
    rows: int


@dataclass(frozen=True)
class TraceInfo:
    """One analysed export."""

    path: str
    rank: int | None
    host: str | None
    nsys_version: str | None
    schema_version: str | None
    gpus: list[Gpu]
    rows: dict[str, int]
    dropped: list[Dropped]


@dataclass(frozen=True)
class Window:
    """The stretch of time that every ratio of a saving refers to.

    `paused_ns` of it belong to no step: an evaluation, a checkpoint, a long pause between two.
    """

    start_ns: int
    end_ns: int
    basis: Literal["all", "steady", "given"]
    paused_ns: int = 0

    @property
    def span_ns(self) -> int:
        """Returns how long the window is without its pauses, in ns."""
        return self.end_ns - self.start_ns - self.paused_ns


@dataclass(frozen=True)
class Steps:
    """The iterations that were recognised, and how long the steady ones took on the device.

    `evidence` says in words what told them.
    """

    count: int
    steady_count: int
    basis: Literal["nvtx", "period"]
    label: str
    median_ns: int
    p90_ns: int
    evidence: str = ""


@dataclass(frozen=True)
class Phase:
    """A stretch of the trace: startup, warmup, steady, evaluation, checkpoint or tail."""

    trace: int
    phase: str
    start_ns: int
    end_ns: int
    steps: int


@dataclass(frozen=True)
class DeviceBudget:
    """Every nanosecond of one device's span, in exactly one bucket."""

    trace: int
    device: int
    name: str
    span_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int
    utilization_ratio: float
    busy_ratio: float
    kernel_work_ns: int
    start_ns: int = 0
    processes: int = 1


@dataclass(frozen=True)
class IdleCause:
    """How much of a device's idle time has one cause."""

    trace: int
    device: int
    cause: str
    idle_ns: int


@dataclass(frozen=True)
class LostTime:
    """A part of a device's lost time, or of the program's time around it, with one cause and one
    culprit.

    In the phases `before` and `after` it lies around the device's span, and `ratio` is its share of
    all that was recorded; else of the span, and a device's rows add up to its idle, exposed copy
    and exposed communication time. It comes in `count` stretches; cures of `findings` (places)
    address a part of it, and those to act on `claimed_ns`.
    """

    trace: int
    device: int
    phase: str
    bucket: str
    cause: str
    culprit: str
    culprit_kind: str
    thread: str
    range: str
    ns: int
    ratio: float
    count: int
    longest_start_ns: int
    longest_ns: int = 0
    claimed_ns: int = 0
    findings: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Metric:
    """One number a gate can hold against a limit, and its value in each steady step."""

    trace: int
    device: int | None
    metric: str
    unit: Literal["ns", "bytes", "ratio", "count"]
    value: float
    steps: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class KernelRow:
    """All launches of one kernel on one device."""

    trace: int
    device: int
    name: str
    short: str
    category: str
    dtype: str
    library: str
    bound: str
    basis: str
    count: int
    total_ns: int
    median_ns: int
    share_ratio: float
    rate_bytes_per_s: float | None
    peak_ratio: float | None


@dataclass(frozen=True)
class Evidence:
    """A place in the trace that shows the finding."""

    start_ns: int
    end_ns: int
    what: str


@dataclass(frozen=True)
class Subject:
    """One of the places where a finding holds: a device, a thread, a direction, a kernel pattern.

    `saving_ns` is what the cure saves when it is applied here alone.
    """

    subject: str
    trace: int
    device: int | None
    count: int
    saving_ns: int | None
    message: str
    facts: dict[str, Quantity]


@dataclass(frozen=True)
class Finding:
    """One failing state, with its cause, its cure and what the cure saves everywhere at once.

    `cause` tells findings of one rule apart, `subjects` are the places where it holds. A cure
    that helps only or more together with others names their findings in `needs`, by their place
    in the report, and in `saving_with_ns` what this set saves. `saving_added_ns` is the same
    where the faults hide each other; where the others do not need this one, what it adds to them.
    """

    rule: str
    level: Level
    subject: str
    trace: int
    device: int | None
    title: str
    message: str
    why: str
    fix: str
    ecosystem: str
    example: dict[str, str]
    count: int
    saving_ns: int | None
    saving_low_ns: int | None
    saving_high_ns: int | None
    saving_ratio: float | None
    basis: Basis
    facts: dict[str, Quantity]
    evidence: list[Evidence]
    evidence_total: int
    category: str = ""
    cause: str = ""
    subjects: list[Subject] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    saving_with_ns: int | None = None
    saving_with_ratio: float | None = None
    saving_added_ns: int | None = None

    @property
    def worth_ns(self) -> int:
        """Returns what the finding is ranked by: what its cure saves, or with those that it
        needs; 0 where it has no price."""
        return max(self.saving_ns or 0, self.saving_added_ns or 0)


@dataclass(frozen=True)
class Outcome:
    """How one rule ended."""

    rule: str
    state: State
    reason: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Note:
    """Something the reader must know to trust the numbers, such as a capture fault or an
    assumption."""

    trace: int
    text: str


@dataclass(frozen=True)
class Report:
    """Everything a renderer or a gate needs to know about one analysis."""

    tool_version: str
    traces: list[TraceInfo]
    window: Window
    steps: Steps | None
    devices: list[DeviceBudget]
    idle_causes: list[IdleCause]
    findings: list[Finding]
    combined_saving_ns: int
    combined_saving_ratio: float
    outcomes: list[Outcome]
    phases: list[Phase] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    capture_faults: list[CaptureFault] = field(default_factory=list)
    lost_time: list[LostTime] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    format: str = FORMAT
    format_version: int = FORMAT_VERSION

    def to_json(self) -> str:
        """Returns the report as JSON text; equal reports give equal text."""
        head = {"format": self.format, "format_version": self.format_version}
        return json.dumps(head | asdict(self), indent=1, ensure_ascii=False, allow_nan=False)


def read_report(text: str) -> Report:
    """Returns the report that `to_json` wrote; raises UsageError for anything else."""
    from pydantic import TypeAdapter, ValidationError

    from nsysdoctor.report.validity import check_report
    try:
        report = TypeAdapter(Report).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise UsageError(
            f"the file is no nsysdoctor report ({place}: {first['msg']})",
            "make one with: nsysdoctor report run.sqlite -o report.json",
        ) from error
    if report.format != FORMAT or report.format_version > FORMAT_VERSION:
        told = f"the report has format {report.format} {report.format_version}"
        raise UsageError(told, f"this nsysdoctor reads {FORMAT} up to {FORMAT_VERSION}")
    check_report(report)
    return report
