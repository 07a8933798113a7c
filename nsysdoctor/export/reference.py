"""What tables a trace gives, from their docstrings: `python -m nsysdoctor.export.reference`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nsysdoctor.export.events import TABLES
from nsysdoctor.trace.recipe import Recipe
from nsysdoctor.trace.trace import table_recipes

_HEAD = """# Tables

What `nsysdoctor.open("run.sqlite")["ops"]`, a rule's parameter or `nsysdoctor export --table ops`
gives: one row of int64 nanoseconds on the export's clock per event, unless a column's name says
otherwise (`_ns`, `_bytes`, `_ratio`, `_count`). The first ones are what most analyses need.

This page is made from the tables' docstrings (`nsysdoctor tables` prints it):
`python -m nsysdoctor.export.reference docs/tables.md`."""


class Entry(NamedTuple):
    """One table: its name, what it says of itself, and the tables that it is made from."""

    name: str
    about: str
    needs: tuple[str, ...]


def entries() -> list[Entry]:
    """Returns all tables of rows, the usual ones first, then by name."""
    found = {name: _entry(made) for name, made in table_recipes().items() if _is_frame(made)}
    usual = [found.pop(name) for name in TABLES if name in found]
    return [*usual, *(found[name] for name in sorted(found))]


def reference() -> pd.DataFrame:
    """Returns a row per table: name, about, needs."""
    return pd.DataFrame(entries())


def tables_document() -> str:
    """Returns the page of all tables as Markdown."""
    return "\n\n".join([_HEAD, *_sections(entries())]) + "\n"


def _sections(found: Sequence[Entry]) -> Iterator[str]:
    for entry in found:
        needs = ", ".join(f"`{name}`" for name in entry.needs)
        yield f"## {entry.name}\n\n{entry.about}" + (f"\n\nMade from {needs}." if needs else "")


def _entry(made: Recipe) -> Entry:
    text = inspect.getdoc(made.function) or ""
    return Entry(made.name, text.strip(), made.needs)


def _is_frame(made: Recipe) -> bool:
    return "DataFrame" in str(inspect.signature(made.function).return_annotation)


def main(words: Sequence[str]) -> None:
    """Writes the page into the file named, else prints it."""
    if words:
        Path(words[0]).write_text(tables_document(), encoding="utf-8")
    else:
        sys.stdout.write(tables_document())


if __name__ == "__main__":
    main(sys.argv[1:])
