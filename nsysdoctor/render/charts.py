"""The dashboard's charts as Plotly figures; colours are names of the page's CSS variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nsysdoctor.render import words
from nsysdoctor.report import KernelRow, Report
from nsysdoctor.timeline.payload import CopyPoint, Payload, RoofPoint, StepMark
from nsysdoctor.units import bytes_text, count_text, flops_text, ns_text, rate_text, ratio_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_BARS = 15
MOST_DEVICES = 64
SYMBOLS = {"HtoD": "triangle-right", "DtoH": "triangle-left", "DtoD": "diamond", "PtoP": "square"}
MEMORY_COLOURS = {
    "pageable": "var(--p-idle-blocking_copy)",
    "pinned": "var(--p-copy)",
    "managed": "var(--p-idle-module_load)",
}
BOUND_COLOURS = {
    "memory": "var(--p-memory)",
    "compute": "var(--p-compute)",
    "latency": "var(--p-idle-launch)",
}


@dataclass(frozen=True)
class Chart:
    """One chart: its place on the page, its words and the figure behind it."""

    name: str
    title: str
    caption: str
    figure: go.Figure


def charts(report: Report, payloads: Sequence[Payload]) -> list[Chart]:
    """Returns the charts that the report and its payloads hold data for, in reading order."""
    made = [
        *(_step_chart(report, payload) for payload in payloads),
        _idle_chart(report),
        _rank_chart(report),
        _roof_chart(payloads) or _bandwidth_chart(report),
        _copy_chart([point for payload in payloads for point in payload.figures.copies]),
        _latency_chart(report, payloads),
    ]
    return [chart for chart in made if chart is not None]


def label(text: str, width: int = 90) -> str:
    """Returns text as a Plotly label that shows it literally: Plotly reads a little HTML."""
    return escape(words.middle(" ".join(text.split()), width), quote=False)


def _figure(x: str, y: str, log: str = "") -> go.Figure:
    """An empty figure with titled axes; `log` names those on a logarithmic scale."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_xaxes(title_text=x, type="log" if "x" in log else None)
    figure.update_yaxes(title_text=y, type="log" if "y" in log else None)
    figure.update_layout(template="none", hovermode="closest")
    return figure


def outliers(lengths_ns: Sequence[int]) -> list[bool]:
    """Returns which steps are far above the rest: beyond Q3 + 1.5 IQR and 5 % over the median."""
    if len(lengths_ns) < 5:
        return [False] * len(lengths_ns)
    low, middle, high = np.quantile(lengths_ns, (0.25, 0.5, 0.75))
    limit = max(high + 1.5 * (high - low), 1.05 * middle)
    return [length > limit for length in lengths_ns]


def _step_chart(report: Report, payload: Payload) -> Chart | None:
    steps = payload.figures.steps
    if len(steps) < 2:
        return None
    steady = [step for step in steps if step.phase == "steady"]
    far = outliers([step.end_ns - step.start_ns for step in steady])
    slow = {step.step for step, mark in zip(steady, far, strict=True) if mark}
    groups = (
        ("steady", "var(--p-compute)", [s for s in steady if s.step not in slow]),
        ("outlier", "var(--high)", [s for s in steady if s.step in slow]),
        ("other phases", "var(--soft)", [s for s in steps if s.phase != "steady"]),
    )
    figure = _figure("step", "time in ms")
    for name, colour, mine in groups:
        if mine:
            figure.add_trace(_step_dots(name, colour, mine, payload.trace))
    figure.update_yaxes(rangemode="tozero")
    where = f", {words.trace_label(report, payload.trace)}" if len(report.traces) > 1 else ""
    caption = f"{count_text(len(slow))} outliers among {count_text(len(steady))} steady steps."
    click = " Click a step to see it in the timeline."
    return Chart(f"steps-{payload.trace}", f"Step times{where}", caption + click, figure)


def _step_dots(name: str, colour: str, steps: list[StepMark], trace: int) -> go.Scatter:
    import plotly.graph_objects as go

    return go.Scatter(
        x=[step.step for step in steps],
        y=[(step.end_ns - step.start_ns) / 1e6 for step in steps],
        mode="markers",
        name=name,
        marker={"color": colour, "size": 9 if name == "outlier" else 6},
        customdata=[[step.start_ns, step.end_ns, step.phase] for step in steps],
        hovertemplate="step %{x}, %{customdata[2]}<br>%{y:.3f} ms<extra></extra>",
        meta={"place": trace},
    )


