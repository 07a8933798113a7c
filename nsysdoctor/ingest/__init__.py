"""A file becomes columns: what an export may hold, which rows a window needs, the reading.

Old spellings of tables and columns end here; nothing above knows a version of nsys.
"""

from __future__ import annotations

from nsysdoctor.ingest.reader import Export, open_export
from nsysdoctor.ingest.schema import SOURCES
from nsysdoctor.ingest.source import Source

__all__ = ["SOURCES", "Export", "Source", "open_export"]
