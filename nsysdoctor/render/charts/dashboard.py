"""The dashboard's charts as Plotly figures; colours are names of the page's CSS variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nsysdoctor.render import words
from nsysdoctor.render.charts.copies import copy_chart, latency_chart
from nsysdoctor.render.charts.kernels import bandwidth_chart, roof_chart
from nsysdoctor.render.charts.parts import Chart, empty_figure, label
from nsysdoctor.report.model import Report
from nsysdoctor.timeline.payload import Payload, StepMark
from nsysdoctor.units import count_text, ns_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_DEVICES = 64


def charts(report: Report, payloads: Sequence[Payload]) -> list[Chart]:
    """Returns the charts that the report and its payloads hold data for, in reading order."""
    made = [
        *(_step_chart(report, payload) for payload in payloads),
        _idle_chart(report),
        _rank_chart(report),
        roof_chart(payloads),
        bandwidth_chart(report),
        copy_chart([point for payload in payloads for point in payload.figures.copies]),
        latency_chart(report, payloads),
    ]
    return [chart for chart in made if chart is not None]


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
    figure = empty_figure("step", "time in ms")
    for name, colour, mine in groups:
        if mine:
            figure.add_trace(_step_dots(name, colour, mine, payload.trace))
    figure.update_yaxes(rangemode="tozero")
    where = f", {words.trace_label(report, payload.trace)}" if len(report.traces) > 1 else ""
    noun = "outlier" if len(slow) == 1 else "outliers"
    caption = f"{count_text(len(slow))} {noun} among {count_text(len(steady))} steady steps."
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
    figure = empty_figure("idle time in ms", "")
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
    figure = empty_figure("", "share of the span")
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
