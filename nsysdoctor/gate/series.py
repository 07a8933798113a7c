"""One metric on one device over the runs of one side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from nsysdoctor.gate.statistics import RunValue
from nsysdoctor.report.metrics import Unit

Key = tuple[int, int | None, str]


@dataclass(frozen=True)
class Series:
    """One metric on one device, over all runs."""

    trace: int
    device: int | None
    metric: str
    unit: Unit
    runs: list[RunValue]

    @property
    def key(self) -> Key:
        """Returns what identifies the series: trace, device, metric."""
        return self.trace, self.device, self.metric

    @property
    def values(self) -> list[float]:
        """Returns one value per run."""
        return [run.value for run in self.runs]


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
