"""Whether two reports tell of the same run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from nsysdoctor.report.model import Report


def content_id(report: Report) -> str:
    """Returns 16 hex digits of what was measured: the same trace gives the same id anywhere.

    Paths, the tool's version and the seconds that rules took do not count.
    """
    bare = replace(
        report,
        tool_version="",
        traces=[replace(trace, path="") for trace in report.traces],
        outcomes=[replace(outcome, seconds=0.0) for outcome in report.outcomes],
    )
    text = json.dumps(vars(bare), default=vars, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def distinct_runs(reports: Sequence[Report]) -> list[Report]:
    """Returns the reports without those that tell of a run that another told of before."""
    found: dict[str, Report] = {}
    for report in reports:
        found.setdefault(content_id(report), report)
    return list(found.values())
