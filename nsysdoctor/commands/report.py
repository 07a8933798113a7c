"""`nsysdoctor report`: analyse traces and write the answer in one or more formats."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsysdoctor.errors import UsageError

if TYPE_CHECKING:
    from nsysdoctor.engine import Options
    from nsysdoctor.report import Report
    from nsysdoctor.trace import Trace
    from nsysdoctor.window import Request


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


def report(
    traces: Annotated[list[Path], typer.Argument(help="nsys exports (.sqlite).", metavar="TRACE")],
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="Write here; the extension tells the format."),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="What to print without -o.")
    ] = Format.TERMINAL,
    window: Annotated[
        str, typer.Option(help="all, steady or START:END (with s, ms, us or ns).")
    ] = "auto",
    device: Annotated[int | None, typer.Option(help="Only this device.")] = None,
    rules: Annotated[
        list[Path] | None, typer.Option(help="A folder of further rules; may repeat.")
    ] = None,
    select: Annotated[list[str] | None, typer.Option(help="Only this rule; may repeat.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not this rule; may repeat.")] = None,
    top: Annotated[int, typer.Option(help="How many findings to show.", min=1)] = 5,
    force: Annotated[bool, typer.Option(help="Overwrite files of other programs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no hints.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show kernels and evidence.")
    ] = False,
) -> None:
    """Analyse a trace: how the GPU time was spent, what wastes it, and what a cure would save."""
    from nsysdoctor.engine import Options
    from nsysdoctor.rule import load_rules, select_rules

    targets = [(path, _format_of(path)) for path in output or []]
    _check_targets([path for path, _ in targets], traces, force)
    chosen = select_rules(load_rules(rules or []), select or [], ignore or [])
    options = Options(_request(window, device), chosen)
    made, opened = analyse(traces, options)
    for path, kind in targets:
        path.write_text(_text(kind, made, opened, top, verbose), encoding="utf-8")
        if not quiet:
            print(f"wrote {path}", file=sys.stderr)
    if targets:
        return
    if form is Format.TERMINAL:
        _print_terminal(made, top, verbose, None if quiet else traces)
    else:
        sys.stdout.buffer.write(_text(form, made, opened, top, verbose).encode() + b"\n")


def analyse(paths: list[Path], options: Options) -> tuple[Report, list[Trace]]:
    """Returns the report on the traces, and the open traces for what renders time lines."""
    from nsysdoctor.engine import diagnose_trace
    from nsysdoctor.trace import open_trace

    if len(paths) > 1:
        raise UsageError("several traces in one report are not supported yet", "name one trace")
    trace = open_trace(paths[0], options.request)
    return diagnose_trace(trace, options), [trace]


def _request(window: str, device: int | None) -> Request:
    from nsysdoctor.window import parse_window

    return parse_window(window, device)


def _format_of(path: Path) -> Format:
    found = BY_EXTENSION.get(path.suffix.lower())
    if found is None:
        known = " ".join(BY_EXTENSION)
        raise UsageError(f"the extension of {path} names no format", f"use one of {known}")
    return found


def _check_targets(targets: list[Path], traces: list[Path], force: bool) -> None:
    from nsysdoctor.outputs import check_target

    for target in targets:
        check_target(target, traces, force)


def _text(kind: Format, made: Report, opened: list[Trace], top: int, verbose: bool) -> str:
    from nsysdoctor.render.github import report_github
    from nsysdoctor.render.junit import report_junit
    from nsysdoctor.render.markdown import render_markdown
    from nsysdoctor.render.sarif import report_sarif

    if kind is Format.HTML:
        return _html(made, opened)
    if kind is Format.MARKDOWN:
        return render_markdown(made, top=top)
    if kind is Format.TERMINAL:
        return _plain(made, top, verbose)
    plain = {Format.SARIF: report_sarif, Format.JUNIT: report_junit, Format.GITHUB: report_github}
    return plain[kind](made) if kind in plain else made.to_json()


def _html(made: Report, opened: list[Trace]) -> str:
    from nsysdoctor.render.html import render_html
    from nsysdoctor.timeline import timeline_payload

    payloads = [
        timeline_payload(trace.table, made, trace=index) for index, trace in enumerate(opened)
    ]
    return render_html(made, payloads)


def _plain(made: Report, top: int, verbose: bool) -> str:
    import io

    from rich.console import Console

    from nsysdoctor.render.terminal import render_terminal

    file = io.StringIO()
    render_terminal(made, Console(file=file, width=80), top=top, verbose=verbose)
    return file.getvalue()


def _print_terminal(
    made: Report, top: int, verbose: bool, traces: list[Path] | None
) -> None:
    from rich.console import Console

    from nsysdoctor.render.terminal import render_terminal

    render_terminal(made, Console(), top=top, verbose=verbose)
    if traces:
        import shlex

        names = " ".join(shlex.quote(str(path)) for path in traces)
        print(f"\ntimeline: nsysdoctor report {names} -o report.html", file=sys.stderr)
