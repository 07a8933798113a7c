"""Reads a table's columns as numpy arrays, in blocks and in parallel over row ranges.

The driver first reads the columns as they are stored, which is fastest. It raises an error where an
integer column holds text. Then the same rows are read again through SQL expressions that replace
such values.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from nsysdoctor.ingest.schema import OPEN_NS
from nsysdoctor.ingest.source import Column, Source
from nsysdoctor.ingest.store import NAME_LIMIT, Store

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65_536

_PARALLEL_ROWS = 300_000
"""Fewer rows than this are read before a second thread has started."""


@dataclass(frozen=True)
class Plan:
    """What to read: the table, SQL for each column, the condition on rows."""

    table: str
    source: Source
    selected: dict[str, str]
    condition: str

    def statement(self, rows: tuple[int, int] | None) -> str:
        """Returns the SQL for a range of row ids, or for all rows where no range is given."""
        columns = ", ".join(f"{sql} AS {name}" for name, sql in self.selected.items())
        within = f" AND rowid BETWEEN {rows[0]} AND {rows[1]}" if rows else ""
        return f'SELECT {columns} FROM "{self.table}" WHERE {self.condition}{within}'


def plain_plan(source: Source, table: str, present: Sequence[str], kept: str = "1") -> Plan:
    """Returns the plan that reads columns as they are stored, for the rows that meet a
    condition."""
    selected = {c.name: _plain(c, _found(c, present)) for c in source.columns}
    return Plan(table, source, selected, _where(source, present, kept))


def guarded_plan(source: Source, table: str, present: Sequence[str], kept: str = "1") -> Plan:
    """Returns the plan that replaces values that are no integers and leaves out rows without
    times."""
    found = {c.name: _found(c, present) for c in source.columns}
    selected = {c.name: _guarded(c, found[c.name]) for c in source.columns}
    times = [f"typeof(\"{found[c.name]}\") = 'integer'" for c in source.columns if c.kind == "time"]
    return Plan(table, source, selected, " AND ".join([_where(source, present, kept), *times]))


def _found(column: Column, present: Sequence[str]) -> str | None:
    return next((s for s in column.spellings if s in present), None)


def _where(source: Source, present: Sequence[str], kept: str) -> str:
    # The window's condition goes first: it excludes most rows and needs only their times.
    if source.where is None or source.where[0] not in present:
        return f"({kept})"
    return f"({kept}) AND {source.where[1]}"


def _literal(value: int | None) -> str:
    # SQLite does not parse the literal -2^63 as an integer, but it parses this sum.
    return "(-9223372036854775807 - 1)" if value == OPEN_NS else str(value or 0)


def _plain(column: Column, found: str | None) -> str:
    if found is not None:
        return f'"{found}"'
    return "''" if column.kind == "text" else _literal(column.default)


def _guarded(column: Column, found: str | None) -> str:
    if column.kind == "text":
        return f'CAST(substr("{found}", 1, {NAME_LIMIT}) AS BLOB)' if found else "x''"
    if found is None or column.kind == "time":
        return _plain(column, found)
    other = _literal(column.default)
    return f"CASE typeof(\"{found}\") WHEN 'integer' THEN \"{found}\" ELSE {other} END"


class Extent(NamedTuple):
    """The range of a table's row ids, and the largest number of rows it can hold.

    Without row ids, or with ids far apart, `dense` is False and the table is read in one piece.
    """

    first: int
    last: int
    most: int
    dense: bool

    def ranges(self) -> list[tuple[int, int] | None]:
        """Returns even ranges of row ids, one per core for large tables; a single None, which means
        all rows, for others."""
        if not self.dense or self.most < _PARALLEL_ROWS:
            return [None]
        count = min(os.cpu_count() or 1, 8)
        bounds = [self.first + self.most * part // count for part in range(count + 1)]
        return [(low, high - 1) for low, high in itertools.pairwise(bounds)]


def read_plan(uri: str, plan: Plan, extent: Extent) -> tuple[pd.DataFrame, int]:
    """Returns the rows of a plan, and how many were left out because a time is NULL.

    Raises UnexpectedError when a column holds a value that the plan cannot read.
    """
    store = Store(plan.source.columns, extent.most)
    ranges = extent.ranges()
    starts = [0 if rows is None else rows[0] - extent.first for rows in ranges]
    if len(ranges) == 1:
        parts = [_fill(uri, plan, ranges[0], store, 0)]
    else:
        with ThreadPoolExecutor(len(ranges)) as pool:
            jobs = zip(ranges, starts, strict=True)
            parts = list(pool.map(lambda job: _fill(uri, plan, job[0], store, job[1]), jobs))
    counts = [count for count, _ in parts]
    return store.frame(list(zip(starts, counts, strict=True))), sum(lost for _, lost in parts)


def _fill(
    uri: str, plan: Plan, rows: tuple[int, int] | None, store: Store, at: int
) -> tuple[int, int]:
    """Copies the rows of a range into the store from a given place on. Returns how many were stored
    and how many were left out."""
    import adbc_driver_sqlite.dbapi as adbc

    count = lost = 0
    with adbc.connect(uri) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": BATCH_ROWS})
        cursor.execute(plan.statement(rows))
        for batch in cursor.fetch_record_batch():
            kept, nulls = _without_nulls(batch, plan.source.columns)
            store.put(at + count, kept)
            count += kept.num_rows
            lost += nulls
    return count, lost


def _without_nulls(
    batch: pa.RecordBatch, columns: Iterable[Column]
) -> tuple[pa.RecordBatch, int]:
    """The rows in which no time is NULL."""
    import pyarrow.compute as pc

    times = [batch.column(c.name) for c in columns if c.kind == "time"]
    if not any(t.null_count for t in times):
        return batch, 0
    valid = pc.is_valid(times[0])
    for time in times[1:]:
        valid = pc.and_(valid, pc.is_valid(time))
    kept = batch.filter(valid)
    return kept, batch.num_rows - kept.num_rows
