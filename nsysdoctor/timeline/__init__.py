"""Turns the tables of a trace into a timeline that is small enough for one page.

Long traces are merged into levels of detail; notes say what was merged.
"""

from __future__ import annotations

from nsysdoctor.timeline.payload import Figures, Payload

__all__ = ["Figures", "Payload"]
