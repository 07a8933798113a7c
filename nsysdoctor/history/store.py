"""Runs kept in an SQLite file, one row per run and metric, and where their trend changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.baseline import series_of_runs, setup_of, setup_text
from nsysdoctor.gate.limits import Limits, bound_of
from nsysdoctor.gate.statistics import RunValue, Sizes, compare
from nsysdoctor.report.identity import content_id
from nsysdoctor.report.metrics import METRIC_ORDER, METRICS, Unit
from nsysdoctor.report.model import Report

SIDE = 5
APPLICATION_ID = 0x6E737964  # "nsyd" in the file's header tells a history from a trace
_NO_DEVICE = -1
_METRIC_KEY = ("run", "trace", "device", "metric")
_RUN_COLUMNS: dict[str, Any] = {
    "run": str, "number": int, "commit": str, "branch": str, "added": str, "tool_version": str,
    "devices": str,
}  # fmt: skip
_METRIC_COLUMNS: dict[str, Any] = {
    "run": str, "trace": int, "device": int, "metric": str, "unit": str, "value": float,
    "error": float,
}  # fmt: skip
_HINT = "make one with: nsysdoctor history add history.db run.sqlite"


@dataclass(frozen=True)
class Origin:
    """Where a run comes from, as the user or git says; empty where unknown."""

    commit: str = ""
    branch: str = ""
    added: str = ""


@dataclass(frozen=True)
class HistoryRow:
    """One metric of one run. `number` counts the runs in the order in which they came."""

    number: int
    run: str
    commit: str
    branch: str
    added: str
    devices: str
    trace: int
    device: int | None
    metric: str
    unit: Unit
    value: float
    error: float | None


@dataclass(frozen=True)
class StepChange:
    """A run from which on a metric stays at another value."""

    trace: int
    device: int | None
    metric: str
    number: int
    commit: str
    before: float
    after: float


def add(path: Path, reports: Sequence[Report], origin: Origin) -> int:
    """Returns how many runs were new; a run that is there already gets its origin anew.

    Makes the file when it does not exist; raises UsageError when it is something else.
    """
    with closing(_open(path, create=True)) as connection, connection:
        numbers = {row["run"]: row["number"] for row in _table(connection, "runs").rows}
        known = len(numbers)
        for report in reports:
            run = content_id(report)
            numbers.setdefault(run, len(numbers) + 1)
            _store(connection, run, numbers[run], report, origin)
    return len(numbers) - known


def _store(
    connection: sqlite3.Connection, run: str, number: int, report: Report, origin: Origin
) -> None:
    runs = _table(connection, "runs")
    found = list(runs.rows_where("run = ?", [run]))
    old = found[0] if found else {"commit": "", "branch": "", "added": ""}
    row = {
        "run": run,
        "number": number,
        "commit": origin.commit or old["commit"],
        "branch": origin.branch or old["branch"],
        "added": old["added"] or origin.added,
        "tool_version": report.tool_version,
        "devices": setup_text(setup_of(report).devices),
    }
    runs.upsert(row, pk="run")
    _table(connection, "metrics").upsert_all(_metric_rows(run, report), pk=_METRIC_KEY)


def _metric_rows(run: str, report: Report) -> list[dict[str, object]]:
    return [
        {
            "run": run,
            "trace": series.trace,
            "device": _NO_DEVICE if series.device is None else series.device,
            "metric": series.metric,
            "unit": series.unit,
            "value": series.runs[0].value,
            "error": series.runs[0].error,
        }
        for series in series_of_runs([report])
    ]


def rows(path: Path) -> list[HistoryRow]:
    """Returns every metric of every run, runs in the order in which they came.

    Raises UsageError when the file is missing or no history.
    """
    with closing(_open(path, create=False)) as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute(_ROWS)]
        made = [_history_row(row) for row in found if row["metric"] in METRICS]
    return sorted(made, key=_row_order)


_ROWS = """
select number, metrics.run, "commit", branch, added, devices, trace, device, metric, unit, value,
       error
