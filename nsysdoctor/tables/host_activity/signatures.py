"""What is recognised in call stacks and OS calls: patterns, what they mean, what helps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Signature:
    """Something that a host is known to spend time on.

    `symbols` and `modules` are patterns of functions and of the files they lie in; `anywhere`
    says that an outer frame decides as well, below code of others. `means` is a half sentence that
    follows on what was measured; `fix` holds texts per ecosystem. `examples` are pairs of symbol
    and module that it fits.
    """

    name: str
    title: str
    means: str
    symbols: re.Pattern[str] | None
    modules: re.Pattern[str] | None
    anywhere: bool
    fix: Mapping[str, str] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()

    def fits(self, symbol: str, module: str) -> bool:
        """Returns whether a frame is one of this signature."""
        if self.symbols is not None and self.symbols.match(symbol):
            return True
        return self.modules is not None and bool(self.modules.match(module))


@cache
def load_signatures() -> tuple[Signature, ...]:
    """Returns all signatures; where several fit, the first one counts."""
    import yaml

    text = files(__package__).joinpath("signatures.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(_signature(row) for row in yaml.load(text, Loader=loader))


def _signature(row: Mapping[str, Any]) -> Signature:
    return Signature(
        row["name"],
        row["title"],
        " ".join(row["means"].split()),
        _pattern(row.get("symbols")),
        _pattern(row.get("modules")),
        bool(row.get("anywhere", False)),
        {name: text.strip() for name, text in row["fix"].items()},
        tuple((pair[0], pair[1]) for pair in row["examples"]),
    )


def _pattern(parts: list[str] | None) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{part})" for part in parts)) if parts else None


def signature_of(symbol: str, module: str) -> int:
    """Returns the place of the first signature that fits a frame, -1 for none."""
    fitting = (n for n, one in enumerate(load_signatures()) if one.fits(symbol, module))
    return next(fitting, -1)
