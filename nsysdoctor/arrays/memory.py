"""Giving freed memory back to the operating system."""

from __future__ import annotations

import ctypes
import sys


def trim_memory() -> None:
    """Returns freed memory to the operating system, where the C library can do so.

    Tables that were dropped leave holes between those still in use. Without this call, the memory
    of the constraint graph, which is built when most tables are gone, would be added on top.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
