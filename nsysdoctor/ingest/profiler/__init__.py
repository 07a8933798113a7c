"""Traces of torch's profiler (Kineto's Chrome JSON), brought into the tables of an nsys export.

Everything above reads them as it reads exports; what the format cannot tell is not there.
"""

from __future__ import annotations

from nsysdoctor.ingest.profiler.convert import profiler_export

__all__ = ["profiler_export"]