def _idle_chart(report: Report) -> Chart | None:
    """Idle time by cause: a bar per cause for one device, stacked bars for several."""
    import plotly.graph_objects as go

    devices = report.devices[:MOST_DEVICES]
    idle = {(c.trace, c.device, c.cause): c.idle_ns for c in report.idle_causes if c.idle_ns > 0}
    causes = [c for c in words.CAUSES if any(key[2] == c for key in idle)]
    causes += sorted({key[2] for key in idle} - set(causes))
    if not causes:
        return None
    figure = _figure("idle time in ms", "")
    for cause in causes:
        times = [idle.get((d.trace, d.device, cause), 0) for d in devices]
        rows = [label(words.device_label(report, d.trace, d.device), 40) for d in devices]
        figure.add_trace(
            go.Bar(
                x=[time / 1e6 for time in times],
                y=rows if len(devices) > 1 else [words.cause_label(cause)],
                orientation="h",
                name=words.cause_label(cause),
                marker={"color": f"var(--p-idle-{cause})"},
                text=[ns_text(time) if len(devices) == 1 else "" for time in times],
                hovertext=[f"{words.cause_label(cause)}: {ns_text(time)}" for time in times],
                hoverinfo="text",
            )
        )
    figure.update_layout(barmode="stack", showlegend=len(devices) > 1)
    figure.update_yaxes(autorange="reversed")
    return Chart("idle", "Idle time by cause", "What the next operation was waiting for.", figure)


def _rank_chart(report: Report) -> Chart | None:
    """All devices side by side: how each spent its span."""
    import plotly.graph_objects as go

    devices = [device for device in report.devices[:MOST_DEVICES] if device.span_ns > 0]
    if len(devices) < 2:
        return None
    figure = _figure("", "share of the span")
    names = [label(words.device_label(report, d.trace, d.device), 40) for d in devices]
    for place, bucket in enumerate(words.BUCKETS):
        parts = [words.buckets_ns(device)[place] for device in devices]
        figure.add_trace(
            go.Bar(
                x=names,
                y=[part / device.span_ns for part, device in zip(parts, devices, strict=True)],
                name=bucket,
                marker={"color": f"var(--b-{bucket})"},
                hovertext=[f"{bucket}: {ns_text(part)}" for part in parts],
                hoverinfo="text+x",
            )
        )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(range=[0, 1], tickformat=".0%")
    title = "Ranks side by side" if len(report.traces) > 1 else "GPUs side by side"
    return Chart("ranks", title, "Devices of one job should look alike.", figure)


def _roof_chart(payloads: Sequence[Payload]) -> Chart | None:
    points = [point for payload in payloads for point in payload.figures.roof_points]
    if not points:
        return None
    figure = _figure("arithmetic intensity in FLOP/byte", "FLOP/s", "xy")
    low = min(point.intensity for point in points) / 3
    high = max(point.intensity for point in points) * 10
    for payload in payloads[:1]:
        _add_roofs(figure, payload, low, high)
    for bound in sorted({point.bound for point in points}):
        figure.add_trace(_roof_dots(bound, [p for p in points if p.bound == bound]))
    caption = "Each dot is a kernel, its size the share of GPU work. Left of a ridge bytes bind."
    return Chart("roofline", "Roofline", caption, figure)


def _add_roofs(figure: go.Figure, payload: Payload, low: float, high: float) -> None:
    """Draws the roofs of the first device: a slope for memory, a level per data type."""
    import plotly.graph_objects as go

    roofs = payload.figures.roofs
    device = min((roof.device for roof in roofs), default=0)
    mine = [roof for roof in roofs if roof.device == device]
    bandwidth = next((roof.peak for roof in mine if roof.kind == "memory"), 0.0)
    levels = [roof for roof in mine if roof.kind == "compute"]
    top = max((roof.peak for roof in levels), default=bandwidth * high)
    if bandwidth:
        xs = [low, max(top / bandwidth, low)]
        figure.add_trace(
            _roof_line(xs, [x * bandwidth for x in xs], f"memory, {rate_text(bandwidth)}")
        )
    for roof in levels:
        ridge = roof.peak / bandwidth if bandwidth else low
        far = max(high, 10 * ridge)
        text = f"{label(roof.name, 20)}, {flops_text(roof.peak)}"
        figure.add_trace(_roof_line([ridge, far], [roof.peak] * 2, text))
    figure.update_layout(legend={"traceorder": "normal"})
    assert isinstance(figure, go.Figure)


def _roof_line(xs: list[float], ys: list[float], name: str) -> go.Scatter:
    import plotly.graph_objects as go

    line = {"color": "var(--soft)", "width": 1.5}
    return go.Scatter(x=xs, y=ys, mode="lines", name=name, line=line, hoverinfo="name")


