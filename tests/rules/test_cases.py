"""The cases of the built-in rules: tests/rules/NAME.yaml, one trace per case as a text table."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsysdoctor.cases.rule_cases import Case, load_cases, run_case
from nsysdoctor.rulebook.rule import Rule, built_in_folder, load_rule
from tests import swept

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in built_in_folder().glob("*.yaml"))
CASES = [(path.stem, case) for path in sorted(HERE.glob("*.yaml")) for case in load_cases(path)]
_RULES: dict[str, Rule] = {}


def rule_named(name: str) -> Rule:
    """The built-in rule of that name, loaded once."""
    if name not in _RULES:
        _RULES[name] = load_rule(built_in_folder() / f"{name}.yaml")
    return _RULES[name]


@pytest.mark.parametrize(
    "one", swept(CASES, 3), ids=[f"{name}: {case.name}" for name, case in CASES]
)
def test_case(one: tuple[str, Case]) -> None:
    rule, case = one
    assert run_case(case, rule_named(rule)).faults == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_has_cases_that_it_finds_passes_and_cannot_judge(name: str) -> None:
    expected = {case.expect for rule, case in CASES if rule == name}
    assert "found" in expected
    assert expected & {"quiet", "passed"}
    assert "skipped" in expected or not rule_named(name).words.needs


def test_every_case_file_belongs_to_a_rule() -> None:
    assert {name for name, _ in CASES} == set(NAMES)


def test_case_names_are_distinct() -> None:
    named = [(rule, case.name) for rule, case in CASES]
    assert len(set(named)) == len(named)
