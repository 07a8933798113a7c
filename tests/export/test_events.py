"""The exported events say what the trace says."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from nsysdoctor.cli import app
from nsysdoctor.commands import register
from nsysdoctor.errors import UsageError
from nsysdoctor.trace.trace import open_trace
from sample_traces import record, write

register(app)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run.sqlite"
    write(record("two_gpu"), path)
    return path


def exported(sample: Path, target: Path, *more: str) -> Path:
    result = CliRunner().invoke(app, ["export", str(sample), str(target), *more])
    assert result.exception is None, result.exception
    return target


def test_perfetto_holds_every_operation_and_call_exactly(sample: Path, tmp_path: Path) -> None:
    data = json.loads(exported(sample, tmp_path / "run.perfetto.json").read_text("utf-8"))
    trace = open_trace(sample)
    ops, api = trace.table("ops"), trace.table("api")
    origin = min(ops["start_ns"].min(), api["start_ns"].min())
    spans = [e for e in data["traceEvents"] if e["ph"] == "X"]
    on_gpu = [e for e in spans if e["pid"] < 1000]
    assert len(on_gpu) == len(ops)
    assert {e["pid"] for e in on_gpu} == set(ops["device"])
    assert [round(e["ts"] * 1000) for e in on_gpu] == (ops["start_ns"] - origin).tolist()
    assert sum(round(e["dur"] * 1000) for e in on_gpu) == (ops["end_ns"] - ops["start_ns"]).sum()


def test_csv_and_parquet_hold_names_for_codes(sample: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(exported(sample, tmp_path / "ops.csv"))
    assert len(rows) == len(open_trace(sample).table("ops"))
    assert set(rows["kind"]) <= {"kernel", "copy", "set", "graph"}
    causes = pd.read_parquet(
        exported(sample, tmp_path / "causes.parquet", "--table", "gap_causes")
    )
    budget = open_trace(sample).table("time_budget")
    assert (causes["end_ns"] - causes["start_ns"]).sum() == budget["idle_ns"].sum()


def test_sqlite_holds_the_usual_tables(sample: Path, tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(exported(sample, tmp_path / "tables.sqlite")) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        assert {"ops", "api", "gap_causes", "steps"} <= names
        count = db.execute("SELECT count(*) FROM ops").fetchone()[0]
    db.close()
    assert count == len(open_trace(sample).table("ops"))


@pytest.mark.parametrize("name", ["out.txt", "out"])
def test_an_unknown_format_is_refused(sample: Path, tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["export", str(sample), str(tmp_path / name)])
    assert isinstance(result.exception, UsageError)
    assert not (tmp_path / name).exists()


def test_the_trace_itself_is_never_overwritten(sample: Path) -> None:
    before = sample.read_bytes()
    result = CliRunner().invoke(app, ["export", str(sample), str(sample), "--force"])
    assert isinstance(result.exception, UsageError)
    assert sample.read_bytes() == before
