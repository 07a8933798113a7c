"""`nsysdoctor report`: analyse traces and write the answer in one or more formats."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsysdoctor.errors import UsageError

if TYPE_CHECKING:
    from nsysdoctor.config import Config
    from nsysdoctor.jobs.job import Answer, JobOptions
    from nsysdoctor.report.model import Report


class Format(StrEnum):
    """The forms a report can take."""

    TERMINAL = "terminal"
    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"
    GITHUB = "github"


BY_EXTENSION = {
    ".html": Format.HTML, ".md": Format.MARKDOWN, ".json": Format.JSON, ".sarif": Format.SARIF,
    ".xml": Format.JUNIT, ".txt": Format.TERMINAL,
}  # fmt: skip


TrustConfig = Annotated[
    bool, typer.Option(help="Run the rules that the nearest configuration file names.")
]
Profile = Annotated[
    Path | None, typer.Option(help="What calibrate measured; stands in for published roofs.")
]
Jobs = Annotated[
    int | None, typer.Option(help="Processes for several traces; all cores by default.", min=1)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no hints.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show kernels and evidence.")]
_TRACES = "Exports of nsys (.sqlite), traces of torch's profiler (.json, .json.gz), or folders."


def report(
    traces: Annotated[list[Path], typer.Argument(help=_TRACES, metavar="TRACE")],
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="Write here; the extension tells the format."),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="What to print without -o.")
    ] = Format.TERMINAL,
    window: Annotated[
        str | None, typer.Option(help="all, steady or START:END (with s, ms, us or ns).")
    ] = None,
    device: Annotated[int | None, typer.Option(help="Only this device.")] = None,
    rules: Annotated[
        list[Path] | None, typer.Option(help="A folder of further rules; may repeat.")
    ] = None,
    select: Annotated[list[str] | None, typer.Option(help="Only this rule; may repeat.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not this rule; may repeat.")] = None,
    config: Annotated[Path | None, typer.Option(help="A nsysdoctor.toml.")] = None,
    trust_config: TrustConfig = False,
    device_profile: Profile = None,
    jobs: Jobs = None,
    dask: Annotated[str | None, typer.Option(help="Address of a dask scheduler.")] = None,
    top: Annotated[int, typer.Option(help="How many findings to show.", min=1)] = 5,
    force: Annotated[bool, typer.Option(help="Overwrite files of other programs.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Analyse a trace: how the GPU time was spent, what wastes it, and what a cure would save."""
    from nsysdoctor.commands.inputs import settings
    from nsysdoctor.commands.outputs import check_target
    from nsysdoctor.commands.traces import traces_of

    named, traces = traces, traces_of(traces)
    targets = [(path, _format_of(path)) for path in output or []]
    for path, _ in targets:
        check_target(path, traces, force)
    wants_page = form is Format.HTML if not targets else any(k is Format.HTML for _, k in targets)
    said = settings(config, trust_config)
    options = _options(said, window, device, rules, select, ignore, verbose, wants_page)
    if device_profile is not None:
        options = _profiled(options, device_profile)
    answer = _diagnosed(traces, options, jobs, dask, quiet)
    _write(targets, answer, top, verbose, quiet, force)
    if not targets:
        _show(form, answer, top, verbose, "" if quiet else _page_of(named, window, device))
    _tell_of_lost(answer)


def _tell_of_lost(answer: Answer) -> None:
    """Says which traces are missing in the report; raises typer.Exit with 2 when there are any."""
    from nsysdoctor.commands.outputs import complain

    for one in answer.lost:
        complain(one.error)
    if answer.lost:
        raise typer.Exit(2)


def _write(
    targets: list[tuple[Path, Format]], answer: Answer, top: int, verbose: bool, quiet: bool,
    force: bool,
) -> None:
    from nsysdoctor.commands.outputs import say, write_whole

    for path, kind in targets:
        write_whole(path, _text(kind, answer, top, verbose), force)
        if not quiet:
            say(f"wrote {path}")


