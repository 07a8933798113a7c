"""Which findings need each other, and what all cures save, told of prices that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import pytest

from nsysdoctor.diagnosis.pricing import price_findings
from nsysdoctor.replay.edits import Change, edits, frames_of
from nsysdoctor.replay.replay import Price
from nsysdoctor.rulebook.findings import Measured, Places
from nsysdoctor.rulebook.rule import Rule, Words

WINDOW_NS = 1_000
Worth = Mapping[tuple[int, ...], int]


class _Prices:
    """A replay whose prices are given: the sum of the named parts that a cure holds."""

    size = 10

    def __init__(self, worth: Worth) -> None:
        self._worth = {frozenset(part): ns for part, ns in worth.items()}

    def saving_ns(self, cure: Sequence[pd.DataFrame]) -> int:
        rows = {int(row) for frame in frames_of(cure) for row in frame["row"]}
        return sum(ns for part, ns in self._worth.items() if part <= rows)

    def price(self, cure: Sequence[pd.DataFrame]) -> Price:
        saving = self.saving_ns(cure)
        return Price(saving, saving, saving)


def _measured(name: str, *subjects: int, **columns: list[str]) -> Measured:
    """A rule with a row and an edit for each subject, whose edits name the subject."""
    words = Words(title=name, category="host", message="{subject}", why="-", fix={"any": "-"})
    names = [f"{name} {subject}" for subject in subjects]
    rows = pd.DataFrame({"subject": names, "device": subjects, "count": 1, **columns})
    cure = edits(Change.UNBLOCK, list(range(len(subjects))), list(subjects))
    rule = Rule(name, words, measure=None)  # type: ignore[arg-type]
    return Measured(rule, rows, [Places([], 0)] * len(rows), cure)


def _priced(worth: Worth, *found: Measured) -> tuple[dict[str, object], int]:
    told, _, combined = price_findings(found, _Prices(worth), WINDOW_NS, "any", 0)  # type: ignore[arg-type]
    names = [finding.rule for finding in told]
    shown = {
        f.rule: (f.level, f.saving_ns, [names[n] for n in f.needs], f.saving_with_ns, f.worth_ns)
        for f in told
    }
    return shown, combined


def test_a_cure_lands_everywhere_at_once() -> None:
    found, combined = _priced({(0, 1): 300, (0,): 5}, _measured("a", 0, 1))
    assert found == {"a": ("high", 305, [], None, 305)}
    assert combined == 305


def test_rows_of_another_cause_are_another_finding() -> None:
    rows = _measured("a", 0, 1, 2, cause=["loads", "trials", "loads"])
    told, _, _ = price_findings([rows], _Prices({(0, 2): 90}), WINDOW_NS, "any", 0)  # type: ignore[arg-type]
    assert [(f.cause, f.saving_ns, len(f.subjects)) for f in told] == [
        ("loads", 90, 2), ("trials", 0, 0),
    ]  # fmt: skip


def test_faults_that_hide_each_other_have_the_level_of_their_set() -> None:
    rules = [_measured(name, place) for place, name in enumerate("abc")]
    found, combined = _priced({(0, 1): 240, (2,): 20}, *rules)
    assert found == {
        "a": ("high", 0, ["b"], 240, 240),
        "b": ("high", 0, ["a"], 240, 240),
        "c": ("low", 20, [], None, 20),
    }
    assert combined == 260


def test_one_that_another_hides_follows_it() -> None:
    found, combined = _priced({(0,): 200, (0, 1): 40}, _measured("a", 0), _measured("b", 1))
    assert found == {"a": ("high", 200, [], None, 200), "b": ("medium", 0, ["a"], 240, 40)}
    assert combined == 240


@pytest.mark.parametrize("worth", [{(0,): 100, (1,): 170, (0, 1): 43}, {(0,): 100, (1,): 170}])
def test_what_is_told_adds_up_to_no_less_than_all(worth: Worth) -> None:
    found, combined = _priced(worth, _measured("a", 0), _measured("b", 1))
    assert combined == sum(worth.values()) <= sum(f[-1] for f in found.values())  # type: ignore[index]
