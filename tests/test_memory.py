"""Tables are forgotten when nothing needs them, and made again when somebody asks after all."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsysdoctor.engine import Options, diagnose_trace
from nsysdoctor.rule import Rule
from nsysdoctor.trace import Trace, open_trace
from sample_traces import record, write


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    path = tmp_path / "run.sqlite"
    write(record("pageable_copy"), path)
    return open_trace(path)


def held(trace: Trace) -> set[str]:
    return set(trace._tables)


def test_what_nobody_needs_is_gone_after_a_report(trace: Trace, all_rules: list[Rule]) -> None:
    diagnose_trace(trace, Options(rules=all_rules))
    assert not held(trace) & {"constraint_graph", "api_rows", "nvtx_rows", "kernel_rows", "ranges"}


def test_what_is_wanted_later_is_kept(trace: Trace, all_rules: list[Rule]) -> None:
    diagnose_trace(trace, Options(rules=all_rules), later=("api", "ranges", "ops"))
    assert held(trace) >= {"api", "ranges", "ops"}


def test_a_forgotten_table_is_made_again(trace: Trace, all_rules: list[Rule]) -> None:
    before = trace.table("api").copy()
    diagnose_trace(trace, Options(rules=all_rules))
    assert trace.table("api").equals(before)


def test_two_reports_on_one_trace_are_the_same(trace: Trace, all_rules: list[Rule]) -> None:
    first = diagnose_trace(trace, Options(rules=all_rules))
    assert diagnose_trace(trace, Options(rules=all_rules)).to_json() == first.to_json()
