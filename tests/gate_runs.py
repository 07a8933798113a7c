"""Reports of a made-up training loop, with seeded noise: what the gate's tests are fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nsysdoctor.report.model import (
    DeviceBudget,
    Finding,
    Gpu,
    IdleCause,
    KernelRow,
    Metric,
    Outcome,
    Report,
    Steps,
    TraceInfo,
    Window,
)

ROWS = {"kernel": 4000, "memcpy": 80, "memset": 10, "graph": 0, "api": 5000, "nvtx": 40, "osrt": 9}
RULES = {"pageable_copy": "passed", "input_starvation": "passed", "sync_in_loop": "passed"}


@dataclass(frozen=True)
class Loop:
    """A training loop as the gate sees it. Times in ns per step; `jitter` is relative."""

    steps: int = 40
    kernel_ns: float = 9_000_000
    idle_ns: float = 1_000_000
    cause: str = "input_wait"
    jitter: float = 0.01
    correlation: float = 0.0
    api_ns: float = 2_000_000
    synchronizations: float = 1
    launches: float = 120
    graphs: float = 0
    pageable_bytes: float = 0
    gpu: str = "NVIDIA A100-SXM4-80GB"
    devices: int = 1
    window: str = "steady"
    basis: str = "nvtx"
    label: str = "step #"
    hiccups: tuple[tuple[int, float], ...] = ()
    rows: dict[str, int] = field(default_factory=lambda: dict(ROWS))
    rules: dict[str, str] = field(default_factory=lambda: dict(RULES))
    findings: tuple[Finding, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    path: str = "run.sqlite"
    version: str = "0.1.0"


def noise(rng: np.random.Generator, loop: Loop) -> np.ndarray:
    """One relative factor a step; `correlation` makes neighbours alike (first-order process)."""
    white = rng.normal(0, loop.jitter, loop.steps)
    out = np.empty(loop.steps)
    state = 0.0
    for step in range(loop.steps):
        state = loop.correlation * state + np.sqrt(1 - loop.correlation**2) * white[step]
        out[step] = 1 + state
    return out


def run(seed: int = 0, loop: Loop | None = None, **changes: object) -> Report:
    """Returns the report of one run of the loop."""
    loop = replace(loop or Loop(), **changes)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    metrics: list[Metric] = []
    budgets: list[DeviceBudget] = []
    causes: list[IdleCause] = []
    for device in range(loop.devices):
        kernel, idle = loop.kernel_ns * noise(rng, loop), loop.idle_ns * noise(rng, loop)
        for step, extra in loop.hiccups:
            idle[step] += extra
        metrics += device_metrics(device, kernel, idle, loop)
        budgets.append(budget(device, kernel, idle, loop))
        causes.append(IdleCause(0, device, loop.cause, round(idle.sum())))
    metrics += host_metrics(rng, loop)
    return Report(
        tool_version=loop.version,
        traces=[trace_info(loop)],
        window=Window(0, 10**9, loop.window),  # type: ignore[arg-type]
        steps=steps_of(loop),
        devices=budgets,
        idle_causes=causes,
        findings=list(loop.findings),
        combined_saving_ns=0,
        combined_saving_ratio=0.0,
        outcomes=[Outcome(rule, state, "") for rule, state in loop.rules.items()],  # type: ignore[arg-type]
        metrics=metrics,
        kernels=list(loop.kernels),
    )


def runs(count: int, first_seed: int = 0, **changes: object) -> list[Report]:
    """Returns several runs that differ only in their noise."""
    return [run(first_seed + place, **changes) for place in range(count)]


def device_metrics(device: int, kernel: np.ndarray, idle: np.ndarray, loop: Loop) -> list[Metric]:
    step = kernel + idle
    values = {
        "utilization_ratio": kernel / step,
        "busy_ratio": kernel / step,
        "idle_ns": idle,
        f"idle_{loop.cause}_ns": idle,
        "kernel_ns": kernel,
        "step_ns": step,
    }
    return [metric(device, name, steps) for name, steps in values.items()]


def host_metrics(rng: np.random.Generator, loop: Loop) -> list[Metric]:
    ones = np.ones(loop.steps)
    values = {
        "api_ns": loop.api_ns * noise(rng, loop),
        "synchronization_count": loop.synchronizations * ones,
        "kernel_launch_count": loop.launches * ones,
        "graph_launch_count": loop.graphs * ones,
        "pageable_bytes": loop.pageable_bytes * ones,
    }
    return [metric(None, name, steps) for name, steps in values.items()]


def metric(device: int | None, name: str, steps: Sequence[float] | np.ndarray) -> Metric:
    unit = name.rsplit("_", maxsplit=1)[-1]
    values = [float(value) for value in steps]
    overall = float(np.mean(values)) if unit == "ratio" else float(np.sum(values))
    return Metric(0, device, name, unit, overall if values else 0.0, values)  # type: ignore[arg-type]


def budget(device: int, kernel: np.ndarray, idle: np.ndarray, loop: Loop) -> DeviceBudget:
    busy, free = round(kernel.sum()), round(idle.sum())
    span = busy + free
    share = busy / span if span else 0.0
    return DeviceBudget(0, device, loop.gpu, span, busy, 0, 0, free, share, share, busy)


def steps_of(loop: Loop) -> Steps | None:
    if loop.basis == "none" or not loop.steps:
        return None
    median = round(loop.kernel_ns + loop.idle_ns)
    return Steps(loop.steps + 4, loop.steps, loop.basis, loop.label, median, median)  # type: ignore[arg-type]


def trace_info(loop: Loop) -> TraceInfo:
    gpus = [Gpu(device, loop.gpu) for device in range(loop.devices)]
    return TraceInfo(loop.path, None, None, "2024.6.2", "3.16.1", gpus, dict(loop.rows), [])


def without_steps(report: Report) -> Report:
    """Returns the report as it is when no iteration was recognised."""
    return replace(report, steps=None, metrics=[])


def empty(report: Report) -> Report:
    """Returns the report of a capture in which no GPU worked."""
    trace = replace(report.traces[0], rows=dict.fromkeys(ROWS, 0), gpus=[])
    bare = without_steps(report)
    return replace(bare, devices=[], idle_causes=[], findings=[], kernels=[], traces=[trace])


def finding(
    rule: str = "pageable_copy",
    subject: str = "HtoD on GPU 0",
    level: str = "medium",
    saving: float | None = 0.05,
    device: int | None = 0,
) -> Finding:
    """Returns a finding with that saving as a share of the window."""
    ns = None if saving is None else round(saving * 10**9)
    return Finding(
        rule, level, subject, 0, device, "Title", f"{subject} costs", "why", "fix", "pytorch",  # type: ignore[arg-type]
        {}, 30, ns, ns, ns, saving, "measured", {"bytes": 4096}, [], 0,
    )  # fmt: skip


def kernel(name: str, count: int, median_ns: int, device: int = 0) -> KernelRow:
    """Returns the row of a kernel that ran `count` times."""
    short = name.split("(", maxsplit=1)[0]
    return KernelRow(
        0, device, name, short, "gemm", "fp32", "", "compute", "measured", count,
        count * median_ns, median_ns, 0.1, None, None,
    )  # fmt: skip
