"""Finds what wastes GPU time in an Nsight Systems trace, says why, and prices the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nsysdoctor.diagnosis.diagnose import Options, diagnose
    from nsysdoctor.jobs.job import JobOptions, diagnose_job
    from nsysdoctor.notebook.run import open_run as open  # noqa: A004, F401
    from nsysdoctor.replay.edits import Change
    from nsysdoctor.report.model import Report
    from nsysdoctor.trace.recipe import table
    from nsysdoctor.trace.trace import open_trace
    from nsysdoctor.trace.window import Request

__all__ = [
    "Change", "JobOptions", "Options", "Report", "Request", "__version__", "diagnose",
    "diagnose_job", "open_trace", "table",
]  # fmt: skip

_HOMES = {
    "Change": "replay.edits", "Options": "diagnosis.diagnose", "diagnose": "diagnosis.diagnose",
    "JobOptions": "jobs.job", "diagnose_job": "jobs.job", "Report": "report.model",
    "Request": "trace.window", "open_trace": "trace.trace", "table": "trace.recipe",
    "open": "notebook.run",
}  # fmt: skip


_OWN_NAMES = {"open": "open_run"}
"""Public names that differ from those inside, where they would hide a builtin."""


def __getattr__(name: str) -> Any:
    """Returns a public name, imported on first use so that the command starts quickly."""
    import importlib
    import sys

    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    own = _OWN_NAMES.get(name, name)
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), own)
    setattr(sys.modules[__name__], name, value)
    return value
