"""Reads an export into columns: what an export may hold, and which rows a window needs.

Differences between versions of nsys, such as older names of tables and columns, end here.
"""

from __future__ import annotations

from nsysdoctor.ingest.reader import Export, open_export
from nsysdoctor.ingest.schema import SOURCES
from nsysdoctor.ingest.source import Source

__all__ = ["SOURCES", "Export", "Source", "open_export"]
