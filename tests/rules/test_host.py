"""Starvation for input, host code that binds and launching, on programs of known savings."""

from __future__ import annotations

import pytest

from tests.rules.samples import first_rule, report_of, row_of, to_act

STARVED = ("input_starvation", "periodic_starvation", "starvation_without_os_calls")
BOUND = ("host_bound", "python_bound", "decode_gap", "sync_beside_host_code", "chunked_download")
LAUNCHING = ("launch_bound", "launch_gaps", "launch_gaps_small_prize", "slow_graph_launch")
HEALTHY = ("healthy_loader", "healthy_driver_api", "four_streams", "host_ahead", "graph_nodes")
RULES = ("input_starvation", "host_bound", "launch_bound")


@pytest.mark.parametrize("name", [*STARVED, *BOUND, *LAUNCHING])
def test_fault_comes_first_and_saving_is_near_the_truth(name: str) -> None:
    row = row_of(name)
    assert row.first == row.rule
    assert row.holds, f"says {row.saving_ns}, true {row.true_ns} of {row.window_ns}"


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("rule", RULES)
def test_healthy_programs_are_left_alone(name: str, rule: str) -> None:
    assert not to_act(name, rule)


@pytest.mark.parametrize(
    ("name", "rule"),
    [(n, "host_bound") for n in BOUND if n != "chunked_download"]
    + [("input_starvation", "input_starvation"), ("starvation_without_os_calls", RULES[0])]
    + [(n, "launch_bound") for n in LAUNCHING],
)
def test_cured_programs_are_quiet(name: str, rule: str) -> None:
    assert not to_act(name, rule, cured=True)


def test_host_code_is_not_called_a_wait_for_input() -> None:
    for name in BOUND:
        assert not to_act(name, "input_starvation")


def test_a_wait_for_input_is_not_called_host_code() -> None:
    for name in STARVED:
        assert not to_act(name, "host_bound")


def test_one_late_step_in_four_is_said_so_and_the_typical_wait_stays() -> None:
    (finding,) = to_act("periodic_starvation", "input_starvation")
    assert "about 1 in 4" in finding.message
    assert (finding.saving_ns or 0) < (finding.saving_high_ns or 0)
    assert finding.saving_low_ns == finding.saving_ns


def test_the_repeated_sequence_is_named() -> None:
    (finding,) = to_act("launch_gaps", "launch_bound")
    assert "sequence of 120 repeats 2" in finding.message
    assert "triton_per_fused_add_rsqrt_mul_0" in finding.message


def test_the_range_of_the_host_code_is_named() -> None:
    (finding,) = to_act("host_bound", "host_bound")
    assert finding.message.endswith("mostly in metrics")


def test_a_graph_that_is_slow_to_launch_is_told_from_single_launches() -> None:
    (finding,) = to_act("slow_graph_launch", "launch_bound")
    assert finding.subject.startswith("graph launches")
    assert first_rule("graph_inference") in ("", "graph_kernels_hidden")


def test_savings_of_one_hole_do_not_add_up() -> None:
    report = report_of("host_bound")
    assert report.combined_saving_ns <= report.window.span_ns
    single = max(f.saving_ns or 0 for f in report.findings)
    assert single <= report.combined_saving_ns <= 1.1 * single
