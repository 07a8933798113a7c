"""What a step of a program does, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WorkKind = Literal["kernel", "copy", "set", "graph", "call"]


@dataclass(frozen=True)
class Work:
    """What a steady step does under one name: of GPU work by device, of calls by trace.

    `count` and `ns` are per steady step, of the whole window where no steady step is known;
    `size` is the mean blocks of a kernel's launches or the mean bytes of a copy. An empty name
    sums up what is not told by name.
    """

    trace: int
    device: int | None
    kind: WorkKind
    name: str
    count: float
    ns: float
    size: float | None
