"""Several traces as one job: the same answer wherever it is computed, and the rank at fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from nsysdoctor.jobs.job import JobOptions, diagnose_job
from nsysdoctor.report.model import Report
from sample_traces import by_process, record, write

ONLY = JobOptions(select=("straggler_rank", "gpu_idle", "exposed_communication"))


CULPRITS = {
    "straggler_rank": (4, "computing"),
    "straggler_pause": (2, "host code"),
    "straggler_input": (6, "waiting for input"),
}


def ranks_of(program: str, folder: Path, *, cured: bool = False) -> list[Path]:
    paths = []
    for rank, recording in enumerate(by_process(record(program, cured=cured))):
        path = folder / f"{program}_{rank}.sqlite"
        write(recording, path)
        paths.append(path)
    return paths


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return ranks_of("straggler_rank", tmp_path_factory.mktemp("slow"))


@pytest.fixture(scope="module")
def serial(slow: list[Path]) -> Report:
    return diagnose_job(slow, ONLY).report


@pytest.mark.parametrize("program", CULPRITS)
def test_the_slow_rank_is_named_once_with_its_cause(program: str, tmp_path: Path) -> None:
    report = diagnose_job(ranks_of(program, tmp_path), ONLY).report
    (found,) = [f for f in report.findings if f.rule == "straggler_rank"]
    trace, cause = CULPRITS[program]
    assert found.level == "high"
    assert found.trace == trace
    assert found.facts["last_count"] == found.facts["meeting_count"]
    assert cause in str(found.facts["reason"])
    assert report.findings[0].rule == "straggler_rank"


def test_equal_ranks_name_none(tmp_path: Path) -> None:
    report = diagnose_job(ranks_of("straggler_rank", tmp_path, cured=True), ONLY).report
    assert not [f for f in report.findings if f.rule == "straggler_rank"]
    (outcome,) = [o for o in report.outcomes if o.rule == "straggler_rank"]
    assert outcome.state == "passed"


def test_one_rank_alone_abstains(slow: list[Path]) -> None:
    report = diagnose_job(slow[:1], ONLY).report
    (outcome,) = [o for o in report.outcomes if o.rule == "straggler_rank"]
    assert outcome.state == "skipped"
    assert "all ranks" in outcome.reason


def test_traces_without_collectives_are_told_apart_and_name_no_rank(tmp_path: Path) -> None:
    """Runs of one program, or a trace named twice: nothing to wait for one another at."""
    path = tmp_path / "alone.sqlite"
    write(record("sync_in_loop"), path)
    report = diagnose_job([path, path], ONLY).report
    assert [budget.trace for budget in report.devices] == [0, 1]
    assert not [f for f in report.findings if f.rule == "straggler_rank"]


def test_every_finding_and_budget_points_to_its_trace(serial: Report, slow: list[Path]) -> None:
    assert [t.path for t in serial.traces] == [str(p) for p in slow]
    assert {d.trace for d in serial.devices} == set(range(len(slow)))
    assert all(0 <= f.trace < len(slow) for f in serial.findings)
    for f in serial.findings:
        assert (f.saving_ns or 0) <= serial.window.span_ns
    assert serial.combined_saving_ns >= max(f.saving_ns or 0 for f in serial.findings)


def test_a_process_pool_gives_the_same_bytes(serial: Report, slow: list[Path]) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert diagnose_job(slow, ONLY, pool).report.to_json() == serial.to_json()


@pytest.fixture
def cluster() -> Iterator[object]:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
        distributed.Client(made) as client,
    ):
        yield client


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same_bytes(
    cluster: object, serial: Report, slow: list[Path]
) -> None:
    executor = cluster.get_executor()  # type: ignore[attr-defined]
    assert diagnose_job(slow, ONLY, executor).report.to_json() == serial.to_json()


def test_what_travels_is_small(slow: list[Path]) -> None:
    import pickle

    from nsysdoctor.jobs.job import work

    result = work(slow[0], 0, ONLY)
    assert len(pickle.dumps(result)) < 0.5 * slow[0].stat().st_size
    assert json.loads(result.report.to_json())["format"] == "nsysdoctor-report"
