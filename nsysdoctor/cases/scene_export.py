"""Writes a scene as the SQLite file that nsys would export for it.

Tables and columns are those of `ingest.schema`, by their newest names. A table exists only if it
has rows, as in exports by default.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from nsysdoctor.cases.scene_rows import Row, rows_of
from nsysdoctor.cases.scene_text import Scene
from nsysdoctor.errors import RuleError
from nsysdoctor.ingest.schema import OPEN_NS, SOURCES
from nsysdoctor.ingest.source import Column, Source


def write_scene(scene: Scene, path: Path, without: Collection[str] = ()) -> None:
    """Writes the scene as a new export at `path`.

    `without` names what to leave out, as some exports do: a source of `ingest.schema` (`memcpy`) or
    one of its columns (`memcpy.srcKind`). Raises RuleError for an unknown name.
    """
    import sqlite_utils

    rows = rows_of(scene)
    dropped = _checked(without)
    database = sqlite_utils.Database(str(path))
    try:
        database.execute("PRAGMA synchronous = OFF")
        _fill(database, "StringIds", {"id": int, "value": str}, rows.pop("strings"))
        _fill(database, "META_DATA_EXPORT", {"name": str, "value": str}, rows.pop("versions"))
        for source in SOURCES:
            content = rows.get(source.name, [])
            if content and source.name not in dropped:
                _write_source(database, source, content, dropped)
    finally:
        database.close()


def _checked(without: Collection[str]) -> frozenset[str]:
    known = {source.name: {c.spellings[0] for c in source.columns} for source in SOURCES}
    for name in without:
        table, _, column = name.partition(".")
        if table not in known or (column and column not in known[table]):
            raise RuleError(
                f"without names nothing of an export: {name}",
                f"tables are: {', '.join(sorted(known))}; columns are written memcpy.srcKind",
            )
    return frozenset(without)


def _write_source(
    database: Any, source: Source, content: list[Row], dropped: Collection[str]
) -> None:
    kept = [c for c in source.columns if f"{source.name}.{c.spellings[0]}" not in dropped]
    kinds = {c.spellings[0]: str if c.kind == "text" else int for c in kept}
    if source.where is not None:
        kinds.setdefault(source.where[0], int)
    values = [{c.spellings[0]: _value(c, row) for c in kept} for row in content]
    if source.where is not None and source.where[0] == "eventClass":
        values = [{**value, "eventClass": 0} for value in values]
    _fill(database, source.tables[0], kinds, values)


def _value(column: Column, row: Row) -> Any:
    found = row.get(column.name, column.default)
    return None if found is not None and found == OPEN_NS else found


def _fill(database: Any, name: str, kinds: Mapping[str, type], content: Iterable[Row]) -> None:
    database[name].create(kinds)
    marks = ", ".join("?" for _ in kinds)
    values = [tuple(row.get(column) for column in kinds) for row in content]
    connection: sqlite3.Connection = database.conn
    with connection:
        connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', values)
