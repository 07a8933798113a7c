"""Memory-bound kernels in a row that one kernel could do in a single pass."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import distinct_rows, labels
from nsysdoctor.replay.fused_kernels import fuse
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.tables.steps.steps import window_span_ns, work_in_window
from nsysdoctor.trace.recipe import table
from nsysdoctor.units import bytes_text, rate_text

_KNOWN_RATIO = 0.5
_SHOWN_WORDS = 8
_MAY_LACK = ["bytes", "outer_bytes", "rate_bytes_per_s"]
_MOST_PATTERNS = 4
"""Per device; what is left is summed in one row."""


@table
def in_loop(
    chains: pd.DataFrame, window: pd.DataFrame, *, min_gain_ratio: float, min_gain_us: float
) -> pd.DataFrame:
    """Returns which chains of the window, in order of chain, have which `row` in the findings:
    one for every pattern worth fusing, one for all others together, per device."""
    times = (chains[name].to_numpy() for name in ("start_ns", "called_ns"))
    chain = np.flatnonzero(work_in_window(*times, window))
    device, pattern, work, fused = (
        chains[name].to_numpy()[chain] for name in ("device", "pattern", "work_ns", "fused_ns")
    )
    code, first = distinct_rows([device, pattern])
    kinds = pd.DataFrame({"device": device[first], "pattern": pattern[first]})
    kinds["gain_ns"] = np.bincount(code, work - fused)
    span = window_span_ns(window)
    large = _first_few(kinds) & (kinds["gain_ns"] >= min_gain_ratio * span)
    kinds["group"] = kinds["pattern"].where(large, -1)
    together = kinds.groupby(["device", "group"])["gain_ns"].transform("sum")
    worth = kinds[together >= 1000 * min_gain_us].groupby(["device", "group"], sort=True)
    row = worth.ngroup().reindex(kinds.index, fill_value=-1).to_numpy(dtype=np.int32)[code]
    return pd.DataFrame({"chain": chain[row >= 0], "row": row[row >= 0]})


def _first_few(kinds: pd.DataFrame) -> pd.Series[bool]:
    """Whether a pattern is one of the few that gain most on its device."""
    order = kinds.sort_values(["device", "gain_ns", "pattern"], ascending=[True, False, True])
    return (order.groupby("device").cumcount() < _MOST_PATTERNS).reindex(kinds.index)


@table
def unfused_memory_bound_chain(
    in_loop: pd.DataFrame,
    chains: pd.DataFrame,
    chain_kernels: pd.DataFrame,
    kernels: Kernels,
    operations: np.ndarray,
) -> pd.DataFrame:
    """Returns a row per device and pattern: subject, device, pattern, count, kernel_count,
    work_ns, bytes, outer_bytes, rate_bytes_per_s (None where names do not tell), fp32_ratio,
    basis."""
    words = _Words(chain_kernels, kernels, operations)
    these = [chains.iloc[mine] for _, mine in in_loop.groupby("row", sort=True)["chain"]]
    rows = [_row(mine, words) for mine in these]
    # Beside rows that lack them whole numbers must stay whole.
    whole = {name: pd.Series([row[name] for row in rows], dtype=object) for name in _MAY_LACK}
    return pd.DataFrame(rows).assign(**whole)


def _row(mine: pd.DataFrame, words: _Words) -> dict[str, object]:
    device, work = int(mine["device"].iloc[0]), int(mine["work_ns"].sum())
    known = float((mine["known_ratio"] * mine["work_ns"]).sum()) / max(work, 1)
    gain = (mine["work_ns"] - mine["fused_ns"]).groupby(mine["pattern"]).sum()
    largest = mine[mine["pattern"] == gain.idxmax()]
    pattern, more = words.of(int(largest.index[0])), len(gain) - 1
    if more:
        pattern += f" and {more} smaller pattern{'s' if more > 1 else ''}"
    moved, outer = int(mine["bytes"].sum()), int(mine["outer_bytes"].sum())
    rate = mine["bytes"].sum() / max(work, 1) * 1e9
    basis = "geometry" if known >= _KNOWN_RATIO else "inferred"
    return {
        "subject": f"{pattern} on GPU {device}",
        "device": device,
        "pattern": pattern,
        "count": len(mine),
        "kernel_count": int(mine["kernel_count"].sum()),
        "work_ns": work,
        **_traffic(moved, outer, float(rate), basis),
        "fp32_ratio": float((mine["fp32_ratio"] * mine["work_ns"]).sum()) / max(work, 1),
        "basis": basis,
    }


def _traffic(moved: int, outer: int, rate: float, basis: str) -> dict[str, object]:
    """What the chains move, as facts and words; nothing where time times a usual rate is all that
    is known of it."""
    if basis == "inferred":
        words = "; what they move cannot be read from their names, the saving assumes a usual rate"
        return {"bytes": None, "outer_bytes": None, "rate_bytes_per_s": None, "_traffic": words}
    words = (
        f" and move {bytes_text(moved)} at {rate_text(rate)};"
        f" one kernel per chain would move about {bytes_text(outer)}"
    )
    return {"bytes": moved, "outer_bytes": outer, "rate_bytes_per_s": rate, "_traffic": words}


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
    chains: pd.DataFrame,
    chain_kernels: pd.DataFrame,
    kernels: Kernels,
) -> list[pd.DataFrame]:
    """One kernel per chain: it moves only outer inputs and outputs, and launches merge."""
    row = np.full(len(chains), -1, dtype=np.int32)
    row[in_loop["chain"]] = in_loop["row"]
    chain = chain_kernels["chain"].to_numpy()
    mine = np.flatnonzero(row[chain] >= 0)
    kernel, chain = chain_kernels["kernel"].to_numpy()[mine], chain[mine]
    return fuse(kernels.at(kernel), row[chain], chain, chains)


def evidence(
    unfused_memory_bound_chain: pd.DataFrame, in_loop: pd.DataFrame, chains: pd.DataFrame
) -> pd.DataFrame:
    """Returns the chains: row, start_ns, end_ns, what."""
    found = chains[["start_ns", "end_ns"]].iloc[in_loop["chain"]]
    code, counts = pd.factorize(chains["kernel_count"].to_numpy()[in_loop["chain"]])
    what = labels([f"chain of {count} kernels" for count in counts], code)
    return found.assign(row=in_loop["row"].to_numpy(), what=what)
