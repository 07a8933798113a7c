"""The gate and the diff on traces of made programs, from the file to the verdict."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.diff.runs import diff_reports
from nsysdoctor.gate.baseline import make_baseline
from nsysdoctor.gate.baseline_file import read_baseline
from nsysdoctor.gate.judge import judge
from nsysdoctor.gate.limits import Limits
from nsysdoctor.gate.verdict import Verdict
from nsysdoctor.report.model import Report, read_report
from sample_traces import record, write
from tests import swept


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@cache
def diagnosed(folder: Path, name: str, cured: bool, seed: int) -> Report:
    path = folder / f"{name}-{cured}-{seed}.sqlite"
    write(record(name, cured=cured, seed=seed, jitter_ratio=0.02), path)
    return diagnose(path)


def fault_after_cure(folder: Path, name: str) -> Verdict:
    """Three cured runs are the baseline, by way of the file; the fault is what came of it."""
    baseline = make_baseline([diagnosed(folder, name, True, seed) for seed in (1, 2, 3)])
    now = [read_report(diagnosed(folder, name, False, seed).to_json()) for seed in (4, 5, 6)]
    return judge(now, read_baseline(baseline.to_json()), Limits())


COSTLY = ("attention_fallback", "unified_memory", "default_stream", "jit_in_loop")
"""Other kernels, no copies left, no steps, bursts within a run."""


@pytest.mark.sweep
@pytest.mark.parametrize("name", COSTLY)
def test_a_fault_of_three_runs_fails_and_its_cure_passes(folder: Path, name: str) -> None:
    assert fault_after_cure(folder, name).answer == "fail"
    faulty = make_baseline([diagnosed(folder, name, False, seed) for seed in (4, 5, 6)])
    cured = [diagnosed(folder, name, True, seed) for seed in (1, 2, 3)]
    assert judge(cured, faulty, Limits()).answer == "pass"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("input_starvation", "input wait"),
        ("periodic_starvation", "input wait"),
        ("slow_graph_launch", "launch"),
    ],
)
def test_a_planted_fault_fails_and_its_cause_is_named(folder: Path, name: str, cause: str) -> None:
    verdict = fault_after_cure(folder, name)
    first = verdict.lines[0]
    assert (verdict.answer, first.metric) == ("fail", "step_ns"), verdict.to_json()
    assert first.why.startswith(f"GPU idle, cause {cause} +")
    assert first.found is not None and first.baseline is not None
    told = sum(part.growth_ns for part in first.culprits)
    assert told == pytest.approx(first.found - first.baseline, abs=2)


@pytest.mark.sweep
def test_d24_slower_graph_launches_leave_kernel_time_unchanged(folder: Path) -> None:
    why = fault_after_cure(folder, "slow_graph_launch").lines[0].why
    assert "(cudaGraphLaunch +" in why
    assert "kernel time unchanged" in why


@pytest.mark.sweep
def test_d27_a_slow_start_does_not_change_the_verdict(folder: Path) -> None:
    assert fault_after_cure(folder, "slow_start").answer == "pass"


@pytest.mark.parametrize("name", swept(["input_starvation", "graph_inference", "two_gpu"], 3))
def test_another_seed_is_no_change(folder: Path, name: str) -> None:
    before, now = diagnosed(folder, name, False, 1), diagnosed(folder, name, False, 2)
    assert judge([now], make_baseline([before]), Limits()).answer == "pass"
    assert diff_reports(before, now).metrics == []


def test_the_same_trace_twice_is_neutral(folder: Path) -> None:
    report = diagnosed(folder, "pageable_copy", False, 1)
    verdict = judge([report], make_baseline([report]), Limits())
    assert verdict.answer == "pass"
    assert {line.state for line in verdict.lines} == {"passed"}
    assert diff_reports(report, report).neutral


def test_a_cure_shows_as_better_and_fixed(folder: Path) -> None:
    before = diagnosed(folder, "pageable_copy", False, 1)
    after = diagnosed(folder, "pageable_copy", True, 1)
    diff = diff_reports(before, after)
    states = {change.metric: change.state for change in diff.metrics}
    assert states["utilization_ratio"] == states["pageable_bytes"] == "better"
    assert ("pageable_copy", "fixed") in {(f.rule, f.state) for f in diff.findings}
    assert not diff.kernels
