"""Kernels that wait for pages of unified memory."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, covered, spans, union
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.tables.loop.loop_copies import same_keys
from nsysdoctor.tables.steps.steps import tells_outside
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request
from nsysdoctor.units import ns_text

PREFETCH = 1
"""Cause of a migration that was asked for ahead of use."""

KEYS = ["process", "device", "inside"]
_SLOWER = 1.1
"""A kernel this much slower than without migrations waited for them."""

_COLUMNS = [
    "op", "process", "device", "inside", "start_ns", "end_ns", "clean_ns", "covered_ns",
    "page_count", "bytes",
]  # fmt: skip


@table
def faulting(
    ops: pd.DataFrame,
    migrations: pd.DataFrame,
    processes: pd.DataFrame,
    kernel_shape: Ints,
    window: pd.DataFrame,
    request: Request,
) -> pd.DataFrame:
    """Returns the kernels during which pages moved that nobody had prefetched.

    Columns: op, process, device, inside (bool: in the window), start_ns, end_ns, clean_ns (what
    the same launch takes without migrations; -1 where every one of them had some), covered_ns
    (time during which pages moved), page_count (migrations), bytes.
    """
    moved = migrations[migrations["cause"] != PREFETCH]
    shown, told = request.in_given_window(ops), ops["kind"].to_numpy() == KERNEL
    kernel = np.flatnonzero(told if shown is None else told & shown)
    parts = []
    for code, global_pid in enumerate(processes["global_pid"].tolist()):
        # Exports without process ids have the migrations of one process only.
        pages = moved[moved["global_pid"].isin((global_pid, 0))]
        mine = kernel[ops["process"].to_numpy()[kernel] == code]
        if len(pages) and len(mine):
            parts.append(_touched(ops, mine, pages, kernel_shape))
    if not parts:
        return pd.DataFrame(columns=_COLUMNS)
    found = pd.concat(parts, ignore_index=True)
    low, high = window["start_ns"].iloc[0], window["end_ns"].iloc[0]
    found["inside"] = (found["start_ns"] >= low) & (found["end_ns"] <= high)
    if not tells_outside(window):
        found = found[found["inside"]]
    return found[_COLUMNS].sort_values("op", ignore_index=True)


def _touched(ops: pd.DataFrame, mine: Ints, pages: pd.DataFrame, shape: Ints) -> pd.DataFrame:
    """The kernels of one process that overlap a migration."""
    start, end = ops["start_ns"].to_numpy()[mine], ops["end_ns"].to_numpy()[mine]
    busy = covered(spans(start, end), union(spans(pages["start_ns"], pages["end_ns"])))
    began = np.sort(pages["start_ns"].to_numpy())
    ordered = pages.sort_values(["start_ns", "end_ns"], kind="stable")
    size = np.concatenate(([0], np.cumsum(ordered["bytes"].to_numpy())))
    low, high = np.searchsorted(began, start), np.searchsorted(began, end)
    frame = pd.DataFrame(
        {
            "op": mine,
            "process": ops["process"].to_numpy()[mine],
            "device": ops["device"].to_numpy()[mine],
            "start_ns": start,
            "end_ns": end,
            "clean_ns": _clean(end - start, shape[mine], busy > 0),
            "covered_ns": busy,
            "page_count": high - low,
            "bytes": size[high] - size[low],
        }
    )
    return frame[busy > 0]


def _clean(length: Ints, shape: Ints, touched: np.ndarray) -> Ints:
    """The median time of the launches of each shape without migrations, -1 where there is none."""
    usual = pd.Series(length[~touched]).groupby(shape[~touched]).median()
    return pd.Series(shape).map(usual).fillna(-1).to_numpy(dtype=np.int64)


@table
def unified_memory_migration(faulting: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per process and device, and one more (info) for kernels outside the window.

    Columns: subject, process, device, inside, place (words), count (kernels), page_count, bytes,
    kernel_ns, covered_ns, slowed_ns (over the same launches without migrations), compared (words),
    basis, level.
    """
    rows = []
    for (process, device, inside), mine in faulting.groupby(KEYS, sort=True):
        took = mine["end_ns"] - mine["start_ns"]
        known = mine["clean_ns"] >= 0
        rows.append(
            {
                "subject": f"kernels of GPU {device}" if inside else f"one-off on GPU {device}",
                "process": process,
                "device": device,
                "inside": inside,
                "place": "in the loop" if inside else "outside the steady steps",
                "count": len(mine),
                "page_count": int(mine["page_count"].sum()),
                "bytes": int(mine["bytes"].sum()),
                "kernel_ns": int(took.sum()),
                "covered_ns": int(mine["covered_ns"].sum()),
                "slowed_ns": (slowed := int((took - mine["clean_ns"])[known].clip(lower=0).sum())),
                "compared": _compared(int(known.sum()), slowed),
                "basis": "measured" if known.all() else "inferred",
                "level": "" if inside else "info",
            }
        )
    return pd.DataFrame(rows)


def _compared(known_count: int, slowed_ns: int) -> str:
    if not known_count:
        return "no launch of them ran without migrations"
    return f"{ns_text(slowed_ns)} slower than the same launches without migrations"


def cure(unified_memory_migration: pd.DataFrame, faulting: pd.DataFrame) -> pd.DataFrame:
    """Kernels at the speed of the same launches without migrations; where there are none, without
    the time in which pages moved, at worst as slow as they are."""
    mine = faulting[faulting["inside"].astype(bool)]
    took = (mine["end_ns"] - mine["start_ns"]).to_numpy()
    clean = mine["clean_ns"].to_numpy()
    known = clean >= 0
    mine, took, clean, known = (part[~(known & (took <= _SLOWER * clean))] for part in
                                (mine, took, clean, known))  # fmt: skip
    bare = took - mine["covered_ns"].to_numpy()
    row = same_keys(mine, unified_memory_migration, KEYS)
    return edits(
        Change.OP_NS, row, mine["op"].to_numpy(), np.where(known, clean, bare),
        slow_ns=np.where(known, clean, took), fast_ns=np.where(known, clean, bare),
    )  # fmt: skip


def evidence(unified_memory_migration: pd.DataFrame, faulting: pd.DataFrame) -> pd.DataFrame:
    """Returns the kernels: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": same_keys(faulting, unified_memory_migration, KEYS),
            "start_ns": faulting["start_ns"],
            "end_ns": faulting["end_ns"],
            "what": [f"{n:,} migrations of {b:,} bytes in all" for n, b in
                     zip(faulting["page_count"], faulting["bytes"], strict=True)],
        }
    )  # fmt: skip
