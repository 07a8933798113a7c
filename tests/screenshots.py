"""Pictures of dashboards in light and dark, wide and narrow, to look at as a user would.

python tests/screenshots.py OUT_FOLDER [DASHBOARD.html ...]

Without dashboards it makes some: a run of two GPUs, one of a million operations, nasty names.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

sys.path.insert(0, str(Path(__file__).parent.parent))

from nsysdoctor.render.html import render_html
from nsysdoctor.timeline.timeline import timeline_payload
from tests.make_report import EDGES
from tests.make_tables import make_frames, report_of, table_source

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def made(folder: Path) -> Iterator[Path]:
    """Yields the paths of dashboards of made-up runs, written into the folder."""
    shapes = {"two-gpus": (12, 60, 2), "million": (1000, 1000, 1)}
    for name, (steps, per_step, gpus) in shapes.items():
        frames = make_frames(steps=steps, per_step=per_step, gpus=gpus)
        report = report_of(frames)
        payload = timeline_payload(table_source(frames), report)
        yield _written(folder / f"{name}.html", render_html(report, [payload]))
    for name in ("nasty names", "bare", "two traces"):
        report = EDGES[name]()
        tables = table_source(make_frames())
        payloads = [timeline_payload(tables, report, trace=i) for i in range(len(report.traces))]
        path = folder / f"{name.replace(' ', '-')}.html"
        yield _written(path, render_html(report, payloads))


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def shoot(browser: Browser, dashboard: Path, folder: Path) -> None:
    """Writes the whole page, and the timeline at the first evidence, in both widths and themes."""
    for scheme in SCHEMES:
        for width in WIDTHS:
            size = {"width": width, "height": 900}
            page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(dashboard.resolve().as_uri())
            page.wait_for_selector("html[data-ready]")
            tall = page.evaluate("document.documentElement.scrollHeight")
            for y in range(0, tall, 600):
                page.evaluate(f"window.scrollTo({{ top: {y}, behavior: 'instant' }})")
                page.wait_for_timeout(120)
            page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
            page.wait_for_timeout(300)
            stem = folder / f"{dashboard.stem}-{width}-{scheme}"
            page.screenshot(path=f"{stem}.png", full_page=True)
            button = page.get_by_role("button", name="show in timeline").first
            if button.count():
                button.click()
                page.wait_for_timeout(800)
                page.screenshot(path=f"{stem}-evidence.png")
            page.close()
            print(f"{stem}.png")


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if not arguments:
        print(__doc__)
        return 2
    from playwright.sync_api import sync_playwright

    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    dashboards = [Path(name) for name in arguments[1:]] or list(made(folder))
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for dashboard in dashboards:
            shoot(browser, dashboard, folder)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
