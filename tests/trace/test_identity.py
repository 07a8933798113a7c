"""Which rank a trace is, from what launchers set and shells write."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.jobs.job import diagnose_job
from nsysdoctor.render.words import device_label
from nsysdoctor.trace.trace import open_trace
from sample_traces import record, write


def trace_with(path: Path, *environment: str) -> Path:
    """A sample export whose process had these variables."""
    write(record("sync_in_loop"), path)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
        rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", text) for text in environment]
        db.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
    db.close()
    return path


@pytest.mark.parametrize(
    "variable",
    [
        "SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
        "RANK", "WORLD_RANK", "HOROVOD_RANK", "JSM_NAMESPACE_RANK", "LSF_PM_TASKID",
        "FLUX_TASK_RANK", "PALS_RANKID", "ALPS_APP_PE",
    ],
)  # fmt: skip
@pytest.mark.parametrize("written", ["8", '"8"', "'8'", " 8"])
def test_every_launcher_tells_the_rank(tmp_path: Path, variable: str, written: str) -> None:
    path = trace_with(tmp_path / "run.sqlite", f"{variable}={written}", "TOKEN=abc")
    assert open_trace(path).identity.rank == 8


@pytest.mark.parametrize("text", ["SLURM_PROCID=\"8'", "SLURM_PROCID=", "XRANK=3", "RANK=-1"])
def test_what_is_no_rank_tells_none(tmp_path: Path, text: str) -> None:
    assert open_trace(trace_with(tmp_path / "run.sqlite", text)).identity.rank is None


def test_a_rank_is_told_before_the_node_that_it_runs_on(tmp_path: Path) -> None:
    path = trace_with(tmp_path / "run.sqlite", 'SLURM_PROCID="1"', "RANK=5")
    assert open_trace(path).identity.rank == 5
    assert "SLURM" not in diagnose(path).to_json()


def test_traces_of_one_rank_are_told_apart(tmp_path: Path) -> None:
    paths = [trace_with(tmp_path / f"{name}.sqlite", "RANK=2") for name in ("one", "two")]
    report = diagnose_job(paths).report
    labels = [device_label(report, trace, 0) for trace in (0, 1)]
    assert labels == ["rank 2 (trace 1), GPU 0", "rank 2 (trace 2), GPU 0"]
