"""How we describe a table of an export: our name for it, its columns and their older names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Column:
    """One column that we read: our name for it, its names in exports, and the value for NULL.

    A column with `default` None is required. Rows of kind `time` are dropped and counted when the
    value is no integer. Kind `text` is read leniently. Kind `id` becomes a categorical of integers:
    long numbers with few distinct values.
    """

    name: str
    spellings: tuple[str, ...]
    default: int | None = 0
    kind: Literal["int", "time", "text", "id"] = "int"
    width: Literal["int64", "int32", "int16", "int8"] = "int64"
    """The narrowest type worth trying; a column with larger values is wider."""


@dataclass(frozen=True)
class Source:
    """One table of an export, whatever its version calls it, and the flag that records it."""

    name: str
    tables: tuple[str, ...]
    flag: str
    columns: tuple[Column, ...]
    where: tuple[str, str] | None = None
    """A filter (column that must exist, SQL condition); without the column all rows count."""


SPAN = (
    Column("start_ns", ("start",), None, "time"),
    Column("end_ns", ("end",), None, "time"),
)
"""The columns of whatever begins and ends."""

THREAD = Column("global_tid", ("globalTid",), kind="id")
"""The column that names the thread of a row."""
