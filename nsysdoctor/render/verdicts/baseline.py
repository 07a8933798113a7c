"""A baseline on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nsysdoctor.gate.baseline import Baseline, setup_text
from nsysdoctor.gate.series import Series
from nsysdoctor.render.terminal import WIDTH, Page
from nsysdoctor.render.verdicts.verdict import paragraph
from nsysdoctor.render.verdicts.words import value_text
from nsysdoctor.report.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def render_baseline(baseline: Baseline, console: Console) -> None:
    """Prints the set-up, one line per metric with all runs, and the findings it accepts."""
    console.print(Page(list(_lines(baseline, min(console.width, WIDTH)))))


def _lines(baseline: Baseline, width: int) -> Iterator[Text]:
    setup = baseline.setup
    runs = f"{baseline.runs} run{'s' if baseline.runs != 1 else ''}"
    made = f"baseline of {runs}, made with nsysdoctor {baseline.tool_version}"
    yield paragraph(made, width, style="bold")
    yield paragraph(f"GPUs: {setup_text(setup.devices)}", width)
    yield paragraph(f"window: {setup.window}; steps: {setup.steps}", width)
    yield paragraph(f"tables: {', '.join(setup.tables)}", width)
    for series in baseline.series:
        yield paragraph(_series_text(series), width, "  ", "      ")
    for finding in baseline.findings:
        text = f"finding {finding.rule}: {finding.subject} ({finding.level})"
        yield paragraph(text, width, "  ", "      ")


def _series_text(series: Series) -> str:
    place = f" trace {series.trace}" if series.trace else ""
    place += "" if series.device is None else f" GPU {series.device}"
    values = ", ".join(value_text(series.unit, value) for value in series.values)
    steps = min(run.steps for run in series.runs)
    return f"{METRICS[series.metric].title}{place}: {values}" + (
        f" over {steps} steps" if steps else ""
    )
