"""Reading an export: read-only, in columns, leniently, and counting what had to be dropped."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError, UnreadableTraceError
from nsysdoctor.ingest.schema import MARKS, Column, Source

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65_536
NAME_LIMIT = 4_096
"""Characters kept of a name; exports hold names of up to 273 kB."""

_HEADER = b"SQLite format 3\x00"
_FAR_NS = 1 << 62
_RECORD = "record with: nsys profile --trace=cuda,nvtx,osrt -o run python train.py"


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
    _copy: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

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
        frame, impossible = _drop_impossible(frame)
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
        table = next((t for t in ("META_DATA_EXPORT", "EXPORT_META_DATA") if t in self.tables), "")
        if not table:
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
            return cursor.fetch_arrow_table()


def open_export(path: Path) -> Export:
    """Returns the export at `path`, checked and opened read-only; nothing is ever written to it.

    Raises UnreadableTraceError for a missing, foreign, cut-off or corrupt file. An export with a
    live write-ahead log beside it is read from a copy, since reading it in place would write.
    """
    _check_kind(path)
    log = path.with_name(path.name + "-wal")
    copy = None
    if log.exists() and log.stat().st_size > 0:
        copy = tempfile.TemporaryDirectory(prefix="nsysdoctor-")
        target = Path(copy.name) / "run.sqlite"
        shutil.copyfile(path, target)
        shutil.copyfile(log, target.with_name("run.sqlite-wal"))
        uri = f"file:{quote(str(target))}"
    else:
        _check_length(path)
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    tables = _tables(uri, path)
    if not MARKS & tables.keys():
        raise UnreadableTraceError(
            f"{path} is an SQLite file but no nsys export",
            "export a report with: nsys export --type sqlite run.nsys-rep",
        )
    return Export(path, uri, tables, copy)


def _check_kind(path: Path) -> None:
    if not path.exists():
        raise UnreadableTraceError(f"{path} does not exist", "check the path")
    if path.is_dir():
        raise UnreadableTraceError(f"{path} is a folder", "name the .sqlite file inside it")
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except PermissionError as error:
        raise UnreadableTraceError(f"{path} may not be read", "check its permissions") from error
    if path.suffix in {".nsys-rep", ".qdrep"}:
        raise UnreadableTraceError(
            f"{path} is an nsys report, not an export",
            f"run: nsys export --type sqlite {path}",
        )
    if head != _HEADER:
        what = "is empty" if not head else "is not an SQLite file"
        raise UnreadableTraceError(
            f"{path} {what}", "export a report with: nsys export --type sqlite run.nsys-rep"
        )


def _check_length(path: Path) -> None:
    """SQLite answers from a file cut at a page boundary without complaint; the header tells."""
    with path.open("rb") as file:
        head = file.read(100)
    size = path.stat().st_size
    page = int.from_bytes(head[16:18], "big")
    page = 65_536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    header_is_current = head[24:28] == head[92:96]
    whole = page * pages if header_is_current and pages else size
    if len(head) < 100 or page < 512 or size % page or size < whole:
        raise UnreadableTraceError(
            f"{path} is cut off or corrupt: {size:,} bytes of {whole:,}",
            "copy or export it again",
        )


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
    text = str(default) if default > -(1 << 63) else "(-9223372036854775807 - 1)"
    return f"CASE typeof(\"{found}\") WHEN 'integer' THEN \"{found}\" ELSE {text} END"


def _where(source: Source, present: tuple[str, ...]) -> str:
    if source.where is None or source.where[0] not in present:
        return "1"
    return source.where[1]


def _frame(arrow: pa.Table, columns: tuple[Column, ...]) -> pd.DataFrame:
    data: dict[str, object] = {}
    for column in columns:
        values = arrow.column(column.name)
        if column.kind == "text":
            data[column.name] = np.array(_decoded(values), dtype=object)
        else:
            data[column.name] = values.to_numpy().astype("int64", copy=False)
    return pd.DataFrame(data)


def _decoded(values: pa.ChunkedArray) -> list[str]:
    raw = values.to_pylist()
    return ["" if v is None else bytes(v).decode("utf-8", "replace") for v in raw]


def _drop_impossible(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Drops spans that cannot be; open ends (-2^63) are for the caller to close."""
    if not {"start_ns", "end_ns"} <= set(frame.columns):
        return frame, {}
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    open_end = end == -(1 << 63)
    never = (start == 0) & (end == 0)
    far = (end >= _FAR_NS) | (start >= _FAR_NS) | (start <= -_FAR_NS)
    backwards = ~open_end & ~never & ~far & (end < start)
    reasons = {
        "start and end are 0": never,
        "a time beyond any capture": far,
        "end before start": backwards,
    }
    dropped = {reason: int(rows.sum()) for reason, rows in reasons.items() if rows.any()}
    if not dropped:
        return frame, {}
    return frame[~(never | far | backwards)].reset_index(drop=True), dropped
