"""Tables of a made-up training run: steps of kernels with a hole after each, on any many GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.report.model import DeviceBudget, Evidence, IdleCause, Report, Steps, Window
from nsysdoctor.roofline.bound import BOUNDS
from nsysdoctor.tables.host.thread_states import CAUSE, CAUSES
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.tables.kernels.launch_shapes import Configurations
from tests.make_report import NASTY, make_finding, make_report, make_trace

KERNELS = (
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "ampere_bf16_gemm", "gemm"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
     "vectorized_elementwise_kernel", "elementwise"),
    ("void layer_norm<float, float>(int, float, float const*)", "layer_norm", "norm"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
     "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
)  # fmt: skip
COPY_NAME = ("Memcpy HtoD (pageable to device)", "Memcpy HtoD", "memcpy")
HOLE_NS = 400_000


def table_source(frames: Mapping[str, Any]) -> Callable[[str], Any]:
    """Returns what a trace's `table` does, for tables made by hand."""

    def tables(name: str) -> Any:
        if name not in frames:
            raise MissingTableError(f"the trace holds no {name}", "record it")
        return frames[name]

    return tables


def make_frames(
    steps: int = 6, per_step: int = 40, gpus: int = 1, origin_ns: int = 5_000_000, seed: int = 7
) -> dict[str, Any]:
    """Returns the tables of a run: each step launches kernels in a row, then copies, then idles.

    The names hold every nasty text as a kernel of its own, run once in the first step.
    """
    made = [_device(steps, per_step, gpu, origin_ns, seed + gpu) for gpu in range(gpus)]
    ops = pd.concat([op for op, _ in made], ignore_index=True)
    api = pd.concat([call for _, call in made], ignore_index=True)
    ops = ops.assign(api=np.arange(len(ops)))
    order = np.lexsort([ops["lane"], ops["end_ns"], ops["start_ns"]])
    ops = ops.iloc[order].reset_index(drop=True)
    launches = pd.DataFrame({"op": np.arange(len(ops)), "api": ops["api"]})
    launches["latency_ns"] = ops["start_ns"] - api["start_ns"].to_numpy()[launches["api"]]
    texts = [
        *KERNELS,
        COPY_NAME,
        *((name or "(unnamed kernel)",) * 2 + ("other",) for name in NASTY),
    ]
    names = pd.DataFrame(texts, columns=["full", "short", "category"])
    gaps = pd.concat([_gaps(ops, gpu) for gpu in range(gpus)], ignore_index=True)
    frames = {
        "names": names,
        "ops": ops.drop(columns="api"),
        "api": api,
        "api_names": pd.DataFrame(
            {"name": ["cudaLaunchKernel", "cudaMemcpyAsync"], "verb": [1, 3]}
        ),
        "launches": launches,
        "threads": pd.DataFrame(
            {"process": 0, "tid": np.arange(gpus) + 100, "name": ["python"] * gpus}
        ),
        "processes": pd.DataFrame({"pid": [99], "global_pid": [1], "name": ["python"]}),
        "gap_causes": gaps,
        "device_pieces": _pieces(ops, gaps),
        "configurations": _configurations(ops),
        "devices": pd.DataFrame(
            {
                "device": np.arange(gpus),
                "name": ["NVIDIA A100-SXM4-80GB"] * gpus,
                "memory_bandwidth_bytes_per_s": 2_039_040_000_000,
                "sm_count": 108,
                "clock_hz": 1_410_000_000,
                "compute_major": 8,
                "compute_minor": 0,
            }
        ),
    }
    more = {"copies": _copies(ops), "kernels": _kernels(ops, frames["configurations"])}
    return frames | _host(ops, steps, gpus) | more


