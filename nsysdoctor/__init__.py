"""Finds what wastes GPU time in an Nsight Systems trace, says why, and prices the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nsysdoctor.edits import Change
    from nsysdoctor.engine import Options, diagnose
    from nsysdoctor.job import JobOptions, diagnose_job
    from nsysdoctor.recipe import table
    from nsysdoctor.report import Report
    from nsysdoctor.trace import open_trace
    from nsysdoctor.window import Request

__all__ = [
    "Change", "JobOptions", "Options", "Report", "Request", "__version__", "diagnose",
    "diagnose_job", "open_trace", "table",
]  # fmt: skip

_HOMES = {
    "Change": "edits", "Options": "engine", "diagnose": "engine",
    "JobOptions": "job", "diagnose_job": "job",
    "Report": "report", "Request": "window", "open_trace": "trace", "table": "recipe",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Returns a public name, imported on first use so that the command starts quickly."""
    import importlib
    import sys

    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    setattr(sys.modules[__name__], name, value)
    return value
