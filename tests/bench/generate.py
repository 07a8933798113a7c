"""Writes a synthetic export of a given size: `python -m tests.bench.generate 1_000_000 big.sqlite`.

A training program on two devices with three streams each: steps of forward, backward and
optimizer kernels with realistic names, one copy and one synchronisation per step, nested NVTX
ranges (five per kernel by default), OS calls. Everything is computed as columns.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

GLOBAL_PID = (1 << 48) | (4321 << 24)
KERNELS_PER_STEP = 2_000
CHUNK = 200_000

NAMES = [
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, "
    "std::array<char *, (unsigned long)3>>(int, T2, T3)",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::GeluCUDAKernelImpl, "
    "std::array<char *, (unsigned long)2>>(int, T2, T3)",
    "ampere_sgemm_128x64_tn",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn",
    "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int, T2)",
    "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x128_32x6_nt_align8>(T1::Params)",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128>>(Flash_fwd_params)",
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::AdamFunctor>(T1, T2)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
]
CALLS = ["cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamSynchronize_v3020"]
WAITS = ["pthread_cond_timedwait", "poll", "ioctl", "read"]

SPAN = 'start INTEGER NOT NULL, "end" INTEGER NOT NULL'
PLACE = "deviceId INTEGER, contextId INTEGER, greenContextId INTEGER, streamId INTEGER"
KERNEL_COLUMNS = (
    f"{SPAN}, {PLACE}, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, "
    "shortName INTEGER, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, "
    "registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, "
    "blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, "
    "localMemoryPerThread INTEGER, localMemoryTotal INTEGER, gridId INTEGER, "
    "sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER"
)
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, "
    "totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, "
    "cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL_COLUMNS,
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{SPAN}, {PLACE}, correlationId INTEGER, globalPid INTEGER, "
    "bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{SPAN}, eventClass INTEGER, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{SPAN}, {PLACE}, correlationId INTEGER, "
    "globalPid INTEGER, syncType INTEGER, eventId INTEGER",
    "NVTX_EVENTS": 'start INTEGER NOT NULL, "end" INTEGER, eventType INTEGER, text TEXT, '
    "globalTid INTEGER, textId INTEGER, domainId INTEGER",
    "OSRT_API": f"{SPAN}, eventClass INTEGER, globalTid INTEGER, nameId INTEGER, "
    "returnValue INTEGER, nestingLevel INTEGER, callchainId INTEGER",
}


def main() -> None:
    """Parses the command line and writes the export."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", type=lambda text: int(text.replace("_", "")))
    parser.add_argument("path", type=Path)
    parser.add_argument("--ranges-per-kernel", type=float, default=5.0)
    arguments = parser.parse_args()
    generate(arguments.kernels, arguments.path, arguments.ranges_per_kernel)


def generate(kernels: int, path: Path, ranges_per_kernel: float = 5.0) -> None:
    """Writes an export of that many kernels to `path`, which must not exist."""
    db = sqlite3.connect(path)
    db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    for name, columns in TABLES.items():
        db.execute(f"CREATE TABLE {name} ({columns})")
    _small_tables(db)
    random = np.random.default_rng(1)
    steps = -(-kernels // KERNELS_PER_STEP)
    done = 0
    for first in range(0, steps, CHUNK // KERNELS_PER_STEP):
        last = min(first + CHUNK // KERNELS_PER_STEP, steps)
        count = min((last - first) * KERNELS_PER_STEP, kernels - done)
        _steps(db, random, first, done, count, ranges_per_kernel)
        done += count
    db.commit()
    db.close()


def _small_tables(db: sqlite3.Connection) -> None:
    short = [n.split("<")[0].split("(")[0].split("::")[-1] for n in NAMES]
    texts = [*NAMES, *short, *CALLS, *WAITS]
    _insert(db, "StringIds", [range(len(texts)), texts])
    _insert(db, "META_DATA_EXPORT", [
        ["EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"], ["2025.1.3.140-0v0", "3.17.2"],
    ])  # fmt: skip
    for gpu in (0, 1):
        _insert(db, "TARGET_INFO_GPU", [
            [0], [gpu], ["NVIDIA A100-SXM4-80GB"], [f"0000:0{gpu}:00.0"], [85_899_345_920],
            [2_039_040_000_000], [1_410_000_000], [108], [gpu], [8], [0],
        ])  # fmt: skip
        _insert(db, "TARGET_INFO_CUDA_DEVICE", [[gpu], [gpu], [4321]])


def _insert(db: sqlite3.Connection, table: str, columns: Sequence[Sequence[object]]) -> None:
    marks = ", ".join("?" * len(columns))
    db.executemany(f"INSERT INTO {table} VALUES ({marks})", zip(*columns, strict=True))


def _plain(*columns: object) -> Iterator[list[object]]:
    size = max(len(c) for c in columns if isinstance(c, np.ndarray))
    for column in columns:
        yield column.tolist() if isinstance(column, np.ndarray) else [column] * size


def _steps(
    db: sqlite3.Connection,
    random: np.random.Generator,
    first_step: int,
    done: int,
    count: int,
    ranges_per_kernel: float,
) -> None:
    """One chunk of whole steps: kernels with their calls, a copy and a sync for each step."""
    index = np.arange(count)
    step = first_step + index // KERNELS_PER_STEP
    inside = index % KERNELS_PER_STEP
    device = (inside % 2).astype(np.int64)
    lane = (inside // 2) % 3
    name = _name_of(inside)
    call_ns = 5_000
    step_ns = KERNELS_PER_STEP * call_ns + 400_000
    called = step * step_ns + 100_000 + inside * call_ns
    length = (2_000 + random.integers(0, 9_000, count) + (name == 2) * 12_000).astype(np.int64)
    start = np.empty(count, dtype=np.int64)
    for d in (0, 1):
        for s in (0, 1, 2):
            mine = np.flatnonzero((device == d) & (lane == s))
            start[mine] = _queued(called[mine] + 4_000, length[mine])
    correlation = 10 + (done + index) + step * 4
    zero = np.zeros(count, dtype=np.int64)
    block = np.where(name < 2, 128, 256)
    _insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", list(_plain(
        start, start + length, device, device + 1, 0, 7 + lane * 6, correlation, GLOBAL_PID,
        name, name + len(NAMES), name, 1, 0, 32, 64 + 64 * name, 1, 1, block, 1, 1, 0, 0, 0, 0,
        done + index, 0, None, 0,
    )))  # fmt: skip
    tid = GLOBAL_PID | 4321
    _insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", list(_plain(
        called, called + 3_000 + (zero + random.integers(0, 900, count)), 0, tid, correlation,
        2 * len(NAMES), 0, 0,
    )))  # fmt: skip
    _per_step(db, np.unique(step), step_ns, correlation, start + length, step)
    _ranges(db, called, tid, step_ns, np.unique(step), ranges_per_kernel)
    _os_calls(db, random, called[::20])


