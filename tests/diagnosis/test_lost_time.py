"""The report's rows of lost time: they add up to the budget, and findings claim what they cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import Options, diagnose_trace
from nsysdoctor.jobs.job import diagnose_job
from nsysdoctor.report.model import LostTime, Report, read_report
from nsysdoctor.rulebook.rule import Rule
from sample_traces import PROGRAMS
from tests import SAMPLES, swept
from tests.make_scene import trace_of
from tests.rules.samples import report_of

BUCKETS = ("exposed_communication", "exposed_copy", "idle")
MS, US = 1_000_000, 1_000


def inside(report: Report, trace: int, device: int) -> list[LostTime]:
    """The rows of one device that lie in its span."""
    return [
        row
        for row in report.lost_time
        if (row.trace, row.device) == (trace, device) and row.phase not in ("before", "after")
    ]


def assert_adds_up(report: Report) -> None:
    """What must hold of the rows of every report."""
    for device in report.devices:
        rows = inside(report, device.trace, device.device)
        spent = {name: sum(row.ns for row in rows if row.bucket == name) for name in BUCKETS}
        assert spent == {name: getattr(device, f"{name}_ns") for name in BUCKETS}
    for row in report.lost_time:
        assert 0 <= row.claimed_ns <= row.ns
        assert 0 < row.longest_ns <= row.ns
        assert row.count >= 1
        assert 0 <= row.ratio <= 1
        assert row.findings == sorted(set(row.findings))
        assert all(report.findings[place].trace == row.trace for place in row.findings)
    keys = [
        (r.trace, r.device, r.phase, r.bucket, r.cause, r.culprit, r.culprit_kind, r.thread,
         r.range)
        for r in report.lost_time
    ]  # fmt: skip
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", swept(PROGRAMS, 8))
def test_the_rows_of_every_program_add_up(name: str) -> None:
    report = report_of(name)
    assert_adds_up(report)
    assert read_report(report.to_json()).lost_time == report.lost_time


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("pageable_copy", ("exposed_copy", "copy")),
        ("input_starvation", ("idle", "input_wait")),
        ("launch_bound", ("idle", "launch")),
        ("exposed_communication", ("exposed_communication", "communication")),
    ],
)
def test_the_first_finding_claims_what_it_cures(name: str, owner: tuple[str, str]) -> None:
    report = report_of(name)
    mine = [row for row in report.lost_time if 0 in row.findings]
    most = max(mine, key=lambda row: row.claimed_ns)
    assert (most.bucket, most.cause) == owner
    assert sum(row.claimed_ns for row in mine) >= 0.5 * (report.findings[0].saving_ns or 0)


def test_several_traces_keep_their_claims() -> None:
    paths = [SAMPLES / f"{name}.sqlite" for name in ("pageable_copy", "sync_in_loop")]
    report = diagnose_job(paths).report
    assert_adds_up(report)
    for trace, rule in ((0, "pageable_copy"), (1, "sync_in_loop")):
        claimed = {
            report.findings[place].rule
            for row in report.lost_time
            if row.trace == trace
            for place in row.findings
        }
        assert rule in claimed


def test_a_sync_is_blamed_with_what_the_host_did_after_it() -> None:
    report = report_of("sync_in_loop")
    (place,) = [i for i, f in enumerate(report.findings) if f.rule == "sync_in_loop"]
    claimed = [row for row in report.lost_time if place in row.findings and row.bucket == "idle"]
    assert {"synchronization", "host_code"} <= {row.cause for row in claimed if row.claimed_ns}


def test_many_small_rows_are_told_as_others(all_rules: list[Rule], tmp_path: Path) -> None:
    lines = [
        f'{place * 200}us {90 + place % 7}us host range "part {chr(97 + place % 26)}'
        f'{chr(97 + place // 26)}"\n{place * 200 + 150}us 5us host cudaLaunchKernel -> '
        f"{place * 200 + 155}us 3us s7 kernel k"
        for place in range(600)
    ]
    report = diagnose_trace(trace_of("\n".join(lines)), Options(rules=all_rules))
    assert_adds_up(report)
    assert len(report.lost_time) < 400
    assert any(row.culprit == "others" for row in report.lost_time)
