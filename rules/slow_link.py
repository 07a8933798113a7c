"""Pinned copies far below what their link to the host can carry."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import covered, spans, union
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.loop.link_rates import link_ns, of_one_row
from nsysdoctor.tables.loop.loop_copies import require_kinds, same_keys
from nsysdoctor.trace.recipe import table

KEYS = ["device", "direction"]
_BESIDE_RATIO = 0.8
"""Copies that run beside copies of other devices for this much of their time share a switch."""


@table
def slow(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    link_rates: pd.DataFrame,
    staged_peers: np.ndarray,
    api: pd.DataFrame | None,
    api_names: pd.DataFrame | None,
    *,
    min_bytes: int,
    published_ratio: float,
    measured_ratio: float,
) -> pd.DataFrame:
    """Returns the large pinned copies of the steps that are far slower than their link.

    Columns as in `copies`, and `could_bytes_per_s` (what the link carries), `measured` (bool:
    seen in this trace or in a profile, else published for the GPU's generation). Strided copies
    are left out, since short rows are slow on any link.
    """
    require_kinds(copies)
    found = copies.assign(_kept=loop_copies & ~staged_peers & of_one_row(copies, api, api_names))
    found = found[found["_kept"] & (found["bytes"] >= min_bytes)]
    host = found["src_kind"].where(found["direction"] == "HtoD", found["dst_kind"])
    found = found[found["direction"].isin(("HtoD", "DtoH")) & (host == 1)]
    found = found.merge(link_rates, "inner", KEYS).sort_values("op", ignore_index=True)
    share = np.where(found["measured"], measured_ratio, published_ratio)
    return found[found["rate_bytes_per_s"] < share * found["could_bytes_per_s"]]


@table
def slow_link(slow: pd.DataFrame, window: pd.DataFrame, *, min_ratio: float) -> pd.DataFrame:
    """Returns a row per device and direction: subject, device, direction, count, bytes,
    rate_bytes_per_s, could_bytes_per_s, by (words: what tells the rate of the link), cause
    (words), work_ns (of the copies), shared_ratio (of that beside copies of other devices)."""
    span = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    rows = []
    for (device, direction), mine in slow.groupby(KEYS, sort=True):
        length = int((mine["end_ns"] - mine["start_ns"]).sum())
        if length < min_ratio * span:
            continue
        others = slow[slow["device"] != device]
        beside = covered(
            spans(mine["start_ns"], mine["end_ns"]),
            union(spans(others["start_ns"], others["end_ns"])),
        )
        shared = int(beside.sum()) / max(length, 1)
        measured = bool(mine["measured"].iloc[0])
        rows.append(
            {
                "subject": f"{direction} on GPU {device}",
                "device": device,
                "direction": direction,
                "count": len(mine),
                "bytes": int(mine["bytes"].sum()),
                "rate_bytes_per_s": int(mine["bytes"].sum()) * 1e9 / max(length, 1),
                "could_bytes_per_s": float(mine["could_bytes_per_s"].iloc[0]),
                "by": "this machine reached" if measured else "a x16 link of this GPU carries",
                "cause": _cause(shared),
                "work_ns": length,
                "shared_ratio": min(shared, 1.0),
                "basis": "measured" if measured else "inferred",
            }
        )
    return pd.DataFrame(rows)


def _cause(shared_ratio: float) -> str:
    if shared_ratio >= _BESIDE_RATIO:
        return "other GPUs copy at the same time: they may share a PCIe switch or the host's memory"
    return "the host memory may lie on another NUMA node, or the link run with fewer lanes"


def cure(slow_link: pd.DataFrame, slow: pd.DataFrame) -> pd.DataFrame:
    """The copies run at the rate of the link; at worst at half of it, as over fewer lanes."""
    row = same_keys(slow, slow_link, KEYS)
    slow, row = slow[row >= 0], row[row >= 0]
    return edits(
        Change.OP_NS, row, slow["op"].to_numpy(), link_ns(slow),
        slow_ns=link_ns(slow, 0.5), fast_ns=link_ns(slow),
    )  # fmt: skip


def evidence(slow_link: pd.DataFrame, slow: pd.DataFrame) -> pd.DataFrame:
    """Returns the copies: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": same_keys(slow, slow_link, KEYS),
            "start_ns": slow["start_ns"].to_numpy(),
            "end_ns": slow["end_ns"].to_numpy(),
            "what": [f"{d} of {b:,} bytes at {r / 1e9:.1f} GB/s" for d, b, r in
                     zip(slow["direction"], slow["bytes"], slow["rate_bytes_per_s"], strict=True)],
        }
    )  # fmt: skip
