"""Every sample program: its fault first, priced as its cure really saves; healthy ones quiet.

`NSYSDOCTOR_UPDATE=1 pytest tests/sample_traces/test_accuracy.py` rewrites the golden table.
"""

from __future__ import annotations

import os
from statistics import median

import pytest

from nsysdoctor.report.model import START_UP
from sample_traces import PROGRAMS
from tests import TESTS, swept
from tests.accuracy import table
from tests.rules.samples import report_of, row_of

GOLDEN = TESTS / "golden" / "accuracy.txt"
FAULTY = [name for name, sample in PROGRAMS.items() if sample.rule]
UNPRICED = {
    "graph_kernels_hidden", "incomplete_capture", "one_thread", "refused_launches",
    "register_spill",
}  # fmt: skip


@pytest.mark.parametrize("name", swept(FAULTY, 6))
def test_the_fault_is_the_first_finding(name: str) -> None:
    findings = [f for f in report_of(name).findings if f.category != START_UP]
    assert findings, "nothing found"
    assert findings[0].rule == PROGRAMS[name].rule


@pytest.mark.parametrize("name", swept([n for n in FAULTY if n not in UNPRICED], 6))
def test_the_predicted_saving_is_near_the_true_one(name: str) -> None:
    row = row_of(name)
    assert row.true_ns > 0
    assert row.holds, table([row])


@pytest.mark.parametrize("name", swept(PROGRAMS, 6))
def test_what_must_be_quiet_is_quiet(name: str) -> None:
    sample = PROGRAMS[name]
    # What is slow around the work is told apart from it, and no fault of a loop.
    told = [f for f in report_of(name).findings if f.category != START_UP]
    loud = {f.rule for f in told if f.level != "info"}
    assert not loud & set(sample.quiet)
    if sample.rule is None:
        assert not loud


@pytest.mark.parametrize("name", swept([n for n in FAULTY if n not in UNPRICED], 6))
def test_the_cure_silences_its_rule(name: str) -> None:
    rule = PROGRAMS[name].rule
    loud = [f for f in report_of(name, cured=True).findings if f.level != "info"]
    left = max((f.saving_ns or 0 for f in loud if f.rule == rule), default=0)
    assert left <= 0.1 * row_of(name).saving_ns


@pytest.mark.sweep
def test_the_table_is_the_golden_one() -> None:
    found = table(row_of(name) for name in FAULTY)
    if os.environ.get("NSYSDOCTOR_UPDATE"):
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.sweep
def test_the_median_error_is_within_two_percent() -> None:
    assert median(row_of(n).error_ratio for n in FAULTY if n not in UNPRICED) <= 0.02


@pytest.mark.parametrize("layout", ["2020", "2022", "2024"])
@pytest.mark.parametrize("name", ["pageable_copy", "sync_in_loop", "input_starvation"])
def test_older_exports_lead_to_the_same_first_finding(name: str, layout: str) -> None:
    from tests.accuracy import reported

    findings = reported(name, layout=layout).findings
    assert findings[0].rule == PROGRAMS[name].rule


@pytest.mark.parametrize("name", swept(PROGRAMS, 6))
def test_savings_stay_within_the_window_and_do_not_add_up_twice(name: str) -> None:
    report = report_of(name)
    savings = [f.saving_ns or 0 for f in report.findings]
    assert report.combined_saving_ns <= report.window.span_ns
    assert max(savings, default=0) <= report.combined_saving_ns
    for finding in report.findings:
        if finding.saving_ns is not None:
            low, high = finding.saving_low_ns, finding.saving_high_ns
            assert low is not None and high is not None
            assert 0 <= low <= finding.saving_ns <= high <= report.window.span_ns
