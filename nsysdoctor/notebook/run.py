"""One trace as an object to work with, and the report on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nsysdoctor.errors import UsageError
from nsysdoctor.export.events import readable
from nsysdoctor.export.reference import reference
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import parse_window

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from nsysdoctor.report.model import Finding, Report
    from nsysdoctor.timeline import Payload

_FRAME_HEIGHT = 900
_FINDING_COLUMNS = [
    "rule", "level", "subject", "trace", "device", "count", "saving_ns", "saving_low_ns",
    "saving_high_ns", "saving_ratio", "basis", "message", "fix",
]  # fmt: skip


class Run:
    """One trace, opened read-only; its tables are computed once, when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._trace: Trace = open_trace(path)

    @property
    def tables(self) -> pd.DataFrame:
        """Returns what tables there are: name, columns, about (what a row is, and its units)."""
        return reference()

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Returns a table with codes replaced by texts, as a DataFrame of one's own.

        Raises UsageError for a name that is no table, MissingTableError where the trace lacks it.
        """
        return readable(self._trace, name)

    def report(
        self,
        *,
        window: str | tuple[int, int] = "auto",
        device: int | None = None,
        rules: Sequence[str] = (),
        ignore: Sequence[str] = (),
    ) -> Diagnosis:
        """Returns the report on the trace: of a window ("steady", "1.5s:2s", or ns), of one
        device, by some rules or without some. Raises UsageError for what does not exist."""
        from nsysdoctor.jobs.job import JobOptions, diagnose_job

        text = window if isinstance(window, str) else f"{window[0]}:{window[1]}"
        options = JobOptions(
            parse_window(text, device), select=tuple(rules), ignore=tuple(ignore), payloads=True
        )
        answer = diagnose_job([self.path], options)
        return Diagnosis(answer.report, answer.payloads)

    def __repr__(self) -> str:
        rows = self._trace.row_counts()
        held = ", ".join(f"{count:,} {name} rows" for name, count in rows.items() if count)
        return f"Run({str(self.path)!r}: {held})"


class Diagnosis:
    """A report with what draws it. `report` is the plain data that report.json holds."""

    def __init__(self, report: Report, payloads: Sequence[Payload]) -> None:
        self.report = report
        self._payloads = payloads

    @property
    def findings(self) -> list[Finding]:
        """Returns the findings, most saving first."""
        return self.report.findings

    def findings_frame(self) -> pd.DataFrame:
        """Returns a row per finding: rule, level, subject, trace, device, count, saving_ns,
        saving_low_ns, saving_high_ns, saving_ratio, basis, message, fix."""
        rows = [asdict(finding) for finding in self.findings]
        return pd.DataFrame(rows, columns=_FINDING_COLUMNS)

    def lost_time_frame(self) -> pd.DataFrame:
        """Returns a row per owner of lost time: trace, device, phase, bucket, cause, culprit,
        culprit_kind, thread, range, ns, ratio, count, longest_start_ns, findings."""
        return pd.DataFrame([asdict(row) for row in self.report.lost_time])

    @property
    def figures(self) -> list[str]:
        """Returns the names of the plots that the trace holds data for."""
        return sorted(self._charts)

    def figure(self, name: str) -> go.Figure:
        """Returns a plot as a Plotly figure; raises UsageError for a name that is none."""
        if name not in self._charts:
            raise UsageError(f"there is no figure {name}", f"there are: {', '.join(self.figures)}")
        return self._charts[name]

    @cached_property
    def _charts(self) -> dict[str, go.Figure]:
        from nsysdoctor.render.charts.dashboard import charts

        return {chart.name: chart.figure for chart in charts(self.report, self._payloads)}

    def html(self) -> str:
        """Returns the dashboard as one page that needs no network."""
        from nsysdoctor.render.html import render_html

        return render_html(self.report, self._payloads)

    def text(self) -> str:
        """Returns the report as it stands on a terminal, without colours."""
        from io import StringIO

        from rich.console import Console

        from nsysdoctor.render.terminal import render_terminal

        file = StringIO()
        render_terminal(self.report, Console(file=file, width=80))
        return file.getvalue()

    def _repr_html_(self) -> str:
        """Returns the dashboard in a frame of its own, as notebooks show it."""
        page = escape(self.html(), quote=True)
        return (
            f'<iframe srcdoc="{page}" width="100%" height="{_FRAME_HEIGHT}"'
            ' style="border:0" sandbox="allow-scripts"></iframe>'
        )

    def __repr__(self) -> str:
        return self.text()

    def __getattr__(self, name: str) -> Any:
        """Returns a field of the report."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.report, name)


def open_run(path: str | Path) -> Run:
    """Returns the trace at `path`: an export of nsys or a trace of torch's profiler.

    Raises UnreadableTraceError when it cannot be read.
    """
    return Run(Path(path))
