"""Finding equal values among many and numbering the distinct ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes, first_rows

Numbers = npt.NDArray[np.int32]
"""Rows of a table or a graph by number, -1 for none."""

_WIDE, _FULL = 1 << 32, 1 << 62


def distinct(values: Codes) -> tuple[Ints, Ints]:
    """Returns a code for each value, numbered in order of first appearance, and the position of
    each distinct value's first appearance."""
    code = np.asarray(pd.factorize(values)[0], dtype=np.int64)
    return code, first_rows(code)


def distinct_rows(columns: Iterable[Codes]) -> tuple[Ints, Ints]:
    """Returns a code for each row of some integer columns, numbered in order of first appearance,
    and the position of each distinct row's first appearance.

    The columns are packed into one number per row. Where that number would overflow, the values
    packed so far are renumbered densely first.
    """
    packed, span = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        if span == 1:
            packed = np.zeros(len(column), dtype=np.int64)
        low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        if low == high:
            continue
        values, width = column, high - low + 1
        if width > _WIDE:
            values, low, width = pd.factorize(column)[0], 0, len(column)
        if span * width > _FULL:
            packed, span = pd.factorize(packed)[0].astype(np.int64), len(packed)
        packed *= width
        packed += values
        packed -= low
        span *= width
    return distinct(packed)


def labels(texts: npt.ArrayLike, code: Codes) -> pd.Categorical:
    """Returns the text of each code as a categorical, without a string per row; categories are
    sorted."""
    found, number = np.unique(np.asarray(texts, dtype=str), return_inverse=True)
    return pd.Categorical.from_codes(number[code], categories=pd.Index(found))
