"""How commands end: 1 says that a gate failed and nothing else, and one bad trace loses itself."""

from __future__ import annotations

import importlib
import json
import math
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from nsysdoctor import cli
from nsysdoctor.errors import UnreadableTraceError, UsageError
from nsysdoctor.jobs.executors import executor_for
from nsysdoctor.jobs.job import JobOptions, diagnose_job
from nsysdoctor.report.model import read_report
from sample_traces import record, write
from tests.run_cli import run

ONLY = ("--select", "gpu_idle")
OPTIONS = JobOptions(select=("gpu_idle",))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exits") / "run.sqlite"
    write(record("sync_in_loop"), path)
    return path


@pytest.fixture(scope="module")
def report(trace: Path) -> dict[str, Any]:
    return run("report", trace, "--format", "json").report


# --- whatever is raised


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("x"), SystemExit(0), SystemExit(1), SystemExit("text"), MemoryError(),
        RecursionError("deep"), AssertionError(), GeneratorExit(),
        UnicodeDecodeError("a", b"", 0, 1, "b"), OSError(28, "No space left on device"),
        KeyError("\x1b[31m\nred"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("debug", [False, True])
def test_whatever_is_raised_ends_with_2_and_two_lines(
    error: BaseException, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", broken)
    if debug:
        monkeypatch.setenv("NSYSDOCTOR_DEBUG", "1")
    ran = run("report", "x")
    assert ran.code == 2
    assert ("Traceback" in ran.err) is debug
    assert len(ran.error_lines) == 2 or debug
    assert "\x1b" not in ran.error_lines[-2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_end_of_the_process_takes_back_what_is_being_written(
    number: int, tmp_path: Path
) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom nsysdoctor import cli\n"
        "from nsysdoctor.commands.outputs import beside\n"
        "def slow():\n"
        f"    with beside(Path({str(tmp_path)!r}) / 'out.json') as path:\n"
        "        path.write_text('half')\n        print('ready', flush=True)\n"
        "        time.sleep(60)\n"
        "cli._run = slow\ncli.main()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    _, told = child.communicate(timeout=60)
    assert (child.returncode, told) == (128 + number, "nsysdoctor: stopped\n")
    assert not list(tmp_path.iterdir())


# --- several traces


def _bad(kind: str, folder: Path) -> Path:
    path = folder / "bad.sqlite"
    if kind == "text":
        path.write_text("no database")
    elif kind == "empty":
        path.touch()
    return path


@pytest.mark.parametrize("kind", ["text", "empty", "missing"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_bad_file_loses_only_itself(
    kind: str, place: int, trace: Path, tmp_path: Path
) -> None:
    traces = [trace] * 3
    traces.insert(place, _bad(kind, tmp_path))
    ran = run("report", *traces, *ONLY, "--format", "json", "--jobs", "1")
    assert ran.code == 2
    assert "bad.sqlite" in ran.error_lines[0]
    assert [t["path"] for t in ran.report["traces"]] == [str(trace)] * 3
    assert [d["trace"] for d in ran.report["devices"]] == [0, 1, 2]
    assert any("bad.sqlite" in note["text"] for note in ran.report["notes"])


def test_one_bad_file_is_lost_alone_in_workers_too(trace: Path, tmp_path: Path) -> None:
    with executor_for(3, 2) as pool:
        answer = diagnose_job([_bad("text", tmp_path), trace, trace], OPTIONS, pool)
    assert [lost.path.name for lost in answer.lost] == ["bad.sqlite"]
    assert {d.trace for d in answer.report.devices} == {0, 1}


def test_only_bad_files_are_an_error(tmp_path: Path) -> None:
    bad = _bad("text", tmp_path)
    ran = run("report", bad, bad, "--jobs", "1")
    assert (ran.code, ran.out, len(ran.error_lines)) == (2, "", 2)


KILLER = """
import os
from nsysdoctor.trace.recipe import table
@table
def killer(ops, capture, processes):
    if len(processes) and "victim" in os.environ.get("KILL", ""):
        if not os.path.exists(os.environ["KILL"]):
            open(os.environ["KILL"], "w").close()
            os._exit(9)
    return ops.iloc[:0].assign(subject="", count=1)
"""


def test_a_killed_worker_is_tried_once_more(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker that gets there dies, with all that waits; in the end nothing is lost."""
    (tmp_path / "killer.yaml").write_text(
        "title: t\ncategory: c\nmessage: m\nwhy: w\nfix: {any: f}\n"
    )
    (tmp_path / "killer.py").write_text(KILLER)
    monkeypatch.setenv("KILL", str(tmp_path / "victim"))
    options = JobOptions(select=("killer",), folders=(tmp_path,))
    with executor_for(2, 2) as pool:
        answer = diagnose_job([trace, trace], options, pool)
    assert (tmp_path / "victim").exists()
    assert not answer.lost
    assert len(answer.report.traces) == 2


class Gone(Executor):
    """A dask cluster whose scheduler is not there any more."""

    class _Client:
        status = "closed"

    _client = _Client()

    def submit(self, *_: Any, **__: Any) -> Future[Any]:  # type: ignore[override]
        return Future()


def test_a_lost_cluster_is_said(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysdoctor.jobs.answers._LOOK_S", 0.01)
    monkeypatch.setattr("nsysdoctor.jobs.answers._PATIENCE_S", 0.05)
    with pytest.raises(UsageError, match="no worker"):
        diagnose_job([trace, trace], OPTIONS, Gone())


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_without_workers_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    monkeypatch.setattr("nsysdoctor.jobs.executors._PATIENCE_S", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as made,
        pytest.raises(UsageError, match="no worker"),
        executor_for(2, None, made.scheduler_address),
    ):
        pass


def test_a_trace_that_nobody_foresaw_is_named(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("odd")

    module = importlib.import_module("nsysdoctor.diagnosis.diagnose")
    monkeypatch.setattr(module, "diagnose", broken)
    from nsysdoctor.commands.inputs import load_reports
    from nsysdoctor.config import Config

    with pytest.raises(UnreadableTraceError, match=r"run\.sqlite.*ZeroDivisionError: odd"):
        load_reports([trace], Config())


# --- reports and parameters


def _set(data: Any, place: str, value: object) -> str:
    *path, last = [int(p) if p.isdigit() else p for p in place.split(".")]
    data = json.loads(json.dumps(data))
    inner = data
    for part in path:
        inner = inner[part]
    inner[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("devices.0.utilization_ratio", 5.0), ("devices.0.utilization_ratio", -0.1),
        ("devices.0.utilization_ratio", math.nan), ("devices.0.busy_ratio", math.inf),
        ("devices.0.idle_ns", -1), ("devices.0.idle_ns", 10**30), ("devices.0.span_ns", 1),
        ("devices.0.trace", 7), ("devices.0.trace", -1), ("steps.median_ns", -5),
        ("steps.median_ns", math.nan), ("window.end_ns", -(10**12)), ("metrics.0.value", math.nan),
        ("metrics.0.steps", [1.0, math.inf]), ("findings.0.saving_ratio", 2.0),
        ("findings.0.evidence.0.end_ns", -(10**15)), ("findings.0.facts", {"x": math.inf}),
        ("combined_saving_ratio", 1.5), ("format", "other"), ("format_version", 99),
        ("findings.0.level", "worst"), ("devices", {}), ("lost_time.0.ratio", 3.0),
    ],
)  # fmt: skip
def test_a_report_that_cannot_be_true_is_refused(
    place: str, value: object, report: dict[str, Any]
) -> None:
    read_report(json.dumps(report))
    with pytest.raises(UsageError):
        read_report(_set(report, place, value))


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        ("min_byte = 1", "did you mean min_bytes?"), ("min_bytes = nan", "no finite number"),
        ("min_bytes = inf", "no finite number"), ('min_bytes = "many"', "no finite number"),
        ("min_bytes = true", "no finite number"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["report", "gate"])
def test_parameters_that_cannot_be_meant_are_refused(
    param: str, expected: str, command: str, trace: Path, tmp_path: Path
) -> None:
    config = tmp_path / "nsysdoctor.toml"
    config.write_text(f"[params.pageable_copy]\n{param}\n")
    ran = run(command, trace, "--config", config)
    assert ran.code == 2
    assert expected in ran.err
