"""The rules about communication, on the sample programs and their single ranks."""

from __future__ import annotations

import pytest

from sample_traces import by_process, record
from tests.rules.programs import found_on, misses, report_on

EXPOSED, CONTENTION = "exposed_communication", "communication_contention"


def test_saving_is_what_the_cure_saves() -> None:
    assert misses("exposed_communication", EXPOSED, ranged=False) == ""
    assert misses("communication_contention", CONTENTION, ranged=True) == ""


def test_contention_is_priced_at_the_speed_alone_and_may_gain_nothing() -> None:
    finding = found_on("communication_contention", CONTENTION)[0]
    assert finding.saving_low_ns == 0
    assert finding.facts["slowdown"] == pytest.approx(1.8, abs=0.02)
    assert finding.saving_ratio == pytest.approx(0.092, abs=0.01)


@pytest.mark.parametrize(
    ("program", "rule", "cured"),
    [
        ("exposed_communication", EXPOSED, True),
        ("exposed_communication", CONTENTION, False),
        ("communication_contention", CONTENTION, True),
        ("two_gpu", EXPOSED, False),
        ("two_gpu", CONTENTION, False),
        ("slow_start", EXPOSED, False),
        ("healthy_training", EXPOSED, False),
    ],
)
def test_other_programs_are_quiet(program: str, rule: str, cured: bool) -> None:
    assert found_on(program, rule, cured=cured) == ()


def test_devices_that_meet_are_one_finding() -> None:
    findings = found_on("exposed_communication", EXPOSED)
    assert [(f.subject, f.device) for f in findings] == [("GPUs 0, 1", None)]


def test_waiting_for_a_late_rank_is_told_apart() -> None:
    report = report_on(record("straggler_rank"), EXPOSED)
    facts = report.findings[0].facts
    # Ten of the twelve milliseconds of seven of eight ranks.
    waited = int(str(facts["waited_ns"])) / int(str(facts["exposed_ns"]))
    assert waited == pytest.approx(7 * 10 / (7 * 12 + 2), abs=0.01)
    assert report.findings[0].saving_ratio < 2 / 32


def test_a_rank_alone_gives_the_same_verdict_and_says_it_is_inferred() -> None:
    alone = by_process(record("exposed_communication"))[0]
    finding = report_on(alone, EXPOSED).findings[0]
    both = found_on("exposed_communication", EXPOSED)[0]
    assert finding.basis == "inferred"
    assert finding.saving_ratio == pytest.approx(both.saving_ratio, abs=0.01)
