"""Memory and code handled by the driver in the loop, on programs of known savings."""

from __future__ import annotations

import pytest

from tests.rules.samples import report_of, row_of, to_act

FAULTY = (
    ("allocation_churn", "allocation_churn"),
    ("pinned_per_step", "pinned_allocation_in_loop"),
    ("pinned_per_request", "pinned_allocation_in_loop"),
    ("jit_in_loop", "jit_in_loop"),
    ("autotune_in_loop", "jit_in_loop"),
)
AT_START = ("allocation_at_start", "autotune_at_start", "slow_start", "healthy_training")
RULES = ("allocation_churn", "pinned_allocation_in_loop", "jit_in_loop")


@pytest.mark.parametrize(("name", "rule"), FAULTY)
def test_fault_comes_first_and_saving_is_near_the_truth(name: str, rule: str) -> None:
    row = row_of(name)
    assert row.first == rule
    allowed = max(0.02 * row.window_ns, 0.15 * row.true_ns)
    assert abs(row.saving_ns - row.true_ns) <= allowed


@pytest.mark.parametrize(("name", "rule"), FAULTY)
def test_cured_programs_are_quiet(name: str, rule: str) -> None:
    assert not to_act(name, rule, cured=True)


@pytest.mark.parametrize("name", AT_START)
@pytest.mark.parametrize("rule", RULES)
def test_what_happens_at_the_start_only_is_no_finding(name: str, rule: str) -> None:
    assert not to_act(name, rule)


def test_the_advice_against_locking_per_request_is_to_reuse_buffers() -> None:
    (finding,) = to_act("pinned_per_request", "pinned_allocation_in_loop")
    assert finding.fix.startswith("Reuse page-locked buffers, do not call pin_memory()")
    delayed = finding.facts["delayed_count"]
    assert isinstance(delayed, int) and delayed > 50


def test_trials_are_told_from_loading() -> None:
    subjects = {f.subject for f in to_act("autotune_in_loop", "jit_in_loop")}
    assert subjects == {"trials by thread python"}
    assert {f.subject for f in to_act("jit_in_loop", "jit_in_loop")} == {
        "loading by thread python"
    }


def test_the_whole_program_is_not_judged_by_its_first_steps() -> None:
    found = [f for f in report_of("slow_start").findings if f.category != "start_up"]
    assert all(f.level == "info" for f in found)