def _roof_dots(bound: str, points: list[RoofPoint]) -> go.Scatter:
    import plotly.graph_objects as go

    return go.Scatter(
        x=[point.intensity for point in points],
        y=[point.rate_flops_per_s for point in points],
        mode="markers",
        name=f"{bound} bound",
        marker={
            "color": BOUND_COLOURS.get(bound, "var(--soft)"),
            "size": [6 + 40 * point.share_ratio**0.5 for point in points],
            "opacity": 0.75,
        },
        hovertext=[
            f"{label(p.name)}<br>{label(p.category)} {label(p.dtype)}, "
            f"{ratio_text(p.share_ratio)} of GPU work<br>{flops_text(p.rate_flops_per_s)} at "
            f"{p.intensity:.3g} FLOP/byte"
            for p in points
        ],
        hoverinfo="text",
    )


def _bandwidth_chart(report: Report) -> Chart | None:
    """Where no FLOPs are known: the bandwidth that memory-bound kernels reach, and its roof."""
    import plotly.graph_objects as go

    rows = [row for row in report.kernels if row.rate_bytes_per_s]
    rows = sorted(rows, key=lambda row: (-row.total_ns, row.name))[:MOST_BARS]
    if not rows:
        return None
    figure = _figure("bandwidth in GB/s", "")
    figure.add_trace(
        go.Bar(
            x=[(row.rate_bytes_per_s or 0) / 1e9 for row in rows],
            y=list(range(len(rows))),
            orientation="h",
            marker={"color": [BOUND_COLOURS.get(row.bound, "var(--soft)") for row in rows]},
            hovertext=[_bandwidth_text(report, row) for row in rows],
            hoverinfo="text",
        )
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[label(row.short or row.name, 30) for row in rows],
        autorange="reversed",
    )
    for peak in sorted({p for row in rows if (p := _peak(row)) is not None}):
        figure.add_vline(x=peak / 1e9, line={"color": "var(--high)", "dash": "dash", "width": 1.5})
    caption = "The kernels with most time whose bytes are known; dashed: the device's peak."
    return Chart("bandwidth", "Bandwidth reached", caption, figure)


def _peak(row: KernelRow) -> float | None:
    """The peak behind a row, to three digits: rows of one device agree on it."""
    if not row.peak_ratio or not row.rate_bytes_per_s:
        return None
    return float(f"{row.rate_bytes_per_s / row.peak_ratio:.2e}")


def _bandwidth_text(report: Report, row: KernelRow) -> str:
    parts = [label(row.name), rate_text(row.rate_bytes_per_s or 0)]
    if row.peak_ratio is not None:
        parts.append(f"{ratio_text(row.peak_ratio)} of peak ({label(row.basis)})")
    parts.append(f"{ratio_text(row.share_ratio)} of {_place(report, row)}'s work")
    return "<br>".join(parts)


def _place(report: Report, row: KernelRow) -> str:
    return label(words.device_label(report, row.trace, row.device), 40)


def _copy_chart(points: list[CopyPoint]) -> Chart | None:
    import plotly.graph_objects as go

    if not points:
        return None
    figure = _figure("bytes per copy", "GB/s", "xy")
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


def _latency_chart(report: Report, payloads: Sequence[Payload]) -> Chart | None:
    import plotly.graph_objects as go

    known = [payload for payload in payloads if payload.figures.latency_counts]
    if not known:
        return None
    figure = _figure("time from the call to its operation", "operations", "x")
    for payload in known:
        edges = payload.figures.latency_edges_ns
        pairs = list(pairwise(edges))
        figure.add_trace(
            go.Bar(
                x=[(low * high) ** 0.5 / 1e9 for low, high in pairs],
                y=payload.figures.latency_counts,
                width=[(high - low) * 0.9 / 1e9 for low, high in pairs],
                name=label(words.trace_label(report, payload.trace), 40),
                marker={"color": "var(--p-launch)"} if len(known) == 1 else None,
                hovertext=[
                    f"{ns_text(low)} to {ns_text(high)}: {count_text(count)}"
                    for (low, high), count in zip(
                        pairs, payload.figures.latency_counts, strict=True
                    )
                ],
                hoverinfo="text",
            )
        )
    figure.update_xaxes(ticksuffix="s", exponentformat="SI")
    figure.update_layout(barmode="overlay", showlegend=len(known) > 1)
    caption = "Long waits are a full queue, short ones a GPU that starves for work."
    return Chart("latency", "Launch latency", caption, figure)
