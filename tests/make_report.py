"""Reports made by hand: one plain report and the edge cases that every renderer must bear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nsysdoctor.report.model import (
    DeviceBudget,
    Dropped,
    Evidence,
    Finding,
    Gpu,
    IdleCause,
    KernelRow,
    Metric,
    Note,
    Outcome,
    Phase,
    Report,
    Steps,
    TraceInfo,
    Window,
)

MS = 1_000_000

NASTY = (
    "void k<Input, std::pair<int,int>>()",
    "</script><img src=x onerror=alert(1)>",
    "\"double\" and 'single' `back` quotes",
    "&lt;already escaped&gt;",
    "line\u2028separator\u2029end",
    "{{ 7 * 7 }} {% raw %} ${1} [bold red]x[/bold red]",
    "esc\x1b[31mred\x07 nul\x01",
    "| pipe | `tick` ``` fence\n# heading",
    "\u202egnirts desrever",
    "snowman \u2603 arrow → emoji 🚀",
    "k" * 4000,
    "",
)


def make_trace(**changes: object) -> TraceInfo:
    """Returns the record of a sound export on one A100."""
    gpu = Gpu(0, "NVIDIA A100-SXM4-80GB", 2_039_040_000_000, 108, 1_410_000_000, "8.0", 80 * 10**9)
    rows = {"kernel": 18320, "memcpy": 120, "memset": 0, "graph": 0, "api": 18560, "nvtx": 40}
    base = TraceInfo("run.sqlite", None, None, "2024.6.2.225", "3.16.1", [gpu], rows, [])
    return replace(base, **changes)  # type: ignore[arg-type]


def make_device(**changes: object) -> DeviceBudget:
    """Returns a device of 100 ms: 55 compute, 5 communication, 10 copy, 30 idle."""
    base = DeviceBudget(
        trace=0,
        device=0,
        name="NVIDIA A100-SXM4-80GB",
        span_ns=100 * MS,
        compute_ns=55 * MS,
        exposed_communication_ns=5 * MS,
        exposed_copy_ns=10 * MS,
        idle_ns=30 * MS,
        utilization_ratio=0.6,
        busy_ratio=0.7,
        kernel_work_ns=64 * MS,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def make_causes(trace: int = 0, device: int = 0) -> list[IdleCause]:
    """Returns 30 ms of idle time by cause."""
    parts = (("blocking_copy", 18), ("host_code", 7), ("launch", 4), ("unknown", 1))
    return [IdleCause(trace, device, cause, ms * MS) for cause, ms in parts]


def make_finding(**changes: object) -> Finding:
    """Returns a priced finding about pageable copies."""
    base = Finding(
        rule="pageable_copy",
        level="high",
        subject="HtoD on GPU 0",
        trace=0,
        device=0,
        title="Asynchronous copies from pageable memory",
        message="30 async copies HtoD use pageable memory (126 MB, 4.10 GB/s); the host stands"
        " in them for 28.0 ms",
        why="The copy engine can only read page-locked memory. A pageable source is staged"
        " through a driver buffer, so the call blocks.",
        fix="Pin the batches and copy them ahead of their use:\n\n    DataLoader(...,"
        " pin_memory=True)\n    x.to(device, non_blocking=True)",
        ecosystem="pytorch",
        example={
            "bad": "loader = DataLoader(data)\nfor x in loader:\n    y = model(x.to('cuda'))",
            "good": "loader = DataLoader(data, pin_memory=True)\nfor x in loader:\n"
            "    y = model(x.to('cuda', non_blocking=True))",
        },
        count=30,
        saving_ns=18 * MS,
        saving_low_ns=15 * MS,
        saving_high_ns=21 * MS,
        saving_ratio=0.18,
        basis="measured",
        facts={"moved_bytes": 125_829_120, "blocked_ns": 28 * MS, "rate_bytes_per_s": 4.1e9},
        evidence=[
            Evidence(i * 3 * MS + 200_000, i * 3 * MS + 1_200_000, f"4.19 MB HtoD, step {i}")
            for i in range(5)
        ],
        evidence_total=30,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def make_kernel(**changes: object) -> KernelRow:
    """Returns the row of a memory-bound elementwise kernel."""
    base = KernelRow(
        trace=0,
        device=0,
        name="void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>,"
        " std::array<char*, 3>>(int, at::native::AddFunctor<float>, std::array<char*, 3>)",
        short="vectorized_elementwise_kernel",
        category="elementwise",
        dtype="fp32",
        library="pytorch",
        bound="memory",
        basis="geometry",
        count=1200,
        total_ns=22 * MS,
        median_ns=18_000,
        share_ratio=0.36,
        rate_bytes_per_s=1.73e12,
        peak_ratio=0.85,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def make_kernels() -> list[KernelRow]:
    """Returns a small kernel table."""
    gemm = make_kernel(
        name="ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        short="ampere_bf16_s16816gemm",
        category="gemm",
        dtype="bf16",
        library="cublas",
        bound="compute",
        basis="inferred",
        count=400,
        total_ns=30 * MS,
        median_ns=74_000,
        share_ratio=0.47,
        rate_bytes_per_s=None,
        peak_ratio=None,
    )
    return [gemm, make_kernel()]


def make_report(**changes: object) -> Report:
    """Returns a report with one device, two findings, skips, drops and a note."""
    sync = make_finding(
        rule="sync_in_loop",
        level="low",
        subject="cudaStreamSynchronize in step",
        title="Read-backs that drain the queue",
        message="30 read-backs of 4 B drain the queue; the GPU idles 1.40 ms after them",
        fix="Read the loss only when you log it.",
        example={},
        saving_ns=1_400_000,
        saving_low_ns=1_400_000,
        saving_high_ns=1_400_000,
        saving_ratio=0.014,
        facts={"call_count": 30},
        evidence=[Evidence(40 * MS, 40 * MS + 50_000, "cudaStreamSynchronize after 4 B DtoH")],
    )
    base = Report(
        tool_version="0.1.0",
        traces=[make_trace(dropped=[Dropped("kernel", "end before start", 3)])],
        window=Window(10 * MS, 110 * MS, "steady"),
        steps=Steps(40, 36, "nvtx", "step #", 2_700_000, 2_900_000),
        devices=[make_device()],
        idle_causes=make_causes(),
        findings=[make_finding(), sync],
        combined_saving_ns=19 * MS,
        combined_saving_ratio=0.19,
        outcomes=[
            Outcome("pageable_copy", "found", ""),
            Outcome("sync_in_loop", "found", ""),
            Outcome("host_bound", "passed", ""),
            Outcome(
                "unified_memory_migration",
                "skipped",
                "the trace holds no page faults; record with --cuda-um-gpu-page-faults=true",
            ),
            Outcome("input_starvation", "skipped", "no OS calls; record with --trace=cuda,osrt"),
        ],
        phases=[
            Phase(0, "warmup", 0, 10 * MS, 4),
            Phase(0, "steady", 10 * MS, 110 * MS, 36),
        ],
        metrics=[
            Metric(0, None, "step_ns", "ns", 2_700_000.0, [2.7e6] * 30 + [2.9e6] * 5 + [9.1e6]),
            Metric(0, 0, "utilization_ratio", "ratio", 0.6, [0.6] * 36),
        ],
        kernels=make_kernels(),
        notes=[Note(0, "GPU metrics were not sampled; bandwidth comes from launch geometry")],
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def _nasty() -> Report:
    findings = [
        make_finding(
            subject=name,
            title=name,
            message=name,
            why=name,
            fix=name,
            example={"bad": name, "good": name},
            facts={"name": name, "moved_bytes": 5},
            evidence=[Evidence(0, 100, name)],
        )
        for name in NASTY
    ]
    return make_report(
        traces=[make_trace(path=f"/data/{NASTY[1]}.sqlite", host=NASTY[2])],
        devices=[make_device(name=NASTY[0])],
        steps=Steps(40, 36, "nvtx", NASTY[1], 2_700_000, 2_900_000),
        findings=findings,
        kernels=[make_kernel(name=name, short=name, category=name) for name in NASTY],
        notes=[Note(0, name) for name in NASTY],
        outcomes=[Outcome("input_starvation", "failed", NASTY[1])],
    )


def _thousands() -> Report:
    findings = [
        make_finding(subject=f"subject {i}", saving_ns=18 * MS - i * 1000, level="medium")
        for i in range(3000)
    ]
    return make_report(findings=findings)


def _two_traces() -> Report:
    return make_report(
        traces=[make_trace(path="rank0.sqlite", rank=0), make_trace(path="rank1.sqlite", rank=1)],
        devices=[make_device(), make_device(trace=1, utilization_ratio=0.58)],
        idle_causes=make_causes() + make_causes(trace=1),
        findings=[make_finding(), make_finding(trace=1, saving_ns=17 * MS)],
        kernels=[*make_kernels(), make_kernel(trace=1)],
        notes=[Note(1, "the capture ended before the process did")],
    )


def _healthy() -> Report:
    return make_report(findings=[], combined_saving_ns=0, combined_saving_ratio=0.0)


def _bare() -> Report:
    return make_report(
        traces=[make_trace(nsys_version=None, schema_version=None, gpus=[], rows={})],
        devices=[make_device(name="")],
        steps=None,
        idle_causes=[],
        findings=[
            make_finding(
                device=None,
                saving_ns=None,
                saving_low_ns=None,
                saving_high_ns=None,
                saving_ratio=None,
                fix="",
                why="",
                example={},
                facts={},
                evidence=[],
                evidence_total=0,
            )
        ],
        combined_saving_ns=0,
        combined_saving_ratio=0.0,
        outcomes=[],
        phases=[],
        metrics=[],
        kernels=[],
        notes=[],
        window=Window(0, 100 * MS, "all"),
    )


def _empty_span() -> Report:
    zero = make_device(
        span_ns=0,
        compute_ns=0,
        exposed_communication_ns=0,
        exposed_copy_ns=0,
        idle_ns=0,
        utilization_ratio=0.0,
        busy_ratio=0.0,
        kernel_work_ns=0,
    )
    return make_report(devices=[zero], idle_causes=[], findings=[], window=Window(0, 0, "all"))


EDGES: dict[str, Callable[[], Report]] = {
    "plain": make_report,
    "no findings": _healthy,
    "bare": _bare,
    "empty span": _empty_span,
    "nasty names": _nasty,
    "thousands of findings": _thousands,
    "two traces": _two_traces,
}
