"""Sorting and numbering of rows: the same answers as the plain ways, whatever the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.arrays.order import first_rows, narrowed, packed, stacked, taken, time_order

SMALL = st.integers(-3, 3)
TRIPLES = st.lists(st.tuples(SMALL, SMALL, SMALL), max_size=40)


def columns(rows: list[tuple[int, int, int]]) -> list[np.ndarray]:
    """The columns of the rows as int64."""
    return list(np.array(rows, dtype=np.int64).reshape(-1, 3).T)


@given(TRIPLES)
def test_time_order_is_the_order_by_all_keys(rows: list[tuple[int, int, int]]) -> None:
    group, time, tie = columns(rows)
    found = time_order(time, lambda asked: (-tie[asked],), group)
    assert found.tolist() == np.lexsort([-tie, time, group]).tolist()
    assert time_order(time).tolist() == np.argsort(time, kind="stable").tolist()


@given(TRIPLES)
def test_packed_numbers_combinations_in_their_order(rows: list[tuple[int, int, int]]) -> None:
    frame = pd.DataFrame(dict(zip("abc", columns(rows), strict=True)))
    wanted = frame.groupby(["a", "b", "c"], sort=True).ngroup()
    assert packed(frame["a"], frame["b"], frame["c"]).tolist() == wanted.tolist()


@given(TRIPLES)
def test_first_rows_are_the_first_of_each_code(rows: list[tuple[int, int, int]]) -> None:
    codes = packed(*columns(rows))
    wanted = np.unique(codes, return_index=True)[1]
    assert first_rows(codes).tolist() == wanted.tolist()


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=8))
def test_narrowed_codes_are_the_same(codes: list[int]) -> None:
    assert narrowed(np.array(codes, dtype=np.int64)).tolist() == codes


@given(TRIPLES)
def test_taken_and_stacked_copy_what_is_there(rows: list[tuple[int, int, int]]) -> None:
    parts = columns(rows)
    assert stacked(parts).tolist() == np.concatenate(parts).tolist()
    order = np.arange(len(rows))[::-1]
    for part in (parts[0], np.zeros_like(parts[0])):
        assert taken(part, order).tolist() == part[order].tolist()
