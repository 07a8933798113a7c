"""The mark that makes a function a table: its parameters name the tables it is made from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

Made = TypeVar("Made", bound=Callable[..., Any])

_MARK = "_nsysdoctor_table"


def table(function: Made) -> Made:
    """Returns the function, marked as a table of its own name.

    Positional parameters name the tables it needs. One with a default of None is optional: it is
    None when the trace cannot give that table. Keyword-only parameters are a rule's `params`.
    """
    setattr(function, _MARK, True)
    return function


@dataclass(frozen=True)
class Recipe:
    """How a table is made: the function, the tables it needs, and which of these are optional."""

    name: str
    function: Callable[..., Any]
    needs: tuple[str, ...]
    optional: frozenset[str]
    params: tuple[str, ...]


def recipe(function: Callable[..., Any]) -> Recipe:
    """Returns the recipe that a function's signature describes."""
    parameters = inspect.signature(function).parameters.values()
    inputs = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    return Recipe(
        function.__name__,
        function,
        tuple(p.name for p in inputs),
        frozenset(p.name for p in inputs if p.default is None),
        tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
    )


def recipes(modules: Iterable[ModuleType]) -> dict[str, Recipe]:
    """Returns the recipes of all marked functions that the modules define, by name."""
    found = {}
    for module in modules:
        for value in vars(module).values():
            if getattr(value, _MARK, False) and value.__module__ == module.__name__:
                found[value.__name__] = recipe(value)
    return found
