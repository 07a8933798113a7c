"""The rules about copies and page migrations, on the sample programs."""

from __future__ import annotations

import re

import pytest

from sample_traces import record
from tests.rules.programs import found_on, misses, report_on

PRICED = (
    ("pageable_copy", "pageable_copy", True),
    ("pageable_tensors", "pageable_copy", True),
    ("pageable_download", "pageable_copy", True),
    ("pageable_streams", "pageable_copy", True),
    ("blocking_copy", "blocking_copy", True),
    ("serial_copy", "serial_copy", False),
    ("many_small_copies", "many_small_copies", False),
    ("copy_contention", "copy_contention", False),
    ("unified_memory", "unified_memory_migration", False),
)
QUIET = (
    ("blocking_copy", "pageable_copy"),
    ("serial_copy", "pageable_copy"),
    ("serial_copy", "blocking_copy"),
    ("serial_copy", "copy_contention"),
    ("healthy_training", "serial_copy"),
    ("healthy_training", "copy_contention"),
    ("single_stream", "serial_copy"),
    ("scalar_reads", "blocking_copy"),
    ("evaluation_and_checkpoint", "pageable_copy"),
    ("unified_memory", "pageable_copy"),
    ("unified_memory", "many_small_copies"),
    ("unified_memory_at_start", "unified_memory_migration"),
)


@pytest.mark.parametrize(("program", "rule", "ranged"), PRICED)
def test_saving_is_what_the_cure_saves(program: str, rule: str, ranged: bool) -> None:
    assert misses(program, rule, ranged=ranged) == ""


@pytest.mark.parametrize(("program", "rule", "ranged"), PRICED)
def test_cured_program_is_quiet(program: str, rule: str, ranged: bool) -> None:
    assert found_on(program, rule, cured=True) == ()


@pytest.mark.parametrize(("program", "rule"), QUIET)
def test_other_programs_are_quiet(program: str, rule: str) -> None:
    assert found_on(program, rule) == ()


@pytest.mark.sweep
@pytest.mark.parametrize(("program", "rule", "ranged"), PRICED)
def test_a_run_with_spread_gives_the_same_verdict(program: str, rule: str, ranged: bool) -> None:
    exact = found_on(program, rule)[0]
    report = report_on(record(program, seed=7, jitter_ratio=0.04), rule)
    spread = report.findings[0]
    assert (spread.rule, spread.subject) == (exact.rule, exact.subject)
    assert spread.saving_ratio == pytest.approx(exact.saving_ratio, abs=0.04)


def test_evaluation_and_checkpoint_are_listed_once_with_their_cost() -> None:
    report = report_on(record("evaluation_and_checkpoint"), "pageable_copy")
    assert [f.level for f in report.findings] == ["info"]
    facts = report.findings[0].facts
    assert report.findings[0].subject == "one-off HtoD and DtoH"
    # Six batches of 16 MiB, five checkpoints of 48 MiB and the weights at the start.
    assert facts["bytes"] == (6 * 16 + 5 * 48 + sum(range(1, 6))) << 20
    assert int(str(facts["blocked_ns"])) > 40_000_000


def test_small_downloads_that_halt_streams_are_named_beside_the_synchronisation() -> None:
    report = report_on(record("scalar_reads_beside_streams"), "pageable_copy")
    assert report.findings[0].subject == "small DtoH on GPU 0"
    alone = report_on(record("scalar_reads"), "pageable_copy")
    assert alone.findings == []


@pytest.mark.parametrize(
    ("program", "rule"), [("pageable_copy", "pageable_copy"), ("blocking_copy", "blocking_copy")]
)
def test_facts_hold_no_codes_that_only_the_rule_understands(program: str, rule: str) -> None:
    told = re.compile(r"(^bytes|_bytes|_ns|_ratio|_count|_per_s)$")
    for finding in report_on(record(program), rule).findings:
        numbers = {n for n, v in finding.facts.items() if isinstance(v, int | float)}
        assert numbers
        assert all(told.search(name) for name in numbers), numbers
