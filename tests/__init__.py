"""Tests, in folders that mirror the packages; at the top what several of them share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_traces"
TESTS = ROOT / "tests"


def swept(values: Iterable[object], every: int) -> list[object]:
    """Returns the values as parameters of a test: the first of each `every` belongs to the quick
    run, the others to the sweep."""
    return [
        pytest.param(value, marks=pytest.mark.sweep if place % every else ())
        for place, value in enumerate(values)
    ]
