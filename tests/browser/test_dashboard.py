"""The dashboard in a browser, opened from its file as a user would."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsysdoctor.render.html import render_html
from nsysdoctor.timeline.timeline import timeline_payload
from tests.browser.conftest import Dashboard, Open, Opened
from tests.make_report import EDGES, NASTY
from tests.make_tables import KERNELS, make_frames, table_source

pytestmark = pytest.mark.browser

SCROLL = "#tl-scroll"


def drawn(page: Opened, prefix: str) -> list[int]:
    """Returns the ns that each device row draws in the states whose name starts so."""
    found = page.evaluate(
        "nsysdoctor.timeline.scene.payload.tracks.filter(t => t.kind === 'device')"
        f".map(t => nsysdoctor.drawnNs(t, nsysdoctor.timeline.scene.payload.paints, '{prefix}'))"
    )
    return [int(value) for value in found]


def place_of(page: Opened, name: str) -> tuple[float, float]:
    """Returns a point on the page inside the first visible single operation of that name."""
    found = page.evaluate(
        f"""(() => {{
          const t = nsysdoctor.timeline, s = t.scene, wide = s.width - s.gutter;
          const x = (time) => s.gutter + (time - s.view.start) / (s.view.end - s.view.start) * wide;
          for (const row of s.rows) {{
            if (row.track?.kind !== "stream") continue;
            for (let i = 0; i < row.track.start_ns.length; i++) {{
              const at = x(row.track.start_ns[i] + row.track.length_ns[i] / 2);
              if (s.payload.names[row.track.name[i]] === {name!r} && row.track.count[i] === 1
                  && at > s.gutter + 2 && at < s.width - 2) return [at, row.y - s.scroll + 45];
            }}
          }}
        }})()"""
    )
    box = page.page.locator("#tl-canvas").bounding_box()
    assert found is not None
    assert box is not None
    return box["x"] + found[0], box["y"] + found[1]


def test_findings_stand_in_order_and_say_what_they_save(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    assert page.page.locator(".card h3").all_inner_texts() == [
        finding.title for finding in small.report.findings
    ]
    assert "up to" in page.page.locator(".card .save").first.inner_text()


def test_idle_drawn_is_the_idle_reported(
    small: Dashboard, million: Dashboard, opened: Open
) -> None:
    for dashboard in (small, million):
        page = opened(dashboard.path)
        assert drawn(page, "idle-") == [device.idle_ns for device in dashboard.report.devices]
        assert drawn(page, "compute") == [d.compute_ns for d in dashboard.report.devices]
        for cause in ("input_wait", "launch"):
            wanted = [c.idle_ns for c in dashboard.report.idle_causes if c.cause == cause]
            assert drawn(page, f"idle-{cause}") == wanted


@pytest.mark.parametrize("kind", ["small", "million"])
def test_show_in_timeline_lands_on_the_evidence(
    kind: str, opened: Open, request: pytest.FixtureRequest
) -> None:
    dashboard: Dashboard = request.getfixturevalue(kind)
    page = opened(dashboard.path)
    origin = int(page.evaluate("nsysdoctor.timeline.scene.payload.origin_ns"))
    buttons = page.page.get_by_role("button", name="show in timeline")
    for place, evidence in enumerate(dashboard.report.findings[0].evidence):
        buttons.nth(place).click()
        page.settle()
        start, end = page.view()
        low, high = evidence.start_ns - origin, evidence.end_ns - origin
        assert start < low < high < end
        assert end - start < 4 * (high - low)
        assert page.evaluate("nsysdoctor.timeline.scene.band") == {"start": low, "end": high}
        assert page.evaluate(f"document.activeElement === document.querySelector('{SCROLL}')")
        page.wait_until(f"document.querySelector('{SCROLL}').getBoundingClientRect().y < 500")
        # Beside the evidence single operations are shown, not blocks.
        singles = page.evaluate(
            f"""nsysdoctor.timeline.scene.payload.tracks.filter(t => t.kind === "stream").flatMap(
              t => [...t.start_ns.keys()].filter(i => t.start_ns[i] + t.length_ns[i] > {start}
                && t.start_ns[i] < {end}).map(i => t.count[i]))"""
        )
        assert len(singles) > 2
        assert set(singles) == {1}


def test_million_kernels_open_quickly_and_small(million: Dashboard, opened: Open) -> None:
    page = opened(million.path)
    paints = page.evaluate("performance.getEntriesByType('paint').map(p => [p.name, p.startTime])")
    first = dict(paints)["first-contentful-paint"]
    ready = page.evaluate("performance.now()")
    print(f"first paint {first:.0f} ms, timeline ready before {ready:.0f} ms")
    assert first < 2000
    from plotly.offline import get_plotlyjs

    beside = million.path.stat().st_size - len(get_plotlyjs().encode())
    print(f"{beside / 1e6:.2f} MB beside plotly.js, payload {million.payload_bytes / 1e6:.2f} MB")
    assert beside <= 5_000_000
    assert "are merged with their neighbours" in page.page.locator("#tl-notes").inner_text()


def test_zoom_reaches_a_single_named_kernel(million: Dashboard, opened: Open) -> None:
    page = opened(million.path)
    page.page.locator("#tl-search").fill("layer_norm<float")
    page.page.locator("#tl-next").click()
    page.settle()
    assert "of" in page.page.locator("#tl-hits").inner_text()
    name = KERNELS[2][0]
    for _ in range(40):
        if page.page.locator("#tl-detail strong").inner_text() == name:
            break
        page.page.locator("#tl-next").click()
    assert page.page.locator("#tl-detail strong").inner_text() == name
    assert "duration" in page.page.locator("#tl-detail").inner_text()


def test_search_steps_through_its_hits_by_time(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    page.page.locator("#tl-search").fill("ALLREDUCE")
    assert page.page.locator("#tl-hits").inner_text() == "24 hits"
    starts = []
    for place in range(1, 25):
        page.page.locator("#tl-search").press("Enter")
        assert page.page.locator("#tl-hits").inner_text() == f"{place} of 24"
        selected = "nsysdoctor.timeline.selected"
        starts.append(page.evaluate(f"{selected}.track.start_ns[{selected}.index]"))
    assert starts == sorted(starts)
    page.page.locator("#tl-search").press("Enter")
    assert page.page.locator("#tl-hits").inner_text() == "1 of 24"
    page.page.locator("#tl-search").press("Shift+Enter")
    assert page.page.locator("#tl-hits").inner_text() == "24 of 24"


def test_names_are_literal_in_tip_and_panel(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    for name in filter(None, NASTY):
        searched = name.partition("\n")[0]  # a search field has one line
        page.evaluate(f"document.querySelector('#tl-search').value = {searched!r}")
        page.evaluate("document.querySelector('#tl-search').dispatchEvent(new Event('input'))")
        page.page.locator("#tl-next").click()
        page.settle()
        assert page.evaluate("document.querySelector('#tl-detail strong').textContent") == name
        page.page.mouse.move(*place_of(page, name))
        page.settle()
        assert page.evaluate("document.querySelector('#tl-tip').hidden") is False
        assert page.evaluate("document.querySelector('#tl-tip strong').textContent") == name
    assert page.evaluate("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("edge", EDGES)
def test_edges_open_without_a_complaint(edge: str, tmp_path: Path, opened: Open) -> None:
    report = EDGES[edge]()
    tables = table_source(make_frames())
    payloads = [timeline_payload(tables, report, trace=i) for i in range(len(report.traces))]
    path = tmp_path / "edge.html"
    path.write_text(render_html(report, payloads), encoding="utf-8")
    page = opened(path)
    for width in (1280, 390):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    if edge == "nasty names":
        text = page.evaluate("document.body.textContent")
        assert [name for name in NASTY if name not in text] == []
        assert page.evaluate("document.title").startswith("script><img src=x onerror=alert(1)>")


def test_two_traces_switch(tmp_path: Path, opened: Open) -> None:
    report = EDGES["two traces"]()
    tables = table_source(make_frames())
    payloads = [timeline_payload(tables, report, trace=i) for i in range(2)]
    path = tmp_path / "ranks.html"
    path.write_text(render_html(report, payloads), encoding="utf-8")
    page = opened(path)
    assert page.page.locator("#tl-trace option").all_inner_texts() == ["rank 0", "rank 1"]
    page.page.get_by_role("button", name="show in timeline").nth(5).click()
    page.wait_until("nsysdoctor.timeline.scene.payload.trace === 1")
    assert page.page.locator("#tl-trace").input_value() == "1"
    page.page.locator("#tl-trace").select_option("0")
    page.wait_until("nsysdoctor.timeline.scene.payload.trace === 0")


def test_keyboard_alone_is_enough(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    keys = page.page.keyboard
    for _ in range(60):
        keys.press("Tab")
        if page.evaluate(f"document.activeElement === document.querySelector('{SCROLL}')"):
            break
    else:
        pytest.fail("the timeline cannot be reached with the tabulator key")
    whole = page.view()
    keys.press("w")
    near = page.view()
    assert near[1] - near[0] < whole[1] - whole[0]
    keys.press("d")
    assert page.view()[0] > near[0]
    keys.press("ArrowLeft")
    assert page.view()[0] == pytest.approx(near[0])
    keys.press("a")
    assert page.view()[0] < near[0]
    keys.press("s")
    keys.press("s")
    assert page.view() == pytest.approx(whole)
    keys.press("/")
    keys.type("AllReduce")
    keys.press("Enter")
    first = page.page.locator("#tl-detail").inner_text()
    keys.press("Escape")
    keys.press("n")
    second = page.page.locator("#tl-detail").inner_text()
    assert first != second
    keys.press("]")
    assert page.page.locator("#tl-detail").inner_text() != second
    keys.press("Escape")
    assert page.page.locator("#tl-detail").inner_text() == ""


def test_a_call_leads_to_its_kernel_and_back(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    page.page.locator("#tl-search").fill("AllReduce")
    page.page.locator("#tl-next").click()
    kernel = page.page.locator("#tl-detail strong").inner_text()
    assert "launch latency" in page.page.locator("#tl-detail").inner_text()
    page.page.get_by_role("button", name="show its call").click()
    assert page.page.locator("#tl-detail strong").inner_text() == "cudaLaunchKernel"
    page.page.get_by_role("button", name="show its operation").click()
    assert page.page.locator("#tl-detail strong").inner_text() == kernel
    page.page.locator(SCROLL).focus()
    page.page.keyboard.press("Enter")
    assert page.page.locator("#tl-detail strong").inner_text() == "cudaLaunchKernel"


def test_mouse_zooms_drags_folds_and_selects(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    page.page.locator(SCROLL).scroll_into_view_if_needed()
    box = page.page.locator("#tl-canvas").bounding_box()
    assert box is not None
    middle = box["x"] + 700, box["y"] + 90
    mouse = page.page.mouse
    whole = page.view()
    mouse.move(*middle)
    mouse.wheel(0, -300)
    page.page.wait_for_timeout(200)
    assert page.view() == whole, "the wheel belongs to the page until the timeline is in use"
    page.page.locator(SCROLL).scroll_into_view_if_needed()
    page.page.locator(SCROLL).focus()
    box = page.page.locator("#tl-canvas").bounding_box()
    assert box is not None
    mouse.move(box["x"] + 700, box["y"] + 90)
    mouse.wheel(0, -300)
    page.page.wait_for_timeout(200)
    near = page.view()
    assert near[1] - near[0] < whole[1] - whole[0]
    mouse.down()
    mouse.move(box["x"] + 500, box["y"] + 90, steps=4)
    mouse.up()
    assert page.view()[0] > near[0]
    page.page.locator("#tl-fit").click()
    rows = page.evaluate("nsysdoctor.timeline.scene.rows.length")
    mouse.click(box["x"] + 40, box["y"] + 48)
    assert page.evaluate("nsysdoctor.timeline.scene.rows.length") == rows - 2
    mouse.click(box["x"] + 40, box["y"] + 48)
    assert page.evaluate("nsysdoctor.timeline.scene.rows.length") == rows
    page.page.keyboard.down("Shift")
    mouse.move(box["x"] + 300, box["y"] + 90)
    mouse.down()
    mouse.move(box["x"] + 500, box["y"] + 90, steps=4)
    mouse.up()
    page.page.keyboard.up("Shift")
    start, end = page.view()
    wide = page.evaluate("nsysdoctor.timeline.scene.width - nsysdoctor.timeline.scene.gutter")
    assert (end - start) / (whole[1] - whole[0]) == pytest.approx(200 / wide, rel=0.03)


def test_tables_sort_and_filter(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    names = page.page.locator("#kernel-table tbody tr:visible b")
    assert names.all_inner_texts() == ["ampere_bf16_s16816gemm", "vectorized_elementwise_kernel"]
    page.page.get_by_role("button", name="launches", exact=True).click()
    assert names.first.inner_text() == "vectorized_elementwise_kernel"
    page.page.locator("#kernel-table-filter").fill("elementwise fp32")
    assert names.all_inner_texts() == ["vectorized_elementwise_kernel"]
    assert page.page.locator("#kernel-table-count").inner_text() == "1 of 2"


def test_charts_are_drawn_in_both_themes(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    count = page.page.locator("[data-chart]").count()
    assert count >= 5
    for place in range(count):
        page.page.locator("[data-chart]").nth(place).scroll_into_view_if_needed()
    page.wait_until(f"document.querySelectorAll('[data-chart] .main-svg').length >= {count}")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(245, 245, 242)"
    colour = "document.querySelector('[data-chart=idle]')._fullLayout.font.color"
    light = page.evaluate(colour)
    page.page.emulate_media(color_scheme="dark")
    page.wait_until(f"{colour} !== '{light}'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 25)"
    assert page.evaluate("nsysdoctor.timeline.scene.payload !== null")


def test_a_step_in_the_chart_leads_to_the_timeline(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    chart = page.page.locator("[data-chart=steps-0]")
    chart.scroll_into_view_if_needed()
    page.page.wait_for_selector("[data-chart=steps-0] .points path")
    before = page.view()
    box = chart.locator(".points path").nth(3).bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.page.wait_for_timeout(150)
    page.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_until(f"nsysdoctor.timeline.scene.view.end !== {before[1]}")
    band = page.evaluate("nsysdoctor.timeline.scene.band")
    steps = page.evaluate("nsysdoctor.timeline.scene.payload.steps.map(s => [s[1], s[2]])")
    assert [band["start"], band["end"]] in steps


def test_code_is_copied(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.page.locator("[data-copy]").first
    button.click()
    # The clipboard answers when it likes.
    button.filter(has_text="copied").wait_for(timeout=5_000)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "DataLoader(..., pin_memory=True)\nx.to(device, non_blocking=True)"


def test_paper_shows_what_the_screen_folds(small: Dashboard, opened: Open) -> None:
    page = opened(small.path)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = false; })")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    page.page.emulate_media(media="print")
    assert page.page.locator(".toolbar").first.is_visible() is False
    assert len(page.page.pdf()) > 20_000
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0


def test_script_of_another_is_refused(tmp_path: Path, small: Dashboard, opened: Open) -> None:
    """Should markup ever slip in, the policy keeps it from running."""
    text = small.path.read_text(encoding="utf-8")
    evil = "<script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"
    path = tmp_path / "evil.html"
    path.write_text(text.replace('<section id="findings">', evil + '<section id="findings">', 1))
    page = opened(path)
    page.page.wait_for_timeout(200)
    assert page.evaluate("window.evil") is None
    refused = [line for line in page.console if "Content Security Policy" in line]
    assert refused
    page.console.clear()
    page.requests[:] = page.requests[:1]


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows(width: int, small: Dashboard, opened: Open) -> None:
    page = opened(small.path, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """[...document.querySelectorAll("h1, h2, h3, h4, p, li, dd, button, .cure, .figure")]
          .filter(e => e.offsetParent && !e.closest(".skip, .scroller, #tl-tip"))
          .filter(e => { const b = e.getBoundingClientRect();
            return b.left < -1 || b.right > innerWidth + 1; })
          .map(e => e.textContent.slice(0, 40))"""
    )
    assert cut == []
