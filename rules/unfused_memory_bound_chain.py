"""Memory-bound kernels in a row that one kernel could do in a single pass."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pandas as pd

from nsysdoctor.fusing import fuse
from nsysdoctor.kernels import Kernels
from nsysdoctor.recipe import table
from nsysdoctor.tables.steps import in_window

_KNOWN_RATIO = 0.5
_SHOWN_WORDS = 8
_MOST_PATTERNS = 4
"""Per device; what is left is summed in one row."""


@table
def in_loop(
    chains: pd.DataFrame, window: pd.DataFrame, *, min_gain_ratio: float, min_gain_us: float
) -> pd.DataFrame:
    """Returns the chains of the window with their `row` in the findings: one for every pattern
    worth fusing, one for all others together, per device."""
    found = chains[in_window(chains["called_ns"].to_numpy(), window)].copy()
    found["chain"] = found.index
    gain = found["work_ns"] - found["fused_ns"]
    total = gain.groupby([found["device"], found["pattern"]]).transform("sum")
    span = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    large = (total >= min_gain_ratio * span) & _first_few(found, total)
    found["group"] = np.where(large, found["pattern"], -1)
    together = gain.groupby([found["device"], found["group"]]).transform("sum")
    found = found[(together >= 1000 * min_gain_us).to_numpy()].reset_index(drop=True)
    found["row"] = found.groupby(["device", "group"], sort=True).ngroup()
    return found


def _first_few(found: pd.DataFrame, total: pd.Series[int]) -> pd.Series[bool]:
    """Whether a chain's pattern is one of the few that gain most on its device."""
    patterns = found[["device", "pattern"]].assign(total=total).drop_duplicates(
        ["device", "pattern"]
    )
    order = patterns.sort_values(["device", "total", "pattern"], ascending=[True, False, True])
    order["rank"] = order.groupby("device").cumcount()
    ranked = found[["device", "pattern"]].merge(order, "left", ["device", "pattern"])
    return pd.Series(ranked["rank"].to_numpy() < _MOST_PATTERNS, index=found.index)


@table
def unfused_memory_bound_chain(
    in_loop: pd.DataFrame,
    chain_kernels: pd.DataFrame,
    kernels: Kernels,
    operations: np.ndarray,
) -> pd.DataFrame:
    """Returns a row per device and pattern: subject, device, pattern, count, kernel_count,
    work_ns, bytes, outer_bytes, rate_bytes_per_s, fp32_ratio, basis."""
    words = _Words(chain_kernels, kernels, operations)
    return pd.DataFrame([_row(mine, words) for _, mine in in_loop.groupby("row", sort=True)])


def _row(mine: pd.DataFrame, words: _Words) -> dict[str, object]:
    device, work = int(mine["device"].iloc[0]), int(mine["work_ns"].sum())
    known = float((mine["known_ratio"] * mine["work_ns"]).sum()) / max(work, 1)
    gain = (mine["work_ns"] - mine["fused_ns"]).groupby(mine["pattern"]).sum()
    largest = mine[mine["pattern"] == gain.idxmax()]
    pattern, more = words.of(int(largest["chain"].iloc[0])), len(gain) - 1
    if more:
        pattern += f" and {more} smaller pattern{'s' if more > 1 else ''}"
    return {
        "subject": f"{pattern} on GPU {device}",
        "device": device,
        "pattern": pattern,
        "count": len(mine),
        "kernel_count": int(mine["kernel_count"].sum()),
        "work_ns": work,
        "bytes": int(mine["bytes"].sum()),
        "outer_bytes": int(mine["outer_bytes"].sum()),
        "rate_bytes_per_s": float(mine["bytes"].sum()) / max(work, 1) * 1e9,
        "fp32_ratio": float((mine["fp32_ratio"] * mine["work_ns"]).sum()) / max(work, 1),
        "basis": "geometry" if known >= _KNOWN_RATIO else "inferred",
    }


class _Words:
    """What the kernels of a chain compute, in words."""

    def __init__(
        self, chain_kernels: pd.DataFrame, kernels: Kernels, operations: np.ndarray
    ) -> None:
        self.chain = chain_kernels["chain"].to_numpy()
        self.kernels = kernels.at(chain_kernels["kernel"].to_numpy())
        self.operations = operations

    def of(self, chain: int) -> str:
        """Returns the chain as `add → layer_norm → mul ×2`."""
        first, end = np.searchsorted(self.chain, [chain, chain + 1])
        words = self.operations[self.kernels.at(slice(first, end))["name"]]
        runs = [(word, len(list(same))) for word, same in groupby(words.tolist())]
        parts = [word if size == 1 else f"{word} ×{size}" for word, size in runs]
        if len(parts) <= _SHOWN_WORDS:
            return " → ".join(parts)
        return " → ".join([*parts[: _SHOWN_WORDS - 1], f"… ({end - first} kernels)"])


def cure(
    unfused_memory_bound_chain: pd.DataFrame,
    in_loop: pd.DataFrame,
    chain_kernels: pd.DataFrame,
    kernels: Kernels,
) -> list[pd.DataFrame]:
    """One kernel per chain: it moves only outer inputs and outputs, and launches merge."""
    part = chain_kernels[["chain", "kernel"]].merge(
        in_loop[["chain", "row", "fused_ns", "slow_ns", "fast_ns"]], "inner", "chain"
    )
    return fuse(
        kernels.at(part["kernel"].to_numpy()), part["row"].to_numpy(),
        part["chain"].to_numpy(), part,
    )  # fmt: skip


def evidence(unfused_memory_bound_chain: pd.DataFrame, in_loop: pd.DataFrame) -> pd.DataFrame:
    """Returns the chains: row, start_ns, end_ns, what."""
    found = in_loop[["row", "start_ns", "end_ns"]].copy()
    found["what"] = [f"chain of {count} kernels" for count in in_loop["kernel_count"]]
    return found
