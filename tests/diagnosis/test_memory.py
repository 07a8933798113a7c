"""Tables are forgotten when nothing needs them, and made again when somebody asks after all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import _SUMMARISED, Options, diagnose_trace
from nsysdoctor.jobs.job import DRAWN, JobOptions, diagnose_job
from nsysdoctor.rulebook.rule import Rule
from nsysdoctor.trace.trace import Trace, open_trace
from sample_traces import record, write
from tests import SAMPLES


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


@pytest.mark.parametrize("sample", ["healthy", "annotated_chain", "two_gpu", "graph_only"])
def test_no_table_is_made_twice_nor_kept_for_nothing(
    sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[str] = Counter()
    opened: list[Trace] = []
    make = Trace._make

    def counted(trace: Trace, name: str) -> object:
        made[name] += 1
        opened.append(trace)
        return make(trace, name)

    monkeypatch.setattr(Trace, "_make", counted)
    diagnose_job([SAMPLES / f"{sample}.sqlite"], JobOptions(payloads=True))
    del made["request"]  # what the user asked for, which costs nothing
    assert {name for name, count in made.items() if count > 1} == set()
    assert held(opened[0]) <= {*DRAWN, "window", "request", "device_pieces", "collectives",
                               *_SUMMARISED}  # fmt: skip
