"""Which physical GPU, process and thread everything ran on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes, narrowed
from nsysdoctor.ingest.cut import Capture
from nsysdoctor.ingest.export_codes import PROCESS_MASK
from nsysdoctor.roofline.cards import memory_bandwidth_of, published_clock
from nsysdoctor.trace.recipe import table

_NOT_CUDA = r"(?i)microsoft|intel|amd|radeon|aspeed|matrox"


def pid_of(global_id: pd.Series[int] | Ints) -> Ints:
    """Returns the PID packed in bits 24 to 47 of globalPid or globalTid."""
    return (np.asarray(global_id, dtype=np.int64) >> 24) & 0xFFFFFF


@table
def gpus(
    gpu_rows: pd.DataFrame | None = None, old_gpu_rows: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Returns the machine's CUDA GPUs as the export lists them, used or not.

    Columns: id, cuda_ordinal (-1 unknown), name, memory_bandwidth_bytes_per_s, clock_hz,
    sm_count, compute_major, compute_minor, total_memory_bytes; 0 where the export does not
    tell. Exports before 2021.5 keep the figures in TARGET_INFO_CUDA_GPU, in kB/s and kHz.
    """
    rows: pd.DataFrame | None
    if gpu_rows is not None:
        rows = gpu_rows.drop_duplicates("id").drop(columns="bus")
        rows = rows[~rows["name"].str.contains(_NOT_CUDA)]
        if old_gpu_rows is not None:
            rows = rows[["id", "cuda_ordinal", "name"]].merge(
                _old_figures(old_gpu_rows).drop(columns=["name", "cuda_ordinal"]), "left", "id"
            )
    else:
        rows = _old_figures(old_gpu_rows) if old_gpu_rows is not None else None
    if rows is None:
        return pd.DataFrame({name: [] for name in _FIGURES} | {"name": []}).astype(
            dict.fromkeys(_FIGURES, "int64")
        )
    figures = rows[_FIGURES].fillna(0).astype("int64")
    figures["name"] = rows["name"].to_numpy(dtype=object)
    return figures.sort_values("id", ignore_index=True)


_FIGURES = [
    "id", "cuda_ordinal", "memory_bandwidth_bytes_per_s", "clock_hz", "sm_count",
    "compute_major", "compute_minor", "total_memory_bytes",
]  # fmt: skip


def _old_figures(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.drop_duplicates("id")
    kept = rows[["id", "sm_count", "compute_major", "compute_minor", "total_memory_bytes", "name"]]
    return kept.assign(
        cuda_ordinal=rows["id"],
        memory_bandwidth_bytes_per_s=rows["bandwidth_kilobytes_per_s"] * 1000,
        clock_hz=rows["clock_khz"] * 1000,
    )


@table
def places(
    activity: pd.DataFrame,
    gpus: pd.DataFrame,
    capture: Capture | None,
    cuda_device_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the physical device of every (global_pid, ordinal) that ran work in the capture.

    Columns: global_pid, ordinal, device, shared_guess (bool). A CUDA ordinal counts the GPUs
    that its process may see, so it is mapped through TARGET_INFO_CUDA_DEVICE where the export
    has it; else through cuDevice, which holds when nothing hides GPUs from the process. Several
    processes with one ordinal are united only when the machine has one GPU; otherwise they are
    kept apart and `shared_guess` marks them.
    """
    pairs = activity[["global_pid", "ordinal"]].drop_duplicates().astype("int64")
    if capture is not None:
        pairs = pd.concat([pairs, _elsewhere(capture, pairs)]).drop_duplicates()
    pairs = pairs.sort_values(["ordinal", "global_pid"], ignore_index=True)
    mapped = _mapped(pairs, cuda_device_rows)
    by_ordinal = gpus[gpus["cuda_ordinal"] >= 0].drop_duplicates("cuda_ordinal")
    guess = dict(zip(by_ordinal["cuda_ordinal"], by_ordinal["id"], strict=True))
    devices: list[int] = []
    doubtful: list[bool] = []
    used: set[int] = {int(d) for d in mapped if d >= 0}
    for ordinal, known in zip(pairs["ordinal"].tolist(), mapped.tolist(), strict=True):
        wanted = known if known >= 0 else guess.get(ordinal, ordinal)
        doubt = known < 0 and wanted in used and len(gpus) != 1
        device = _free(used | set(guess.values())) if doubt else wanted
        used.add(device)
        devices.append(device)
        doubtful.append(doubt)
    return pairs.assign(device=np.array(devices, dtype=np.int64), shared_guess=doubtful)


def _elsewhere(capture: Capture, pairs: pd.DataFrame) -> pd.DataFrame:
    """The places of the whole capture; without process ids they are of the one that is known."""
    if capture.places["global_pid"].any() or not len(pairs):
        return capture.places
    return capture.places.assign(global_pid=pairs["global_pid"].iloc[0])


def _mapped(pairs: pd.DataFrame, cuda_device_rows: pd.DataFrame | None) -> Ints:
    """The device of each pair by TARGET_INFO_CUDA_DEVICE, -1 where it does not say."""
    if cuda_device_rows is None or not len(cuda_device_rows):
        return np.full(len(pairs), -1, dtype=np.int64)
    known = cuda_device_rows.drop_duplicates(["pid", "cuda_id"])
    asked = pairs.assign(pid=pid_of(pairs["global_pid"]), cuda_id=pairs["ordinal"])
    found = asked.merge(known, "left", ["pid", "cuda_id"])["gpu_id"]
    return np.asarray(found.fillna(-1), dtype=np.int64)


def _free(used: Iterable[int]) -> int:
    """The first number that no device has; ordinals may be anything, so no maximum plus one."""
    taken = frozenset(used)
    return next(number for number in count() if number not in taken)


@table
def devices(places: pd.DataFrame, gpus: pd.DataFrame) -> pd.DataFrame:
    """Returns the GPUs that ran work, one row each, sorted by device.

    Columns: device, name, memory_bandwidth_bytes_per_s, clock_hz, sm_count, compute_major,
    compute_minor, total_memory_bytes (0 where unknown), kept_apart (bool: another process used
    the same CUDA ordinal and the export does not tell whether it is the same GPU).
    """
    used = places.groupby("device", as_index=False).agg(
        ordinal=("ordinal", "min"), kept_apart=("shared_guess", "max")
    )
    known = gpus.rename(columns={"id": "gpu"}).drop(columns="cuda_ordinal")
    by_ordinal = dict(zip(gpus["cuda_ordinal"], gpus["id"], strict=True))
    used["gpu"] = [
        by_ordinal.get(ordinal, ordinal) if apart else device
        for device, ordinal, apart in zip(
            used["device"], used["ordinal"], used["kept_apart"], strict=True
        )
    ]
    found = used.merge(known, "left", "gpu")
    figures = [name for name in _FIGURES if name not in ("id", "cuda_ordinal")]
    found[figures] = found[figures].fillna(0).astype("int64")
    found["name"] = [
        name if isinstance(name, str) and name else f"GPU {device}"
        for name, device in zip(found["name"], found["device"], strict=True)
    ]
    return _corrected(found)[["device", "name", *figures, "kept_apart"]]


def _corrected(found: pd.DataFrame) -> pd.DataFrame:
    """The GPUs with published figures where the recorded ones are missing or cannot be."""
    recorded = found[["name", "memory_bandwidth_bytes_per_s", "clock_hz"]]
    rows = list(recorded.itertuples(index=False, name=None))
    return found.assign(
        memory_bandwidth_bytes_per_s=[memory_bandwidth_of(str(n), int(b)) for n, b, _ in rows],
        clock_hz=[int(clock) or published_clock(str(n)) for n, _, clock in rows],
    )


@table
def processes(
    places: pd.DataFrame,
    api_rows: pd.DataFrame | None = None,
    process_name_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the processes that used CUDA; the row number is the process code.

    Columns: global_pid, pid, name ("" where the export does not tell).
    """
    found = [places["global_pid"].unique()]
    if api_rows is not None:
        found.append(np.asarray(api_rows["global_tid"].unique()) & np.int64(PROCESS_MASK))
    pids = np.unique(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in found]))
    names: dict[int, str] = {}
    if process_name_rows is not None:
        names = dict(
            zip(process_name_rows["global_pid"], process_name_rows["name"], strict=True)
        )
    return pd.DataFrame(
        {"global_pid": pids, "pid": pid_of(pids), "name": [names.get(p, "") for p in pids]}
    )


