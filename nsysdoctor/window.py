"""Which part of a trace is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Request:
    """The window and device an analysis is about; tables take it by the name `request`.

    `auto` prices savings on the steady steps where there are some, and accounts for the whole
    capture; a pair is a window in ns on the export's clock.
    """

    window: Literal["auto", "all", "steady"] | tuple[int, int] = "auto"
    device: int | None = None
