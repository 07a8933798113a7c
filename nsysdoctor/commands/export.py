"""`nsysdoctor export`: the tables behind a report, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsysdoctor.errors import UsageError

if TYPE_CHECKING:
    from nsysdoctor.trace.trace import Trace


def export(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="An nsys export.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="*.perfetto.json, *.sqlite, *.parquet or *.csv.")
    ],
    table: Annotated[
        str | None, typer.Option(help="Which table; ops by default, all for *.sqlite.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite an existing file.")] = False,
) -> None:
    """Write events for a trace viewer, or tables for analyses of your own."""
    from nsysdoctor.commands.outputs import beside, say
    from nsysdoctor.trace.trace import open_trace

    if output.exists() and (not force or output.samefile(trace)):
        raise UsageError(f"{output} exists", "name another file, or use --force")
    if not output.parent.is_dir():
        raise UsageError(f"the folder of {output} does not exist", "make it first")
    form = _form(output)
    with beside(output) as path:
        _write(open_trace(trace), form, path, table)
    say(f"wrote {output}")


def _form(output: Path) -> str:
    if output.name.endswith(".perfetto.json"):
        return "perfetto"
    form = output.suffix.lower().lstrip(".")
    if form not in {"sqlite", "parquet", "csv"}:
        raise UsageError(
            f"the extension of {output} names no format",
            "use .perfetto.json, .sqlite, .parquet or .csv",
        )
    return form


def _write(trace: Trace, form: str, output: Path, table: str | None) -> None:
    from nsysdoctor.export.events import guarded, readable, readable_tables, write_perfetto

    if form == "perfetto":
        with output.open("w", encoding="utf-8") as file:
            write_perfetto(trace, file)
    elif form == "csv":
        cells = guarded(readable(trace, table or "ops"))
        cells.to_csv(output, index=False, encoding="utf-8", errors="replace")
    elif form == "parquet":
        readable(trace, table or "ops").to_parquet(output, index=False)
    else:
        import sqlite_utils

        db = sqlite_utils.Database(output)
        named = [(table, readable(trace, table))] if table else readable_tables(trace)
        for name, frame in named:
            db.table(name).insert_all(frame.to_dict("records"))
        db.close()
