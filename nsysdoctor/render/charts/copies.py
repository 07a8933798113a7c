"""Charts of copies and launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nsysdoctor.render import words
from nsysdoctor.render.charts.parts import Chart, empty_figure, label
from nsysdoctor.report.model import Report
from nsysdoctor.timeline.payload import CopyPoint, Payload
from nsysdoctor.units import bytes_text, count_text, ns_text, rate_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

SERIES = (
    "var(--p-compute)", "var(--p-idle-blocking_copy)", "var(--p-copy)", "var(--p-communication)",
    "var(--p-idle-allocation)", "var(--p-idle-host_code)", "var(--p-memory)",
    "var(--p-idle-dependency)",
)  # fmt: skip
SYMBOLS = {"HtoD": "triangle-right", "DtoH": "triangle-left", "DtoD": "diamond", "PtoP": "square"}
MEMORY_COLOURS = {
    "pageable": "var(--p-idle-blocking_copy)",
    "pinned": "var(--p-copy)",
    "managed": "var(--p-idle-module_load)",
}


def copy_chart(points: list[CopyPoint]) -> Chart | None:
    """Returns the rate of each copy over its size, by memory and direction; None without any."""
    import plotly.graph_objects as go

    if not points:
        return None
    figure = empty_figure("bytes per copy", "GB/s", "xy")
    for memory, direction in sorted({(p.memory, p.direction) for p in points}):
        mine = [p for p in points if (p.memory, p.direction) == (memory, direction)]
        figure.add_trace(
            go.Scatter(
                x=[p.bytes for p in mine],
                y=[p.rate_bytes_per_s / 1e9 for p in mine],
                mode="markers",
                name=f"{label(memory)} {label(direction)}",
                marker={
                    "color": MEMORY_COLOURS.get(memory, "var(--soft)"),
                    "symbol": SYMBOLS.get(direction, "circle"),
                    "size": _dot_sizes(p.total_ns for p in mine),
                    "opacity": 0.8,
                },
                hovertext=[_copy_text(p) for p in mine],
                hoverinfo="text",
            )
        )
    figure.update_layout(showlegend=True)
    caption = "One mark per size; its area grows with the time spent. Pageable memory is staged."
    return Chart("copies", "Copy sizes and rates", caption, figure)


def _dot_sizes(times_ns: Iterable[int]) -> list[float]:
    return [7 + 3 * float(np.log10(1 + time / 1e5)) for time in times_ns]


def _copy_text(point: CopyPoint) -> str:
    rate = rate_text(point.rate_bytes_per_s)
    return (
        f"{label(point.memory)} {label(point.direction)}, {bytes_text(point.bytes)}<br>"
        f"{rate} median, {count_text(point.count)} copies, {ns_text(point.total_ns)} in all"
    )


def latency_chart(report: Report, payloads: Sequence[Payload]) -> Chart | None:
    """Returns how long launches took to start; None when no launch is known."""
    known = [payload for payload in payloads if payload.figures.latency_counts]
    if not known:
        return None
    figure = empty_figure("time from the call to its operation", "operations", "x")
    for place, payload in enumerate(known):
        name = label(words.trace_label(report, payload.trace), 40)
        colour = SERIES[place % len(SERIES)]
        drawn = _latency_bars(payload) if len(known) == 1 else _latency_line(payload, name, colour)
        figure.add_trace(drawn)
    decades = [10**power for power in range(2, 12)]
    figure.update_xaxes(
        tickvals=[time / 1e9 for time in decades],
        ticktext=["100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s",
                  "100 s"],
    )  # fmt: skip
    figure.update_layout(showlegend=len(known) > 1)
    caption = "Long waits are a full queue, short ones a GPU that starves for work."
    return Chart("latency", "Launch latency", caption, figure)


def _latency_bins(payload: Payload) -> tuple[list[float], list[float], list[str]]:
    """Middle and width of each bin in seconds, and its words."""
    pairs = list(pairwise(payload.figures.latency_edges_ns))
    texts = [
        f"{ns_text(low)} to {ns_text(high)}: {count_text(count)}"
        for (low, high), count in zip(pairs, payload.figures.latency_counts, strict=True)
    ]
    middles = [(low * high) ** 0.5 / 1e9 for low, high in pairs]
    return middles, [(high - low) * 0.9 / 1e9 for low, high in pairs], texts


def _latency_bars(payload: Payload) -> go.Bar:
    import plotly.graph_objects as go

    middles, widths, texts = _latency_bins(payload)
    return go.Bar(
        x=middles, y=payload.figures.latency_counts, width=widths, hovertext=texts,
        hoverinfo="text", marker={"color": "var(--p-launch)"},
    )  # fmt: skip


def _latency_line(payload: Payload, name: str, colour: str) -> go.Scatter:
    """Bars of several traces would hide each other; steps do not."""
    import plotly.graph_objects as go

    middles, _, texts = _latency_bins(payload)
    return go.Scatter(
        x=middles, y=payload.figures.latency_counts, mode="lines", name=name, hovertext=texts,
        hoverinfo="text+name", line={"color": colour, "width": 1.5, "shape": "hvh"},
    )  # fmt: skip
