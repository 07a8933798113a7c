"""Runs the stories, records the faulty ones, and sets predicted savings against measured ones."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.errors import NsysDoctorError
from nsysdoctor.report.model import Finding, Report
from nsysdoctor.torch import step
from sample_traces.hardware import Card
from tests.gpu.convert import card_of, export_of
from tests.gpu.stories import STORIES, Body, Size, Story

WARMUP, STEPS, REPEATS = 8, 30, 5
_STORY_ERRORS = (
    RuntimeError, ImportError, OSError, LookupError, ValueError, NsysDoctorError,
    subprocess.SubprocessError,
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one story gave; ratios are parts of the faulty program's time.

    `measured_ratio` without a profiler, `recorded_ratio` with one, which slows the host down and
    is what a prediction from a trace is about. `reason` says why there is no figure.
    """

    story: str
    title: str
    rule: str = ""
    rank: int = 0
    predicted_ratio: float | None = None
    low_ratio: float | None = None
    high_ratio: float | None = None
    measured_ratio: float | None = None
    measured_spread_ratio: float | None = None
    recorded_ratio: float | None = None
    step_ms: float | None = None
    reason: str = ""

    @property
    def error_ratio(self) -> float | None:
        """How far the prediction is from what was recorded; inside its range it is not."""
        if self.predicted_ratio is None or self.recorded_ratio is None:
            return None
        low, high = self.low_ratio or 0.0, self.high_ratio or 0.0
        recorded = self.recorded_ratio
        nearest = min(max(recorded, low), high)
        return min(abs(self.predicted_ratio - recorded), abs(nearest - recorded))

    @property
    def good(self) -> bool:
        """Whether the fault was found and its price is within 10 points or 30 %."""
        error = self.error_ratio
        return error is not None and error <= max(0.1, 0.3 * abs(self.recorded_ratio or 0.0))


def validate(
    torch: Any, folder: Path, stories: Sequence[Story] = STORIES, size: Size | None = None
) -> list[Outcome]:
    """The outcome of every story; one that fails says why and does not stop the others."""
    card = _card(torch)
    found = []
    for story in stories:
        print(f"running {story.name}", flush=True)
        try:
            found.append(_outcome(torch, story, size or Size(), folder, card))
        except _STORY_ERRORS as error:
            lines = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {lines[0] if lines else ''}"
            found.append(Outcome(story.name, story.title, reason=reason))
        torch.cuda.empty_cache()
    return found


def _outcome(torch: Any, story: Story, size: Size, folder: Path, card: Card) -> Outcome:
    faulty, cured = (story.make(torch, size, good) for good in (False, True))
    bad, good = _measured(torch, faulty), _measured(torch, cured)
    trace = folder / f"{story.name}.sqlite"
    bad_recorded = _recorded(torch, faulty, trace, card)
    good_recorded = _recorded(torch, cured, folder / f"{story.name}_cured.sqlite", card)
    report = diagnose(trace)
    middle = statistics.median(bad)
    common = {
        "story": story.name,
        "title": story.title,
        "measured_ratio": 1 - statistics.median(good) / middle,
        "measured_spread_ratio": (max(bad) - min(bad)) / middle,
        "recorded_ratio": 1 - good_recorded / bad_recorded,
        "step_ms": middle * 1e3,
    }
    rank, finding = _finding(report, story.rules)
    if finding is None:
        first = report.findings[0].rule if report.findings else "nothing"
        return Outcome(**common, reason=f"not found; first is {first}")
    span = max(report.window.span_ns, 1)
    low, high = finding.saving_low_ns or 0, finding.saving_high_ns or 0
    return Outcome(
        **common,
        rule=finding.rule,
        rank=rank,
        predicted_ratio=(finding.saving_ns or 0) / span,
        low_ratio=low / span,
        high_ratio=high / span,
    )


def _finding(report: Report, rules: Sequence[str]) -> tuple[int, Finding | None]:
    for rank, finding in enumerate(report.findings, 1):
        if finding.rule in rules and finding.level != "info":
            return rank, finding
    return 0, None


def _measured(torch: Any, body: Body) -> list[float]:
    """Seconds per step without a profiler, several times."""
    for _ in range(WARMUP):
        body()
    found = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            body()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / STEPS)
    return found


def _recorded(torch: Any, body: Body, target: Path, card: Card) -> float:
    """Seconds per step under torch's profiler, whose trace becomes an export at `target`."""
    kinds = torch.profiler.ProfilerActivity
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA], record_shapes=True) as profile:
        for _ in range(WARMUP):
            body()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            with step():
                body()
        torch.cuda.synchronize()
        took = (time.perf_counter() - start) / STEPS
    with tempfile.TemporaryDirectory() as folder:
        chrome = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(chrome))
        export_of(chrome, target, card)
    return took


def _card(torch: Any) -> Card:
    """The GPU at hand; its bandwidth from its memory clock and bus, else measured."""
    told = torch.cuda.get_device_properties(0)
    clock, bus = (getattr(told, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))
    bandwidth = 2 * clock * 1e3 * bus / 8 if clock and bus else _copy_rate(torch) / 0.92
    figures = {
        "memory_bytes": int(told.total_memory),
        "clock_hz": int(getattr(told, "clock_rate", 0)) * 1000,
        "sm_count": int(told.multi_processor_count),
        "major": int(told.major),
        "minor": int(told.minor),
    }
    return card_of(str(told.name), figures, bandwidth)


def _copy_rate(torch: Any) -> float:
    source = torch.ones(1 << 26, device="cuda")
    target = torch.empty_like(source)
    for _ in range(3):
        target.copy_(source)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        target.copy_(source)
    torch.cuda.synchronize()
    return 20 * 8.0 * source.numel() / (time.perf_counter() - start)


def table_of(outcomes: Sequence[Outcome], gpu: str) -> str:
    """The outcomes as a table of Markdown."""

    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f} %"

    head = ["story", "found", "predicted", "low to high", "recorded", "without profiler", "verdict"]
    rows = [f"{gpu}", "", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for one in outcomes:
        span = f"{percent(one.low_ratio)} to {percent(one.high_ratio)}" if one.rule else ""
        found = f"{one.rule} (no. {one.rank})" if one.rule else one.reason
        verdict = "good" if one.good else "miss"
        cells = [one.title, found, percent(one.predicted_ratio), span,
                 percent(one.recorded_ratio), percent(one.measured_ratio), verdict]  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def told_of(outcomes: Sequence[Outcome], torch: Any) -> dict[str, object]:
    """The outcomes as plain data, with where they come from."""
    return {
        "format": "nsysdoctor-validation",
        "format_version": 1,
        "gpu": str(torch.cuda.get_device_name(0)),
        "torch": str(torch.__version__),
        "outcomes": [
            {**asdict(one), "error_ratio": one.error_ratio, "good": one.good} for one in outcomes
        ],
    }
