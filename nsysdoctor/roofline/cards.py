"""The memory bandwidth of a GPU: the recorded figure if plausible, else the data sheet's."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_END_OF_COUNTER = 0xF000_0000 * 1000
"""What drivers report in kB/s where they do not know it."""
_FAR = 1.6
"""A figure this many times above or below the data sheet's is of something else."""


def memory_bandwidth_of(name: str, recorded_bytes_per_s: int) -> int:
    """Returns the memory bandwidth of a GPU in bytes/s: the recorded figure where it is plausible,
    else the published one, 0 where neither is known. Sources: data sheets, see cards.yaml."""
    published = published_bandwidth(name)
    if recorded_bytes_per_s <= 0 or recorded_bytes_per_s == _END_OF_COUNTER:
        return published
    near = not published or 1 / _FAR <= recorded_bytes_per_s / published <= _FAR
    return recorded_bytes_per_s if near else published


def published_bandwidth(name: str) -> int:
    """Returns the memory bandwidth on a card's data sheet, bytes/s; 0 where unknown."""
    return _card(name)[0] * 10**9


def published_clock(name: str) -> int:
    """Returns the boost clock that a card's data sheet states, Hz; 0 where unknown."""
    return _card(name)[1] * 10**6


def _card(name: str) -> tuple[int, int]:
    found = ((rate, clock) for pattern, rate, clock in _cards() if pattern.search(name))
    return next(found, (0, 0))


@cache
def _cards() -> tuple[tuple[re.Pattern[str], int, int], ...]:
    import yaml

    text = files("nsysdoctor.roofline").joinpath("cards.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple((re.compile(p), rate, clock) for p, rate, clock in yaml.load(text, Loader=loader))
