"""`nsysdoctor gate` and `nsysdoctor baseline`: hold runs against limits and a baseline."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsysdoctor.errors import EmptyTraceError, UnreadableTraceError, UsageError

if TYPE_CHECKING:
    from nsysdoctor.config import Config
    from nsysdoctor.gate.baseline import Baseline
    from nsysdoctor.gate.verdict import Mismatch, Verdict
    from nsysdoctor.report.model import Report


class VerdictFormat(StrEnum):
    """The forms a verdict can take."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"
    GITHUB = "github"


Traces = Annotated[
    list[Path],
    typer.Argument(help="Repeated runs of one program: exports or report.json.", metavar="TRACE"),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="nsysdoctor.toml; else the nearest one.")
]
Window = Annotated[str | None, typer.Option(help="all, steady or START:END.")]
Force = Annotated[bool, typer.Option(help="Overwrite files of other programs.")]


def gate(
    traces: Traces,
    baseline: Annotated[
        Path | None, typer.Option(help="Made by `nsysdoctor baseline save`.")
    ] = None,
    min_utilization: Annotated[
        float | None, typer.Option(help="Least GPU utilization, 0 to 1; needs no baseline.")
    ] = None,
    config: ConfigFile = None,
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="Write here too: .md .json .sarif .xml .txt"),
    ] = None,
    form: Annotated[
        VerdictFormat, typer.Option("--format", help="What to print.")
    ] = VerdictFormat.TERMINAL,
    window: Window = None,
    normalize_clocks: Annotated[
        bool, typer.Option(help="Judge without one factor that all kernels share.")
    ] = False,
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no hints.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what passed, too.")
    ] = False,
) -> None:
    """Judge runs: exit status 0 pass, 1 fail, 2 cannot judge."""
    from nsysdoctor.commands.inputs import write_files

    verdict = _judged(traces, baseline, min_utilization, config, window, normalize_clocks)
    writers = _writers(verdict)
    inputs = [*traces, *([baseline] if baseline else [])]
    by_extension = {
        ".md": writers[VerdictFormat.MARKDOWN],
        ".json": writers[VerdictFormat.JSON],
        ".sarif": writers[VerdictFormat.SARIF],
        ".xml": writers[VerdictFormat.JUNIT],
        ".txt": writers[VerdictFormat.TERMINAL],
    }
    write_files(output or [], inputs, by_extension, force, quiet)
    _show(verdict, form, writers[form], verbose)
    raise typer.Exit(verdict.exit_code)


def _judged(
    traces: list[Path],
    baseline: Path | None,
    min_utilization: float | None,
    config: Path | None,
    window: str | None,
    normalize_clocks: bool,
) -> Verdict:
    """The verdict; a trace that cannot be analysed forbids a pass, but hides no failure."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from nsysdoctor.commands.inputs import settings
    from nsysdoctor.gate.judge import judge
    from nsysdoctor.gate.limits import with_min_utilization

    chosen = settings(config)
    limits = with_min_utilization(chosen.gate, min_utilization)
    known = _baseline(baseline, chosen, config)
    limits = replace(limits, normalize_clocks=limits.normalize_clocks or normalize_clocks)
    reports, unread = _loaded(traces, chosen, window)
    verdict = judge(reports, known, limits, datetime.now(UTC).date(), unread)
    return replace(verdict, traces=[str(path) for path in traces])


def _loaded(
    traces: list[Path], config: Config, window: str | None
) -> tuple[list[Report], list[Mismatch]]:
    """The reports on the traces that can be analysed, and why the others cannot."""
    from nsysdoctor.commands.inputs import load_reports
    from nsysdoctor.gate.verdict import Mismatch

    reports, unread = [], []
    for path in traces:
        try:
            reports += load_reports([path], config, window)
        except (EmptyTraceError, UnreadableTraceError) as error:
            unread.append(Mismatch("trace", "", error.message, error.hint))
    return reports, unread


def _baseline(path: Path | None, config: Config, config_path: Path | None) -> Baseline | None:
    """The baseline given, else the one that the configuration names, relative to its own folder."""
    from nsysdoctor.commands.inputs import read_text
    from nsysdoctor.config import find_config
    from nsysdoctor.gate.baseline_file import read_baseline

    if path is None and config.gate.baseline:
        home = config_path or find_config(Path.cwd()) or Path()
        path = home.parent / config.gate.baseline
    if path is None:
        return None
    try:
        return read_baseline(read_text(path))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error


def _writers(verdict: Verdict) -> dict[VerdictFormat, Callable[[], str]]:
    from nsysdoctor.commands.inputs import on_page
    from nsysdoctor.render.ci.github import verdict_github
    from nsysdoctor.render.ci.junit import verdict_junit
    from nsysdoctor.render.ci.sarif import verdict_sarif
    from nsysdoctor.render.verdicts.verdict import render_verdict, verdict_markdown

    return {
        VerdictFormat.TERMINAL: lambda: on_page(lambda page: render_verdict(verdict, page)),
        VerdictFormat.MARKDOWN: lambda: verdict_markdown(verdict),
        VerdictFormat.JSON: verdict.to_json,
        VerdictFormat.SARIF: lambda: verdict_sarif(verdict),
        VerdictFormat.JUNIT: lambda: verdict_junit(verdict),
        VerdictFormat.GITHUB: lambda: verdict_github(verdict),
    }


def _show(verdict: Verdict, form: VerdictFormat, text: Callable[[], str], verbose: bool) -> None:
    from nsysdoctor.commands.inputs import put

    if form is VerdictFormat.TERMINAL:
        from rich.console import Console

        from nsysdoctor.render.verdicts.verdict import render_verdict

        render_verdict(verdict, Console(), verbose=verbose)
        return
    put(text())
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if form is VerdictFormat.GITHUB and summary:
        from nsysdoctor.render.verdicts.verdict import verdict_markdown

        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(verdict_markdown(verdict) + "\n")


baseline_app = typer.Typer(help="Save or show what good runs measured.", no_args_is_help=True)


@baseline_app.command("save")
def save(
    traces: Traces,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write (.json).")],
    config: ConfigFile = None,
    window: Window = None,
    force: Force = False,
) -> None:
    """Write a baseline of one or more good runs, small enough to keep in git."""
    from nsysdoctor.commands.inputs import load_reports, settings, write_files
    from nsysdoctor.gate.baseline import make_baseline
    from nsysdoctor.gate.comparable.captures import refuse_unsound

    chosen = settings(config)
    reports = load_reports(traces, chosen, window)
    refuse_unsound(reports, chosen.gate)
    made = make_baseline(reports, chosen.gate.min_steps)
    write_files([output], traces, {".json": made.to_json}, force, quiet=False)


@baseline_app.command("show")
def show(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Print what a baseline holds."""
    from rich.console import Console

    from nsysdoctor.commands.inputs import read_text
    from nsysdoctor.gate.baseline_file import read_baseline
    from nsysdoctor.render.verdicts.baseline import render_baseline

    render_baseline(read_baseline(read_text(file)), Console())
