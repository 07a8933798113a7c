"""Captures whose numbers are no measurement: told first, and never judged by a gate."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.gate.judge import judge
from nsysdoctor.gate.limits import Limits, with_min_utilization
from nsysdoctor.render.words import faults_text
from nsysdoctor.report.model import Report
from sample_traces import record, write

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
COPY = "CUPTI_ACTIVITY_KIND_MEMCPY"


def changed(folder: Path, *statements: str, program: str = "healthy_training") -> Report:
    """The report on a sample program whose export some statements changed."""
    path = folder / "run.sqlite"
    write(record(program), path)
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return diagnose(path)


def exit_code(report: Report) -> int:
    """The gate's exit status with a limit that anything meets."""
    return judge([report], None, with_min_utilization(Limits(), 0.0)).exit_code


def test_a_sound_capture_has_no_faults(tmp_path: Path) -> None:
    report = changed(tmp_path)
    assert report.capture_faults == []
    assert exit_code(report) == 0


@pytest.mark.parametrize(
    "change", ['start = 0, "end" = 0', '"end" = start - 1000', '"end" = 9000000000000000000']
)
@pytest.mark.parametrize("every, judged", [(10, False), (400, True)])
def test_impossible_stamps_above_a_hundredth_cannot_be_judged(
    tmp_path: Path, change: str, every: int, judged: bool
) -> None:
    report = changed(tmp_path, f"UPDATE {KERNEL} SET {change} WHERE rowid % {every} = 1")
    assert [f.kind for f in report.capture_faults] == ([] if judged else ["impossible_rows"])
    assert exit_code(report) == (0 if judged else 2)
    if not judged:
        assert "kernel rows have impossible times" in faults_text(report)[0]


@pytest.mark.parametrize(
    "program, late_ns",
    [("launch_bound", 500_000), ("healthy_training", 9_000_000), ("healthy_training", 600_000_000)],
)
def test_an_end_behind_later_ones_of_its_stream_is_left_out_whatever_its_length(
    tmp_path: Path, program: str, late_ns: int
) -> None:
    sound = changed(tmp_path, program=program)
    (tmp_path / "run.sqlite").unlink()
    late = f'UPDATE {KERNEL} SET "end" = "end" + {late_ns} WHERE rowid IN (100, 101, 200, 300)'
    report = changed(tmp_path, late, program=program)
    (dropped,) = report.traces[0].dropped
    assert (dropped.reason, dropped.rows) == ("overlaps its own stream", 4)
    assert report.devices[0].span_ns == sound.devices[0].span_ns
    assert sound.steps is not None and report.steps is not None
    assert abs(report.steps.median_ns - sound.steps.median_ns) <= 0.01 * sound.steps.median_ns
    claims = 4 * late_ns > 0.01 * sound.devices[0].span_ns
    assert exit_code(report) == (2 if claims else 0)


def test_dependent_launches_that_overlap_are_sound(tmp_path: Path) -> None:
    early = f"UPDATE {KERNEL} SET start = start - 8000 WHERE rowid % 7 = 0"
    report = changed(tmp_path, early)
    assert report.traces[0].dropped == []
    assert report.capture_faults == []
