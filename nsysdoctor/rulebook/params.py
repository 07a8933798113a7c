"""Whether what a configuration sets for rules can be meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from nsysdoctor.errors import UsageError
from nsysdoctor.rulebook.rule import Rule

_LARGEST = 2**63


def check_params(rules: Iterable[Rule], params: Mapping[str, Mapping[str, object]]) -> None:
    """Raises UsageError for a parameter that its rule does not have and for a value that is no
    finite number."""
    known = {rule.name: rule.params for rule in rules}
    for rule in sorted(params.keys() & known.keys()):
        for param, value in params[rule].items():
            place = f"params.{rule}.{param}"
            if param not in known[rule]:
                near = _near(param, known[rule])
                raise UsageError(f"{place}: {rule} has no such parameter", near)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not abs(value) < _LARGEST:  # type: ignore[arg-type]
                see = f"see: nsysdoctor rules explain {rule}"
                raise UsageError(f"{place}: {value!r} is no finite number", see)


def _near(param: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(param, names, n=1)
    return f"did you mean {close[0]}?" if close else f"it has: {', '.join(names) or 'none'}"
