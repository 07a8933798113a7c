"""The dashboard: one HTML file that holds all it shows and runs nothing but its own scripts."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from nsysdoctor import units
from nsysdoctor.render import account, savings, words
from nsysdoctor.report.model import DeviceBudget, Report
from nsysdoctor.timeline.payload import PAINTS, Payload

if TYPE_CHECKING:
    from jinja2 import Environment

    from nsysdoctor.render.charts.parts import Chart

ASSETS = Path(__file__).parent / "assets"
MODULES = (
    "format", "decode", "view", "items", "layout", "draw", "describe", "timeline", "input",
    "tables", "charts", "page",
)  # fmt: skip
"""The page's script modules, each after those it imports from."""

CARDS = 60
ROWS = 1000
EVIDENCE = 12
KERNELS = 500

LEGEND = {
    "compute": "compute, matrix kernels",
    "memory": "other kernels",
    "communication": "communication",
    "copy": "copies",
    "set": "sets",
    "graph": "graph replays",
    "launch": "launch calls",
    "sync": "synchronizing calls",
    "allocation": "allocation, loading",
    "call": "other calls",
    "wait": "OS calls",
}


@dataclass(frozen=True)
class Part:
    """A piece of a bar or a legend."""

    label: str
    text: str
    weight: int
    colour: str


@dataclass(frozen=True)
class Packed:
    """A payload as the page stores it."""

    trace: int
    text: str


@dataclass(frozen=True)
class Head:
    """A heading of the kernel table."""

    text: str
    right: bool = False


@cache
def bundle() -> str:
    """Returns the page's script: its modules joined, without import and export statements."""
    parts = []
    for name in MODULES:
        text = (ASSETS / f"{name}.mjs").read_text(encoding="utf-8")
        text = re.sub(r"^import .*;\n", "", text, flags=re.MULTILINE)
        parts.append(re.sub(r"^export ", "", text, flags=re.MULTILINE))
    return "\n" + "\n".join(parts)


def safe_json(value: object) -> str:
    """Returns JSON that stays data inside a script element, whatever its texts hold."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy(*scripts: str) -> str:
    """Returns the content security policy: these scripts run, nothing else, no network."""
    hashes = " ".join(
        f"'sha256-{b64encode(sha256(script.encode('utf-8')).digest()).decode('ascii')}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def inline(text: str) -> list[words.Piece]:
    """Returns prose with what stands between single backticks as code."""
    pieces = re.split(r"`([^`\n]+)`", text)
    return [words.Piece(bool(place % 2), piece) for place, piece in enumerate(pieces) if piece]


def budget(device: DeviceBudget) -> list[Part]:
    """Returns the parts of a device's budget bar."""
    return [
        Part(name, units.ratio_text(value / device.span_ns), value, f"--b-{name}")
        for name, value in zip(words.BUCKETS, words.buckets_ns(device), strict=True)
        if device.span_ns > 0
    ]


def _idle(report: Report, device: DeviceBudget) -> list[Part]:
    known = {paint for paint in PAINTS if paint.startswith("idle-")}
    return [
        Part(
            words.cause_label(cause.cause),
            units.ns_text(cause.idle_ns),
            cause.idle_ns,
            f"--p-idle-{cause.cause}" if f"idle-{cause.cause}" in known else "--p-idle-unknown",
        )
        for cause in words.causes_of(report, device)
    ]


def _idle_bar(report: Report, device: DeviceBudget) -> list[Part]:
    """The causes under the idle part of the bar above them."""
    causes = _idle(report, device)
    return [Part("", "", device.span_ns - sum(part.weight for part in causes), ""), *causes]


def _headline(report: Report) -> tuple[str, str]:
    """The large figure and the words under it."""
    ratios = [device.utilization_ratio for device in report.devices]
    if not ratios:
        return "–", "no GPU activity"
    if not words.holds_kernels(report):
        return "–", "no kernels in the capture"
    low, high = units.ratio_text(min(ratios)), units.ratio_text(max(ratios))
    if len(ratios) == 1:
        return low, "GPU utilization"
    figure = low if low == high else f"{low[:-2]}–{high}"
    return figure, f"GPU utilization, {len(ratios)} GPUs"


