"""The commands that compare runs, as users type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nsysdoctor.gate.baseline import make_baseline
from nsysdoctor.report.model import Report
from tests import ROOT
from tests.gate_runs import ROWS, empty, finding, run, runs

SLOW = {"kernel_ns": 8_600_000, "idle_ns": 1_400_000}


def call(
    folder: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `nsysdoctor WORDS` in a folder."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI_"))}
    return subprocess.run(
        [sys.executable, "-c", "from nsysdoctor.cli import main; main()", *words],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **(env or {})},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def put(folder: Path, *reports: Report, name: str = "run") -> list[str]:
    names = []
    for number, report in enumerate(reports, start=1):
        names.append(f"{name}{number}.json")
        (folder / names[-1]).write_text(report.to_json(), encoding="utf-8")
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a baseline of three runs."""
    text = make_baseline(runs(3)).to_json()
    (tmp_path / "perf.json").write_text(text, encoding="utf-8")
    return tmp_path


def test_baseline_save_writes_the_runs_it_is_given(folder: Path) -> None:
    names = put(folder, *runs(3), name="good")
    done = call(folder, "baseline", "save", *names, "-o", "made.json")
    assert (done.returncode, done.stderr) == (0, "wrote made.json\n")
    assert (folder / "made.json").read_text() == (folder / "perf.json").read_text()


def test_exit_codes(folder: Path) -> None:
    good, bad = put(folder, run(11)), put(folder, run(12, **SLOW), name="bad")
    other = put(folder, run(13, gpu="NVIDIA T4"), name="other")
    assert call(folder, "gate", *good, "--baseline", "perf.json").returncode == 0
    assert call(folder, "gate", *bad, "--baseline", "perf.json").returncode == 1
    assert call(folder, "gate", *other, "--baseline", "perf.json").returncode == 2
    assert call(folder, "gate", *good, "--min-utilization", "0.8").returncode == 0
    assert call(folder, "gate", *bad, "--min-utilization", "0.88").returncode == 1


@pytest.mark.parametrize("limit", ["nan", "inf", "-0.1", "80", "high"])
def test_b41_a_limit_that_cannot_be_meant_exits_2(folder: Path, limit: str) -> None:
    done = call(folder, "gate", *put(folder, run(1)), f"--min-utilization={limit}")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_b39_an_empty_capture_exits_2_and_still_leaves_a_verdict(folder: Path) -> None:
    names = put(folder, empty(run(1)))
    done = call(folder, "gate", *names, "--baseline", "perf.json", "-o", "verdict.json")
    assert done.returncode == 2
    assert json.loads((folder / "verdict.json").read_text())["answer"] == "cannot_judge"


def test_a_trace_that_cannot_be_read_is_a_verdict_too(folder: Path) -> None:
    (folder / "run.sqlite").write_bytes(b"SQLite format 3\0 and then nothing")
    words = ("gate", "run.sqlite", "--baseline", "perf.json", "--format", "json")
    done = call(folder, *words)
    data = json.loads(done.stdout)
    assert (done.returncode, data["answer"], data["exit_code"]) == (2, "cannot_judge", 2)
    assert data["mismatches"][0]["what"] == "trace"
    assert call(folder, "gate", "absent.sqlite", "--baseline", "perf.json").returncode == 2


def test_stdout_is_pure_json(folder: Path) -> None:
    names = put(folder, run(12, **SLOW))
    files = ("-o", "comment.md", "-o", "junit.xml", "-o", "v.sarif")
    done = call(folder, "gate", *names, "--baseline", "perf.json", "--format", "json", *files)
    data = json.loads(done.stdout)
    assert (done.returncode, data["answer"]) == (1, "fail")
    assert "wrote comment.md" in done.stderr
    assert (folder / "comment.md").read_text().startswith("### nsysdoctor gate: fail")
    assert (folder / "junit.xml").exists() and (folder / "v.sarif").exists()


def test_the_terminal_says_what_failed(folder: Path) -> None:
    done = call(folder, "gate", *put(folder, run(12, **SLOW)), "--baseline", "perf.json")
    assert done.stdout.startswith("fail: GPU utilization on GPU 0")
    assert "next: nsysdoctor report" in done.stdout


def test_github_annotations_and_job_summary(folder: Path) -> None:
    env = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    done = call(folder, "gate", *put(folder, run(12, **SLOW)), "--baseline", "perf.json",
                "--format", "github", env=env)  # fmt: skip
    assert done.stdout.startswith("::error title=GPU utilization::")
    assert (folder / "summary.md").read_text().startswith("### nsysdoctor gate: fail")


def test_the_configuration_is_found_and_its_baseline_lies_beside_it(folder: Path) -> None:
    (folder / "nsysdoctor.toml").write_text('[gate]\nbaseline = "perf.json"\n')
    inner = folder / "ci"
    inner.mkdir()
    assert call(inner, "gate", *put(inner, run(12, **SLOW))).returncode == 1
    assert call(inner, "gate", *put(inner, run(11))).returncode == 0


def test_a_waiver_in_the_configuration(folder: Path) -> None:
    text = (
        '[gate.rules]\npageable_copy = "error"\n'
        '[[gate.waivers]]\nrule = "pageable_copy"\nreason = "labels"\nexpires = {}\n'
    )
    names = put(folder, run(11, findings=(finding(),)))
    for expires, code in (("2999-01-01", 0), ("2001-01-01", 1)):
        (folder / "gate.toml").write_text(text.format(expires))
        words = ("gate", *names, "--baseline", "perf.json", "--config", "gate.toml")
        assert call(folder, *words).returncode == code


