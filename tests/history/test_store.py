"""Runs kept over time: stored once, told apart, their lasting changes found."""

from __future__ import annotations

import io
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from nsysdoctor.errors import UsageError
from nsysdoctor.history.store import (
    HistoryRow,
    Origin,
    Trend,
    add,
    content_id,
    rows,
    step_changes,
    trends,
)
from nsysdoctor.render.verdicts.trend import history_page, render_history
from tests.gate_runs import Loop, run, runs

SLOW = {"kernel_ns": 8_600_000, "idle_ns": 1_400_000}


def trend(values: list[float], metric: str = "utilization_ratio") -> Trend:
    found = [
        HistoryRow(n, f"run{n}", f"c{n}", "main", "", "1 x T4", 0, 0, metric, "ratio", value, None)
        for n, value in enumerate(values, start=1)
    ]
    return Trend("main", "1 x T4", 0, 0, metric, found)


def changes(values: list[float]) -> list[int]:
    return [change.number for change in step_changes(trend(values))]


def test_one_row_per_run_and_metric(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    assert add(path, runs(3), Origin("abc", "main", "2030-01-01T10:00:00")) == 3
    found = rows(path)
    keys = {(row.run, row.trace, row.device, row.metric) for row in found}
    assert len(keys) == len(found)
    first = next(row for row in found if row.metric == "utilization_ratio")
    assert (first.number, first.commit, first.branch) == (1, "abc", "main")
    assert first.value == pytest.approx(0.9, abs=0.005)
    assert first.devices == "1 x NVIDIA A100-SXM4-80GB"


def test_the_same_run_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    assert add(path, [run(1), run(2)], Origin("abc", "main", "2030-01-01")) == 2
    again = [replace(run(1), tool_version="9.9"), run(1, path="elsewhere.sqlite"), run(3)]
    assert add(path, again, Origin("", "release", "2030-02-02")) == 1
    found = [row for row in rows(path) if row.metric == "utilization_ratio"]
    assert [row.number for row in found] == [1, 2, 3]
    assert [(row.commit, row.branch, row.added) for row in found] == [
        ("abc", "release", "2030-01-01"),
        ("abc", "main", "2030-01-01"),
        ("", "release", "2030-02-02"),
    ]


def test_an_analysis_that_tells_more_replaces_the_values(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    report = run(1)
    add(path, [report], Origin())
    add(path, [report], Origin())
    assert len({row.run for row in rows(path)}) == 1


def test_the_content_decides_not_the_place_or_the_time() -> None:
    report = run(1)
    slow = replace(report, outcomes=[replace(o, seconds=3.0) for o in report.outcomes])
    assert content_id(report) == content_id(slow) == content_id(run(1, path="b.sqlite"))
    assert content_id(report) != content_id(run(2))


def test_a_trace_is_never_written_to(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start integer)")
    before = path.read_bytes()
    with pytest.raises(UsageError):
        add(path, [run()], Origin())
    with pytest.raises(UsageError):
        rows(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["trace.sqlite"]


@pytest.mark.parametrize("content", [b"hello, I am text and no database at all", b"{}"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        add(path, [run()], Origin())
    assert path.read_bytes() == content


def test_a_missing_history_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        rows(tmp_path / "none.db")
    with pytest.raises(UsageError):
        rows(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_path_with_odd_letters_is_the_file_it_names(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=memory#%41.db"
    add(path, [run()], Origin())
    assert len(rows(path)) > 5
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


NOISE = [0.001, -0.002, 0.0015, -0.001, 0.002, 0.0, -0.0015, 0.001]


def noisy(level: float, count: int) -> list[float]:
    return [level + NOISE[n % len(NOISE)] for n in range(count)]


def test_a_lasting_change_is_found_where_it_began() -> None:
    assert changes(noisy(0.90, 8) + noisy(0.85, 8)) == [9]
    assert changes(noisy(0.85, 4) + noisy(0.90, 6)) == [5]


def test_two_changes_are_found() -> None:
    assert changes(noisy(0.90, 7) + noisy(0.80, 7) + noisy(0.88, 7)) == [8, 15]


def test_noise_drift_below_the_floor_and_one_outlier_are_no_change() -> None:
    assert changes(noisy(0.90, 30)) == []
    assert changes(noisy(0.90, 8) + noisy(0.89, 8)) == []
    assert changes([*noisy(0.90, 8), 0.5, *noisy(0.90, 8)]) == []


def test_too_few_runs_show_no_change() -> None:
    assert changes(noisy(0.90, 2) + noisy(0.50, 2)) == []
    assert changes([]) == changes([0.9]) == []


def test_machines_and_branches_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    for n in range(5):
        add(path, [run(n)], Origin("", "main"))
        add(path, [run(n, gpu="NVIDIA T4", **SLOW)], Origin("", "main"))
        add(path, [run(n + 50, **SLOW)], Origin("", "slow"))
    found = [t for t in trends(rows(path)) if t.metric == "utilization_ratio"]
    assert len(found) == 3
    assert all(step_changes(one) == [] for one in found)


def filled(tmp_path: Path, **origin: str) -> list[HistoryRow]:
    path = tmp_path / "history.db"
    add(path, runs(5, 1), Origin(**origin))
    add(path, runs(5, 20, **SLOW), Origin("badc0ffee", **origin))
    return rows(path)


def on_terminal(found: list[HistoryRow]) -> str:
    console = Console(file=io.StringIO(), width=100)
    render_history(found, console)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_the_table_names_runs_and_changes(tmp_path: Path) -> None:
    text = on_terminal(filled(tmp_path, branch="main"))
    assert "10 main badc0ffee GPU utilization GPU 0 86." in text
    assert re.search(
        r"change GPU utilization GPU 0 90\.\d % -> 86\.\d % at run 6 \(badc0ffee\)", text
    )
    assert text.endswith("10 runs")


def test_the_page_is_one_file_with_the_change_marked(tmp_path: Path) -> None:
    found = filled(tmp_path, branch="</script><img src=x onerror=alert(1)>")
    page = history_page(found)
    assert "<title>nsysdoctor history</title>" in page and "Plotly.newPlot" in page
    own = page.rsplit("Plotly.newPlot", 1)[1]
    assert "badc0ffee" in own and "GPU utilization [%]" in own
    assert "<img" not in own and "</script><img" not in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_an_empty_history_still_gives_a_page() -> None:
    assert "nsysdoctor history" in history_page([])
    assert on_terminal([]) == "0 runs"


def test_metrics_that_never_move_from_zero_are_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    add(path, [run(n, Loop(pageable_bytes=0)) for n in range(3)], Origin())
    assert "pageable" not in history_page(rows(path)).rsplit("Plotly.newPlot", 1)[1]
