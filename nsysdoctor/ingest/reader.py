"""Reading an export: read-only, in columns, leniently, and counting what had to be dropped."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError, UnreadableTraceError
from nsysdoctor.ingest.convert import REPORT_SUFFIXES, exported
from nsysdoctor.ingest.file import check_kind, check_length, live_logs
from nsysdoctor.ingest.schema import MARKS, OPEN_NS, Column, Source
from nsysdoctor.ingest.scratch import Scratch

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65_536
NAME_LIMIT = 4_096
"""Characters kept of a name; exports hold names of up to 273 kB."""

_FAR_NS = 1 << 62
_LONGEST_NS = 100 * 86_400 * 10**9
"""No capture lasts a hundred days."""



@dataclass(frozen=True)
class Rows:
    """The rows of one source, and why others were dropped (reason → count)."""

    frame: pd.DataFrame
    dropped: dict[str, int]
    total: int


@dataclass(frozen=True)
class Export:
    """An export opened for reading; `tables` maps each table to its columns."""

    path: Path
    uri: str
    tables: dict[str, tuple[str, ...]]
    _copy: Scratch | None = field(default=None, repr=False)

    def table_of(self, source: Source) -> str | None:
        """Returns the name of the first table of the source that exists, else None."""
        return next((name for name in source.tables if name in self.tables), None)

    def read(self, source: Source) -> Rows:
        """Returns the source's rows, a column for each `Column`, NULL and text replaced.

        Raises MissingTableError when the export has no such table or lacks a column without
        which it means nothing.
        """
        table = self.table_of(source)
        if table is None:
            raise MissingTableError(
                f"the trace holds no {source.tables[0]} table",
                f"record with {source.flag}" if source.flag else "export with a newer nsys",
            )
        selected, guards = _select(source, table, self.tables[table])
        columns = ", ".join(f"{sql} AS {name}" for name, sql in selected.items())
        condition = _where(source, self.tables[table])
        kept = " AND ".join([condition, *guards])
        arrow = self._arrow(f'SELECT {columns} FROM "{table}" WHERE {kept}')
        frame = _frame(arrow, source.columns)
        total = self.count(f'SELECT count(*) FROM "{table}" WHERE {condition}')
        dropped = {"a time that is no number": total - len(frame)} if total > len(frame) else {}
        frame, impossible = _drop_impossible(frame, source)
        return Rows(frame, dropped | impossible, total)

    def read_or_empty(self, source: Source) -> Rows:
        """Returns the source's rows; without the table a frame of no rows."""
        try:
            return self.read(source)
        except MissingTableError:
            kinds = {c.name: "object" if c.kind == "text" else "int64" for c in source.columns}
            return Rows(pd.DataFrame({n: np.empty(0, k) for n, k in kinds.items()}), {}, 0)

    def strings(self) -> pd.Series[str]:
        """Returns the StringIds table: text by id, cut after 4,096 characters.

        Of several texts with one id the first counts; ids that are no numbers have none.
        """
        if "StringIds" not in self.tables:
            return pd.Series([], index=pd.Index([], dtype="int64"), dtype=object)
        arrow = self._arrow(
            f"SELECT id, CAST(substr(value, 1, {NAME_LIMIT}) AS BLOB) AS value FROM StringIds "
            "WHERE typeof(id) = 'integer'"
        )
        found = pd.Series(
            _decoded(arrow.column("value")),
            index=pd.Index(arrow.column("id").to_numpy(), dtype="int64"),
            dtype=object,
        )
        return found[~found.index.duplicated()]

    def metadata(self) -> dict[str, str]:
        """Returns the export's own version facts; never the capture's environment or command."""
        known = ("META_DATA_EXPORT", "EXPORT_META_DATA")
        table = next((t for t in known if {"name", "value"} <= set(self.tables.get(t, ()))), None)
        if table is None:
            return {}
        rows = self.query(
            f"SELECT name, value FROM {table} WHERE name LIKE 'EXPORT_PRODUCT_%' "
            "OR name LIKE 'EXPORT_SCHEMA_%' OR name LIKE 'EXPORT_PARAM_INCLUDE_%'"
        )
        return {str(name): str(value) for name, value in rows}

    def query(self, sql: str) -> list[tuple[object, ...]]:
        """Returns the rows of a small query as tuples."""
        with _connected(self.uri) as db, _explained(self.path):
            return list(db.execute(sql))

    def count(self, sql: str) -> int:
        """Returns the number that a counting query gives."""
        return int(str(self.query(sql)[0][0]))

    def _arrow(self, sql: str) -> pa.Table:
        import adbc_driver_sqlite.dbapi as adbc

        with (
            _explained(self.path),
            adbc.connect(self.uri) as connection,
            connection.cursor() as cursor,
        ):
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": BATCH_ROWS})
            cursor.execute(sql)
            reader = cursor.fetch_record_batch()
            batches = [_with_dictionaries(batch) for batch in reader]
            return _table(batches, reader.schema)


