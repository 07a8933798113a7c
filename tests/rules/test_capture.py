"""Faults of the capture itself, on programs that have them and on those that do not."""

from __future__ import annotations

import pytest

from nsysdoctor.report.model import Finding
from tests.rules.samples import ended, report_of, row_of, to_act

RULES = ("incomplete_capture", "graph_kernels_hidden", "profiler_overhead")


@pytest.mark.parametrize("rule", RULES)
def test_capture_fault_comes_first(rule: str) -> None:
    found = [f for f in report_of(rule).findings if f.category != "start_up"]
    assert found[0].rule == rule


@pytest.mark.parametrize("rule", RULES)
def test_capture_without_the_fault_is_quiet(rule: str) -> None:
    assert not to_act(rule, rule, cured=True)


@pytest.mark.parametrize("name", ["healthy_training", "host_bound", "two_gpu", "graph_nodes"])
def test_other_programs_have_no_capture_fault(name: str) -> None:
    assert [ended(name, rule) for rule in RULES] == ["passed"] * 3


def _the(rule: str) -> Finding:
    (finding,) = [f for f in report_of(rule).findings if f.rule == rule]
    return finding


def test_lost_kernels_are_counted_and_placed_and_the_recorder_is_quoted() -> None:
    finding = _the("incomplete_capture")
    assert finding.facts["from_ns"] == 0
    assert finding.facts["lost_call_count"] == finding.count > 100
    assert "Not all CUDA events might have been collected." in finding.message
    assert finding.saving_ns is None


def test_hidden_kernels_name_the_option_that_shows_them() -> None:
    finding = _the("graph_kernels_hidden")
    assert "--cuda-graph-trace=node" in finding.fix
    assert finding.saving_ns is None


def test_profiler_pauses_are_priced_and_not_charged_to_the_program() -> None:
    row = row_of("profiler_overhead")
    assert row.holds
    for rule in ("host_bound", "launch_bound", "sync_in_loop"):
        assert not to_act("profiler_overhead", rule)
