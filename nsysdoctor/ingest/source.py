"""What a table of an export is to us: its name, its columns and their older spellings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Column:
    """One column we want: our name, its spellings in the export, and what stands for NULL.

    `default` None marks a column without which the table cannot be read. Kind `time` rows are
    dropped and counted when the value is no integer; `text` comes as lenient text; `id` as a
    categorical of integers: long numbers of which there are few.
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
