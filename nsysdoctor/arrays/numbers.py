"""Numbers in names and texts, which anybody may have written: read within bounds, or not at all."""

from __future__ import annotations

LARGEST = 2**63 - 1
_MOST_DIGITS = 19


def bounded(text: str | None, most: int = LARGEST) -> int | None:
    """Returns the whole number that a text of decimal digits holds; None for any other text and
    for a number above `most`, so that nothing is ever sized or computed by it."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= most else None
