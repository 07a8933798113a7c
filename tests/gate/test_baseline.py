"""A baseline file: small, stable, readable, checked when read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.baseline import make_baseline
from nsysdoctor.gate.baseline_file import read_baseline
from nsysdoctor.gate.statistics import (
    RunValue,
    Sizes,
    compare,
    outliers_of,
    run_value,
    visible_change,
)
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


def runs_of(*values: float) -> list[RunValue]:
    return [RunValue(value, None, 0, 0) for value in values]


def test_two_runs_without_steps_say_nothing() -> None:
    sizes = Sizes(threshold=0.1)
    change = compare(runs_of(1.0, 1.1), runs_of(9.0, 9.1), better="lower", sizes=sizes, min_runs=3)
    assert change.change == "too_few"


def test_three_runs_a_side_see_a_change_beyond_their_own_spread() -> None:
    low, high = runs_of(1.0, 1.1, 1.2), runs_of(2.0, 2.1, 2.2)
    sizes = Sizes(threshold=0.1)
    change = compare(low, high, better="lower", sizes=sizes, min_runs=3)
    assert (change.change, change.method) == ("worse", "runs")
    assert change.p is not None and change.p < 0.001
    assert compare(low, high, better="higher", sizes=sizes, min_runs=3).change == "better"
    near = runs_of(1.2, 1.3, 1.4)
    assert compare(low, near, better="lower", sizes=sizes, min_runs=3).change == "unclear"


def test_an_effect_of_just_the_floor_is_no_change() -> None:
    before, now = [RunValue(0.9, 0.0, 10, 40)], [RunValue(0.9 - 0.02, 0.0, 10, 40)]
    change = compare(before, now, better="higher", sizes=Sizes(threshold=0.02), min_runs=3)
    assert change.change == "unchanged"


def test_one_run_a_side_is_believed_beyond_the_stated_spread_only() -> None:
    before = [RunValue(100.0, 0.1, 10, 40)]
    wanted = {104.0: "unclear", 112.0: "worse", 88.0: "better", 101.0: "unchanged"}
    for value, want in wanted.items():
        now = [RunValue(value, 0.1, 10, 40)]
        change = compare(
            before, now, better="lower", sizes=Sizes(threshold=2.5, spread=3.0), min_runs=3
        )
        assert (change.change, change.method) == (want, "prior")


def test_runs_that_could_hide_a_change_are_no_proof_that_there_is_none() -> None:
    sizes = Sizes(threshold=2.5, sight=5.0)
    quiet, loud = (100.0, 100.1, 99.9), (96.0, 100.0, 104.0)
    alike = [value + 0.05 for value in quiet]
    assert compare(runs_of(*quiet), runs_of(*alike), better="lower", sizes=sizes,
                   min_runs=3).change == "unchanged"  # fmt: skip
    change = compare(runs_of(*loud), runs_of(97.0, 100.5, 103.0), better="lower", sizes=sizes,
                     min_runs=3)  # fmt: skip
    assert change.change == "unclear"
    assert change.most is not None and change.most > 5.0


def test_more_devices_ask_for_more() -> None:
    before, now = [RunValue(100.0, 0.1, 10, 40)], [RunValue(111.5, 0.1, 10, 40)]
    for tests, want in ((1, "worse"), (8, "unclear")):
        sizes = Sizes(threshold=2.5, spread=3.0, tests=tests)
        assert compare(before, now, better="lower", sizes=sizes, min_runs=3).change == want


def test_runs_that_stand_apart_are_named() -> None:
    values = (100.0, 100.5, 130.0, 99.5, 100.2)
    assert outliers_of(runs_of(*values), 0.3) == (2,)
    assert outliers_of(runs_of(100.0, 130.0, 100.0), 0.3) == ()
    assert outliers_of(runs_of(*(100.0, 101.0, 102.0, 103.0, 104.0)), 0.3) == ()


def test_a_baseline_says_what_it_will_see() -> None:
    quiet, loud = runs_of(100.0, 100.1, 99.9), runs_of(96.0, 100.0, 104.0)
    sizes = Sizes(threshold=2.5, spread=3.0, least=0.3)
    assert visible_change(quiet, 3, sizes) == 2.5
    assert visible_change(loud, 3, sizes) > visible_change(loud, 9, sizes) > 2.5
    assert visible_change(quiet[:1], 1, sizes) == pytest.approx(10.9, abs=0.1)