def _options(
    configured: Config,
    window: str | None,
    device: int | None,
    rules: list[Path] | None,
    select: list[str] | None,
    ignore: list[str] | None,
    timed: bool,
    payloads: bool,
) -> JobOptions:
    """The options of a job: the configuration file's settings, overridden or extended by the
    command line."""
    from nsysdoctor.config import check_config
    from nsysdoctor.jobs.job import JobOptions, chosen_rules, known_rules
    from nsysdoctor.rulebook.params import check_params
    from nsysdoctor.trace.window import parse_window

    options = JobOptions(
        parse_window(configured.window or "auto" if window is None else window, device),
        (*(Path(folder) for folder in configured.rule_dirs), *(rules or [])),
        tuple(select or configured.select),
        (*configured.ignore, *(ignore or [])),
        configured.params,  # type: ignore[arg-type]
        timed,
        payloads,
    )
    check_config(configured, [rule.name for rule in known_rules(options.folders)])
    check_params(known_rules(options.folders), configured.params)
    chosen_rules(options)
    return options


def _profiled(options: JobOptions, path: Path) -> JobOptions:
    """The options with a measured profile of the GPU."""
    from dataclasses import replace

    from nsysdoctor.roofline.profile import read_profile

    return replace(options, request=replace(options.request, profile=read_profile(path)))


def _diagnosed(
    traces: list[Path], options: JobOptions, jobs: int | None, dask: str | None, quiet: bool
) -> Answer:
    from nsysdoctor.commands.progress import progress
    from nsysdoctor.jobs.executors import executor_for
    from nsysdoctor.jobs.job import diagnose_job

    with executor_for(len(traces), jobs, dask) as executor, progress(traces, quiet) as seen:
        return diagnose_job(traces, options, executor, seen)


def _format_of(path: Path) -> Format:
    found = BY_EXTENSION.get(path.suffix.lower())
    if found is None:
        known = " ".join(BY_EXTENSION)
        raise UsageError(f"the extension of {path} names no format", f"use one of {known}")
    return found


def _text(kind: Format, answer: Answer, top: int, verbose: bool) -> str:
    from nsysdoctor.render.ci.github import report_github
    from nsysdoctor.render.ci.junit import report_junit
    from nsysdoctor.render.ci.sarif import report_sarif
    from nsysdoctor.render.html import render_html
    from nsysdoctor.render.markdown import render_markdown

    made = answer.report
    if kind is Format.HTML:
        return render_html(made, answer.payloads)
    if kind is Format.MARKDOWN:
        return render_markdown(made, top=top)
    if kind is Format.TERMINAL:
        return _plain(made, top, verbose)
    plain = {Format.SARIF: report_sarif, Format.JUNIT: report_junit, Format.GITHUB: report_github}
    return plain[kind](made) if kind in plain else made.to_json()


def _plain(made: Report, top: int, verbose: bool) -> str:
    import io

    from rich.console import Console

    from nsysdoctor.render.terminal import render_terminal

    file = io.StringIO()
    render_terminal(made, Console(file=file, width=80), top=top, verbose=verbose)
    return file.getvalue()


def _show(form: Format, answer: Answer, top: int, verbose: bool, hint: str) -> None:
    if form is not Format.TERMINAL:
        text = answer.report.to_json() if form is Format.JSON else _text(form, answer, top, verbose)
        sys.stdout.buffer.write(text.encode() + b"\n")
        return
    from rich.console import Console

    from nsysdoctor.commands.outputs import say
    from nsysdoctor.render.terminal import render_terminal

    render_terminal(answer.report, Console(), top=top, verbose=verbose)
    if hint:
        print(file=sys.stderr)
        say(hint)


def _page_of(traces: list[Path], window: str | None, device: int | None) -> str:
    """The hint with the command that writes the dashboard for the same traces and options."""
    import shlex

    arguments = [*map(str, traces)]
    arguments += ["--window", window] if window is not None else []
    arguments += ["--device", str(device)] if device is not None else []
    return f"timeline: nsysdoctor report {shlex.join(arguments)} -o report.html"
