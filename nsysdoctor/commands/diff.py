"""`nsysdoctor diff`: what changed between two runs."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class DiffFormat(StrEnum):
    """The forms a diff can take."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="An export or report.json.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="An export or report.json.")],
    output: Annotated[
        list[Path] | None, typer.Option("-o", "--output", help="Write here: .md .json .txt")
    ] = None,
    form: Annotated[DiffFormat, typer.Option("--format", help="What to print.")] = (
        DiffFormat.TERMINAL
    ),
    config: Annotated[Path | None, typer.Option("--config", help="nsysdoctor.toml.")] = None,
    window: Annotated[str | None, typer.Option(help="all, steady or START:END.")] = None,
    top: Annotated[int, typer.Option(help="How many kernels to show.", min=1)] = 10,
    force: Annotated[bool, typer.Option(help="Overwrite files of other programs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no hints.")] = False,
) -> None:
    """Tell what changed per device, step, kernel and finding, and nothing else."""
    from rich.console import Console

    from nsysdoctor.commands.inputs import load_reports, on_page, put, settings, write_files
    from nsysdoctor.diff.runs import diff_reports
    from nsysdoctor.render.verdicts.diff import diff_markdown, render_diff

    made = diff_reports(*load_reports([before, after], settings(config), window))
    writers: dict[str, Callable[[], str]] = {
        ".md": lambda: diff_markdown(made, top=top),
        ".json": made.to_json,
        ".txt": lambda: on_page(lambda page: render_diff(made, page, top=top)),
    }
    write_files(output or [], [before, after], writers, force, quiet)
    if form is DiffFormat.TERMINAL:
        render_diff(made, Console(), top=top)
    else:
        put(writers[".json" if form is DiffFormat.JSON else ".md"]())
