"""The price of a cure: the constraint graph of a trace, run again with a cure's edits.

Without edits it reproduces every timestamp of the trace.
"""

from __future__ import annotations

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.graph import Graph
from nsysdoctor.replay.replay import Price, Replay

__all__ = ["Change", "Graph", "Price", "Replay", "edits", "join"]
