"""Memory that was freed and is kept for what comes next."""

from __future__ import annotations

import ctypes
import sys


def trim_memory() -> None:
    """Hands freed memory back to the system, where the C library can.

    Tables leave holes among what is still in use; the constraint graph, made once most tables are
    gone, would come on top of them.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
