"""Whether a report that was read can be true: a changed or damaged file is not judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from nsysdoctor.errors import UsageError

if TYPE_CHECKING:
    from nsysdoctor.report.model import Report

_LARGEST = 2**63
_MAY_BE_NEGATIVE = ("start_ns", "end_ns", "longest_start_ns")


def check_report(report: Report) -> None:
    """Raises UsageError for a report that cannot be true, with the place.

    Numbers are finite and in 64 bits, ratios lie between 0 and 1, sizes and durations are not
    negative, rows name traces that there are, stretches end after they start and a device's time
    adds up to its span.
    """
    fault = next(_faults(report), None)
    if fault is not None:
        raise UsageError(f"the report cannot be true ({fault})", "make the report anew")


def _faults(report: Report) -> Iterator[str]:
    yield from _odd_values(report, "")
    traces = max(len(report.traces), 1)
    for name in ("devices", "idle_causes", "findings", "phases", "metrics", "kernels", "lost_time"):
        for place, row in enumerate(getattr(report, name)):
            if not 0 <= row.trace < traces:
                yield f"{name}.{place}.trace: there are {traces} traces"
    for place, one in enumerate(report.devices):
        parts = one.compute_ns + one.exposed_communication_ns + one.exposed_copy_ns + one.idle_ns
        if parts != one.span_ns:
            yield f"devices.{place}: its time does not add up to span_ns"
    for place, metric in enumerate(report.metrics):
        for value in (metric.value, *metric.steps):
            if metric.unit == "ratio" and not 0 <= value <= 1:
                yield f"metrics.{place}: {metric.metric} is {value:g}"


def _odd_values(value: object, place: str) -> Iterator[str]:
    """What is wrong with numbers by the names of their fields, at any depth."""
    if is_dataclass(value):
        start, end = getattr(value, "start_ns", None), getattr(value, "end_ns", None)
        if start is not None and end is not None and end < start:
            yield f"{place}end_ns: before start_ns"
        for one in fields(value):
            yield from _odd_values(getattr(value, one.name), f"{place}{one.name}.")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _odd_values(inner, f"{place}{number}.")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _odd_values(inner, f"{place}{key}.")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        wrong = _wrong(float(value) if abs(value) < _LARGEST else math.inf, place)
        if wrong:
            yield f"{place.rstrip('.')}: {wrong}"


def _wrong(value: float, place: str) -> str | None:
    """What is wrong with a number at a place; what a rule tells in its facts may be any number."""
    if not math.isfinite(value):
        return "no finite number of 64 bits"
    if "facts." in place:
        return None
    name = place.rstrip(".").rpartition(".")[2]
    if (name == "ratio" or name.endswith("_ratio")) and not 0 <= value <= 1:
        return f"{value:g} is no ratio between 0 and 1"
    sized = name in ("ns", "count") or name.endswith(("_ns", "_count", "_bytes"))
    if sized and value < 0 and name not in _MAY_BE_NEGATIVE:
        return f"{value:g} is negative"
    return None
