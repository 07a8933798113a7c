"""Reading a baseline file: every number and name checked before it is believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.baseline import FORMAT, FORMAT_VERSION, Baseline, DeviceName, Setup
from nsysdoctor.gate.known import KnownFinding
from nsysdoctor.gate.series import Series
from nsysdoctor.gate.statistics import RunValue
from nsysdoctor.report.metrics import METRICS, Unit
from nsysdoctor.report.model import State
from nsysdoctor.report.work import Work

_HINT = "make one with: nsysdoctor baseline save run.sqlite -o perf.json"
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Size = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class _SeriesRow:
    trace: int
    device: int | None
    metric: str
    unit: Unit
    values: Annotated[list[_Finite], Field(min_length=1)]
    errors: list[_Finite | None]
    blocks: list[_Size]
    steps: list[_Size]

    def series(self) -> Series:
        columns = zip(self.values, self.errors, self.blocks, self.steps, strict=True)
        runs = [RunValue(*row) for row in columns]
        return Series(self.trace, self.device, self.metric, self.unit, runs)


@dataclass(frozen=True)
class _File:
    __pydantic_config__ = ConfigDict(extra="forbid")

    format: str
    format_version: int
    tool_version: str
    runs: Annotated[int, Field(ge=1)]
    devices: list[DeviceName]
    tables: list[str]
    window: str
    steps: str
    schemas: list[str]
    rules: dict[str, State]
    metrics: list[_SeriesRow]
    findings: list[KnownFinding]
    work: list[Work] = field(default_factory=list)


def read_baseline(text: str) -> Baseline:
    """Returns the baseline in the text; raises UsageError with the first place that is wrong."""
    try:
        file = TypeAdapter(_File).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise UsageError(f"the file is no baseline ({place}: {first['msg']})", _HINT) from error
    if file.format != FORMAT or file.format_version > FORMAT_VERSION:
        raise UsageError(
            f"the baseline has format {file.format} {file.format_version}",
            f"this nsysdoctor reads {FORMAT} up to {FORMAT_VERSION}; {_HINT}",
        )
    for row in file.metrics:
        _check_row(row, file.runs)
    return _baseline(file)


def _check_row(row: _SeriesRow, runs: int) -> None:
    columns = (row.values, row.errors, row.blocks, row.steps)
    if any(len(column) != runs for column in columns):
        raise UsageError(f"the baseline's {row.metric} has not one value for each run", _HINT)
    if row.metric not in METRICS:
        raise UsageError(f"the baseline holds a metric called {row.metric}, unknown here", _HINT)


def _baseline(file: _File) -> Baseline:
    setup = Setup(file.devices, file.tables, file.window, file.steps, file.schemas, file.rules)
    series = [row.series() for row in file.metrics]
    return Baseline(file.tool_version, file.runs, setup, series, file.findings, file.work)
