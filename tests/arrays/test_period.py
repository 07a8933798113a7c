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


@pytest.mark.parametrize("text", ["", "a", "ab", "a" * 500, "abcdefghijklmnop", "abc" * 2])
def test_no_period_where_nothing_repeats_often_enough(text: str) -> None:
    assert find_period(np.array([ord(c) for c in text], dtype=np.int64)) is None


@pytest.mark.parametrize("times", [3, 4, 5, 40])
def test_a_step_is_found_from_three_repeats_on_and_is_no_layer(times: int) -> None:
    step = "h" + "xyz" * 32 + "qw" + "zyv" * 32 + "o" * 60
    found = find_period(repeated(step, times=times))
    assert found is not None
    assert found.period == len(step)
    assert len(found.position) == times


def test_what_repeats_a_number_of_times_that_varies_is_part_of_a_step() -> None:
    text = "".join("a" + "bcd" * inner + "ef" for inner in (7, 9, 8, 7, 12, 8, 9, 7))
    found = find_period(np.array([ord(c) for c in text]))
    assert found is not None
    assert len(found.position) == 8


@given(st.lists(st.integers(0, 5), max_size=200))
def test_repeats_lie_in_the_sequence_one_after_another(symbols: list[int]) -> None:
    array = np.array(symbols, dtype=np.int64)
    found = find_period(array)
    if found is not None:
        assert (found.position < found.stop).all()
        assert (found.position[1:] >= found.stop[:-1]).all()
        assert found.position[0] >= 0
        assert found.stop[-1] <= len(array)
