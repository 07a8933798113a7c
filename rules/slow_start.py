"""What takes long before the loop or the first kernel, and after the last one."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.trace.recipe import table

_START, _END = ("before", "start_up"), ("after",)
_CONTEXT_NS = 10_000_000
"""The first CUDA call of a process that takes longer creates the context."""

_KINDS: tuple[tuple[str, str], ...] = (
    ("communication", r"nccl\w*(Init|Bootstrap|CommInit)|MPI_(Init|Finalize)|init_process_group"),
    ("compiling", r"nvrtc|cuLink|(?i:compil)|ptxas|inductor|triton|jit"),
    ("libraries", r"(cublas|cudnn|cusolver|cusparse|cufft|curand)\w*(Create|Init|MakePlan|Plan)"),
    ("context", r"cuInit\b|PrimaryCtx|cuCtx(Create|Destroy)|cudaSetDevice|cudaDeviceReset"
     r"|cudaInitDevice|cuDevice(Get|Set)"),
    ("pinned_memory", r"HostAlloc|MallocHost|HostRegister|FreeHost|HostUnregister|MemAllocHost"),
    ("files", r"^(f?read|pread\w*|mmap\w*|open\w*|fopen\w*|stat\w*|lseek\w*)( |$)"),
)  # fmt: skip
_BY_CAUSE = {
    "module_load": "modules", "allocation": "device_memory", "copy": "upload",
    "blocking_copy": "upload", "os_wait": "sleep", "input_wait": "sleep",
}  # fmt: skip
_SAID = {
    "communication": "setting up communication",
    "compiling": "compiling",
    "libraries": "creating library handles",
    "context": "creating the CUDA context",
    "pinned_memory": "page-locking host memory",
    "files": "reading files",
    "modules": "loading code onto the device",
    "device_memory": "allocating device memory",
    "upload": "uploading data",
    "sleep": "waiting in the OS",
    "host": "host code",
}


@table
def first_calls(api: pd.DataFrame | None = None) -> np.ndarray:
    """Returns the row of the first call of each process that takes long: it creates the context,
    whatever else it does."""
    if api is None or not len(api):
        return np.empty(0, dtype=np.int64)
    other = api["verb"].isin([int(v) for v in (Verb.HOST_ALLOC, Verb.HOST_FREE, Verb.MODULE)])
    long = api[(api["end_ns"] - api["start_ns"] > _CONTEXT_NS) & api["top"] & ~other]
    first = long.sort_values(["start_ns", "end_ns"], kind="stable").drop_duplicates("process")
    return np.asarray(first.index, dtype=np.int64)


@table
def start_pieces(lost_time: pd.DataFrame, first_calls: np.ndarray) -> pd.DataFrame:
    """Returns the pieces of lost time before the work begins and after it ends, with ns, side
    (start or end) and kind (of `_SAID`)."""
    phase = lost_time["phase"]
    around = phase.isin((*_START, *_END)) & (lost_time["cause"] != "profiler")
    found = lost_time[around.to_numpy()]
    found = found.assign(
        ns=found["end_ns"] - found["start_ns"],
        side=np.where(found["phase"].isin(_END), "end", "start"),
    )
    known = found[["cause", "culprit"]].drop_duplicates()
    known["kind"] = [_kind(str(c), str(n)) for c, n in known.itertuples(index=False)]
    found = found.merge(known.astype(object), "left", ["cause", "culprit"])
    found.loc[found["api"].isin(first_calls).to_numpy(), "kind"] = "context"
    return found


def _kind(cause: str, culprit: str) -> str:
    """What a piece is for, by its name, else by its cause."""
    named = (kind for kind, pattern in _KINDS if re.search(pattern, culprit))
    return next(named, _BY_CAUSE.get(cause, "host"))


@table
def slow_start(
    start_pieces: pd.DataFrame,
    horizon: pd.DataFrame,
    *,
    min_ratio: float,
    min_share_ns: int,
    min_ns: int,
) -> pd.DataFrame:
    """Returns a row per kind of work that takes long before or after the loop: subject, device
    (that waits longest for it), count, kind, side, spent_ns, recorded_ns, spent_ratio, names,
    level, variant."""
    spent = start_pieces.groupby(["kind", "side", "device"], as_index=False)["ns"].sum()
    span = dict(zip(horizon["device"], horizon["end_ns"] - horizon["start_ns"], strict=True))
    around = start_pieces[start_pieces["phase"].isin(("before", "after"))]
    outside = around.groupby("device")["ns"].sum()
    most = spent.sort_values("ns", ascending=False, kind="stable")
    rows = []
    for told in most.drop_duplicates(["kind", "side"]).to_dict("records"):
        whole = int(span[told["device"]]) + int(outside.get(told["device"], 0))
        ns = int(told["ns"])
        if ns < min_ns and (ns < min_ratio * whole or ns < min_share_ns):
            continue
        mine = _of(start_pieces, told)
        rows.append(
            {
                "subject": f"{_SAID[told['kind']]} at the {told['side']}",
                "device": int(told["device"]),
                "count": len(mine),
                "kind": told["kind"],
                "what": _SAID[told["kind"]],
                "side": told["side"],
                "when": "before the work" if told["side"] == "start" else "after the work",
                "spent_ns": ns,
                "recorded_ns": whole,
                "spent_ratio": ns / whole,
                "names": _names(mine),
                "level": "low",
                "variant": told["kind"] if told["side"] == "start" else "end",
            }
        )
    return pd.DataFrame(rows)


def _of(pieces: pd.DataFrame, told: dict[str, object]) -> pd.DataFrame:
    return pieces[
        (pieces["kind"] == told["kind"])
        & (pieces["side"] == told["side"])
        & (pieces["device"] == told["device"])
    ]


def _names(mine: pd.DataFrame) -> str:
    """The longest names among the pieces."""
    spent = mine.groupby("culprit", observed=True)["ns"].sum()
    named = spent[spent.index != ""].sort_values(ascending=False, kind="stable")
    names = ", ".join(str(name) for name in named.index[:3])
    if 2 * named.sum() >= spent.sum():
        return names
    return f"most of it has no name, the rest {names}" if names else "nothing recorded names it"


def evidence(slow_start: pd.DataFrame, start_pieces: pd.DataFrame) -> pd.DataFrame:
    """Returns the longest pieces of each row: row, start_ns, end_ns, what."""
    parts = [
        pd.DataFrame({"row": row, "start_ns": mine["start_ns"], "end_ns": mine["end_ns"],
                      "what": mine["culprit"].astype(object).replace("", "host code")})
        for row, told in enumerate(slow_start.to_dict("records"))
        if len(mine := _of(start_pieces, told))
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def addresses(slow_start: pd.DataFrame, start_pieces: pd.DataFrame) -> pd.DataFrame:
    """Returns the time that each row is about: row, device, start_ns, end_ns."""
    parts = [
        _of(start_pieces, told)[["device", "start_ns", "end_ns"]].assign(row=row)
        for row, told in enumerate(slow_start.to_dict("records"))
    ]
    return pd.concat(parts, ignore_index=True)
