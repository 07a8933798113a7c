"""A baseline: what k good runs measured, small enough to read and to keep in git."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.comparable.devices import renumbered
from nsysdoctor.gate.comparable.work import work_of_runs
from nsysdoctor.gate.known import KnownFinding, findings_of_runs
from nsysdoctor.gate.series import Key, Series
from nsysdoctor.gate.statistics import run_value
from nsysdoctor.report.identity import distinct_runs
from nsysdoctor.report.metrics import METRIC_ORDER, report_metrics
from nsysdoctor.report.model import DeviceBudget, Gpu, Metric, Report, State
from nsysdoctor.report.work import Work

FORMAT = "nsysdoctor-baseline"
FORMAT_VERSION = 1
DIGITS = 9

@dataclass(frozen=True)
class DeviceName:
    """A GPU that ran work, which trace saw it, and what tells it from others of its name."""

    trace: int
    device: int
    name: str
    memory_bytes: int | None = None
    bandwidth_bytes_per_s: int | None = None
    sm_count: int | None = None


@dataclass(frozen=True)
class Setup:
    """The circumstances under which numbers may be compared."""

    devices: list[DeviceName]
    tables: list[str]
    window: str
    steps: str
    schemas: list[str]
    rules: dict[str, State]


@dataclass(frozen=True)
class Baseline:
    """What k runs of the same program measured. Holds no path, name or time of a run."""

    tool_version: str
    runs: int
    setup: Setup
    series: list[Series]
    findings: list[KnownFinding]
    work: list[Work] = field(default_factory=list)
    format: str = FORMAT
    format_version: int = FORMAT_VERSION

    def to_json(self) -> str:
        """Returns JSON text with one metric or finding a line, so that a diff in git reads well."""
        parts = [f'"{key}": {_dump(value)}' for key, value in self._head()]
        parts.append(f'"rules": {_lines([f"{_dump(k)}: {_dump(v)}" for k, v in self._rules()])}')
        parts.append(_list("metrics", [_series_data(series) for series in self.series]))
        parts.append(_list("findings", [_finding_data(finding) for finding in self.findings]))
        parts.append(_list("work", [asdict(row) for row in self.work]))
        return "{\n" + ",\n".join(parts) + "\n}\n"

    def _head(self) -> list[tuple[str, object]]:
        setup = self.setup
        return [
            ("format", self.format),
            ("format_version", self.format_version),
            ("tool_version", self.tool_version),
            ("runs", self.runs),
            ("devices", [_device_data(device) for device in setup.devices]),
            ("tables", setup.tables),
            ("window", setup.window),
            ("steps", setup.steps),
            ("schemas", setup.schemas),
        ]

    def _rules(self) -> list[tuple[str, State]]:
        return sorted(self.setup.rules.items())


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _lines(lines: list[str]) -> str:
    return "{\n  " + ",\n  ".join(lines) + "\n }" if lines else "{}"


def _list(name: str, rows: list[dict[str, object]]) -> str:
    body = ",\n  ".join(_dump(row) for row in rows)
    return f'"{name}": [\n  {body}\n ]' if rows else f'"{name}": []'


def _series_data(series: Series) -> dict[str, object]:
    data: dict[str, object] = {"trace": series.trace, "device": series.device}
    data |= {"metric": series.metric, "unit": series.unit}
    data["values"] = [_plain(run.value) for run in series.runs]
    data["errors"] = [None if run.error is None else _plain(run.error) for run in series.runs]
    data["blocks"] = [run.blocks for run in series.runs]
    data["steps"] = [run.steps for run in series.runs]
    return data


def _device_data(device: DeviceName) -> dict[str, object]:
    return {key: value for key, value in asdict(device).items() if value is not None}


def _finding_data(finding: KnownFinding) -> dict[str, object]:
    data = asdict(finding)
    del data["message"]
    if finding.saving_ratio is not None:
        data["saving_ratio"] = round(finding.saving_ratio, 6)
    return data


def _short(value: float) -> float:
    """Nine digits: far below any noise, equal on both sides of a comparison, short in a file."""
    return float(f"{value:.{DIGITS}g}")


def _plain(value: float) -> float:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def make_baseline(reports: Sequence[Report], min_steps: int = 8) -> Baseline:
    """Returns the baseline of one or more runs; raises UsageError when they do not belong together.

    Runs of different GPUs, windows, step labels or devices are different programs.
    """
    if not reports:
        raise UsageError("a baseline needs at least one run", "give traces or report.json files")
    reports = _aligned(distinct_runs(reports))
    setups = [setup_of(report) for report in reports]
    for place, setup in enumerate(setups, start=1):
        _check_run(place, setup, setups[0])
    return Baseline(
        tool_version=reports[0].tool_version,
        runs=len(reports),
        setup=_common_setup(setups),
        series=series_of_runs(reports, min_steps),
        findings=findings_of_runs(reports),
        work=work_of_runs(reports),
    )


def _aligned(reports: Sequence[Report]) -> list[Report]:
    """The runs with their GPUs numbered as in the first."""
    first = reports[0]
    work = work_of_runs([first])
    places = [(d.trace, d.device) for d in first.devices if d.span_ns > 0]
    return [first, *(renumbered(report, work, places) for report in reports[1:])]


def _check_run(place: int, setup: Setup, first: Setup) -> None:
    if not setup.devices:
        raise UsageError(
            f"run {place} holds no GPU activity", "a baseline needs runs in which a GPU worked"
        )
    for name in ("devices", "window", "steps"):
        mine, others = getattr(setup, name), getattr(first, name)
        if setup_text(mine) != setup_text(others):
            raise UsageError(
                f"run {place} differs from run 1 in its {name}: "
                f"{setup_text(mine)}, not {setup_text(others)}",
                "make one baseline for each set-up",
            )


def setup_text(value: object) -> str:
    """Returns a part of a set-up in words."""
    if isinstance(value, list):
        names = [d.name if isinstance(d, DeviceName) else str(d) for d in value]
        counted = {name: names.count(name) for name in names}
        return ", ".join(f"{n} x {name}" for name, n in counted.items()) or "none"
    return str(value) or "none"


def setup_of(report: Report) -> Setup:
    """Returns the circumstances of one run."""
    devices = [_device_name(d, report) for d in report.devices if d.span_ns > 0]
    tables = {name for trace in report.traces for name, rows in trace.rows.items() if rows}
    steps = f"{report.steps.basis} {report.steps.label}".strip() if report.steps else "none"
    if report.steps and report.steps.basis == "period":
        steps = "period"  # its label is the name of a kernel, which may differ between runs
    return Setup(
        devices=sorted(devices, key=lambda d: (d.trace, d.device)),
        tables=sorted(tables),
        window=_window(report),
        steps=steps,
        schemas=sorted({trace.schema_version or "unknown" for trace in report.traces}),
        rules={outcome.rule: outcome.state for outcome in report.outcomes},
    )


def _device_name(budget: DeviceBudget, report: Report) -> DeviceName:
    traces = report.traces[budget.trace : budget.trace + 1]
    gpus = [gpu for trace in traces for gpu in trace.gpus if gpu.device == budget.device]
    gpu = gpus[0] if gpus else Gpu(budget.device, budget.name)
    return DeviceName(
        budget.trace,
        budget.device,
        budget.name,
        gpu.total_memory_bytes,
        gpu.memory_bandwidth_bytes_per_s,
        gpu.sm_count,
    )


def _window(report: Report) -> str:
    """The window as `--window` takes it."""
    window = report.window
    return f"{window.start_ns}:{window.end_ns}" if window.basis == "given" else window.basis


def _common_setup(setups: Sequence[Setup]) -> Setup:
    """What holds in every run: tables that all have, rules that ran in all."""
    first = setups[0]
    tables = set(first.tables).intersection(*(setup.tables for setup in setups))
    schemas = {schema for setup in setups for schema in setup.schemas}
    names = sorted({rule for setup in setups for rule in setup.rules})
    rules = {name: _worst_state([s.rules.get(name, "skipped") for s in setups]) for name in names}
    return Setup(first.devices, sorted(tables), first.window, first.steps, sorted(schemas), rules)


def _worst_state(states: Sequence[State]) -> State:
    order: tuple[State, ...] = ("failed", "skipped", "found", "passed")
    return min(states, key=order.index)


def series_of_runs(reports: Sequence[Report], min_steps: int = 8) -> list[Series]:
    """Returns the metrics that all runs have, each with one value and error per run."""
    runs = [{(m.trace, m.device, m.metric): m for m in report_metrics(r)} for r in reports]
    shared = set(runs[0]).intersection(*runs) if runs else set()
    keys = sorted(shared, key=lambda k: (k[0], -1 if k[1] is None else k[1], METRIC_ORDER[k[2]]))
    return [_series(key, runs, min_steps) for key in keys]


def _series(key: Key, runs: Sequence[dict[Key, Metric]], min_steps: int) -> Series:
    values = []
    for run in runs:
        metric = run[key]
        lengths = _step_lengths(run, key) if metric.unit == "ratio" else None
        value = run_value(metric.steps, lengths, metric.value, min_steps)
        error = None if value.error is None else _short(value.error)
        values.append(replace(value, value=_short(value.value), error=error))
    return Series(*key, runs[0][key].unit, values)


def _step_lengths(run: dict[Key, Metric], key: Key) -> list[float] | None:
    trace, device, _ = key
    lengths = run.get((trace, device, "step_ns")) or run.get((trace, None, "step_ns"))
    return lengths.steps if lengths else None
