"""Working with a trace in Python: tables, reports, frames, figures, pages."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

import nsysdoctor
from nsysdoctor.errors import MissingTableError, UsageError
from nsysdoctor.export.reference import entries, main, tables_document
from nsysdoctor.notebook import Diagnosis, Run
from sample_traces import record
from tests import ROOT, SAMPLES
from tests.ingest.chrome import write_chrome
from tests.run_cli import run

PAGEABLE = SAMPLES / "pageable_copy.sqlite"


@pytest.fixture(scope="module")
def opened() -> Run:
    """A training loop whose batches are pageable."""
    return nsysdoctor.open(PAGEABLE)


@pytest.fixture(scope="module")
def diagnosis(opened: Run) -> Diagnosis:
    """The report on it."""
    return opened.report()


def test_a_table_is_a_frame_of_ones_own(opened: Run) -> None:
    ops = opened["ops"]
    count = len(ops)
    assert {"start_ns", "end_ns", "full", "category"} <= set(ops.columns)
    assert set(ops["kind"]) <= {"kernel", "copy", "set", "graph"}
    ops["start_ns"] = 0
    assert opened["ops"]["start_ns"].max() > 0
    assert len(opened["ops"]) == count


def test_the_tables_are_listed_with_what_they_hold(opened: Run) -> None:
    listed = opened.tables
    assert {"ops", "api", "copies", "steps", "gap_causes"} <= set(listed["name"])
    assert listed["about"].str.len().min() > 20
    assert listed["name"].is_unique


def test_what_is_no_table_says_so(opened: Run) -> None:
    with pytest.raises(UsageError, match="no table nonsense"):
        opened["nonsense"]
    with pytest.raises(UsageError, match="no table of rows"):
        opened["ecosystem"]


def test_the_report_is_that_of_the_command(diagnosis: Diagnosis) -> None:
    told = json.loads(run("report", str(PAGEABLE), "--format", "json", "-q").out)
    assert diagnosis.findings[0].rule == told["findings"][0]["rule"] == "pageable_copy"
    assert json.loads(diagnosis.to_json())["findings"] == told["findings"]


def test_findings_and_lost_time_are_frames(diagnosis: Diagnosis) -> None:
    found = diagnosis.findings_frame()
    assert len(found) == len(diagnosis.findings)
    assert found["saving_ns"].iloc[0] == diagnosis.findings[0].saving_ns
    lost = diagnosis.lost_time_frame()
    inside = lost[~lost["phase"].isin(["before", "after"])]
    device = diagnosis.devices[0]
    total = device.idle_ns + device.exposed_copy_ns + device.exposed_communication_ns
    assert inside["ns"].sum() == total


def test_options_are_those_of_the_command(opened: Run) -> None:
    some = opened.report(rules=["pageable_copy"], window="steady")
    assert {outcome.rule for outcome in some.outcomes} == {"pageable_copy"}
    assert some.window.basis == "steady"
    start = int(opened["ops"]["start_ns"].min())
    part = opened.report(window=(start, start + 500_000_000))
    assert (part.window.start_ns, part.window.end_ns) == (start, start + 500_000_000)
    with pytest.raises(UsageError):
        opened.report(device=7)


def test_figures_have_names(diagnosis: Diagnosis) -> None:
    assert "idle" in diagnosis.figures
    assert diagnosis.figure("idle").data
    with pytest.raises(UsageError, match="there is no figure pie"):
        diagnosis.figure("pie")


def test_a_notebook_shows_the_page_in_a_frame(diagnosis: Diagnosis) -> None:
    shown = diagnosis._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert unescape(shown.split('srcdoc="')[1].split('" width')[0]) == diagnosis.html()
    assert "GPU utilization" in repr(diagnosis)


def test_a_profiler_trace_opens_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_chrome(record("healthy_training"), path)
    profiled = nsysdoctor.open(path)
    assert len(profiled["ops"])
    with pytest.raises(MissingTableError):
        profiled["waits"]


def test_the_page_of_tables_is_current() -> None:
    assert (ROOT / "docs" / "tables.md").read_text(encoding="utf-8") == tables_document(), (
        "make it anew: python -m nsysdoctor.export.reference docs/tables.md"
    )


def test_the_reference_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert capsys.readouterr().out == tables_document()
    assert run("tables").out == tables_document()
    assert run("tables", "copies").out.startswith("copies\n")
    assert run("tables", "nonsense").code == 2


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_every_table_says_what_it_holds(entry: object) -> None:
    assert entry.about.startswith("Returns")  # type: ignore[attr-defined]
