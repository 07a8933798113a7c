"""The dashboard's text: literal names, closed policy, one script, exact places."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nsysdoctor import units
from nsysdoctor.render.charts.dashboard import charts, outliers
from nsysdoctor.render.charts.parts import label
from nsysdoctor.render.html import ASSETS, MODULES, bundle, policy, render_html, safe_json
from nsysdoctor.report.model import Report
from nsysdoctor.timeline import Payload
from nsysdoctor.timeline.payload import (
    PAINTS,
    CopyPoint,
    Figures,
    Roof,
    RoofPoint,
    StepMark,
    unpack,
)
from nsysdoctor.timeline.timeline import timeline_payload
from tests import TESTS
from tests.make_report import EDGES, NASTY, make_finding, make_report
from tests.make_tables import make_frames, report_of, table_source

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


class Page(HTMLParser):
    """What a browser would see: tags, attributes, text outside and inside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self.seen: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [v or "" for name, v in attrs if name in ("src", "href", "action")]
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._inside != "style":
            self.seen.append(data)

    @property
    def text(self) -> str:
        return "".join(self.seen)


def payload_for(report: Report) -> list[Payload]:
    """Returns a small timeline for each trace of a report."""
    tables = table_source(make_frames())
    return [timeline_payload(tables, report, trace=i) for i in range(len(report.traces))]


@cache
def page_of(edge: str) -> Page:
    """Returns the parsed dashboard of an edge case."""
    report = EDGES[edge]()
    return Page(render_html(report, payload_for(report)))


@pytest.mark.parametrize("edge", EDGES)
def test_every_edge_makes_a_closed_page(edge: str) -> None:
    page = page_of(edge)
    assert page.handlers == []
    assert page.tags["img"] == page.tags["iframe"] == page.tags["object"] == 0
    assert page.tags["title"] == page.tags["main"] == 1
    run = [text for attrs, text in page.scripts if attrs.get("type") in (None, "module")]
    assert run == [bundle()]
    plotly = next(text for attrs, text in page.scripts if attrs.get("id") == "plotly-source")
    assert len(plotly) > 1_000_000


@pytest.mark.parametrize("edge", EDGES)
def test_pages_without_a_timeline_are_whole_too(edge: str) -> None:
    page = Page(render_html(EDGES[edge](), []))
    assert "Timeline" not in page.text
    assert "Findings" in page.text
    assert "show in timeline" not in page.text


def test_no_address_in_the_page_leads_to_the_network() -> None:
    report = make_report()
    text = render_html(report, payload_for(report))
    assert {address[:5] for address in Page(text).addresses} <= {
        "#find", "#time", "#char", "#kern", "#limi", "data:",
    }  # fmt: skip
    own = text.partition('<script type="text/plain" id="plotly-source">')[0]
    assert "http://" not in own
    assert "https://" not in own
    assert "default-src 'none'" in own


@pytest.mark.parametrize("name", NASTY)
def test_names_are_shown_literally(name: str) -> None:
    shown = name.replace("\x00", "\ufffd")
    page = page_of("nasty names")
    assert shown in page.text
    assert page.tags["img"] == 0


def test_policy_names_exactly_the_two_scripts() -> None:
    text = render_html(make_report(), [])
    stated = re.findall(r"sha256-([A-Za-z0-9+/=]+)", text.partition("<style>")[0])
    page = Page(text)
    wanted = [bundle(), page.scripts[-1][1]]
    assert stated == [b64encode(sha256(s.encode()).digest()).decode() for s in wanted]
    assert "unsafe-inline'; img-src" in policy("x")
    assert "script-src 'unsafe" not in text


def test_json_in_a_script_stays_data() -> None:
    for name in NASTY:
        text = safe_json([name])
        assert not set("<>&\u2028\u2029") & set(text)
        assert json.loads(text) == [name]


def test_findings_stand_in_their_order() -> None:
    findings = [make_finding(title=f"title {i}", saving_ns=100 - i) for i in range(70)]
    text = Page(render_html(make_report(findings=findings), [])).text
    places = [text.index(f"title {i}") for i in range(70)]
    assert places == sorted(places)


def test_thousands_of_findings_stay_small() -> None:
    text = render_html(EDGES["thousands of findings"](), [])
    rest = text.partition('<script type="text/plain" id="plotly-source">')[0]
    assert len(rest) < 1_000_000
    assert "2,940 more findings" in rest


def test_info_stands_apart_and_folded() -> None:
    findings = [make_finding(title="acting"), make_finding(title="for info", level="info")]
    text = render_html(make_report(findings=findings), [])
    assert re.search(r'<details class="card high" open>', text)
    assert re.search(r'<details class="card info">', text)
    shown = Page(text).text
    assert shown.index("acting") < shown.index("For the record") < shown.index("for info")
    only = Page(render_html(make_report(findings=findings[1:]), [])).text
    assert "No cure known for the 45.0 ms" in only


