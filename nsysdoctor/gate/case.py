"""What a gate judges: repeated runs, their baseline and the limits, with look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from nsysdoctor.gate.baseline import Baseline, Series, Setup, series_of_runs, setup_of
from nsysdoctor.gate.limits import Limits
from nsysdoctor.report.model import Report


@dataclass(frozen=True)
class Case:
    """Runs of one program, held against a baseline where there is one."""

    reports: Sequence[Report]
    setups: list[Setup]
    now: list[Series]
    baseline: Baseline | None
    limits: Limits

    @property
    def before(self) -> Sequence[Series]:
        """Returns the baseline's series, none without a baseline."""
        return self.baseline.series if self.baseline else ()

    def device_name(self, trace: int, device: int | None) -> str:
        """Returns the GPU's name; for a whole trace the name that all its GPUs share, else ''."""
        devices = self.setups[0].devices
        names = {d.name for d in devices if d.trace == trace and device in (None, d.device)}
        return next(iter(names)) if len(names) == 1 else ""

    def trace_path(self) -> str:
        """Returns a path to show in a command, `TRACE` where none is known."""
        paths = (trace.path for report in self.reports for trace in report.traces)
        return next(paths, "TRACE")


def make_case(reports: Sequence[Report], baseline: Baseline | None, limits: Limits) -> Case:
    """Returns the case, with every metric that all runs have."""
    setups = [setup_of(report) for report in reports]
    return Case(reports, setups, series_of_runs(reports, limits.min_steps), baseline, limits)


def middle(series: Series) -> float:
    """Returns the median of the runs."""
    return median(series.values)


def value_of(series: Sequence[Series], trace: int, device: int | None, metric: str) -> float | None:
    """Returns the value on the device, else of the whole trace, else of the trace's only device."""
    mine = {one.device: one for one in series if one.trace == trace and one.metric == metric}
    for place in (device, None):
        if place in mine:
            return middle(mine[place])
    return middle(next(iter(mine.values()))) if len(mine) == 1 else None
