"""Reads an export read-only and by columns. Impossible rows are dropped and counted."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError, UnreadableTraceError
from nsysdoctor.ingest.columns import (
    Extent,
    guarded_plan,
    plain_plan,
    read_plan,
)
from nsysdoctor.ingest.convert import REPORT_SUFFIXES, exported
from nsysdoctor.ingest.cut import LONGEST_NS, Cut, possible_times
from nsysdoctor.ingest.export_codes import FAR_NS
from nsysdoctor.ingest.file import check_kind, check_length, live_logs
from nsysdoctor.ingest.profiler import profiler_export
from nsysdoctor.ingest.profiler.stream import is_profiler_json
from nsysdoctor.ingest.recorder import NSYS, TORCH, Recorder
from nsysdoctor.ingest.schema import MARKS, OPEN_NS, STRINGS
from nsysdoctor.ingest.scratch import Scratch
from nsysdoctor.ingest.source import Source
from nsysdoctor.ingest.store import UnexpectedError

_ROW_BYTES = 8
"""No row of the tables that we read takes less."""


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
    recorder: Recorder = NSYS

    def warnings(self) -> list[str]:
        """Returns what was lost while a trace of another recorder was read."""
        if self.recorder is NSYS or "DIAGNOSTIC_EVENT" not in self.tables:
            return []
        return [str(text) for (text,) in self.query("SELECT text FROM DIAGNOSTIC_EVENT")]

    def table_of(self, source: Source) -> str | None:
        """Returns the name of the first table of the source that exists, else None."""
        return next((name for name in source.tables if name in self.tables), None)

    def read(self, source: Source, cut: Cut | None = None) -> Rows:
        """Returns the source's rows, with a column for each `Column`; NULL and text are replaced.

        With a cut, only its rows and those that had to be dropped. Raises MissingTableError when
        the export has no such table, or the table lacks a required column.
        """
        table = self.table_of(source)
        if table is None:
            raise MissingTableError(
                f"the trace holds no {source.tables[0]} table",
                self.recorder.hint(source),
            )
        _require(source, table, self.tables[table])
        kept = cut.condition(source, self.tables[table]) if cut is not None else "1"
        frame, lost = self._frame(source, table, kept)
        dropped = {"a time that is no number": lost} if lost else {}
        total = len(frame) + lost
        frame, impossible = _drop_impossible(frame, source)
        return Rows(frame, dropped | impossible, total)

    def holds(self, source: Source) -> bool:
        """Returns whether the source holds any row with possible times, inside or outside the
        cut."""
        table = self.table_of(source)
        if table is None:
            return False
        present = self.tables[table]
        timed = any(column.kind == "time" for column in source.columns)
        usable = possible_times(source, present) if timed else "1"
        where = plain_plan(source, table, present, usable).condition
        return bool(self.query(f'SELECT 1 FROM "{table}" WHERE {where} LIMIT 1'))

    def _frame(self, source: Source, table: str, kept: str = "1") -> tuple[pd.DataFrame, int]:
        """The source's rows that meet a condition, and how many have a time that is no integer."""
        from adbc_driver_manager import Error as AdbcError

        present = self.tables[table]
        extent = self._extent(table)
        try:
            return read_plan(self.uri, plain_plan(source, table, present, kept), extent)
        except (UnexpectedError, AdbcError):
            plan = guarded_plan(source, table, present, kept)
        where = plain_plan(source, table, present, kept).condition
        with _explained(self.path):
            frame, _ = read_plan(self.uri, plan, extent)
        return frame, self.count(f'SELECT count(*) FROM "{table}" WHERE {where}') - len(frame)

    def _extent(self, table: str) -> Extent:
        """The range of a table's row ids. If the file is large enough to hold that many rows, the
        range is used as it is; otherwise the rows are counted."""
        if any(column.lower() == "rowid" for column in self.tables[table]):
            # The name is that of a column here, whose values are no places in the table.
            return Extent(0, 0, self.count(f'SELECT count(*) FROM "{table}"'), False)
        try:
            with _connected(self.uri) as db:
                # Asked singly, each is a look-up at one end of the table; together they scan it.
                low, high = (
                    db.execute(f'SELECT {end}(rowid) FROM "{table}"').fetchone()[0]
                    for end in ("min", "max")
                )
                pages = db.execute("PRAGMA page_count").fetchone()[0]
                size = db.execute("PRAGMA page_size").fetchone()[0]
        except sqlite3.Error:
            low = high = None
        if low is not None and (int(high) - int(low) + 1) * _ROW_BYTES <= int(pages) * int(size):
            return Extent(int(low), int(high), int(high) - int(low) + 1, True)
        return Extent(0, 0, self.count(f'SELECT count(*) FROM "{table}"'), False)

    def strings(self) -> pd.Series[str]:
        """Returns the StringIds table: text by id, cut after 4,096 characters.

        Where several texts have one id, the first counts. Rows with an id that is no number are
        left out.
        """
        if "StringIds" not in self.tables:
            return pd.Series([], index=pd.Index([], dtype="int64"), dtype=object)
        frame, _ = self._frame(STRINGS, "StringIds")
        found = pd.Series(
            frame["value"].to_numpy(dtype=object), index=pd.Index(frame["id"]), dtype=object
        )
        found = found[found.index >= 0]
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
        """Returns the number that a counting query yields."""
        return int(str(self.query(sql)[0][0]))