def test_facts_without_a_value_are_not_shown() -> None:
    facts = {"pattern": "", "place": None, "idle_ratio": 0.25, "idle_ns": 1000}
    text = Page(render_html(make_report(findings=[make_finding(facts=facts)]), [])).text
    assert "pattern" not in text
    assert "unknown" not in text.partition("Evidence")[0].partition("Figures")[2]
    assert "idle share25.0 %" in text
    assert "idle1.00 µs" in text


def test_places_are_offsets_from_the_origin() -> None:
    frames = make_frames(origin_ns=1_732_107_141_551_429_079)
    report = report_of(frames)
    payload = timeline_payload(table_source(frames), report)
    text = render_html(report, [payload])
    first = report.findings[0].evidence[0]
    start, end = first.start_ns - payload.origin_ns, first.end_ns - payload.origin_ns
    assert f'data-from="{start}" data-to="{end}" data-trace="0"' in text
    assert "1732107141551429079" not in text


def test_same_input_same_page() -> None:
    report = make_report()
    assert render_html(report, payload_for(report)) == render_html(report, payload_for(report))


def test_page_carries_the_payload_unchanged() -> None:
    report = EDGES["two traces"]()
    payloads = payload_for(report)
    page = Page(render_html(report, payloads))
    stored = {a["id"]: t for a, t in page.scripts if (a.get("id") or "").startswith("payload-")}
    for payload in payloads:
        header, tracks = unpack(stored[f"payload-{payload.trace}"])
        assert header["span_ns"] == payload.span_ns
        for columns, track in zip(tracks, payload.tracks, strict=True):
            assert all((columns[name] == track.columns[name]).all() for name in columns)


def test_a_lone_surrogate_can_be_written() -> None:
    text = render_html(make_report(findings=[make_finding(title="bad \ud800 text")]), [])
    text.encode("utf-8")


def figures_of_all_kinds() -> Figures:
    """Returns numbers for every chart, with a nasty kernel name on the roofline."""
    steps = [StepMark(i, i * 1000, i * 1000 + (5000 if i == 9 else 900 + i), "steady")
             for i in range(12)]  # fmt: skip
    return Figures(
        steps=steps,
        copies=[CopyPoint("HtoD", "pageable", 4_000_000, 6e9, 5, 10**7),
                CopyPoint("HtoD", "pinned", 4_000_000, 25e9, 5, 10**6)],
        latency_edges_ns=[1000, 2000, 4000],
        latency_counts=[5, 9],
        roof_points=[RoofPoint(NASTY[1], "gemm", "bf16", "compute", 0, 0.4, 200.0, 2e14)],
        roofs=[Roof(0, "memory", "memory", 2e12), Roof(0, "bf16 tensor", "compute", 3.1e14),
               Roof(0, "fp64", "compute", 1e13)],
        data_types=["bf16"],
    )  # fmt: skip


def made_charts() -> Iterator[tuple[str, Any]]:
    """Yields name and Plotly JSON of every chart."""
    payload = Payload(0, "x", 0, 10**6, [], [], [], [], figures_of_all_kinds(), [])
    for chart in charts(EDGES["two traces"](), [payload]):
        yield chart.name, json.loads(chart.figure.to_json())


def test_every_chart_is_made_where_its_numbers_are() -> None:
    names = [name for name, _ in made_charts()]
    assert names == ["steps-0", "idle", "ranks", "roofline", "bandwidth", "copies", "latency"]
    bare = [chart.name for chart in charts(EDGES["bare"](), [])]
    assert bare == []
    assert [chart.name for chart in charts(make_report(), [])] == ["idle", "bandwidth"]


def test_charts_hold_the_right_numbers() -> None:
    found = dict(made_charts())
    steps = {t["name"]: t for t in found["steps-0"]["data"]}
    assert steps["outlier"]["x"] == [9]
    assert steps["outlier"]["y"] == [0.005]
    memory, level, dots = found["roofline"]["data"]
    assert memory["y"][0] == pytest.approx(memory["x"][0] * 2e12)
    assert memory["x"][1] == pytest.approx(155)
    assert level["y"] == [3.1e14, 3.1e14]
    assert (dots["x"], dots["y"]) == ([200.0], [2e14])
    assert "<img" not in dots["hovertext"][0]
    assert "&lt;img src=x onerror=alert(1)&gt;" in dots["hovertext"][0]
    idle = found["idle"]["data"]
    total = sum(sum(trace["x"]) for trace in idle)
    assert total == pytest.approx(60.0)


