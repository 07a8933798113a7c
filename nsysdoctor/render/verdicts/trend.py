"""A history as a table on the terminal and as one page of charts that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from nsysdoctor.gate.fold import printable
from nsysdoctor.history.store import HistoryRow, StepChange, Trend, step_changes, trends
from nsysdoctor.render.terminal import Page
from nsysdoctor.render.verdicts.verdict import paragraph
from nsysdoctor.render.verdicts.words import value_text
from nsysdoctor.report.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = ("utilization_ratio", "step_ns", "idle_ns", "synchronization_count", "combined_saving_ns")
PANEL_PX = 240
_SCALE = {"ns": (1e6, "ms"), "bytes": (1e6, "MB"), "ratio": (0.01, "%"), "count": (1.0, "count")}


def render_history(found: Sequence[HistoryRow], console: Console, *, last: int = 20) -> None:
    """Prints the last runs, one line each with the main metrics, and where a trend changed."""
    numbers = sorted({row.number for row in found})
    parts = [
        paragraph(_run_text([row for row in found if row.number == n]), console.width, "", "     ")
        for n in numbers[-last:]
    ]
    parts += [
        paragraph(change_text(change), console.width, "change ", "       ", head_style="yellow")
        for trend in trends(found)
        for change in step_changes(trend)
    ]
    rest = f", the last {last} shown" if len(numbers) > last else ""
    runs = "1 run" if len(numbers) == 1 else f"{len(numbers)} runs"
    parts.append(paragraph(runs + rest, console.width, style="bright_black"))
    console.print(Page(parts))


def _run_text(found: Sequence[HistoryRow]) -> str:
    first = found[0]
    names = [first.added[:10], first.branch, first.commit[:10]]
    texts = [
        f"{METRICS[row.metric].title}{_place(row.trace, row.device)} "
        f"{value_text(row.unit, row.value)}"
        for name in SHOWN
        for row in found
        if row.metric == name
    ]
    return f"{first.number:>4} {' '.join(name for name in names if name)} {', '.join(texts)}"


def _place(trace: int, device: int | None) -> str:
    rank = f" trace {trace}" if trace else ""
    return rank if device is None else f"{rank} GPU {device}"


def change_text(change: StepChange) -> str:
    """Returns a change of a trend with its run and both values."""
    unit = METRICS[change.metric].unit
    values = f"{value_text(unit, change.before)} -> {value_text(unit, change.after)}"
    where = f"run {change.number}" + (f" ({change.commit[:10]})" if change.commit else "")
    return (
        f"{METRICS[change.metric].title}{_place(change.trace, change.device)} {values} at {where}"
    )


def history_page(found: Sequence[HistoryRow]) -> str:
    """Returns an HTML page with one chart per metric over the runs; lasting changes are marked.

    The page holds plotly.js and loads nothing. Branch and device names are data, not markup.
    """
    figure = _figure(trends(found))
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, default_width="100%")
    return page.replace("</head>", "<title>nsysdoctor history</title></head>", 1)


def _figure(found: Sequence[Trend]) -> Any:
    from plotly.subplots import make_subplots

    metrics = list(dict.fromkeys(trend.metric for trend in found if _moves(trend)))
    titles = [f"{METRICS[name].title} [{_SCALE[METRICS[name].unit][1]}]" for name in metrics]
    panels = max(len(metrics), 1)
    figure = make_subplots(
        rows=panels, cols=1, subplot_titles=titles, vertical_spacing=0.35 / panels
    )
    for trend in found:
        if trend.metric in metrics:
            _draw(figure, trend, metrics.index(trend.metric) + 1)
    figure.update_layout(
        title="nsysdoctor history", height=PANEL_PX * panels + 120, template="plotly_white",
        showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(title_text="run", row=panels, col=1)
    return figure


def _moves(trend: Trend) -> bool:
    """Whether a metric is nonzero in some run; otherwise its chart would show nothing."""
    return any(row.value for row in trend.rows)


def _draw(figure: Any, trend: Trend, panel: int) -> None:
    import plotly.graph_objects as go

    scale = _SCALE[METRICS[trend.metric].unit][0]
    errors = [(row.error or 0.0) / scale for row in trend.rows]
    figure.add_trace(
        go.Scatter(
            x=[row.number for row in trend.rows],
            y=[row.value / scale for row in trend.rows],
            error_y={"type": "data", "array": errors, "thickness": 1},
            mode="lines+markers",
            text=[_hover(trend, row) for row in trend.rows],
            hoverinfo="text",
        ),
        row=panel,
        col=1,
    )
    for change in step_changes(trend):
        _mark(figure, change, panel)


def _hover(trend: Trend, row: HistoryRow) -> str:
    value = value_text(row.unit, row.value)
    parts = (f"run {row.number}: {value}{_place(trend.trace, trend.device)}", row.branch,
             row.commit[:12], row.added, row.devices)  # fmt: skip
    return "<br>".join(escape(printable(part)) for part in parts if part)


def _mark(figure: Any, change: StepChange, panel: int) -> None:
    good = (change.after > change.before) == (METRICS[change.metric].better == "higher")
    text = escape(printable(change.commit[:10])) or f"run {change.number}"
    figure.add_vline(
        x=change.number - 0.5, line_dash="dash", line_color="#2a7f3f" if good else "#b3261e",
        annotation_text=text, row=panel, col=1,
    )  # fmt: skip
