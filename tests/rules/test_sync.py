"""Synchronisations in the loop, on programs of known savings."""

from __future__ import annotations

import pytest

from tests.rules.samples import report_of, row_of, to_act

FAULTY = (
    "sync_in_loop", "sync_storm", "data_dependent_sync", "sync_in_progress_bar",
    "sync_in_batch_to_device", "scalar_reads", "scalar_reads_beside_streams",
)  # fmt: skip
HEALTHY = (
    "long_sync", "drained_but_busy", "host_ahead", "healthy_training", "healthy_loader",
    "evaluation_and_checkpoint", "graph_inference", "two_processes",
)  # fmt: skip
OTHERS_FAULT = (
    "sync_beside_host_code", "decode_gap", "input_starvation", "periodic_starvation",
    "allocation_churn", "pinned_per_step", "slow_graph_launch", "profiler_overhead",
)  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_fault_comes_first_and_saving_is_near_the_truth(name: str) -> None:
    row = row_of(name)
    assert row.first == "sync_in_loop"
    assert row.holds, f"says {row.saving_ns}, true {row.true_ns} of {row.window_ns}"


@pytest.mark.parametrize("name", FAULTY)
def test_one_row_per_thread_and_device_and_none_when_cured(name: str) -> None:
    assert len(to_act(name, "sync_in_loop")) == 1
    assert not to_act(name, "sync_in_loop", cured=True)


@pytest.mark.parametrize("name", HEALTHY)
def test_waits_that_cost_the_device_nothing_are_left_alone(name: str) -> None:
    assert not to_act(name, "sync_in_loop")


@pytest.mark.parametrize("name", OTHERS_FAULT)
def test_a_hole_that_something_else_makes_is_not_charged_to_the_wait(name: str) -> None:
    assert not to_act(name, "sync_in_loop")


def test_moving_the_wait_changes_neither_subject_nor_saving() -> None:
    (late,) = to_act("sync_in_progress_bar", "sync_in_loop")
    (early,) = to_act("sync_in_batch_to_device", "sync_in_loop")
    assert late.subject == early.subject
    assert late.saving_ns is not None and early.saving_ns is not None
    assert abs(late.saving_ns - early.saving_ns) <= 0.005 * report_of(
        "sync_in_progress_bar"
    ).window.span_ns


def test_the_cost_is_the_hole_and_not_the_wait() -> None:
    (finding,) = to_act("sync_in_loop", "sync_in_loop")
    waited = finding.facts["waited_ns"]
    assert isinstance(waited, int)
    assert waited > 5 * (finding.saving_ns or 0)


def test_a_data_dependent_shape_is_called_likely() -> None:
    (finding,) = to_act("data_dependent_sync", "sync_in_loop")
    assert "a data-dependent shape is likely" in finding.message
    (other,) = to_act("sync_in_loop", "sync_in_loop")
    assert "likely" not in other.message


def test_a_storm_is_one_row_with_its_count_and_place() -> None:
    (finding,) = to_act("sync_storm", "sync_in_loop")
    assert finding.count > 1_000
    assert "optimizer step" in finding.message
