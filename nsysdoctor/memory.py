"""Giving memory back: large arrays that are freed should leave the process at once."""

from __future__ import annotations

import sys

_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20


def return_large_arrays() -> None:
    """Keeps glibc from collecting freed arrays of a megabyte or more for later.

    Its own threshold grows to 32 MB with use, and what lies below stays in the heap: on a trace
    of a million kernels that was a gigabyte. Elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