def _device(
    steps: int, per_step: int, gpu: int, origin_ns: int, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    random = np.random.default_rng(seed)
    count = steps * per_step
    place = np.arange(count) % per_step
    name = random.choice(3, count, p=[0.3, 0.5, 0.2])
    name = np.where(place == per_step - 2, 3, name)
    name = np.where(place == per_step - 1, 4, name)
    nasty = np.arange(len(NASTY)) + 3
    if per_step > len(NASTY) + 6:
        name[nasty] = np.arange(len(NASTY)) + 5
    length = random.gamma(2.0, 9_000.0, count).astype(np.int64) + 900
    gap = random.integers(0, 3, count) * random.integers(200, 2_000, count)
    gap[per_step - 1 :: per_step] = HOLE_NS + random.integers(0, 50_000, len(gap[::per_step]))
    start = origin_ns + 20_000 + np.cumsum(length + gap) - length - gap
    kind = np.where(name == 4, 1, 0)
    ops = pd.DataFrame(
        {
            "kind": kind.astype(np.int8),
            "device": gpu,
            "process": 0,
            "context": 1,
            "stream": np.where(kind == 1, 14, 7),
            "lane": 2 * gpu + kind,
            "correlation": np.arange(count) + 1,
            "name": name,
            "start_ns": start,
            "end_ns": start + length,
            "bytes": np.where(kind == 1, 4_194_304, 0),
            "node": 0,
            "row": np.arange(count),
        }
    )
    called = np.minimum.accumulate((start - random.integers(4_000, 9_000, count))[::-1])[::-1]
    api = pd.DataFrame(
        {
            "thread": gpu,
            "process": 0,
            "start_ns": called,
            "end_ns": called + np.minimum(3_000, np.diff(called, append=called[-1] + 3_000)),
            "correlation": np.arange(count) + 1,
            "name": kind,
            "verb": np.where(kind == 1, 3, 1),
        }
    )
    return ops, api


def _gaps(ops: pd.DataFrame, gpu: int) -> pd.DataFrame:
    mine = ops[ops["device"] == gpu]
    end = np.maximum.accumulate(mine["end_ns"].to_numpy())[:-1]
    start = mine["start_ns"].to_numpy()[1:]
    real = start > end
    low, high = end[real], start[real]
    cause = np.where(high - low >= HOLE_NS, CAUSE["input_wait"], CAUSE["launch"])
    return pd.DataFrame({"device": gpu, "start_ns": low, "end_ns": high, "cause": cause})


def _pieces(ops: pd.DataFrame, gaps: pd.DataFrame) -> pd.DataFrame:
    """Operations of this run never overlap on a device, so each is a piece of its own."""
    bucket = np.where(ops["kind"] == 1, 2, np.where(ops["name"] == 3, 1, 0))
    busy = ops[["device", "start_ns", "end_ns"]].assign(bucket=bucket)
    idle = gaps[["device", "start_ns", "end_ns"]].assign(bucket=3)
    both = pd.concat([busy, idle], ignore_index=True)
    return both.sort_values(["device", "start_ns"], ignore_index=True)


def _configurations(ops: pd.DataFrame) -> Configurations:
    """Seven sizes of grid of each name on each device."""
    mine = ops[ops["kind"] == 0][["device", "name"]].assign(grid_x=ops["row"] % 7 * 108 + 108)
    sides = dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)
    by = ["device", "name", "grid_x"]
    rows = mine.drop_duplicates().sort_values(by, ignore_index=True)
    return Configurations(
        rows.assign(block_x=256, **sides), mine.groupby(by).ngroup().to_numpy(dtype=np.int32)
    )


def _kernels(ops: pd.DataFrame, configurations: Configurations) -> Kernels:
    """Elementwise kernels move 1 byte a ns, that is 1 TB/s; the bytes of others are unknown."""
    mine = ops[ops["kind"] == 0]
    elementwise = configurations.rows["name"] == 1
    kinds = configurations.rows.assign(
        category=np.where(elementwise, "elementwise", "gemm"),
        dtype=np.where(elementwise, "fp32", "bf16"),
    )
    known = (mine["name"] == 1).to_numpy()
    each = {
        "op": mine.index.to_numpy(),
        "configuration": configurations.code,
        "bytes": np.where(known, 1000.0 * (mine["end_ns"] - mine["start_ns"]), np.nan),
        "bound": np.where(known, BOUNDS.index("memory"), BOUNDS.index("compute")),
    }
    return Kernels(kinds, each, ops)


def _copies(ops: pd.DataFrame) -> pd.DataFrame:
    mine = ops[ops["kind"] == 1]
    return pd.DataFrame(
        {
            "op": mine.index,
            "direction": "HtoD",
            "src_kind": np.arange(len(mine)) % 2,
            "dst_kind": 2,
            "bytes": mine["bytes"],
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
        }
    )


