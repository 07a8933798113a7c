"""The steps that are found do not depend on what surrounds them, nor on whether they are marked."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.trace.trace import open_trace
from sample_traces import record, write

MARKED = (
    "healthy_training", "pageable_copy", "sync_in_loop", "serial_copy", "host_bound",
    "launch_bound", "unfused_optimizer", "exposed_communication", "straggler_rank",
    "allocation_churn", "profiler_overhead", "evaluation_and_checkpoint",
)  # fmt: skip
"""Programs whose steps show in their launches as well."""

TIMED = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NVTX_EVENTS",
    "OSRT_API",
)  # fmt: skip

CORPUS = Path(os.environ.get("NSYSDOCTOR_CORPUS", ""))
with_corpus = pytest.mark.skipif(
    not os.environ.get("NSYSDOCTOR_CORPUS"),
    reason="NSYSDOCTOR_CORPUS names no folder of real exports",
)


class Told(NamedTuple):
    """What is told of steps: how many, how many launches each, how long on the device."""

    count: int
    launches: float
    mean_ns: float
    start_ns: list[int]


def told(path: Path) -> Told:
    """The steps of an export, which has some."""
    trace = open_trace(path)
    steps, lengths = trace.table("steps"), trace.table("step_lengths")
    steady = (steps["phase"] == "steady").to_numpy()
    assert steady.any(), "no steps"
    return Told(
        len(steps),
        float(np.median(steps["op_count"])),
        float(lengths[steady].mean()),
        steps["start_ns"].tolist(),
    )


def changed(path: Path, statements: Iterable[str]) -> Path:
    """The export after some statements, those on tables that it lacks left out."""
    with sqlite3.connect(path) as db:
        held = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        for statement in statements:
            if all(name in held for name in TIMED if name in statement):
                db.execute(statement)
    db.close()
    return path


def alike(one: Told, other: Told) -> bool:
    """Whether two steps are the same: their launches and their length."""
    same = abs(one.launches - other.launches) <= 0.02 * one.launches
    return same and abs(one.mean_ns - other.mean_ns) <= 0.05 * one.mean_ns


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "run.sqlite"
    write(record(request.param), path)
    return path


def cut_off(path: Path, start_ns: int) -> Path:
    """The export without what the host did from a time on, and what came of it."""
    api = TIMED[3]
    gone = [f"DELETE FROM {table} WHERE start >= {start_ns}" for table in TIMED[3:]]
    lost = [
        f"DELETE FROM {table} WHERE correlationId NOT IN (SELECT correlationId FROM {api})"
        for table in TIMED[:3]
    ]
    return changed(path, [*gone, *lost])


every_program = pytest.mark.parametrize("made", MARKED, indirect=True)


@every_program
def test_steps_are_the_same_with_and_without_ranges(made: Path) -> None:
    marked = told(made)
    assert alike(marked, told(changed(made, ["DROP TABLE NVTX_EVENTS"])))


@every_program
def test_fewer_iterations_are_the_same_steps(made: Path) -> None:
    changed(made, ["DROP TABLE NVTX_EVENTS"])
    whole = told(made)
    kept = whole.start_ns[max(len(whole.start_ns) * 2 // 3, 5)]
    fewer = told(cut_off(made, kept))
    assert alike(whole, fewer)
    assert 0 < whole.count - fewer.count < whole.count


@every_program
def test_a_long_start_up_is_no_work_of_the_loop(made: Path) -> None:
    changed(made, ["DROP TABLE NVTX_EVENTS"])
    before = told(made)
    with sqlite3.connect(made) as db:
        (first,) = db.execute(f"SELECT min(start) FROM {TIMED[3]}").fetchone()
        (name,) = db.execute(
            f"SELECT nameId FROM {TIMED[3]} r JOIN {TIMED[0]} k USING (correlationId) LIMIT 1"
        ).fetchone()
        for number in range(300):
            start = first - 40_000_000_000 + number * 100_000_000
            row = _like(db, TIMED[3], start, 5_000, 900_000 + number)
            db.execute(f"UPDATE {TIMED[3]} SET nameId = ? WHERE rowid = ?", (name, row))
            if db.execute(f"SELECT 1 FROM sqlite_master WHERE name = '{TIMED[1]}'").fetchone():
                _like(db, TIMED[1], start + 6_000, 90_000_000, 900_000 + number)
    db.close()
    assert alike(before, told(made))


def _like(db: sqlite3.Connection, table: str, start: int, took: int, correlation: int) -> int:
    """A copy of a table's first row at another time; its row id."""
    columns = [c[1] for c in db.execute(f"PRAGMA table_info({table})")]
    row = db.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
    values = dict(zip(columns, row, strict=True))
    values |= {"start": start, "end": start + took, "correlationId": correlation}
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join("?" * len(values))
    made = db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*values.values()])
    return int(made.lastrowid or 0)


