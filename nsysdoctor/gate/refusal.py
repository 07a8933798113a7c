"""Verdicts on runs of which nothing can be judged, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from nsysdoctor.errors import EmptyTraceError, NsysDoctorError
from nsysdoctor.gate.verdict import Mismatch, Verdict
from nsysdoctor.report.faults import FaultKind
from nsysdoctor.report.model import Report


def without_kernels(report: Report) -> EmptyTraceError | None:
    """Returns why a report cannot be judged whose traces hold launches and none of their kernels,
    None for others: its utilization is no measurement."""
    rows = [trace.rows for trace in report.traces]
    if any(r.get("kernel") or r.get("graph") for r in rows):
        return None
    calls = [
        int(finding.facts.get("lost_call_count") or 0)
        for finding in report.findings
        if finding.rule == "incomplete_capture"
    ]
    if not any(calls):
        return None
    return EmptyTraceError(
        f"the capture holds {sum(calls):,} launches and not one kernel",
        "record again: nsys profile --trace=cuda,nvtx,osrt ... (see the notes of the report)",
    )


def refused(error: NsysDoctorError, traces: Sequence[str]) -> Verdict:
    """Returns the verdict on traces that cannot be analysed: cannot judge, with the reason."""
    return cannot_judge([Mismatch("trace", "", error.message, error.hint)], traces)


FAULTS: dict[FaultKind, str] = {
    "impossible_rows": "rows that cannot be",
    "hidden_graphs": "CUDA graph replays",
    "lost_operations": "lost GPU operations",
    "idle_window": "GPU activity in the window",
    "broken_capture": "the capture",
}


def cannot_judge(mismatches: Sequence[Mismatch], traces: Sequence[str]) -> Verdict:
    """Returns the verdict on runs of which none can be judged."""
    from nsysdoctor import __version__

    return Verdict(
        answer="cannot_judge",
        tool_version=__version__,
        runs=len(traces),
        baseline_runs=None,
        lines=[],
        findings=[],
        mismatches=list(mismatches),
        obsolete=[],
        notes=[],
        traces=list(traces),
    )