def open_export(path: Path) -> Export:
    """Returns the export at `path`, checked and opened read-only; nothing is ever written to it.

    Raises UnreadableTraceError for a missing, foreign, cut-off or corrupt file. An export with a
    live log beside it is read from a copy with its log, since reading it in place would write.
    """
    if path.suffix in REPORT_SUFFIXES and path.is_file():
        target, folder = exported(path)
        return replace(open_export(target), path=path, _copy=folder)
    if path.is_file() and is_profiler_json(path):
        target, folder = profiler_export(path)
        return replace(open_export(target), path=path, _copy=folder, recorder=TORCH)
    check_kind(path)
    real = path.resolve()
    logs = live_logs(real)
    copy = None
    if logs:
        copy = Scratch()
        target = copy.path / real.name
        for source in (real, *logs):
            shutil.copyfile(source, target.with_name(source.name))
        uri = f"file:{quote(os.fsencode(target))}"
    else:
        check_length(path)
        uri = f"file:{quote(os.fsencode(real))}?mode=ro&immutable=1"
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


def _require(source: Source, table: str, present: tuple[str, ...]) -> None:
    """Raises MissingTableError for a table that lacks a required column."""
    for column in source.columns:
        needed = column.default is None and column.kind != "text"
        if needed and not set(column.spellings) & set(present):
            raise MissingTableError(
                f"the {table} table has no column {column.spellings[0]}",
                "export the report again with nsys export --type sqlite",
            )


_CHECKED_ROWS = 1 << 18
"""Rows that are checked at once; more would only take memory."""


def _drop_impossible(frame: pd.DataFrame, source: Source) -> tuple[pd.DataFrame, dict[str, int]]:
    """Drops rows with impossible times. Where a source allows open ends, these are kept open
    here."""
    if not {"start_ns", "end_ns"} <= set(frame.columns):
        return frame, {}
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    may_be_open = any(c.name == "end_ns" and c.default is not None for c in source.columns)
    dropped: dict[str, int] = {}
    kept = np.ones(len(frame), dtype=bool)
    for low in range(0, len(frame), _CHECKED_ROWS):
        part = slice(low, low + _CHECKED_ROWS)
        for reason, rows in _impossible(start[part], end[part], may_be_open).items():
            if count := int(np.count_nonzero(rows)):
                dropped[reason] = dropped.get(reason, 0) + count
                kept[part] &= ~rows
    return (frame[kept].reset_index(drop=True) if dropped else frame), dropped


def _impossible(start: np.ndarray, end: np.ndarray, may_be_open: bool) -> dict[str, np.ndarray]:
    """Which rows have impossible times, by reason."""
    open_end = (end == OPEN_NS) & may_be_open
    never = (start == 0) & (end == 0)
    far = _is_far(start) | (~open_end & _is_far(end))
    sound = ~open_end & ~never & ~far
    backwards = sound & (end < start)
    endless = sound & (end - np.where(sound, start, end) > LONGEST_NS)
    return {
        "start and end are 0": never,
        "a time beyond any capture": far,
        "end before start": backwards,
        "longer than any capture": endless,
    }


def _is_far(times: np.ndarray) -> np.ndarray:
    return np.asarray((times >= FAR_NS) | (times <= -FAR_NS))
