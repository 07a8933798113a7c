"""The period of sequences whose true period is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.arrays.period import find_period


def repeated(*blocks: str, times: int) -> np.ndarray:
    return np.array([ord(c) for c in "".join(blocks) * times])


@pytest.mark.parametrize(
    ("step", "period"),
    [
        ("abcd", 4),
        ("h" + "xyz" * 32 + "qw", 99),  # layers inside a step
        ("xyzuvwxyzuvw" * 8 + "st", 98),
        ("kkkkkkkc", 8),  # one kernel, closed by a copy
    ],
)
def test_layers_are_no_steps(step: str, period: int) -> None:
    found = find_period(repeated(step, times=20))
    assert found is not None
    assert found.period == period


def test_steps_whose_only_mark_is_a_longer_way_between_layers() -> None:
    found = find_period(repeated("xyz" * 10 + "yyyxxx", times=12))
    assert found is not None
    assert found.period == 36
    assert len(found.position) >= 11


def test_a_read_back_every_tenth_step_does_not_lengthen_the_period() -> None:
    plain, logged = "a" + "bcdefgh" * 8 + "i", "a" + "bcdefgh" * 8 + "ix"
    text = (plain * 9 + logged) * 6
    found = find_period(np.array([ord(c) for c in text]))
    assert found is not None
    assert abs(found.period - len(plain)) <= 1


def test_evaluation_between_steps_is_bridged() -> None:
    step, evaluation = "abcdefgh", "uvwxyz" * 7
    text = step * 30 + evaluation + step * 30
    found = find_period(np.array([ord(c) for c in text]))
    assert found is not None
    assert found.period == len(step)


@pytest.mark.parametrize("text", ["", "a", "ab", "a" * 500, "abcdefghijklmnop", "abc" * 3])
def test_no_period_where_nothing_repeats_often_enough(text: str) -> None:
    assert find_period(np.array([ord(c) for c in text], dtype=np.int64)) is None


@given(st.lists(st.integers(0, 5), max_size=200))
def test_any_run_lies_in_the_sequence_and_on_its_symbol(symbols: list[int]) -> None:
    array = np.array(symbols, dtype=np.int64)
    found = find_period(array)
    if found is not None:
        assert len(np.unique(array[found.position])) == 1
        assert (np.diff(found.position) > 0).all()