def open_export(path: Path) -> Export:
    """Returns the export at `path`, checked and opened read-only; nothing is ever written to it.

    Raises UnreadableTraceError for a missing, foreign, cut-off or corrupt file. An export with a
    live log beside it is read from a copy with its log, since reading it in place would write.
    """
    if path.suffix in REPORT_SUFFIXES and path.is_file():
        target, folder = exported(path)
        return replace(open_export(target), path=path, _copy=folder)
    check_kind(path)
    real = path.resolve()
    logs = live_logs(real)
    copy = None
    if logs:
        copy = Scratch()
        target = copy.path / real.name
        for source in (real, *logs):
            shutil.copyfile(source, target.with_name(source.name))
        uri = f"file:{quote(str(target))}"
    else:
        check_length(path)
        uri = f"file:{quote(str(real))}?mode=ro&immutable=1"
    tables = _tables(uri, path)
    if not MARKS & tables.keys():
        raise UnreadableTraceError(
            f"{path} is an SQLite file but no nsys export",
            "export a report with: nsys export --type sqlite run.nsys-rep",
        )
    return Export(path, uri, tables, copy)


def _tables(uri: str, path: Path) -> dict[str, tuple[str, ...]]:
    with _connected(uri) as db, _explained(path):
        names = [
            str(name)
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: tuple(
                str(row[1])
                for row in db.execute('PRAGMA table_info("' + name.replace('"', '""') + '")')
            )
            for name in sorted(names)
        }


@contextmanager
def _connected(uri: str) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(uri, uri=True)
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        yield db
    finally:
        db.close()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns a database error into one that a user can act on."""
    from adbc_driver_manager import Error as AdbcError

    try:
        yield
    except (sqlite3.Error, AdbcError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "unreadable"
        raise UnreadableTraceError(
            f"{path} is cut off or corrupt ({first})", "copy or export it again"
        ) from error


def _select(
    source: Source, table: str, present: tuple[str, ...]
) -> tuple[dict[str, str], list[str]]:
    """Returns our column → SQL, and the conditions that every kept row meets."""
    selected: dict[str, str] = {}
    guards: list[str] = []
    for column in source.columns:
        found = next((s for s in column.spellings if s in present), None)
        if found is None and column.default is None and column.kind != "text":
            raise MissingTableError(
                f"the {table} table has no column {column.spellings[0]}",
                "export the report again with nsys export --type sqlite",
            )
        selected[column.name] = _expression(column, found)
        if column.kind == "time":
            guards.append(f"typeof(\"{found}\") = 'integer'")
    return selected, guards


def _expression(column: Column, found: str | None) -> str:
    if column.kind == "text":
        return f'CAST(substr("{found}", 1, {NAME_LIMIT}) AS BLOB)' if found else "x''"
    if found is None:
        return str(column.default)
    if column.kind == "time":
        return f'"{found}"'
    default = 0 if column.default is None else column.default
    # The literal -2^63 does not parse as an integer; this sum does.
    text = str(default) if default > OPEN_NS else "(-9223372036854775807 - 1)"
    return f"CASE typeof(\"{found}\") WHEN 'integer' THEN \"{found}\" ELSE {text} END"


def _where(source: Source, present: tuple[str, ...]) -> str:
    if source.where is None or source.where[0] not in present:
        return "1"
    return source.where[1]


def _with_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its texts encoded: an export repeats few texts very often."""
    import pyarrow as pa

    columns = [c.dictionary_encode() if pa.types.is_binary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    if not batches:
        return schema.empty_table()
    return pa.Table.from_batches(batches).unify_dictionaries()


def _frame(arrow: pa.Table, columns: tuple[Column, ...]) -> pd.DataFrame:
    data: dict[str, object] = {}
    for column in columns:
        values = arrow.column(column.name)
        if column.kind == "text":
            data[column.name] = _decoded(values)
        else:
            data[column.name] = values.to_numpy().astype("int64", copy=False)
    return pd.DataFrame(data)


def _decoded(values: pa.ChunkedArray) -> pd.Categorical:
    """Texts as categories, decoded once each; NULL and missing texts are empty."""
    import pyarrow as pa

    if not pa.types.is_dictionary(values.type):
        return pd.Categorical.from_codes(np.zeros(len(values), dtype=np.int32), categories=[""])
    whole = values.combine_chunks()
    raw = whole.dictionary.to_pylist()
    texts = np.array([bytes(v).decode("utf-8", "replace") for v in raw] + [""], dtype=object)
    distinct, place = np.unique(texts.astype(str), return_inverse=True)
    code = whole.indices.fill_null(len(raw)).to_numpy(zero_copy_only=False)
    return pd.Categorical.from_codes(
        place[code].astype(np.int32), categories=pd.Index(distinct.astype(object))
    )


def _drop_impossible(frame: pd.DataFrame, source: Source) -> tuple[pd.DataFrame, dict[str, int]]:
    """Drops spans that cannot be; open ends, where a source may have them, are not closed here."""
    if not {"start_ns", "end_ns"} <= set(frame.columns):
        return frame, {}
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    may_be_open = any(c.name == "end_ns" and c.default is not None for c in source.columns)
    open_end = (end == OPEN_NS) & may_be_open
    never = (start == 0) & (end == 0)
    far = _is_far(start) | (~open_end & _is_far(end))
    sound = ~open_end & ~never & ~far
    backwards = sound & (end < start)
    endless = sound & (end - np.where(sound, start, end) > _LONGEST_NS)
    reasons = {
        "start and end are 0": never,
        "a time beyond any capture": far,
        "end before start": backwards,
        "longer than any capture": endless,
    }
    dropped = {reason: int(rows.sum()) for reason, rows in reasons.items() if rows.any()}
    if not dropped:
        return frame, {}
    return frame[~(never | far | backwards | endless)].reset_index(drop=True), dropped


def _is_far(times: np.ndarray) -> np.ndarray:
    return np.asarray((times >= _FAR_NS) | (times <= -_FAR_NS))
