"""What several test files share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from nsysdoctor.rulebook.rule import Rule, load_rules

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def all_rules() -> list[Rule]:
    """The built-in rules, loaded once."""
    return load_rules()