def _host(ops: pd.DataFrame, steps: int, gpus: int) -> dict[str, pd.DataFrame]:
    """Steps of the first GPU as nested ranges, and a wait in each hole, on each thread."""
    first = ops[ops["device"] == 0]
    bounds = np.array_split(np.arange(len(first)), steps)
    start = first["start_ns"].to_numpy()[[part[0] for part in bounds]]
    end = first["end_ns"].to_numpy()[[part[-1] for part in bounds]]
    inner = pd.DataFrame(
        {"start_ns": start + 10, "end_ns": (start + end) // 2, "text": steps, "depth": 1}
    )
    outer = pd.DataFrame({"start_ns": start, "end_ns": end, "text": np.arange(steps), "depth": 0})
    ranges = pd.concat([outer, inner], ignore_index=True).assign(thread=0, process=0, domain="")
    texts = [f"step {i}" for i in range(steps)] + ["forward </script>"]
    waits = pd.concat(
        [
            pd.DataFrame({"thread": gpu, "start_ns": end + 1_000, "end_ns": end + HOLE_NS - 50_000})
            for gpu in range(gpus)
        ],
        ignore_index=True,
    )
    phase = np.where(np.arange(steps) < 1, "warmup", "steady")
    marked = pd.DataFrame(
        {"step": np.arange(steps), "start_ns": start, "end_ns": end, "phase": phase}
    )
    return {
        "ranges": ranges.drop(columns="depth"),
        "range_depth": ranges[["depth"]],
        "range_names": pd.DataFrame({"text": texts}),
        "waits": waits.assign(name="pthread_cond_timedwait", blocking=True),
        "steps": marked,
        "step_times": marked,
    }


def report_of(frames: Mapping[str, Any]) -> Report:
    """Returns a report whose budgets, causes and evidence belong to the tables."""
    ops, gaps = frames["ops"], frames["gap_causes"]
    devices, causes = [], []
    for gpu, mine in ops.groupby("device"):
        start, end = int(mine["start_ns"].min()), int(mine["end_ns"].max())
        own = gaps[gaps["device"] == gpu]
        length = own["end_ns"] - own["start_ns"]
        by_cause = length.groupby(own["cause"]).sum()
        causes += [
            IdleCause(0, int(str(gpu)), CAUSES[int(str(c))], int(v)) for c, v in by_cause.items()
        ]
        devices.append(_budget(mine, int(str(gpu)), end - start, int(length.sum()), start))
    holes = gaps[(gaps["end_ns"] - gaps["start_ns"] >= HOLE_NS) & (gaps["device"] == 0)]
    evidence = [
        Evidence(int(a), int(b), "the GPU waits for a batch")
        for a, b in zip(holes["start_ns"][:5], holes["end_ns"][:5], strict=True)
    ]
    step = frames["steps"]
    length = (step["end_ns"] - step["start_ns"]).to_numpy()
    saving = int((holes["end_ns"] - holes["start_ns"]).sum())
    span = devices[0].span_ns
    finding = make_finding(
        rule="input_starvation", title="The GPU waits for input", subject="main thread",
        saving_ns=saving, saving_low_ns=saving, saving_high_ns=saving,
        saving_ratio=saving / span, evidence=evidence, evidence_total=len(holes),
    )  # fmt: skip
    return make_report(
        traces=[make_trace()],
        devices=devices,
        idle_causes=causes,
        findings=[finding],
        combined_saving_ns=saving,
        combined_saving_ratio=saving / span,
        window=Window(devices[0].start_ns, devices[0].start_ns + span, "all"),
        steps=Steps(len(step), len(step) - 1, "nvtx", "step #", int(np.median(length)),
                    int(np.quantile(length, 0.9))),
        metrics=[],
        phases=[],
    )  # fmt: skip


def _budget(mine: pd.DataFrame, gpu: int, span: int, idle: int, start: int) -> DeviceBudget:
    """Operations of this run never overlap on a device, so sums are unions."""
    length = mine["end_ns"] - mine["start_ns"]
    copy = int(length[mine["kind"] == 1].sum())
    talk = int(length[mine["name"] == 3].sum())
    compute = span - idle - copy - talk
    return DeviceBudget(
        0, gpu, "NVIDIA A100-SXM4-80GB", span, compute, talk, copy, idle,
        (compute + talk) / span, 1 - idle / span, compute + talk, start,
    )  # fmt: skip
