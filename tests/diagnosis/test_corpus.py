"""Real exports: the account adds up, the replay is exact, nothing impossible is said.

Runs where NSYSDOCTOR_CORPUS names a folder of exports; the sums to hold against are made here
from the export itself.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from nsysdoctor.diagnosis.diagnose import Options, diagnose_trace
from nsysdoctor.errors import EmptyTraceError
from nsysdoctor.replay.replay import run
from nsysdoctor.report.model import Report
from nsysdoctor.rulebook.rule import Rule, load_rules
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.trace.trace import Trace, open_trace
from tests.window_alone import assert_same, part_of

FOLDER = os.environ.get("NSYSDOCTOR_CORPUS", "")
EXPORTS = sorted(Path(FOLDER).glob("*.sqlite")) if FOLDER else []

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not FOLDER, reason="NSYSDOCTOR_CORPUS names no folder of real exports"),
]

ACTIVITY = [f"CUPTI_ACTIVITY_KIND_{k}" for k in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")]


@dataclass(frozen=True)
class Judged:
    """One export with its report, None when it holds no GPU activity."""

    trace: Trace
    report: Report | None


@lru_cache(maxsize=2)
def _judged(path: Path) -> Judged:
    trace = open_trace(path)
    try:
        return Judged(trace, diagnose_trace(trace, Options(rules=_rules())))
    except EmptyTraceError:
        return Judged(trace, None)


@cache
def _rules() -> list[Rule]:
    return load_rules()


@pytest.fixture(
    scope="module", params=EXPORTS or [None], ids=lambda path: path.stem if path else "none"
)
def judged(request: pytest.FixtureRequest) -> Judged:
    """Each export of the folder in turn; all tests of one run before the next is opened."""
    return _judged(request.param)


def named(stem: str) -> Judged:
    """The export of that name; the test is skipped where the folder lacks it."""
    found = [path for path in EXPORTS if path.stem == stem]
    if not found:
        pytest.skip(f"the folder has no {stem}")
    return _judged(found[0])


def spans_of(path: Path) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Start and end of every operation by process and device, read without any of our code."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    with closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as database:
        for table in ACTIVITY:
            columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            for pid, device, start, end in _rows(database, table, columns) if columns else ():
                if end >= start and (start, end) != (0, 0):
                    found.setdefault((pid, device), []).append((start, end))
    return found


def _rows(
    database: sqlite3.Connection, table: str, columns: set[str]
) -> Iterator[tuple[int, int, int, int]]:
    pid = "globalPid" if "globalPid" in columns else "0"
    explicit = "copyKind NOT IN (11, 12, 13)" if "copyKind" in columns else "1"
    yield from database.execute(
        f'SELECT {pid}, deviceId, start, "end" FROM {table} WHERE typeof(start) = \'integer\' '
        f"AND typeof(\"end\") = 'integer' AND {explicit}"
    )


def union_ns(spans: list[tuple[int, int]]) -> int:
    """How long at least one of the intervals lasts."""
    busy, reach = 0, -(1 << 62)
    for start, end in sorted(spans):
        busy += max(0, end - max(start, reach))
        reach = max(reach, end)
    return busy


def test_an_export_is_analysed_or_holds_no_activity(judged: Judged) -> None:
    assert (judged.report is None) == (not spans_of(judged.trace.export.path))


def test_every_nanosecond_is_in_one_bucket(judged: Judged) -> None:
    for device in judged.report.devices if judged.report else ():
        parts = (device.compute_ns, device.exposed_communication_ns, device.exposed_copy_ns)
        assert min(*parts, device.idle_ns) >= 0
        assert sum(parts) + device.idle_ns == device.span_ns
        assert 0 <= device.utilization_ratio <= device.busy_ratio <= 1


def test_causes_sum_to_idle_time(judged: Judged) -> None:
    for device in judged.report.devices if judged.report else ():
        causes = judged.report.idle_causes if judged.report else []
        mine = [cause.idle_ns for cause in causes if cause.device == device.device]
        assert sum(mine) == device.idle_ns


def test_busy_time_is_what_the_export_says(judged: Judged) -> None:
    report = judged.report
    if report is None or report.traces[0].dropped or len(report.devices) != 1:
        return
    every = [span for spans in spans_of(judged.trace.export.path).values() for span in spans]
    (device,) = report.devices
    assert device.span_ns - device.idle_ns == union_ns(every)
    assert device.span_ns == max(e for _, e in every) - min(s for s, _ in every)


@pytest.mark.parametrize(("start", "length"), [(0.1, 0.03), (0.5, 0.2)])
def test_a_window_gives_the_same_numbers_however_much_is_read(
    judged: Judged, start: float, length: float
) -> None:
    if judged.report is not None:
        path = judged.trace.export.path
        assert_same(path, part_of(path, start, length))


def test_a_replay_without_edits_gives_every_time_back(judged: Judged) -> None:
    graph = judged.trace.optional("constraint_graph") if judged.report else None
    if graph is not None:
        assert np.array_equal(run(graph), graph.nodes.time)


def test_no_rule_fails_and_every_skip_has_a_reason(judged: Judged) -> None:
    for outcome in judged.report.outcomes if judged.report else ():
        assert outcome.state != "failed", outcome
        assert outcome.reason or outcome.state == "passed"


def test_savings_lie_in_their_bounds(judged: Judged) -> None:
    if judged.report is None:
        return
    window = judged.report.window.span_ns
    largest = 0
    for finding in judged.report.findings:
        if finding.saving_ns is not None:
            assert finding.saving_low_ns is not None
            assert finding.saving_high_ns is not None
            low, high = finding.saving_low_ns, finding.saving_high_ns
            assert 0 <= low <= finding.saving_ns <= high <= window, finding
            largest = max(largest, finding.saving_ns)
    assert largest <= judged.report.combined_saving_ns <= window


def test_no_ratio_and_no_rate_is_impossible(judged: Judged) -> None:
    if judged.report is None:
        return
    for row in judged.report.kernels:
        assert 0 <= row.share_ratio <= 1
        assert row.peak_ratio is None or 0 <= row.peak_ratio <= 1, row
    for finding in judged.report.findings:
        for name, value in finding.facts.items():
            if name.endswith("_ratio") and value is not None:
                assert 0 <= float(value) <= 1, (finding.rule, name, value)


def test_a_report_survives_being_written(judged: Judged) -> None:
    from nsysdoctor.report.model import read_report

    if judged.report is not None:
        text = judged.report.to_json()
        assert read_report(text) == judged.report


@pytest.mark.parametrize("path", EXPORTS[::9] or [None], ids=lambda p: p.stem if p else "none")
def test_two_analyses_of_an_export_are_the_same(path: Path) -> None:
    first = _judged(path).report
    if first is not None:
        again = diagnose_trace(open_trace(path), Options(rules=_rules()))
        assert again.to_json() == first.to_json()


# --- what is known of single exports


def above_info(report: Report | None) -> set[str]:
    """The rules with findings to act on."""
    assert report is not None
    return {finding.rule for finding in report.findings if finding.level != "info"}


def test_a_device_that_copies_is_busy_and_few_bytes_are_no_finding() -> None:
    report = named("2026.2.1_no-gpu-info_1").report
    assert report is not None
    assert len(report.devices) == 2
    for device in report.devices:
        assert device.busy_ratio > 0.985
        assert 0.01 < device.compute_ns / device.span_ns < 0.08
        assert device.exposed_copy_ns > 0.9 * device.span_ns
    assert "pageable_copy" not in above_info(report)


def test_a_busy_device_gets_no_complaint_about_idling() -> None:
    report = named("2024.6.2_a100-sxm4-80gb_1").report
    assert report is not None
    (device,) = report.devices
    assert device.busy_ratio > 0.997
    assert not above_info(report) & {
        "gpu_idle", "launch_bound", "sync_in_loop", "host_bound", "input_starvation"
    }  # fmt: skip


def test_graph_replays_are_busy_and_their_kernels_are_said_to_be_hidden() -> None:
    judged = named("2025.5.2_rtx-3060_1")
    assert judged.report is not None
    assert judged.report.traces[0].rows["graph"] > 0
    ops = judged.trace.table("ops")
    replays = ops[ops["kind"] == GRAPH]
    assert judged.report.devices[0].compute_ns >= union_ns(
        list(zip(replays["start_ns"], replays["end_ns"], strict=True))
    )
    (found,) = [f for f in judged.report.findings if f.rule == "graph_kernels_hidden"]
    assert "--cuda-graph-trace=node" in f"{found.message} {found.fix}"


def test_launches_join_on_process_and_correlation() -> None:
    judged = named("2026.2.1_no-gpu-info_3")
    launches, ops, api = (judged.trace.table(n) for n in ("launches", "ops", "api"))
    kernels = ops.index[ops["kind"] == KERNEL]
    matched = kernels.isin(launches["op"])
    assert (matched.sum(), (~matched).sum()) == (3986, 24)
    assert launches["op"].is_unique
    op, call = launches["op"].to_numpy(), launches["api"].to_numpy()
    for column in ("process", "correlation"):
        assert (ops[column].to_numpy()[op] == api[column].to_numpy()[call]).all()
    assert (launches["latency_ns"] >= 0).all()
