"""A baseline file: small, stable, readable, checked when read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.baseline import make_baseline
from nsysdoctor.gate.baseline_file import read_baseline
from nsysdoctor.gate.statistics import RunValue, compare, run_value
from tests.gate_runs import empty, finding, run, runs


def test_it_survives_the_file() -> None:
    baseline = make_baseline(runs(3, findings=(finding(),)))
    again = read_baseline(baseline.to_json())
    assert [s.runs for s in again.series] == [s.runs for s in baseline.series]
    assert again.setup == baseline.setup
    assert again.to_json() == baseline.to_json()


def test_five_runs_take_a_few_kilobytes() -> None:
    assert len(make_baseline(runs(5)).to_json()) < 8_000


def test_one_metric_a_line() -> None:
    lines = make_baseline(runs(2)).to_json().splitlines()
    for name in ("utilization_ratio", "synchronization_count"):
        assert sum(f'"{name}"' in line for line in lines) == 1


def test_paths_and_rule_seconds_do_not_show() -> None:
    first = make_baseline([run(3, path="/builds/41/a.sqlite")]).to_json()
    second = make_baseline([run(3, path="/builds/42/b.sqlite")]).to_json()
    assert first == second
    assert "sqlite" not in first


def test_it_holds_what_a_comparison_needs() -> None:
    data = json.loads(make_baseline(runs(2)).to_json())
    assert data["tool_version"] == "0.1.0"
    assert data["devices"] == [{"trace": 0, "device": 0, "name": "NVIDIA A100-SXM4-80GB"}]
    assert data["schemas"] == ["3.16.1"]
    assert data["rules"]["pageable_copy"] == "passed"
    assert data["window"] == "steady"
    row = next(row for row in data["metrics"] if row["metric"] == "utilization_ratio")
    assert len(row["values"]) == len(row["errors"]) == 2
    assert row["steps"] == [40, 40]


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"gpu": "NVIDIA T4"}, "NVIDIA T4"),
        ({"window": "all"}, "window"),
        ({"label": "epoch #"}, "epoch #"),
    ],
)
def test_runs_of_different_programs_are_refused(other: dict[str, object], word: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_baseline([run(), run(1, **other)])
    assert word in caught.value.message


def test_an_empty_capture_is_no_baseline() -> None:
    with pytest.raises(UsageError) as caught:
        make_baseline([run(), empty(run())])
    assert "run 2" in caught.value.message
    with pytest.raises(UsageError):
        make_baseline([])


@pytest.mark.parametrize(
    "break_it",
    [
        lambda data: data.pop("metrics"),
        lambda data: data.update(format="something"),
        lambda data: data.update(format_version=99),
        lambda data: data.update(surprise=1),
        lambda data: data["metrics"][0].update(metric="speed"),
        lambda data: data["metrics"][0].update(values=[float("nan")]),
        lambda data: data["metrics"][0].update(values=[]),
        lambda data: data["metrics"][0].update(values=[1.0, 2.0]),
        lambda data: data["metrics"][0].update(steps=["many"]),
        lambda data: data["rules"].update(pageable_copy="maybe"),
    ],
)
def test_a_file_that_is_none_is_refused(break_it: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(make_baseline([run()]).to_json())
    break_it(data)
    with pytest.raises(UsageError):
        read_baseline(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"format": "nsysdoctor-report"}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_baseline(text)


def test_ratios_are_weighted_with_their_step() -> None:
    """A step of 9 ms at 100 % and one of 1 ms at 0 % are 90 % together, not 50 %."""
    assert run_value([1.0, 0.0], [9.0, 1.0], 0.0, 2).value == pytest.approx(0.9)


def test_alike_neighbours_widen_the_error() -> None:
    independent = [1.0, 2.0] * 16
    alike = [1.0] * 8 + [2.0] * 8 + [1.0] * 8 + [2.0] * 8
    wide, narrow = run_value(alike, None, 0, 8).error, run_value(independent, None, 0, 8).error
    assert wide is not None and narrow is not None
    assert wide > 2 * narrow


def test_two_runs_a_side_are_never_significant_by_rank() -> None:
    two = [RunValue(1.0, None, 0, 0), RunValue(1.1, None, 0, 0)]
    far = [RunValue(9.0, None, 0, 0), RunValue(9.1, None, 0, 0)]
    change = compare(two, far, better="lower", threshold=0.1, min_runs=3)
    assert change.change == "too_few"


def test_three_runs_a_side_reach_one_in_twenty() -> None:
    low = [RunValue(v, None, 0, 0) for v in (1.0, 1.1, 1.2)]
    high = [RunValue(v, None, 0, 0) for v in (2.0, 2.1, 2.2)]
    change = compare(low, high, better="lower", threshold=0.1, min_runs=3)
    assert (change.change, change.method) == ("worse", "rank")
    assert change.p == pytest.approx(0.05)
    assert compare(low, high, better="higher", threshold=0.1, min_runs=3).change == "better"


def test_an_effect_of_just_the_floor_is_no_change() -> None:
    before = [RunValue(0.9, 0.0, 10, 40)]
    now = [RunValue(0.9 - 0.02, 0.0, 10, 40)]
    change = compare(before, now, better="higher", threshold=0.02, min_runs=3)
    assert change.change == "unchanged"


def test_two_runs_a_side_may_be_asked_for_and_then_need_a_huge_effect() -> None:
    """Two values a side leave two degrees of freedom: a t-test, never a rank test."""
    low = [RunValue(v, None, 0, 0) for v in (1.0, 1.1)]
    for centre, want in ((1.3, "unclear"), (3.0, "worse")):
        high = [RunValue(centre + d, None, 0, 0) for d in (0.0, 0.1)]
        change = compare(low, high, better="lower", threshold=0.1, min_runs=2)
        assert (change.change, change.method) == (want, "spread")
