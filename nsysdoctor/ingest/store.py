"""Columns in memory while a table is read: each as narrow as its values, filled in place.

Blocks of rows are copied to their place at once, so that no table is ever held twice. Zeros are
not written: pages that nobody touched take no memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from nsysdoctor.ingest.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

NAME_LIMIT = 4_096
"""Characters kept of a name; exports hold names of up to 273 kB."""


class UnexpectedError(Exception):
    """A column holds something else than the integers it should."""


Piece = tuple[int, int]
"""Rows that were filled: the first place, and how many."""

Values: TypeAlias = np.ndarray | pd.Categorical


class Store:
    """The columns of a table of at most `most` rows; threads may fill it side by side."""

    def __init__(self, columns: Sequence[Column], most: int) -> None:
        self._columns = {c.name: _column(c, most) for c in columns}
        self._lock = Lock()

    def put(self, at: int, batch: pa.RecordBatch) -> None:
        """Copies a block of rows to its place; raises UnexpectedError for texts as integers."""
        with self._lock:
            for name, column in self._columns.items():
                column.put(at, batch.column(name))

    def frame(self, filled: Iterable[Piece]) -> pd.DataFrame:
        """Returns the rows that were filled, pieces in order."""
        pieces = list(filled)
        data = {name: column.values(pieces) for name, column in self._columns.items()}
        return pd.DataFrame(data, copy=False)


def _column(column: Column, most: int) -> _Filled:
    if column.kind == "text":
        return _Texts(most)
    return (_Ids if column.kind == "id" else _Numbers)(most, column)


class _Filled(ABC):
    """A column that is filled in place; places that nobody filled are 0."""

    def __init__(self, most: int, width: str) -> None:
        self._array = np.zeros(most, dtype=width)

    @abstractmethod
    def put(self, at: int, block: pa.Array) -> None:
        """Takes a block of values to its place."""

    @abstractmethod
    def values(self, pieces: Sequence[Piece]) -> Values:
        """Returns what was filled."""

    def _write(self, at: int, values: np.ndarray) -> None:
        if not len(values) or not (high := int(values.max())) | (low := int(values.min())):
            return
        bounds = np.iinfo(self._array.dtype)
        if low < bounds.min or high > bounds.max:
            self._array = self._array.astype(np.int64)
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

    def put(self, at: int, block: pa.Array) -> None:
        self._write(at, _integers(block, self._default))

    def values(self, pieces: Sequence[Piece]) -> Values:
        return self._together(pieces)


class _Ids(_Filled):
    """Long numbers of few values: codes into the sorted values."""

    def __init__(self, most: int, column: Column) -> None:
        super().__init__(most, "int16")
        self._default = column.default or 0
        self._code: dict[int, int] = {}

    def put(self, at: int, block: pa.Array) -> None:
        place, distinct = pd.factorize(_integers(block, self._default))
        codes = [self._code.setdefault(value, len(self._code)) for value in distinct.tolist()]
        self._write(at, np.array(codes, dtype=np.int64)[place])

    def values(self, pieces: Sequence[Piece]) -> Values:
        known = np.array(list(self._code), dtype=np.int64)
        return _coded(self._together(pieces), np.argsort(known), pd.Index(np.sort(known)))


class _Texts(_Filled):
    """Texts: codes into the sorted texts, decoded once each; NULL and missing ones are empty."""

    def __init__(self, most: int) -> None:
        super().__init__(most, "int32")
        self._code: dict[str, int] = {"": 0}

    def put(self, at: int, block: pa.Array) -> None:
        import pyarrow as pa

        if block.null_count == len(block):
            return
        if not (pa.types.is_string(block.type) or pa.types.is_binary(block.type)):
            raise UnexpectedError("text")
        coded = block.dictionary_encode()
        # As bytes: the driver does not check that texts are UTF-8.
        texts = [_decoded(value) for value in coded.dictionary.cast(pa.binary()).to_pylist()]
        codes = [self._code.setdefault(text, len(self._code)) for text in texts]
        place = coded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
        self._write(at, np.array([*codes, 0], dtype=np.int64)[place])

    def values(self, pieces: Sequence[Piece]) -> Values:
        codes = self._together(pieces)
        known = list(self._code)
        if not (codes == 0).any():
            known, codes = known[1:], codes - 1
        order = np.array(sorted(range(len(known)), key=known.__getitem__), dtype=np.int64)
        return _coded(codes, order, pd.Index([known[i] for i in order], dtype=object))


def _coded(codes: np.ndarray, order: np.ndarray, categories: Any) -> Values:
    """Codes by first sight as codes into the sorted categories."""
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
