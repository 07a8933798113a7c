"""`nsysdoctor tables`: what tables a trace gives, with columns and units."""

from __future__ import annotations

from typing import Annotated

import typer


def tables(
    name: Annotated[str | None, typer.Argument(help="Only this table.")] = None,
) -> None:
    """Print the tables behind a report: for `export --table`, rules of your own and Python."""
    from nsysdoctor.errors import UsageError
    from nsysdoctor.export.reference import entries, tables_document

    if name is None:
        print(tables_document(), end="")
        return
    found = {entry.name: entry for entry in entries()}
    if name not in found:
        raise UsageError(f"there is no table {name}", "see: nsysdoctor tables")
    print(f"{name}\n\n{found[name].about}")