def test_every_colour_of_a_figure_is_a_variable_of_both_themes() -> None:
    css = (ASSETS / "page.css").read_text(encoding="utf-8")
    light, dark = css.split("@media (prefers-color-scheme: dark)", 1)
    dark = dark.partition(":root { --b-")[0]
    used = set(re.findall(r"var\((--[\w-]+)\)", json.dumps(list(made_charts()))))
    shared = {name for name in used if name.startswith("--b-")}
    for name in (used - shared) | {f"--p-{paint}" for paint in PAINTS}:
        assert f"{name}: #" in light, name
        assert f"{name}: #" in dark, name
    assert all(f"{name}: var(" in css for name in shared)


def test_labels_show_markup_literally() -> None:
    assert label("k<Input, int>&amp;") == "k&lt;Input, int&gt;&amp;amp;"
    assert len(label("k" * 4000)) == 90


def test_outliers_stand_clear_of_the_rest() -> None:
    assert outliers([100] * 20 + [104]) == [False] * 21
    assert outliers([100, 101, 99, 100, 102, 98, 150]) == [False] * 6 + [True]
    assert outliers([1, 900]) == [False, False]


def test_bundle_has_no_leftover_module_marks() -> None:
    text = bundle()
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    assert {path.stem for path in ASSETS.glob("*.mjs")} == set(MODULES)
    for name in MODULES:
        source = (ASSETS / f"{name}.mjs").read_text(encoding="utf-8")
        for other in re.findall(r'from "\./(\w+)\.mjs"', source):
            assert MODULES.index(other) < MODULES.index(name), f"{name} before {other}"


@needs_node
def test_bundle_is_one_valid_module(tmp_path: Path) -> None:
    file = tmp_path / "page.mjs"
    file.write_text(bundle(), encoding="utf-8")
    done = subprocess.run([str(NODE), "--check", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_node
def test_script_modules() -> None:
    tests = sorted((TESTS / "js").glob("*.test.mjs"))
    done = subprocess.run(
        [str(NODE), "--test", *map(str, tests)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"# pass [1-9]|pass [1-9]", done.stdout)


def from_node(script: str, value: object) -> object:
    """Returns what a module expression makes of a JSON value given on stdin."""
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", script],
        input=json.dumps(value), capture_output=True, text=True, check=True, cwd=ASSETS,
    )  # fmt: skip
    return json.loads(done.stdout)


READ = "import { readFileSync } from 'node:fs'; const value = JSON.parse(readFileSync(0));"


@needs_node
def test_numbers_read_the_same_in_page_and_report() -> None:
    values = [0, 1, 49, 99.94, 99.95, 999.4, 999.6, 1000, 9994, 9995, 99_949, 99_951, 123_456,
              999_499, 999_501, 1e6, 1.5e9, 9.9996e9, 1e12, 7.77e14]  # fmt: skip
    ratios = [0, 0.0004, 0.001, 0.12345, 0.5, 0.999, 0.99951, 1]
    script = READ + (
        "import { nsText, bytesText, rateText, ratioText, countText } from './format.mjs';"
        "console.log(JSON.stringify([value[0].map(nsText), value[0].map(bytesText),"
        "value[0].map(rateText), value[0].map(countText), value[1].map(ratioText)]))"
    )
    makers = (units.ns_text, units.bytes_text, units.rate_text, units.count_text)
    wanted = [[maker(value) for value in values] for maker in makers]
    wanted.append([units.ratio_text(ratio) for ratio in ratios])
    assert from_node(script, [values, ratios]) == wanted


@needs_node
def test_browser_code_reads_what_python_packed() -> None:
    frames = make_frames(steps=60, gpus=2)
    report = report_of(frames)
    payload = timeline_payload(table_source(frames), report, budget=2000)
    script = READ + (
        "import { decoded } from './decode.mjs'; import { drawnNs } from './items.mjs';"
        "const p = await decoded(value);"
        "console.log(JSON.stringify({ names: p.names, shorts: p.shorts,"
        "idle: p.tracks.filter(t => t.kind === 'device').map(t => drawnNs(t, p.paints, 'idle-')),"
        "starts: p.tracks.map(t => [...t.start_ns]), keys: p.tracks.map(t => [...t.key ?? []]) }))"
    )
    found = from_node(script, payload.pack())
    assert isinstance(found, dict)
    assert found["names"] == payload.names
    assert found["shorts"] == payload.shorts
    assert found["idle"] == [device.idle_ns for device in report.devices]
    assert found["starts"] == [track.columns["start_ns"].tolist() for track in payload.tracks]
    keys = [track.columns.get("key") for track in payload.tracks]
    assert found["keys"] == [[] if key is None else key.tolist() for key in keys]