def _name_of(inside: np.ndarray) -> np.ndarray:
    """Layers of pointwise, matrix and norm kernels, then the optimizer, then the all-reduce."""
    layer = np.array([0, 3, 4, 1, 5, 0, 6, 2])[inside % 8]
    late = np.where(inside >= KERNELS_PER_STEP - 40, 7, layer)
    return np.where(inside >= KERNELS_PER_STEP - 4, 8, late).astype(np.int64)


def _queued(ready: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Start times on an in-order stream: each waits for its launch and for the one before."""
    before = np.concatenate(([0], np.cumsum(length)[:-1]))
    return np.maximum.accumulate(ready - before) + before


def _per_step(
    db: sqlite3.Connection,
    steps: np.ndarray,
    step_ns: int,
    correlation: np.ndarray,
    end: np.ndarray,
    step: np.ndarray,
) -> None:
    tid = GLOBAL_PID | 4321
    base = steps * step_ns
    last = np.array([correlation[step == s].max() for s in steps])
    _insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", list(_plain(
        base + 20_000, base + 26_000, 0, tid, last + 1, 2 * len(NAMES) + 1, 0, 0,
    )))  # fmt: skip
    _insert(db, "CUPTI_ACTIVITY_KIND_MEMCPY", list(_plain(
        base + 30_000, base + 90_000, 0, 1, 0, 13, last + 1, GLOBAL_PID, 1_500_000, 1, 1, 2, None,
    )))  # fmt: skip
    done = np.array([end[step == s].max() for s in steps])
    begins = base + step_ns - 290_000
    returns = np.maximum(done + 5_000, begins + 2_000)
    _insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", list(_plain(
        begins, returns, 0, tid, last + 2, 2 * len(NAMES) + 2, 0, 0,
    )))  # fmt: skip
    _insert(db, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", list(_plain(
        begins, returns, 0, 1, 0, 7, last + 2, GLOBAL_PID, 3, 0xFFFFFFFF,
    )))  # fmt: skip
    _insert(db, "NVTX_EVENTS", [
        base.tolist(), (base + step_ns - 1_000).tolist(), [59] * len(steps),
        [f"step {s}" for s in steps], [tid] * len(steps), [None] * len(steps), [0] * len(steps),
    ])  # fmt: skip


def _ranges(
    db: sqlite3.Connection,
    called: np.ndarray,
    tid: int,
    step_ns: int,
    steps: np.ndarray,
    ranges_per_kernel: float,
) -> None:
    """Operator ranges nested around every launch, outermost widest."""
    texts = ("aten::linear", "aten::addmm", "aten::gelu", "aten::layer_norm", "aten::mul")
    depth = 0
    left = ranges_per_kernel
    while left > 0:
        chosen = called if left >= 1 else called[: int(left * len(called))]
        margin = 900 - 150 * depth
        _insert(db, "NVTX_EVENTS", list(_plain(
            chosen - max(margin, 100), chosen + 3_950 + max(margin, 100) // 4, 59,
            f"{texts[depth % 5]}, op_id = {depth}", tid, None, 0,
        )))  # fmt: skip
        depth, left = depth + 1, left - 1


def _os_calls(db: sqlite3.Connection, random: np.random.Generator, at: np.ndarray) -> None:
    name = random.integers(0, len(WAITS), len(at)) + 2 * len(NAMES) + len(CALLS)
    length = random.integers(1_000, 3_000, len(at))
    _insert(db, "OSRT_API", list(_plain(
        at, at + length, 27, GLOBAL_PID | 4400, name, 0, 0, 0,
    )))  # fmt: skip


if __name__ == "__main__":
    main()
