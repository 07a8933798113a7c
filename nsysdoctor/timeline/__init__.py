"""The timeline of a trace, small enough for one page: from tables to a payload.

Long traces are merged into levels of detail; what was merged is said.
"""

from __future__ import annotations

from nsysdoctor.timeline.payload import Figures, Payload

__all__ = ["Figures", "Payload"]
