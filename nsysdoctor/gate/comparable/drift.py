"""Runs that slow down while they run: their mean hides half of what the end has lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from nsysdoctor.gate.statistics import run_value
from nsysdoctor.report.model import Metric, Report

_LEAST_RATIO = 0.04
_SURE = 4.0


@dataclass(frozen=True)
class SlowEnd:
    """On a device the second half of the steady steps takes longer than the first, in most runs;
    `late_ns` is the median step of the second halves."""

    trace: int
    device: int | None
    ratio: float
    late_ns: float
    runs: int


def slow_ends(reports: Sequence[Report]) -> list[SlowEnd]:
    """Returns the devices whose steps got at least 4 % longer in the second half of most runs, by
    more than four standard errors of the halves."""
    places: dict[tuple[int, int | None], list[tuple[float, float]]] = {}
    for report in reports:
        for metric in report.metrics:
            if metric.metric == "step_ns" and (late := _late(metric)):
                places.setdefault((metric.trace, metric.device), []).append(late)
    return [
        SlowEnd(*place, median(r for r, _ in found), median(ns for _, ns in found), len(found))
        for place, found in sorted(places.items(), key=str)
        if 2 * len(found) > len(reports)
    ]


def _late(metric: Metric) -> tuple[float, float] | None:
    """How much longer the steps of the second half are, and how long; None if not surely."""
    half = len(metric.steps) // 2
    sides = (metric.steps[:half], metric.steps[half:])
    if half < 8:
        return None
    first, second = (run_value(steps, None, 0.0, 8) for steps in sides)
    growth = second.value - first.value
    error = math.hypot(first.error or 0.0, second.error or 0.0)
    if growth <= max(_LEAST_RATIO * first.value, _SURE * error):
        return None
    return growth / first.value, second.value
