"""Dashboards of exports, from reading the file to the browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose_trace
from nsysdoctor.render.html import render_html
from nsysdoctor.report.model import Report
from nsysdoctor.timeline.timeline import timeline_payload
from nsysdoctor.trace.trace import open_trace
from tests.browser.conftest import Open
from tests.browser.test_dashboard import drawn

pytestmark = pytest.mark.browser

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def dashboard(export: Path, folder: Path) -> tuple[Path, Report]:
    """Returns where the export's dashboard was written, and its report."""
    trace = open_trace(export)
    report = diagnose_trace(trace)
    path = folder / "run.html"
    path.write_text(render_html(report, [timeline_payload(trace.table, report)]), encoding="utf-8")
    return path, report


def check(export: Path, folder: Path, opened: Open) -> Report:
    """Opens the dashboard, holds what is drawn against the report, follows every first place."""
    path, report = dashboard(export, folder)
    page = opened(path)
    assert drawn(page, "idle-") == [device.idle_ns for device in report.devices]
    assert drawn(page, "compute") == [device.compute_ns for device in report.devices]
    assert drawn(page, "copy") == [device.exposed_copy_ns for device in report.devices]
    shown = [f for f in report.findings if f.level != "info"]
    shown += [f for f in report.findings if f.level == "info"]
    titles = page.page.locator(".card h3").all_text_contents()
    assert titles == [finding.title for finding in shown]
    origin = int(page.evaluate("nsysdoctor.timeline.scene.payload.origin_ns"))
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for place, finding in enumerate(shown):
        card = page.page.locator(".card").nth(place)
        if not finding.evidence:
            continue
        card.get_by_role("button", name="show in timeline").first.click()
        page.settle()
        start, end = page.view()
        assert start <= finding.evidence[0].start_ns - origin
        assert finding.evidence[0].end_ns - origin <= end
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    return report


@pytest.mark.parametrize("name", ["pageable_copy", "two_gpu", "graph_only"])
def test_samples(name: str, tmp_path: Path, opened: Open) -> None:
    report = check(SAMPLES / f"{name}.sqlite", tmp_path, opened)
    assert len(report.devices) == (2 if name == "two_gpu" else 1)


def of_two_gpus() -> Iterator[Path]:
    """Yields the real exports in which two or more GPUs worked."""
    for path in sorted(Path(os.environ["NSYSDOCTOR_CORPUS"]).glob("*.sqlite")):
        ops = open_trace(path).optional("ops")
        if ops is not None and ops["device"].nunique() > 1:
            yield path


@pytest.mark.corpus
@pytest.mark.skipif("NSYSDOCTOR_CORPUS" not in os.environ, reason="NSYSDOCTOR_CORPUS is not set")
def test_a_real_export_of_two_gpus(tmp_path: Path, opened: Open) -> None:
    export = next(of_two_gpus())
    assert len(check(export, tmp_path, opened).devices) > 1
