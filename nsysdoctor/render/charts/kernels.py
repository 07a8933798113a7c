"""Charts of kernels: the roofline, and the bandwidth that they reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsysdoctor.render import words
from nsysdoctor.render.charts.parts import Chart, empty_figure, label
from nsysdoctor.report.model import KernelRow, Report
from nsysdoctor.timeline.payload import Payload, RoofPoint
from nsysdoctor.units import flops_text, rate_text, ratio_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_BARS = 15
BOUND_COLOURS = {
    "memory": "var(--p-memory)",
    "compute": "var(--p-compute)",
    "latency": "var(--p-idle-launch)",
}


def roof_chart(payloads: Sequence[Payload]) -> Chart | None:
    """Returns the kernels under the roofs of their device; None when no rate is known."""
    points = [point for payload in payloads for point in payload.figures.roof_points]
    if not points:
        return None
    figure = empty_figure("arithmetic intensity in FLOP/byte", "FLOP/s", "xy")
    low = min(point.intensity for point in points) / 3
    high = max(point.intensity for point in points) * 10
    for payload in payloads[:1]:
        _add_roofs(figure, payload, low, high)
    for bound in sorted({point.bound for point in points}):
        figure.add_trace(_roof_dots(bound, [p for p in points if p.bound == bound]))
    rest = 1 - sum(point.share_ratio for point in points) / len(payloads)
    caption = (
        "Each dot is a kernel, its size the share of kernel time; left of a ridge bytes bind."
        " Where the trace tells no FLOPs one is counted per element moved. Kernels of"
        f" {ratio_text(max(0.0, rest))} of the time are not drawn: their bytes are unknown."
    )
    return Chart("roofline", "Roofline", caption, figure)


def _add_roofs(figure: go.Figure, payload: Payload, low: float, high: float) -> None:
    """Draws the roofs of the first device: a slope for memory, a level per data type."""
    roofs = payload.figures.roofs
    device = min((roof.device for roof in roofs), default=0)
    mine = [roof for roof in roofs if roof.device == device]
    bandwidth = next((roof.peak for roof in mine if roof.kind == "memory"), 0.0)
    used = {"fp32", *payload.figures.data_types[:3]}
    levels = [roof for roof in mine if roof.kind == "compute" and roof.name.split()[0] in used]
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


def bandwidth_chart(report: Report) -> Chart | None:
    """The bandwidth that kernels of known traffic reach, and its roof."""
    import plotly.graph_objects as go

    rows = [row for row in report.kernels if row.rate_bytes_per_s]
    rows = sorted(rows, key=lambda row: (-row.total_ns, row.name))[:MOST_BARS]
    if not rows:
        return None
    figure = empty_figure("bandwidth in GB/s", "")
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
    """The peak behind a row, rounded to three digits so that all rows of one device agree."""
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
