"""A headless Chromium for the dashboards; tests are skipped, visibly, where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nsysdoctor.render.html import render_html
from nsysdoctor.report.model import Report
from nsysdoctor.timeline.timeline import timeline_payload
from tests.make_tables import make_frames, report_of, table_source

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@dataclass
class Opened:
    """A dashboard in the browser, and what it said or asked for since it was opened."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def evaluate(self, expression: str) -> Any:
        """Returns what an expression gives in the page."""
        return self.page.evaluate(expression)

    def view(self) -> tuple[float, float]:
        """Returns the visible stretch of the timeline in ns."""
        view = self.evaluate("nsysdoctor.timeline.scene.view")
        return view["start"], view["end"]

    def wait_until(self, expression: str) -> None:
        """Waits for an expression to hold; the page's policy forbids Playwright's own way."""
        for _ in range(400):
            if self.evaluate(expression):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(f"never true: {expression}")

    def settle(self) -> None:
        """Waits until what was asked for is painted."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yields a browser, or skips."""
    if not CHROMIUM:
        pytest.skip("no Chromium here: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Yields a function that opens a file; fails after the test on any console error or request."""
    made: list[Opened] = []

    def open_file(path: Path, width: int = 1280, scheme: str = "light") -> Opened:
        page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        found = Opened(page)
        page.on("console", lambda message: found.console.append(f"{message.type} {message.text}"))
        page.on("pageerror", lambda error: found.console.append(f"error {error}"))
        page.on("request", lambda request: found.requests.append(request.url))
        page.on("dialog", lambda dialog: found.console.append(f"error dialog {dialog.message}"))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=20_000)
        made.append(found)
        return found

    yield open_file
    for found in made:
        problems = [line for line in found.console if line.startswith(("error", "warning"))]
        outside = [url for url in found.requests if not url.startswith(("file:", "data:", "blob:"))]
        found.page.close()
        assert problems == []
        assert outside == []
        assert sum(url.startswith("file:") for url in found.requests) == 1


@dataclass(frozen=True)
class Dashboard:
    """A page on disk and the report that it shows."""

    path: Path
    report: Report
    payload_bytes: int


def write_dashboard(folder: Path, name: str = "run.html", **shape: int) -> Dashboard:
    """Returns the dashboard of a made-up run."""
    frames = make_frames(**shape)
    report = report_of(frames)
    payload = timeline_payload(table_source(frames), report)
    path = folder / name
    path.write_text(render_html(report, [payload]), encoding="utf-8")
    return Dashboard(path, report, len(payload.pack()))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dashboard:
    """Returns the dashboard of two GPUs; its file name is nasty, too."""
    folder = tmp_path_factory.mktemp("small")
    return write_dashboard(folder, "a #1 ?x=<b>&amp;'.html", steps=12, per_step=60, gpus=2)


@pytest.fixture(scope="session")
def million(tmp_path_factory: pytest.TempPathFactory) -> Dashboard:
    """Returns the dashboard of a run of a million operations."""
    return write_dashboard(tmp_path_factory.mktemp("million"), steps=1000, per_step=1000)
