"""What makes a capture unfit to be judged, as data that a gate can refuse by."""

from __future__ import annotations

from nsysdoctor.report.faults import CaptureFault
from nsysdoctor.report.model import Dropped
from nsysdoctor.trace.trace import Trace
from nsysdoctor.units import ns_text

_MATTERS_RATIO = 0.01
"""Impossible rows above this share, or that claim more of the time, leave nothing to judge."""

_SOURCES = ("kernel", "memcpy", "memset", "graph")
_REPEAT = "record again with a newer nsys or driver; nsysdoctor report names the rows left out"


def capture_faults_of(trace: Trace, index: int, dropped: list[Dropped]) -> list[CaptureFault]:
    """Returns the faults for which the numbers of a trace are no measurement, none if it is
    sound."""
    return _impossible_rows(trace, index, dropped)


def _impossible_rows(trace: Trace, index: int, dropped: list[Dropped]) -> list[CaptureFault]:
    """Operations whose times cannot be, by their number or by the time that they claim."""
    total, over, span = trace.row_counts(), trace.table("overruns"), _span_ns(trace)
    found = []
    for kind, source in enumerate(_SOURCES):
        lost = [row for row in dropped if row.table == source]
        rows = sum(row.rows for row in lost)
        share = rows / max(total[source], rows, 1)
        claimed = int(over["claimed_ns"].to_numpy()[over["kind"].to_numpy() == kind].sum())
        ratio = max(share, min(claimed / max(span, 1), 1.0))
        if ratio <= _MATTERS_RATIO:
            continue
        reasons = ", ".join(sorted({row.reason for row in lost}))
        text = f"{rows:,} of {total[source]:,} {source} rows have impossible times ({reasons})"
        if share <= _MATTERS_RATIO:
            text += f"; they claim {ns_text(claimed)} of {ns_text(span)}"
        found.append(CaptureFault(index, None, "impossible_rows", ratio, text, _REPEAT))
    return found


OVERLAPS = "overlaps its own stream"
"""Why an operation was left out that ended long after a later one of its stream."""


def _span_ns(trace: Trace) -> int:
    horizon = trace.table("horizon")
    return int(horizon["end_ns"].max()) - int(horizon["start_ns"].min())
