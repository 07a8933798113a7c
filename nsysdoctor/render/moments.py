"""When something was, in words that tell neighbours apart."""

from __future__ import annotations

from nsysdoctor.report.model import Evidence, Report
from nsysdoctor.units import moment_text, ns_text

_SINCE_1970_NS = 10**17
"""No session is three years long: a clock beyond that counts from 1970."""


def moment(report: Report, trace: int, time_ns: int) -> str:
    """Returns a time of a trace in words: on the export's clock where that starts with the
    session, since the trace's first operation where it counts from 1970."""
    starts = [device.start_ns for device in report.devices if device.trace == trace]
    origin = min(starts, default=0)
    return moment_text(time_ns - (origin if origin > _SINCE_1970_NS else 0))


def evidence_text(report: Report, trace: int, evidence: Evidence) -> str:
    """Returns a piece of evidence in words: where it is in the trace, how long, and what."""
    length = ns_text(evidence.end_ns - evidence.start_ns)
    return f"{moment(report, trace, evidence.start_ns)} + {length}  {evidence.what}"
