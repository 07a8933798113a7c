"""What a gate judges: repeated runs, their baseline and the limits, with look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from nsysdoctor.gate.baseline import Baseline, Setup, series_of_runs, setup_of
from nsysdoctor.gate.comparable.work import work_of_runs
from nsysdoctor.gate.limits import Limits
from nsysdoctor.gate.reasons.culprits import culprits_of
from nsysdoctor.gate.series import Series, value_of
from nsysdoctor.gate.verdict import Culprit
from nsysdoctor.report.model import Report
from nsysdoctor.report.work import Work


@dataclass(frozen=True)
class Case:
    """Runs of one program, held against a baseline where there is one."""

    reports: Sequence[Report]
    setups: list[Setup]
    now: list[Series]
    baseline: Baseline | None
    limits: Limits
    work: list[Work] = field(default_factory=list)

    @property
    def before(self) -> Sequence[Series]:
        """Returns the baseline's series, none without a baseline."""
        return self.baseline.series if self.baseline else ()

    def busy_ratio(self, trace: int, device: int | None) -> float:
        """Returns the share of a step in which kernels run, as the baseline has it, else 1."""
        series = self.before or self.now
        found = value_of(series, trace, device, "utilization_ratio")
        return 1.0 if found is None else found

    def device_name(self, trace: int, device: int | None) -> str:
        """Returns the GPU's name; for a whole trace the name that all its GPUs share, else ''."""
        devices = self.setups[0].devices
        names = {d.name for d in devices if d.trace == trace and device in (None, d.device)}
        return next(iter(names)) if len(names) == 1 else ""

    def value(
        self, side: Literal["before", "now"], trace: int, device: int | None, metric: str
    ) -> float | None:
        """Returns the median of a metric on one side, None where it was not measured."""
        return value_of(self.before if side == "before" else self.now, trace, device, metric)

    def culprits(self, trace: int, device: int | None) -> list[Culprit]:
        """Returns the parts of a step that changed, adding up to its change."""
        work = self.baseline.work if self.baseline else []
        return culprits_of(self.before, work, self.now, self.work, trace, device)

    def trace_path(self) -> str:
        """Returns a path to show in a command, `TRACE` where none is known."""
        paths = (trace.path for report in self.reports for trace in report.traces)
        return next(paths, "TRACE")


def make_case(reports: Sequence[Report], baseline: Baseline | None, limits: Limits) -> Case:
    """Returns the case, with every metric that all runs have."""
    setups = [setup_of(report) for report in reports]
    now = series_of_runs(reports, limits.min_steps)
    return Case(reports, setups, now, baseline, limits, work_of_runs(reports))