from metrics join runs on runs.run = metrics.run
"""


def _history_row(row: dict[str, Any]) -> HistoryRow:
    device = None if row["device"] == _NO_DEVICE else row["device"]
    return HistoryRow(**{**row, "device": device})


def _row_order(row: HistoryRow) -> tuple[int, int, int, int]:
    return row.number, row.trace, _device_place(row.device), METRIC_ORDER[row.metric]


def _device_place(device: int | None) -> int:
    return _NO_DEVICE if device is None else device


def _open(path: Path, *, create: bool) -> sqlite3.Connection:
    """The history in the file; the file is read before anything could be written to it."""
    if path.is_file() and path.stat().st_size > 0:
        _check_file(path)
        return sqlite3.connect(path) if create else _read_only(path)
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no file", _HINT)
    if not create:
        raise UsageError(f"there is no history {path}", _HINT)
    connection = sqlite3.connect(path)
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    _table(connection, "runs").create(_RUN_COLUMNS, pk="run")
    _table(connection, "metrics").create(_METRIC_COLUMNS, pk=_METRIC_KEY)
    connection.commit()
    return connection


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _table(connection: sqlite3.Connection, name: str) -> Any:
    from sqlite_utils import Database

    return Database(connection)[name]


def _check_file(path: Path) -> None:
    """Refuses whatever is no history: most of all a trace, which must never be written to."""
    try:
        with closing(_read_only(path)) as file:
            found = file.execute("pragma application_id").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{path} is no history ({error})", _HINT) from error
    if found != APPLICATION_ID:
        raise UsageError(f"{path} is an SQLite file, but no history", _HINT)


@dataclass(frozen=True)
class Trend:
    """One metric over the runs of one branch on one kind of machine."""

    branch: str
    devices: str
    trace: int
    device: int | None
    metric: str
    rows: list[HistoryRow]

    @property
    def order(self) -> tuple[int, int, int, str, str]:
        """Returns the place in every listing."""
        place = METRIC_ORDER[self.metric]
        return place, self.trace, _device_place(self.device), self.branch, self.devices


def trends(found: Sequence[HistoryRow]) -> list[Trend]:
    """Returns the rows as trends; branches and kinds of machine do not mix."""
    groups: dict[tuple[str, str, int, int | None, str], list[HistoryRow]] = {}
    for row in found:
        key = (row.branch, row.devices, row.trace, row.device, row.metric)
        groups.setdefault(key, []).append(row)
    return sorted((Trend(*key, group) for key, group in groups.items()), key=lambda t: t.order)


def step_changes(trend: Trend) -> list[StepChange]:
    """Returns the runs from which on the metric stays at another value, in their order.

    A change holds when the up to five runs before and after it pass the gate's rank test and
    differ by more than the metric's floor.
    """
    places = sorted(_splits(trend, 0, len(trend.rows)))
    return [_step_change(trend, place, before, after) for place, before, after in places]


def _splits(trend: Trend, start: int, end: int) -> list[tuple[int, float, float]]:
    """The clearest change between two rows, then those on either side of it."""
    best: tuple[float, int, float, float] | None = None
    for place in range(start + 1, end):
        before = [row.value for row in trend.rows[max(start, place - SIDE) : place]]
        after = [row.value for row in trend.rows[place : min(end, place + SIDE)]]
        strength = _strength(trend.metric, before, after)
        if strength and (best is None or strength > best[0]):
            best = (strength, place, median(before), median(after))
    if best is None:
        return []
    _, place, old, new = best
    return [(place, old, new), *_splits(trend, start, place), *_splits(trend, place, end)]


def _strength(metric: str, before: Sequence[float], after: Sequence[float]) -> float:
    """How well a split divides the runs: the effect over the spread it leaves; 0 for no change."""
    limits, kind = Limits(), METRICS[metric]
    if min(len(before), len(after)) < limits.min_runs:
        return 0.0
    change = compare(
        [RunValue(value, None, 0, 0) for value in before],
        [RunValue(value, None, 0, 0) for value in after],
        better="lower" if kind.better == "neither" else kind.better,
        sizes=Sizes(bound_of(limits, metric, "").threshold(median(before), 0.0)),
        min_runs=limits.min_runs,
    )
    if change.change not in ("worse", "better"):
        return 0.0
    left = sum(abs(v - median(before)) for v in before) + sum(abs(v - median(after)) for v in after)
    return abs(change.effect) / (left / (len(before) + len(after)) + 0.01 * abs(change.effect))


def _step_change(trend: Trend, place: int, before: float, after: float) -> StepChange:
    row = trend.rows[place]
    return StepChange(
        trend.trace, trend.device, trend.metric, row.number, row.commit, before, after
    )
