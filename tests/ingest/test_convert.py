"""An nsys report is exported with the nsys at hand; without one the message says how."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.errors import UnreadableTraceError
from sample_traces import record, write


def pretend_nsys(folder: Path, body: str) -> None:
    script = folder / "nsys"
    script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    write(record("sync_in_loop"), tmp_path / "made.sqlite")
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"not an export")
    return path


def test_a_report_is_exported_and_diagnosed(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = report.parent / "bin"
    folder.mkdir()
    # $5 is the output file that the command names.
    pretend_nsys(folder, f'cp "{report.parent}/made.sqlite" "$5"')
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    before = sorted(report.parent.iterdir())
    found = diagnose(report)
    assert found.findings[0].rule == "sync_in_loop"
    assert found.traces[0].path == str(report)
    assert sorted(report.parent.iterdir()) == before


def test_a_failing_nsys_is_quoted(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = report.parent / "bin"
    folder.mkdir()
    pretend_nsys(folder, "echo 'report is from a newer version' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(UnreadableTraceError, match="newer version"):
        diagnose(report)


def test_without_nsys_the_message_names_the_command(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(report.parent / "nothing"))
    with pytest.raises(UnreadableTraceError) as caught:
        diagnose(report)
    assert "nsys export --type sqlite" in caught.value.hint
