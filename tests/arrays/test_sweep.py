"""The innermost open range at a time, against looking at every range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.arrays import compiled
from nsysdoctor.arrays.sweep import open_at

Nest = list[tuple[int, int]]


def nested(draw: st.DrawFn, low: int, high: int, depth: int) -> Nest:
    """Properly nested ranges inside [low, high)."""
    found: Nest = []
    at = low
    while at < high and depth and draw(st.booleans()):
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        found.append((start, end))
        found += nested(draw, start, end, depth - 1)
        at = end
    return found


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """Nested ranges by start, the longest first."""
    return sorted(nested(draw, 0, 40, 3), key=lambda one: (one[0], -one[1]))


def by_looking(nest: Nest, wanted: list[bool], time: int) -> tuple[int, int] | None:
    """The shortest wanted range that holds the time."""
    holding = [r for r, w in zip(nest, wanted, strict=True) if w and r[0] <= time < r[1]]
    return min(holding, key=lambda one: one[1] - one[0], default=None)


@given(nests(), st.data())
def test_the_innermost_wanted_range_is_found(nest: Nest, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.booleans(), min_size=len(nest), max_size=len(nest)))
    times = sorted(data.draw(st.lists(st.integers(-1, 41), max_size=10)))
    start = np.array([low for low, _ in nest], dtype=np.int64)
    end = np.array([high for _, high in nest], dtype=np.int64)
    found = open_at(np.array(wanted, dtype=bool), start, end, np.array(times, dtype=np.int64))
    told = [nest[row] if row >= 0 else None for row in found.tolist()]
    assert told == [by_looking(nest, wanted, time) for time in times]


def test_a_compiled_sweep_answers_as_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    outer = np.arange(0, 5_000, 10)
    start = np.sort(np.concatenate([outer, outer + 2, outer + 3]))
    end = np.where(start % 10 == 0, start + 9, np.where(start % 10 == 2, start + 6, start + 2))
    times = np.sort(rng.integers(-10, 5_100, 2_000))
    wanted = rng.random(len(start)) < 0.7
    plain = open_at(wanted, start, end, times)
    monkeypatch.setattr(compiled, "_COMPILED_SIZE", 0)
    assert open_at(wanted, start, end, times).tolist() == plain.tolist()
    nest = list(zip(start.tolist(), end.tolist(), strict=True))
    few = times[::50]
    told = [nest[row] if row >= 0 else None for row in open_at(wanted, start, end, few).tolist()]
    assert told == [by_looking(nest, wanted.tolist(), time) for time in few.tolist()]