def process_code(processes: pd.DataFrame, global_ids: pd.Series[int] | Ints) -> Codes:
    """Returns the process code of each globalPid or globalTid, -1 for unknown processes."""
    return _place(processes["global_pid"].to_numpy(), global_ids, PROCESS_MASK)


def _place(known: Ints, ids: pd.Series[int] | Ints, mask: int) -> Codes:
    """The row of each id among the sorted known ones, -1 for others."""
    if isinstance(ids, pd.Series) and isinstance(ids.dtype, pd.CategoricalDtype):
        distinct = narrowed(_place(known, ids.cat.categories.to_numpy(), mask))
        return np.asarray(distinct[ids.cat.codes.to_numpy()])
    wanted = np.asarray(ids, dtype=np.int64) & np.int64(mask)
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int32)
    index = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[index] == wanted, index, -1).astype(np.int32)


@table
def threads(
    processes: pd.DataFrame,
    strings: pd.Series[str],
    api_rows: pd.DataFrame | None = None,
    nvtx_rows: pd.DataFrame | None = None,
    osrt_rows: pd.DataFrame | None = None,
    thread_name_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the host threads of processes that used CUDA; the row number is the thread code.

    Columns: global_tid, process (code), tid, name ("" where unknown; the name of highest
    priority where there are several).
    """
    frames = [rows for rows in (api_rows, nvtx_rows, osrt_rows) if rows is not None]
    found = [np.asarray(rows["global_tid"].unique(), dtype=np.int64) for rows in frames]
    tids = np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)
    code = process_code(processes, tids)
    tids, code = tids[code >= 0], code[code >= 0]
    names: dict[int, str] = {}
    if thread_name_rows is not None:
        ranked = thread_name_rows.sort_values(["priority", "name_id"], kind="stable")
        for tid, name in zip(ranked["global_tid"], ranked["name_id"], strict=True):
            names[tid] = str(strings.get(name, ""))
    return pd.DataFrame(
        {
            "global_tid": tids.astype(np.int64),
            "process": code,
            "tid": tids & ~PROCESS_MASK,
            "name": [names.get(t, "") for t in tids],
        }
    )


def thread_code(threads: pd.DataFrame, global_tids: pd.Series[int] | Ints) -> Codes:
    """Returns the thread code of each globalTid, -1 for threads of other processes."""
    return _place(threads["global_tid"].to_numpy(), global_tids, -1)
