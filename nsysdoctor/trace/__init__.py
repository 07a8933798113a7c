"""One export, opened read-only, and every table made from it; each is computed once.

Holds the `@table` mark, the request (window, device) and the trace's rank.
"""

from __future__ import annotations

from nsysdoctor.trace.recipe import Recipe, table
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import Request, parse_window

__all__ = ["Recipe", "Request", "Trace", "open_trace", "parse_window", "table"]
