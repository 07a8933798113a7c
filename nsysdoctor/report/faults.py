"""Why the numbers of a capture are no measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal[
    "impossible_rows", "hidden_graphs", "lost_operations", "idle_window", "broken_capture"
]


@dataclass(frozen=True)
class CaptureFault:
    """Why the numbers of a trace are no measurement: nothing of it can pass or fail a gate.

    `ratio` says how much is concerned: of the rows, launches, steps or of the time. `device` is
    None where the whole trace is at fault.
    """

    trace: int
    device: int | None
    kind: FaultKind
    ratio: float
    text: str
    hint: str
