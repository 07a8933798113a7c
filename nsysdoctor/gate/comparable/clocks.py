"""Whether all kernels run slower or faster by one factor: clocks or a neighbour, no change of code.

A program that changes makes some kernels slower. Lower clocks, a power cap or another tenant make
all of them slower alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from nsysdoctor.gate.baseline import Baseline
from nsysdoctor.gate.comparable.work import shared_work, work_of_runs
from nsysdoctor.gate.series import Series
from nsysdoctor.gate.statistics import RunValue
from nsysdoctor.report.model import Report
from nsysdoctor.report.work import Work

LEAST_FACTOR = 0.02
"""A common factor nearer to 1 than this is not told."""
_LEAST_KERNELS = 3
_LEAST_COVERED = 0.7
_ALIKE = 0.025
_ALIKE_SHARE = 0.25
"""Kernels agree on a factor f when they differ from it by 2.5 % or a quarter of f - 1 at most."""
_TELLING_SHARE = 0.005


@dataclass(frozen=True)
class ClockChange:
    """All kernels of a device take `factor` times as long as in the baseline."""

    trace: int
    device: int
    factor: float
    kernels: int


def clock_changes(baseline: Baseline, reports: Sequence[Report]) -> list[ClockChange]:
    """Returns the devices on which at least three kernels, most of the kernel time, agree on one
    factor."""
    after = work_of_runs(reports)
    places = sorted({(r.trace, r.device) for r in baseline.work if r.device is not None})
    found = (_clock_change(baseline.work, after, *place) for place in places)
    return [change for change in found if change]


def _clock_change(
    before: Sequence[Work], after: Sequence[Work], trace: int, device: int
) -> ClockChange | None:
    pairs = [p for p in shared_work(before, after, trace, device, "kernel") if p.like]
    total = sum(row.ns for row in before
                if (row.trace, row.device, row.kind) == (trace, device, "kernel"))  # fmt: skip
    telling = [p for p in pairs if p.before.ns > _TELLING_SHARE * total]
    if len(telling) < _LEAST_KERNELS:
        return None
    factors = [p.after.ns / p.after.count / (p.before.ns / p.before.count) for p in telling]
    factor = median(factors)
    slack = max(_ALIKE, _ALIKE_SHARE * abs(factor - 1))
    covered = sum(
        p.before.ns for p, f in zip(telling, factors, strict=True) if abs(f - factor) <= slack
    )
    odd = sum(abs(f - factor) > slack for f in factors)
    if covered < _LEAST_COVERED * total or odd or abs(factor - 1) <= LEAST_FACTOR:
        return None
    return ClockChange(trace, device, factor, len(telling))


def normalized(series: Series, change: ClockChange, kernel_ns: float) -> Series:
    """Returns the values as they would be at the baseline's clocks.

    Of a duration the part that is kernels shrinks by the factor; `kernel_ns` is that part.
    """
    if series.unit != "ns" or series.metric not in ("step_ns", "span_ns", "kernel_ns"):
        return series
    away = kernel_ns * (1 - 1 / change.factor)
    return replace(series, runs=[_less(run, away) for run in series.runs])


def _less(run: RunValue, away: float) -> RunValue:
    return replace(run, value=run.value - away)
