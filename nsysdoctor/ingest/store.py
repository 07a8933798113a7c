"""Columns in memory while a table is read: each as narrow as its values allow, filled in place.

Blocks of rows are copied to their final place at once, so that no table is held twice. Zeros are
not written: memory pages that were never written to take no memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from nsysdoctor.ingest.source import Column

if TYPE_CHECKING:
    import pyarrow as pa

NAME_LIMIT = 4_096
"""Characters kept of a name; exports hold names of up to 273 kB."""


class UnexpectedError(Exception):
    """A column of integers holds something else."""


Piece = tuple[int, int]
"""Rows that were filled: the first place, and how many."""

class Block(NamedTuple):
    """Values of a block, or positions in the list of values known so far."""

    values: np.ndarray
    known: list[Any]


Values: TypeAlias = np.ndarray | pd.Categorical


class Store:
    """The columns of a table of at most `most` rows; several threads may fill it at once."""

    def __init__(self, columns: Sequence[Column], most: int) -> None:
        self._columns = {c.name: _column(c, most) for c in columns}
        self._lock = Lock()

    def put(self, at: int, batch: pa.RecordBatch) -> None:
        """Copies a block of rows to its place; raises UnexpectedError for text in an integer
        column."""
        blocks = {name: column.read(batch.column(name)) for name, column in self._columns.items()}
        with self._lock:
            for name, block in blocks.items():
                self._columns[name].put(at, block)

    def frame(self, filled: Iterable[Piece]) -> pd.DataFrame:
        """Returns the filled rows; `filled` lists the filled ranges in order."""
        pieces = list(filled)
        data = {name: column.values(pieces) for name, column in self._columns.items()}
        return pd.DataFrame(data, copy=False)


def _column(column: Column, most: int) -> _Filled:
    if column.kind == "text":
        return _Texts(most)
    return (_Ids if column.kind == "id" else _Numbers)(most, column)


class _Filled(ABC):
    """A column that is filled in place; places that were not filled are 0."""

    def __init__(self, most: int, width: str) -> None:
        self._array = np.zeros(most, dtype=width)

    @abstractmethod
    def read(self, block: pa.Array) -> Block:
        """Returns the values of a block; several threads may call this at once."""

    @abstractmethod
    def put(self, at: int, block: Block) -> None:
        """Copies a block to its place; one thread at a time."""

    @abstractmethod
    def values(self, pieces: Sequence[Piece]) -> Values:
        """Returns the filled values."""

    def _write(self, at: int, values: np.ndarray) -> None:
        if not len(values) or not (high := int(values.max())) | (low := int(values.min())):
            return
        needed = np.result_type(self._array.dtype, np.min_scalar_type(min(low, -high - 1, -1)))
        if needed != self._array.dtype:
            self._array = self._array.astype(needed)
        self._array[at : at + len(values)] = values

    def _together(self, pieces: Sequence[Piece]) -> np.ndarray:
        end = 0
        for at, count in pieces:
            if at != end:
                self._array[end : end + count] = self._array[at : at + count]
            end += count
        return self._array[:end]


class _Numbers(_Filled):
    """Integers; NULL is the column's default."""

    def __init__(self, most: int, column: Column) -> None:
        super().__init__(most, column.width)
        self._default = column.default or 0

    def read(self, block: pa.Array) -> Block:
        return Block(_integers(block, self._default), [])

    def put(self, at: int, block: Block) -> None:
        self._write(at, block.values)

    def values(self, pieces: Sequence[Piece]) -> Values:
        return self._together(pieces)


class _Ids(_Filled):
    """Long numbers with few distinct values, stored as codes into the sorted values."""

    def __init__(self, most: int, column: Column) -> None:
        super().__init__(most, "int16")
        self._default = column.default or 0
        self._code: dict[int, int] = {}

    def read(self, block: pa.Array) -> Block:
        values = _integers(block, self._default)
        if len(values) and (values == values[0]).all():
            return Block(np.zeros(len(values), dtype=np.int8), [int(values[0])])
        place, distinct = pd.factorize(values)
        return Block(place, distinct.tolist())

    def put(self, at: int, block: Block) -> None:
        codes = [self._code.setdefault(value, len(self._code)) for value in block.known]
        self._write(at, np.array(codes, dtype=np.int64)[block.values])

    def values(self, pieces: Sequence[Piece]) -> Values:
        known = np.array(list(self._code), dtype=np.int64)
        return _coded(self._together(pieces), np.argsort(known), pd.Index(np.sort(known)))


class _Texts(_Filled):
    """Texts, stored as codes into the sorted texts; each is decoded once. NULL and missing texts
    are empty."""

    def __init__(self, most: int) -> None:
        super().__init__(most, "int32")
        self._code: dict[str, int] = {"": 0}

    def read(self, block: pa.Array) -> Block:
        import pyarrow as pa

        if block.null_count == len(block):
            return Block(np.zeros(0, dtype=np.int64), [])
        if not (pa.types.is_string(block.type) or pa.types.is_binary(block.type)):
            raise UnexpectedError("text")
        coded = block.dictionary_encode()
        # As bytes: the driver does not check that texts are UTF-8.
        texts = [_decoded(value) for value in coded.dictionary.cast(pa.binary()).to_pylist()]
        place = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        return Block(place, [*texts, ""])

    def put(self, at: int, block: Block) -> None:
        codes = [self._code.setdefault(text, len(self._code)) for text in block.known]
        self._write(at, np.array(codes, dtype=np.int64)[block.values])

    def values(self, pieces: Sequence[Piece]) -> Values:
        codes = self._together(pieces)
        known = list(self._code)
        if not (codes == 0).any():
            known, codes = known[1:], codes - 1
        order = np.array(sorted(range(len(known)), key=known.__getitem__), dtype=np.int64)
        return _coded(codes, order, pd.Index([known[i] for i in order], dtype=object))


def _coded(codes: np.ndarray, order: np.ndarray, categories: Any) -> Values:
    """Turns codes in order of first appearance into codes into the sorted categories."""
    if not np.array_equal(order, np.arange(len(order))):
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        codes = rank[codes]
    found: pd.Categorical = pd.Categorical.from_codes(codes, categories=categories)
    return found


def _integers(block: pa.Array, default: int) -> np.ndarray:
    import pyarrow as pa

    if not pa.types.is_integer(block.type):
        raise UnexpectedError(str(block.type))
    if block.null_count:
        block = block.fill_null(default)
    return np.asarray(block.to_numpy(zero_copy_only=False))


def _decoded(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")[:NAME_LIMIT]
