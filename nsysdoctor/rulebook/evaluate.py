"""Asking one rule: measure, collect evidence, and the edits of its cure."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.replay.edits import of_subjects
from nsysdoctor.report.model import LEVELS, Outcome
from nsysdoctor.rulebook.findings import Measured, causes_of, make_finding, places_of
from nsysdoctor.rulebook.rule import Rule
from nsysdoctor.trace.recipe import Recipe
from nsysdoctor.trace.window import Request


class Tables(Protocol):
    """What rules read from: a trace, or the stacked summaries of a job."""

    def table(self, name: str) -> Any:
        """Returns a table; raises MissingTableError when it cannot be had."""

    def optional(self, name: str) -> Any | None:
        """Returns a table, or None when it cannot be had."""

    def require(self, source: str) -> None:
        """Raises MissingTableError when a source of the export holds nothing."""


def evaluate(
    rule: Rule, tables: Tables, params: Mapping[str, int | float], *, timed: bool = False
) -> tuple[Measured | None, Outcome]:
    """Returns what one rule found and how it ended; a crash of its code ends it as failed."""
    began = time.perf_counter()

    def ended(state: str, reason: str) -> Outcome:
        seconds = round(time.perf_counter() - began, 4) if timed else 0.0
        return Outcome(rule.name, state, reason, seconds)  # type: ignore[arg-type]

    try:
        for name in rule.words.needs:
            tables.require(name)
        measured = _measure(rule, tables, rule.params | dict(params))
        if not rule.built_in:
            _rehearse(measured)
    except MissingTableError as error:
        if not error.hint:
            return None, ended("passed", error.message)
        return None, ended("skipped", f"{error.message}; {error.hint}")
    except (Exception, SystemExit) as error:
        return None, ended("failed", f"{type(error).__name__}: {error}")
    if not len(measured.rows):
        return None, ended("passed", "")
    count = len(measured.rows)
    return measured, ended("found", f"{count} finding{'s' if count > 1 else ''}")


def _measure(rule: Rule, tables: Tables, params: Mapping[str, int | float]) -> Measured:
    made: dict[str, Any] = {}

    def value(name: str, optional: bool) -> Any:
        if name in made:
            return made[name]
        if name in rule.tables:
            made[name] = run(rule.tables[name])
            return made[name]
        found = tables.optional(name) if optional else tables.table(name)
        return found if rule.built_in else copy.deepcopy(found)

    def run(part: Recipe) -> Any:
        inputs = [value(name, name in part.optional) for name in part.needs]
        return part.function(*inputs, **{name: params[name] for name in part.params})

    rows = made[rule.name] = run(rule.measure).reset_index(drop=True)
    asked = _asked_for(rows, tables.optional("request"))
    if not asked:
        return Measured(rule, rows.iloc[asked], [], None)
    # Evidence and edits go by the row of what was measured, whether or not it was asked for.
    places = places_of(run(rule.evidence) if rule.evidence else None, len(rows))
    cure = run(rule.cure) if rule.cure else None
    addressed = run(rule.addresses) if rule.addresses else None
    if len(asked) < len(rows):
        rows, places = rows.iloc[asked].reset_index(drop=True), [places[row] for row in asked]
        cure = of_subjects(cure, asked) if cure is not None else None
        if addressed is not None:
            number = {row: place for place, row in enumerate(asked)}
            addressed = addressed[addressed["row"].isin(number)]
            addressed = addressed.assign(row=addressed["row"].map(number))
    return Measured(rule, rows, places, cure, addressed)


def _rehearse(measured: Measured) -> None:
    """Makes the findings once, so that what is wrong with them is the failure of their rule."""
    for cause in causes_of(measured):
        made = make_finding(cause, None, [None] * len(cause.rows), 1, "any", 0)
        if made.level not in LEVELS:
            raise ValueError(f"level {made.level} is none of {', '.join(LEVELS)}")
        if made.count < 0 or any(
            isinstance(fact, float) and not math.isfinite(fact) for fact in made.facts.values()
        ):
            raise ValueError("a count or a fact is no finite number")


def _asked_for(rows: pd.DataFrame, request: Request | None) -> list[int]:
    """The rows about the device that was asked for, and those about none."""
    if request is None or request.device is None or "device" not in rows:
        return list(range(len(rows)))
    return np.flatnonzero(rows["device"].isin((-1, request.device))).tolist()
