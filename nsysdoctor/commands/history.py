"""`nsysdoctor history`: keep runs over time and show their trend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Keep runs in an SQLite file and show their trend.", no_args_is_help=True)

History = Annotated[Path, typer.Argument(metavar="DB", help="The history file.")]
# In CI a commit is checked out without a branch; the server sets the branch name in these.
_BRANCH = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")


@app.command("add")
def add(
    database: History,
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE", help="Exports or report.json files.")
    ],
    commit: Annotated[str | None, typer.Option(help="The commit; else from git.")] = None,
    branch: Annotated[str | None, typer.Option(help="The branch; else from git.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="nsysdoctor.toml.")] = None,
    window: Annotated[str | None, typer.Option(help="all, steady or START:END.")] = None,
) -> None:
    """Add runs; a run that is there already is not added again."""
    from datetime import UTC, datetime

    from nsysdoctor.commands.inputs import load_reports, settings
    from nsysdoctor.commands.outputs import beside, say
    from nsysdoctor.history import store

    now = datetime.now(UTC).isoformat(timespec="seconds")
    origin = store.Origin(
        _git("rev-parse", "HEAD") if commit is None else commit,
        _branch() if branch is None else branch,
        now,
    )
    reports = load_reports(traces, settings(config), window)
    if database.exists():
        added = store.add(database, reports, origin)
    else:
        with beside(database) as path:
            added = store.add(path, reports, origin)
    say(f"{database}: {added} new of {len(reports)}")


@app.command("show")
def show(
    database: History,
    output: Annotated[
        list[Path] | None, typer.Option("-o", "--output", help="Write the charts here: .html")
    ] = None,
    last: Annotated[int, typer.Option(help="How many runs to print.", min=1)] = 20,
    force: Annotated[bool, typer.Option(help="Overwrite files of other programs.")] = False,
) -> None:
    """Print the last runs and where a trend changed, or write a page of charts."""
    from rich.console import Console

    from nsysdoctor.commands.inputs import write_files
    from nsysdoctor.history import store
    from nsysdoctor.render.verdicts.trend import history_page, render_history

    found = store.rows(database)
    if output:
        writers = {".html": lambda: history_page(found)}
        write_files(output, [database], writers, force, quiet=False)
    else:
        render_history(found, Console(), last=last)


def _branch() -> str:
    named = (os.environ.get(name, "") for name in _BRANCH)
    return _git("branch", "--show-current") or next((name for name in named if name), "")


def _git(*words: str) -> str:
    """The output of git in the current folder; empty outside a repository or without git."""
    import subprocess

    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