def test_errors_are_two_lines(folder: Path) -> None:
    (folder / "gate.toml").write_text("[gate.metrics.utilisation_ratio]\nmin = 0.5\n")
    done = call(folder, "gate", *put(folder, run()), "--config", "gate.toml")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "nsysdoctor: there is no metric in gate.metrics called utilisation_ratio",
        "  hint: did you mean utilization_ratio?",
    ]


def test_other_peoples_files_are_not_overwritten(folder: Path) -> None:
    (folder / "notes.md").write_text("my notes")
    names = put(folder, run(11))
    words = ("gate", *names, "--baseline", "perf.json", "-o", "notes.md")
    assert call(folder, *words).returncode == 2
    assert (folder / "notes.md").read_text() == "my notes"
    assert call(folder, *words, "--force").returncode == 0
    assert call(folder, *words).returncode == 0
    assert call(folder, "gate", *names, "--baseline", "perf.json", "-o", names[0]).returncode == 2


def test_an_unknown_extension_is_refused_before_anything_is_written(folder: Path) -> None:
    names = put(folder, run(11))
    done = call(folder, "gate", *names, "--baseline", "perf.json", "-o", "a.md", "-o", "b.doc")
    assert done.returncode == 2
    assert not (folder / "a.md").exists()


def test_baseline_show(folder: Path) -> None:
    done = call(folder, "baseline", "show", "perf.json")
    assert done.returncode == 0
    assert "baseline of 3 runs" in done.stdout
    assert "GPU utilization GPU 0: 90." in done.stdout


def test_a_report_is_no_baseline(folder: Path) -> None:
    names = put(folder, run(1))
    done = call(folder, "gate", *names, "--baseline", names[0])
    assert done.returncode == 2
    assert done.stderr.startswith(f"nsysdoctor: {names[0]}: the file is no baseline")


def test_diff(folder: Path) -> None:
    names = put(folder, run(1), run(2, **SLOW))
    done = call(folder, "diff", *names)
    assert done.returncode == 0
    assert "worse   GPU utilization on GPU 0 90." in done.stdout
    data = json.loads(call(folder, "diff", *names, "--format", "json").stdout)
    assert data["neutral"] is False
    call(folder, "diff", *names, "-o", "diff.md")
    assert "- **worse** GPU utilization" in (folder / "diff.md").read_text()


def test_history(folder: Path) -> None:
    names = put(folder, *runs(2))
    words = ("history", "add", "h.db", *names)
    done = call(folder, *words, "--commit", "abc123", "--branch", "main")
    assert (done.returncode, done.stderr) == (0, "h.db: 2 new of 2\n")
    assert call(folder, *words).stderr == "h.db: 0 new of 2\n"
    shown = call(folder, "history", "show", "h.db").stdout
    assert "main abc123 GPU utilization GPU 0" in " ".join(shown.split())
    assert call(folder, "history", "show", "h.db", "-o", "h.html").returncode == 0
    assert "Plotly.newPlot" in (folder / "h.html").read_text(encoding="utf-8")
    assert call(folder, "history", "show", "none.db").returncode == 2


def test_history_asks_git(folder: Path) -> None:
    for words in (
        ("init", "-q", "-b", "trunk"),
        ("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "--allow-empty", "-m", "m"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    call(folder, "history", "add", "h.db", *put(folder, run(1)))
    assert " trunk " in call(folder, "history", "show", "h.db").stdout


def test_a_lost_table_exits_2(folder: Path) -> None:
    names = put(folder, run(11, rows={**ROWS, "nvtx": 0}))
    done = call(folder, "gate", *names, "--baseline", "perf.json")
    assert done.returncode == 2
    assert "table nvtx: recorded in the baseline, no rows now" in done.stdout


@pytest.mark.sweep
def test_runs_over_other_windows_are_not_compared(folder: Path) -> None:
    path = str(ROOT / "sample_traces" / "pageable_copy.sqlite")
    saved = call(folder, "baseline", "save", path, "--window", "500ms:1500ms", "-o", "w.json")
    assert saved.returncode == 0, saved.stderr
    same = call(folder, "gate", path, "--baseline", "w.json", "--window", "0.5s:1.5s")
    assert same.returncode == 0, same.stdout
    other = call(folder, "gate", path, "--baseline", "w.json", "--window", "0.6s:1.6s")
    assert other.returncode == 2
    assert "--window 500000000:1500000000" in " ".join(other.stdout.split())


@pytest.mark.sweep
def test_parts_of_steps_in_a_window_make_no_change_of_kernels(folder: Path) -> None:
    path = str(ROOT / "sample_traces" / "pageable_copy.sqlite")
    for name, window in (("long", "0.5s:1s"), ("short", "1s:1.1s")):
        call(folder, "report", path, "--window", window, "-o", f"{name}.json", "-q")
    done = call(folder, "diff", "long.json", "short.json", "--format", "json")
    changes = json.loads(done.stdout)["kernels"]
    assert [c for c in changes if c["state"] in ("more", "fewer")] == []
    assert "other window" in call(folder, "diff", "long.json", "short.json").stdout
