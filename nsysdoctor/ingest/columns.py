"""A table's columns as numpy arrays: read in blocks, in parallel over row ranges.

The driver is asked for the plain columns first, which is fastest. It raises on a text in a
column of integers; then the same rows are read again through expressions that replace what
cannot be.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nsysdoctor.ingest.schema import OPEN_NS, Column, Source

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65_536
NAME_LIMIT = 4_096
"""Characters kept of a name; exports hold names of up to 273 kB."""

_PARALLEL_ROWS = 300_000
"""Fewer rows than this are read before a second thread has started."""

Block = dict[str, "np.ndarray | pd.Categorical"]


class UnexpectedError(Exception):
    """A column holds something else than the integers it should."""


@dataclass(frozen=True)
class Plan:
    """What to read: the table, SQL for each column, the condition on rows."""

    table: str
    source: Source
    selected: dict[str, str]
    condition: str

    def statement(self, rows: tuple[int, int] | None) -> str:
        """Returns the SQL for a range of row ids, of all rows without one."""
        columns = ", ".join(f"{sql} AS {name}" for name, sql in self.selected.items())
        within = f" AND rowid BETWEEN {rows[0]} AND {rows[1]}" if rows else ""
        return f'SELECT {columns} FROM "{self.table}" WHERE {self.condition}{within}'


def plain_plan(source: Source, table: str, present: Sequence[str]) -> Plan:
    """Returns the plan that takes columns as they are stored."""
    selected = {c.name: _plain(c, _found(c, present)) for c in source.columns}
    return Plan(table, source, selected, _where(source, present))


def guarded_plan(source: Source, table: str, present: Sequence[str]) -> Plan:
    """Returns the plan that replaces what is no integer and leaves out rows without times."""
    found = {c.name: _found(c, present) for c in source.columns}
    selected = {c.name: _guarded(c, found[c.name]) for c in source.columns}
    times = [f"typeof(\"{found[c.name]}\") = 'integer'" for c in source.columns if c.kind == "time"]
    return Plan(table, source, selected, " AND ".join([_where(source, present), *times]))


def _found(column: Column, present: Sequence[str]) -> str | None:
    return next((s for s in column.spellings if s in present), None)


def _where(source: Source, present: Sequence[str]) -> str:
    if source.where is None or source.where[0] not in present:
        return "1"
    return source.where[1]


def _literal(value: int | None) -> str:
    # The literal -2^63 does not parse as an integer; this sum does.
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


def read_plan(uri: str, plan: Plan, rows: tuple[int, int] | None) -> tuple[pd.DataFrame, int]:
    """Returns the rows of a plan, and how many were left out because a time is NULL.

    `rows` are the first and last row id where the table has such, else None. Raises UnexpectedError
    when a column holds something that the plan does not allow for.
    """
    ranges = _ranges(rows)
    if len(ranges) == 1:
        parts = [_read(uri, plan, ranges[0])]
    else:
        with ThreadPoolExecutor(len(ranges)) as pool:
            parts = list(pool.map(lambda r: _read(uri, plan, r), ranges))
    blocks = [block for part, _ in parts for block in part]
    return _joined(plan.source.columns, blocks), sum(nulls for _, nulls in parts)


def _ranges(rows: tuple[int, int] | None) -> list[tuple[int, int] | None]:
    """Even ranges of row ids, one per core for large tables; all rows for small ones."""
    if rows is None or rows[1] - rows[0] < _PARALLEL_ROWS:
        return [None]
    count = min(os.cpu_count() or 1, 8)
    bounds = np.linspace(rows[0], rows[1] + 1, count + 1).astype(np.int64).tolist()
    return [(low, high - 1) for low, high in itertools.pairwise(bounds)]


def _read(uri: str, plan: Plan, rows: tuple[int, int] | None) -> tuple[list[Block], int]:
    import adbc_driver_sqlite.dbapi as adbc

    blocks, nulls = [], 0
    with adbc.connect(uri) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": BATCH_ROWS})
        cursor.execute(plan.statement(rows))
        for batch in cursor.fetch_record_batch():
            kept, lost = _without_nulls(batch, plan.source.columns)
            nulls += lost
            blocks.append(_block(kept, plan.source.columns))
    return blocks, nulls


def _without_nulls(
    batch: pa.RecordBatch, columns: Iterable[Column]
) -> tuple[pa.RecordBatch, int]:
    """The rows whose times are all there."""
    import pyarrow.compute as pc

    times = [batch.column(c.name) for c in columns if c.kind == "time"]
    if not any(t.null_count for t in times):
        return batch, 0
    valid = pc.is_valid(times[0])
    for time in times[1:]:
        valid = pc.and_(valid, pc.is_valid(time))
    kept = batch.filter(valid)
    return kept, batch.num_rows - kept.num_rows


def _block(batch: pa.RecordBatch, columns: Iterable[Column]) -> Block:
    return {
        c.name: _texts(batch.column(c.name)) if c.kind == "text" else _ints(batch, c)
        for c in columns
    }


def _ints(batch: pa.RecordBatch, column: Column) -> np.ndarray:
    import pyarrow as pa

    values = batch.column(column.name)
    if not pa.types.is_integer(values.type):
        raise UnexpectedError(column.name)
    if values.null_count:
        values = values.fill_null(column.default or 0)
    found: np.ndarray = values.to_numpy(zero_copy_only=False)
    if column.width == "int64" or not len(found):
        return found
    bounds = np.iinfo(column.width)
    fits = int(found.min()) >= bounds.min and int(found.max()) <= bounds.max
    return found.astype(column.width) if fits else found


def _texts(values: pa.Array) -> pd.Categorical:
    """Texts as categories, decoded once each; NULL and missing texts are empty."""
    import pyarrow as pa

    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        if values.null_count < len(values):
            raise UnexpectedError("text")
        return pd.Categorical.from_codes(np.zeros(len(values), dtype=np.int32), categories=[""])
    coded = values.dictionary_encode()
    # As bytes: the driver does not check that texts are UTF-8.
    raw = coded.dictionary.cast(pa.binary()).to_pylist()
    texts = [_decoded(value) for value in raw] + [""]
    distinct = sorted(set(texts))
    rank = {text: number for number, text in enumerate(distinct)}
    place = np.array([rank[text] for text in texts], dtype=np.int32)
    code = coded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
    return pd.Categorical.from_codes(place[code], categories=pd.Index(distinct, dtype=object))


def _decoded(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")[:NAME_LIMIT]


_EMPTY: dict[str, Callable[[Column], np.ndarray | pd.Categorical]] = {
    "text": lambda _: pd.Categorical([], categories=pd.Index([], dtype=object)),
    "int": lambda column: np.empty(0, dtype=column.width),
    "time": lambda _: np.empty(0, dtype=np.int64),
}


def _joined(columns: Sequence[Column], blocks: Sequence[Block]) -> pd.DataFrame:
    """One frame of all blocks; each column's blocks are given up as it is joined."""
    data: dict[str, np.ndarray | pd.Categorical] = {}
    for column in columns:
        parts = [block.pop(column.name) for block in blocks]
        if not parts:
            data[column.name] = _EMPTY[column.kind](column)
        elif column.kind == "text":
            data[column.name] = _united(parts)
        else:
            data[column.name] = np.concatenate(parts)
    return pd.DataFrame(data, copy=False)


def _united(parts: Sequence[np.ndarray | pd.Categorical]) -> pd.Categorical:
    from pandas.api.types import union_categoricals

    return union_categoricals(parts, sort_categories=True)


def empty_frame(source: Source) -> pd.DataFrame:
    """Returns a frame of no rows with the source's columns."""
    return _joined(source.columns, [])
