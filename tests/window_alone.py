"""A window read alone against the window cut from a whole reading: the reports must be equal."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from nsysdoctor.diagnosis.diagnose import Options, diagnose_trace
from nsysdoctor.ingest.cut import WHOLE
from nsysdoctor.ingest.reader import open_export
from nsysdoctor.report.model import Report
from nsysdoctor.rulebook.rule import Rule, load_rules
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import Request

PARTS = (
    "window", "steps", "phases", "devices", "idle_causes", "metrics", "notes", "kernels",
    "lost_time",
)  # fmt: skip


@cache
def rules() -> list[Rule]:
    """Returns all rules, loaded once."""
    return load_rules()


def read(path: Path, window: tuple[int, int], *, whole: bool) -> Trace:
    """Returns the trace with a window, of which all is read or only what the window needs."""
    return Trace(open_export(path), Request(window), view=WHOLE if whole else None)


def report(trace: Trace) -> Report:
    """Returns the report on a trace."""
    return diagnose_trace(trace, Options(trace.request, rules()))


@cache
def bounds(path: Path) -> tuple[int, int]:
    """Returns from when to when an export has operations."""
    ops = open_trace(path).table("ops")
    return int(ops["start_ns"].min()), int(ops["end_ns"].max())


def part_of(path: Path, start: float, length: float) -> tuple[int, int]:
    """Returns the window at a share of what an export holds, as long as another share."""
    low, high = bounds(path)
    start_ns = low + int((high - low) * start)
    return start_ns, start_ns + max(int((high - low) * length), 1)


def assert_same(path: Path, window: tuple[int, int]) -> None:
    """What a report says of a window does not depend on how much was read for it."""
    whole, part = (report(read(path, window, whole=whole)) for whole in (True, False))
    for name in PARTS:
        assert getattr(part, name) == getattr(whole, name), name
    assert [replace(t, path="") for t in part.traces] == [replace(t, path="") for t in whole.traces]
    assert part.outcomes == whole.outcomes
    assert part.findings == whole.findings
    assert part.combined_saving_ns == whole.combined_saving_ns