def _legend(report: Report, payloads: Sequence[Payload]) -> list[Part]:
    """Colours that the timeline uses, work first, then the causes of idle time."""
    used = {
        int(paint)
        for payload in payloads
        for track in payload.tracks
        for paint in set(track.columns["paint"].tolist())
        | set(track.columns["part_paint"].tolist() if "part_paint" in track.columns else ())
    }
    idle = len("idle-")
    return [
        Part(LEGEND.get(paint) or f"idle: {words.cause_label(paint[idle:])}", "", 0, f"--p-{paint}")
        for code, paint in enumerate(PAINTS)
        if code in used and paint != "range"
    ]


def _kernel_heads(report: Report) -> list[Head]:
    texts = ["kernel", *(["device"] if len(report.devices) > 1 else []), "category", "dtype"]
    numbers = ("launches", "time", "share", "median", "rate", "of peak")
    return [Head(t) for t in (*texts, "bound")] + [Head(t, True) for t in numbers]


def _fact_label(name: str) -> str:
    stem = re.sub(r"_(ns|count|bytes_per_s|flops_per_s)$", "", name)
    stem = re.sub(r"_ratio$", "_share", stem)
    return stem.replace("_", " ")


def _environment(report: Report) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    for text in ("ns_text", "ratio_text", "count_text", "rate_text", "quantity_text"):
        made.globals[text] = getattr(units, text)
    made.globals.update(
        parts=words.blocks,
        inline=inline,
        budget=budget,
        budget_words=lambda device: ", ".join(f"{p.label} {p.text}" for p in budget(device)),
        idle=lambda device: _idle(report, device),
        idle_bar=lambda device: _idle_bar(report, device),
        device_label=lambda trace, device: words.device_label(report, trace, device),
        trace_label=lambda trace: words.trace_label(report, trace),
        place_text=lambda finding: words.place_text(report, finding),
        saving_text=lambda finding: savings.saving_text(finding, numbered=False),
        needs_text=lambda finding: savings.needs_text(report, finding),
        range_text=savings.range_text,
        fact_label=_fact_label,
    )
    return made


def _charts_data(made: Sequence[Chart]) -> str:
    return safe_json(
        [
            {"name": chart.name, **json.loads(chart.figure.to_json(remove_uids=True))}
            for chart in made
        ]
    )


def _context(report: Report, payloads: Sequence[Payload]) -> Iterator[tuple[str, object]]:
    figure, figure_text = _headline(report)
    yield "report", report
    yield "title", ", ".join(words.trace_label(report, i) for i in range(len(report.traces)))
    yield "figure", figure
    yield "figure_text", figure_text
    yield "utilization", words.utilization_text(report)
    yield "cure", " ".join(account.verdict(report))
    yield "window", words.window_text(report)
    yield "acting", words.to_act_on(report.findings)
    yield "around", words.of_start_up(report.findings)
    yield "record", [finding for finding in report.findings if finding.level == "info"]
    yield "card_limit", CARDS
    yield "row_limit", ROWS
    yield "evidence_limit", EVIDENCE
    yield "kernel_limit", KERNELS
    yield "payloads", payloads
    yield "origins", {payload.trace: payload.origin_ns for payload in payloads}
    yield "legend", _legend(report, payloads)
    yield "kernel_heads", _kernel_heads(report)
    yield "skipped", words.skipped(report)
    yield "wanted", words.flags(outcome.reason for outcome in words.skipped(report))
    yield "failed", [outcome for outcome in report.outcomes if outcome.state == "failed"]
    yield "dropped", words.dropped_text(report)
    yield "faults", words.faults_text(report)
    yield "notes", words.notes_text(report)


def render_html(report: Report, payloads: Sequence[Payload]) -> str:
    """Returns the dashboard as one HTML text; write it as UTF-8.

    `payloads` are the timelines of the report's traces, any of which may be absent. Names are
    data: they are escaped in markup, packed in the payloads and \\u-escaped in JSON, and the
    page's policy lets only its own two scripts run. Equal input gives equal text.
    """
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    from nsysdoctor.render.charts.dashboard import charts

    script, plotly, made = bundle(), get_plotlyjs(), charts(report, payloads)
    page = _environment(report).get_template("page.html")
    text = page.render(
        dict(_context(report, payloads)),
        charts=made,
        charts_data=Markup(_charts_data(made)),
        packed=[Packed(payload.trace, payload.pack()) for payload in payloads],
        css=Markup((ASSETS / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        plotly=Markup(plotly),
        policy=Markup(policy(script, plotly)),
    )
    return text.encode("utf-8", "replace").decode("utf-8")
