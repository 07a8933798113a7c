"""Sorting rows that are nearly in order, and numbering combinations of codes, in little memory.

The rows of a trace are almost sorted by time. A stable sort by time alone then takes one pass, few
rows share a time, and a stable sort by small codes counts. A sort by all keys at once would be able
to use none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints

Codes = npt.NDArray[np.signedinteger]
Ties = Callable[[npt.NDArray[np.intp]], Sequence[np.ndarray]]


def time_order(
    time: Ints, ties: Ties | None = None, group: np.ndarray | None = None
) -> npt.NDArray[np.intp]:
    """Returns the rows sorted by group, then time, then the keys that `ties` gives.

    `ties` is called with the rows that share their time with another row, and returns sort keys for
    them, the most important first. Rows that are equal in every key keep their order.
    """
    order = np.argsort(time, kind="stable")
    if ties is not None:
        order = _untied(order, time, ties)
    if group is None or not len(group) or int(group.min()) == int(group.max()):
        return order
    return order[np.argsort(narrowed(group)[order], kind="stable")]


def _untied(
    order: npt.NDArray[np.intp], time: Ints, ties: Ties
) -> npt.NDArray[np.intp]:
    sorted_times = time[order]
    same = sorted_times[1:] == sorted_times[:-1]
    if not same.any():
        return order
    tied = np.zeros(len(order), dtype=bool)
    tied[1:] = same
    tied[:-1] |= same
    rows = order[tied]
    keys = [*ties(rows)][::-1]
    order[tied] = rows[np.lexsort([*keys, sorted_times[tied]])]
    return order


def narrowed(codes: np.ndarray) -> Codes:
    """Returns codes as 16-bit integers where they fit, else as 32 or 64 bits. Use them for look-ups
    and sorting (16 bits sort by counting), not for sums: these could overflow."""
    low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
    widths = (np.int16, np.int32, np.int64)
    fitting = (w for w in widths if np.iinfo(w).min <= low and high <= np.iinfo(w).max)
    return codes.astype(next(fitting), copy=False)


def packed(*columns: np.ndarray | pd.Series) -> npt.NDArray[np.int32]:
    """Returns one code per row for its combination of values; codes follow the sorted order."""
    code = np.zeros(len(columns[0]), dtype=np.int32)
    for column in columns:
        place, distinct = pd.factorize(column, sort=True)
        if len(distinct) < 2:
            continue
        if code.any():
            both = code.astype(np.int64) * len(distinct) + place
            place, _ = pd.factorize(both, sort=True)
        code = place.astype(np.int32)
    return code


def first_rows(codes: np.ndarray) -> npt.NDArray[np.intp]:
    """Returns the first row of each of the codes 0, 1, 2 …; every code must occur."""
    first = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def taken(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns `column[rows]`; a column of only zeros needs no memory."""
    if not column.any():
        return np.zeros(len(rows), dtype=column.dtype)
    return np.asarray(column[rows])


def stacked(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the columns concatenated; columns of only zeros need no memory."""
    if len(columns) == 1:
        return columns[0]
    kind = np.result_type(*columns)
    found = np.zeros(sum(len(column) for column in columns), dtype=kind)
    at = 0
    for column in columns:
        if column.any():
            found[at : at + len(column)] = column
        at += len(column)
    return found
