"""What is known of a program beforehand: the finding it must give and the cure of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sample_traces.program import Program


@dataclass(frozen=True, slots=True)
class Sample:
    """One program. ``build(False)`` has the fault, ``build(True)`` has it cured."""

    name: str
    title: str
    rule: str | None  # the first finding; None for a healthy program or a control
    build: Callable[[bool], Program]
    cure: str = "none"
    also: tuple[str, ...] = ()  # other rules that may legitimately be found
    quiet: tuple[str, ...] = ()  # rules that must stay at info or below
    case: str = ""
    needs: tuple[str, ...] = ()  # the rules of faults that hide it and are cured with it
    low_high: bool = False  # the true saving lies in low…high, not near the point estimate