@every_program
def test_another_rank_beside_changes_no_step(made: Path) -> None:
    before = told(made)
    other = 500 << 24
    with sqlite3.connect(made) as db:
        for table in TIMED:
            columns = [c[1] for c in db.execute(f"PRAGMA table_info({table})")]
            if not columns:
                continue
            chosen = ", ".join(
                f'"{c}" + {other}' if c in ("globalPid", "globalTid")
                else f'"{c}" + 4' if c == "deviceId"
                else f'"{c}"'
                for c in columns
            )  # fmt: skip
            db.execute(f"INSERT INTO {table} SELECT {chosen} FROM {table}")
    db.close()
    after = told(made)
    assert alike(before, after)
    assert after.count == before.count


def test_an_evaluation_of_a_minute_leaves_the_share_of_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    write(record("sync_in_loop"), path)
    before = diagnose(path)
    middle = open_trace(path).table("steps")["start_ns"].iloc[20] - 1
    late = 60_000_000_000
    changed(
        path,
        [
            statement
            for table in TIMED
            for statement in (
                f'UPDATE {table} SET "end" = "end" + {late} WHERE start >= {middle}',
                f"UPDATE {table} SET start = start + {late} WHERE start >= {middle}",
            )
        ],
    )
    after = diagnose(path)
    assert after.window.paused_ns == late
    assert after.combined_saving_ratio == pytest.approx(before.combined_saving_ratio, rel=0.15)
    assert after.findings[0].saving_ratio == pytest.approx(
        before.findings[0].saving_ratio, rel=0.15
    )


@with_corpus
@pytest.mark.corpus
@pytest.mark.parametrize("kept", [3, 4, 10])
def test_iterations_of_a_real_run_are_no_layers(tmp_path: Path, kept: int) -> None:
    source = CORPUS / "2024.6.2_a100-sxm4-80gb_1.sqlite"
    path = tmp_path / "run.sqlite"
    shutil.copyfile(source, path)
    path.chmod(0o644)
    whole = told(source)
    assert whole.launches == 1832
    if kept < whole.count:
        cut_off(path, whole.start_ns[kept])
    cut = told(path)
    assert (cut.count, cut.launches) == (kept, 1832)


REAL = (
    "2023.4.1_gh200-120gb_1", "2024.5.1_4-a100-sxm4-80gb_1", "2024.5.4_orin_1",
    "2024.6.2_a100-sxm4-80gb_1", "2025.3.1_rtx-4060-laptop-gpu_1",
    "2025.5.2_rtx-5070-ti-laptop-gpu-i_1", "2026.2.1_no-gpu-info_3", "2023.2.3_t4_1",
    "2023.1.2_8-a100-pcie-40gb_1", "2022.3.4_a100-pcie-40gb_1",
)  # fmt: skip


@with_corpus
@pytest.mark.corpus
@pytest.mark.parametrize("name", REAL)
def test_fewer_iterations_of_real_runs_are_the_same_steps(tmp_path: Path, name: str) -> None:
    source = CORPUS / f"{name}.sqlite"
    if open_trace(source).table("step_marks") is None:
        pytest.skip("a run without steps")
    path = tmp_path / "run.sqlite"
    shutil.copyfile(source, path)
    path.chmod(0o644)
    whole = told(source)
    last = whole.start_ns[len(whole.start_ns) * 3 // 4]
    cut = told(cut_off(path, last))
    assert cut.launches == whole.launches
    assert cut.mean_ns == pytest.approx(whole.mean_ns, rel=0.2)
