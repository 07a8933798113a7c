"""What several test files share."""

from __future__ import annotations

import pytest

from nsysdoctor.rulebook.rule import Rule, load_rules


@pytest.fixture(scope="session")
def all_rules() -> list[Rule]:
    """The built-in rules, loaded once."""
    return load_rules()
