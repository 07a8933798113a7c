"""The part of a trace that an analysis is about."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

import numpy as np

from nsysdoctor.errors import UsageError
from nsysdoctor.ingest.cut import widened
from nsysdoctor.ingest.export_codes import FAR_NS

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from nsysdoctor.arrays.intervals import Ints
    from nsysdoctor.roofline.profile import DeviceProfile

_UNITS_NS = {"": 1, "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_TIME = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|)\s*$")


@dataclass(frozen=True)
class Request:
    """The window and device of an analysis; tables get it by the name `request`.

    `auto` prices savings on the steady steps where there are some, and accounts for the whole
    capture. A pair is a given window, START:END, in ns on the export's clock. `profile` is the
    measured profile of a GPU; it applies to devices of that model.
    """

    window: Literal["auto", "all", "steady"] | tuple[int, int] = "auto"
    device: int | None = None
    profile: DeviceProfile | None = field(default=None, hash=False)

    def in_given_window(self, rows: pd.DataFrame) -> np.ndarray | None:
        """Returns which calls or operations (start_ns, end_ns) run in the given window; None where
        no window was given and all count.

        Usual durations are learned from these alone, so that they do not depend on how much was
        read around the window.
        """
        if not isinstance(self.window, tuple):
            return None
        low, high = self.window
        running: np.ndarray = ((rows["end_ns"] > low) & (rows["start_ns"] < high)).to_numpy()
        return running

    def within_read_time(self, length_ns: Ints, end_ns: Ints) -> Ints:
        """Returns the lengths of stretches that end at some times, without the part before the
        margin around a given window, which was not read."""
        if not isinstance(self.window, tuple):
            return length_ns
        low, _ = widened(*self.window)
        return np.minimum(length_ns, np.maximum(end_ns - low, 0))


def holds(
    bounds_ns: tuple[int, int], start_ns: Ints, end_ns: Ints, called_ns: Ints
) -> npt.NDArray[np.bool_]:
    """Returns which operations run in a stretch of time, or were called in it."""
    low, high = bounds_ns
    running = (end_ns > low) & (start_ns < high)
    return np.asarray(running | ((called_ns >= low) & (called_ns < high)))


def parse_window(text: str, device: int | None = None) -> Request:
    """Returns the request that `all`, `steady`, `auto` or `START:END` means.

    Times are on the export's clock, in ns unless a unit follows. Raises UsageError otherwise.
    """
    if text in ("auto", "all", "steady"):
        return Request(text, device)  # type: ignore[arg-type]
    parts = [_TIME.match(part) for part in text.split(":")]
    if len(parts) != 2 or None in parts:
        raise UsageError(f"{text} is no window", "use all, steady or START:END such as 1.5s:2s")
    low, high = (
        round(Decimal(part.group(1)) * _UNITS_NS[part.group(2)])
        for part in parts
        if part is not None
    )
    if high <= low:
        raise UsageError(f"the window {text} does not end after it starts", "give START before END")
    if max(-low, high) >= FAR_NS:
        raise UsageError(
            f"the window {text} reaches beyond any clock", "name a part of the capture"
        )
    return Request((low, high), device)
