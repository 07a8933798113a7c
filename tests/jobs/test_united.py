"""Findings of several traces as one list: a cure is one change of the program."""

from __future__ import annotations

from dataclasses import replace

from nsysdoctor.report.model import Report
from nsysdoctor.report.ranking import united
from tests.make_report import MS, make_finding, make_report


def _rank(trace: int, sync_ns: int, needed: bool = False) -> Report:
    sync = make_finding(
        rule="sync_in_loop", subject=f"python on GPU {trace}", trace=trace, device=trace,
        saving_ns=sync_ns, saving_low_ns=sync_ns, saving_high_ns=sync_ns, level="medium",
    )  # fmt: skip
    copy = make_finding(
        rule="pageable_copy", subject=f"HtoD on GPU {trace}", trace=trace, device=trace,
        saving_ns=2 * MS, saving_low_ns=2 * MS, saving_high_ns=2 * MS, level="low",
    )  # fmt: skip
    note = make_finding(rule="gpu_idle", subject=f"GPU {trace}", trace=trace, level="info")
    note = replace(note, saving_ns=None, saving_low_ns=None, saving_high_ns=None)
    if needed:
        copy = replace(copy, needs=[0], saving_with_ns=9 * MS, saving_added_ns=2 * MS)
    return make_report(findings=[sync, copy, note])


def test_findings_of_one_rule_in_several_traces_are_one() -> None:
    found, places = united([_rank(0, 5 * MS), _rank(1, 7 * MS, needed=True)], 100 * MS)
    rules = [finding.rule for finding in found]
    assert rules == ["sync_in_loop", "pageable_copy", "gpu_idle", "gpu_idle"]
    assert places == [[0, 1, 2], [0, 1, 3]]
    sync = found[0]
    assert (sync.saving_ns, sync.saving_ratio, sync.device) == (7 * MS, 0.07, None)
    assert sync.subject == "python on GPU 0 and python on GPU 1"
    assert [(s.trace, s.saving_ns) for s in sync.subjects] == [(0, 5 * MS), (1, 7 * MS)]


def test_what_a_finding_needs_keeps_its_place() -> None:
    found, _ = united([_rank(0, 5 * MS), _rank(1, 7 * MS)], 100 * MS)
    assert [finding.needs for finding in found] == [[], [], [], []]
    found, _ = united([_rank(0, 5 * MS, needed=True), _rank(1, 7 * MS, needed=True)], 100 * MS)
    assert found[1].needs == [0]
    assert found[0].rule == "sync_in_loop"
