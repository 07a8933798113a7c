"""Optimizer steps that run as many small kernels instead of one fused pass."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.intervals import spans, union
from nsysdoctor.recipe import table
from nsysdoctor.tables.taxonomy import CHAINABLE, COMPUTE_HEAVY

_PHASE = re.compile(r"(?i)optimizer[._ ]?step|^optimi[sz]er\b|^optim\b|\badam\w*\b|\bsgd\b")
_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "sqrt", "rsqrt", "pow", "lerp", "addcmul", "addcdiv", "neg",
     "reciprocal", "max", "maximum", "sign", "copy", "fill"}
)  # fmt: skip
MIN_KERNELS = 10
_TAIL_KERNELS = 30
_REPEATS = 4
_FLOOR_NS = 5_000
_ADAM, _MOMENTUM = 7, 5
"""Arrays of the size of the parameters that one fused pass reads and writes."""


@table
def updates(
    sequence: pd.DataFrame,
    kernels: pd.DataFrame,
    operations: np.ndarray,
    reached_rates: dict[int, float],
    ranges: pd.DataFrame | None = None,
    range_names: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the kernels of unfused optimizer steps, in order.

    Columns: unit (code of one update), op, kernel, and per unit device, work_ns, parameter_bytes,
    fused_ns, slow_ns, fast_ns (of one pass that replaces it).

    They are multi-tensor passes and the memory-bound kernels among them; memory-bound kernels in
    a range that names an optimizer; and, at the end of a step with products, a long run of
    arithmetic that repeats per parameter. Updates that are mostly fused kernels are left out.
    """
    row = np.maximum(sequence["kernel"].to_numpy(), 0)
    kernel = sequence["kernel"].to_numpy() >= 0
    if not len(kernels) or not kernel.any():
        return _priced(pd.DataFrame({"unit": [], "op": [], "kernel": []}, dtype="int64"),
                       kernels, operations, reached_rates)  # fmt: skip

    def among(*families: str) -> np.ndarray:
        return np.asarray(kernel & kernels["category"].isin(families).to_numpy()[row])

    fused = kernels["fused"].to_numpy()[row] & kernel
    member = ~fused & among(*CHAINABLE, "memory", "optimizer")
    heavy, optimizer = among(*COMPUTE_HEAVY), among("optimizer")
    run = np.cumsum(heavy | (sequence["lane"].diff().fillna(1) != 0).to_numpy()
                    | (sequence["step"].diff().fillna(1) != 0).to_numpy())  # fmt: skip
    known = member & optimizer
    known |= member & _in_phase(kernels, ranges, range_names)[row]
    update = _between(run, known) & member
    update |= member & _tails(sequence, run, member, heavy, operations, kernels, row)
    update &= ~np.isin(run, run[fused & optimizer])
    at = np.flatnonzero(update)
    size = np.bincount(run[at], minlength=run.max() + 1)
    at = at[size[run[at]] >= MIN_KERNELS]
    _, unit = np.unique(run[at], return_inverse=True)
    found = pd.DataFrame(
        {"unit": unit.astype(np.int64), "op": sequence["op"].to_numpy()[at], "kernel": row[at]}
    )
    return _priced(found, kernels, operations, reached_rates)


def _in_phase(
    kernels: pd.DataFrame, ranges: pd.DataFrame | None, range_names: pd.DataFrame | None
) -> np.ndarray:
    """Whether each kernel was launched in a range that names an optimizer."""
    inside = np.zeros(len(kernels), dtype=bool)
    if ranges is None or range_names is None:
        return inside
    named = np.array([bool(_PHASE.search(t)) for t in range_names["text"].astype(str)], dtype=bool)
    mine = ranges[named[ranges["text"].to_numpy()] & ~ranges["open"]]
    called, thread = kernels["called_ns"].to_numpy(), kernels["thread"].to_numpy()
    for code, rows in mine.groupby("thread", sort=True):
        merged = union(spans(rows["start_ns"], rows["end_ns"]))
        index = np.searchsorted(merged.start, called, side="right") - 1
        hit = (index >= 0) & (called < merged.end[np.maximum(index, 0)])
        inside |= hit & (thread == code)
    return inside


def _between(run: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Rows from the first to the last known one of each run."""
    at = np.flatnonzero(known)
    first = np.full(run.max() + 1, len(run), dtype=np.int64)
    last = np.full(run.max() + 1, -1, dtype=np.int64)
    np.minimum.at(first, run[at], at)
    np.maximum.at(last, run[at], at)
    place = np.arange(len(run))
    return np.asarray((place >= first[run]) & (place <= last[run]))


def _tails(
    sequence: pd.DataFrame,
    run: np.ndarray,
    member: np.ndarray,
    heavy: np.ndarray,
    operations: np.ndarray,
    kernels: pd.DataFrame,
    row: np.ndarray,
) -> np.ndarray:
    """The last run of a step that began with a product, where it repeats arithmetic."""
    step, lane = sequence["step"].to_numpy(), sequence["lane"].to_numpy()
    name = kernels["name"].to_numpy()[row]
    size = run.max() + 1
    starts = np.flatnonzero(np.diff(run, prepend=-1) != 0)
    following = np.append(starts[1:], len(run))
    tail = np.zeros(size, dtype=bool)
    long = (following - starts > _TAIL_KERNELS) & heavy[starts] & (step[starts] >= 0)
    for first, end in zip(starts[long].tolist(), following[long].tolist(), strict=True):
        same = end < len(run) and step[end] == step[first] and lane[end] == lane[first]
        inner = first + 1 + np.flatnonzero(member[first + 1 : end])
        if same or len(inner) < _TAIL_KERNELS:
            continue
        words = operations[name[inner]]
        plain = np.isin(words, list(_ARITHMETIC)).mean() >= 0.8
        tail[run[first]] = plain and len(inner) >= _REPEATS * len(np.unique(name[inner]))
    found = tail[run] & ~heavy
    return np.asarray(found)


def _priced(
    found: pd.DataFrame,
    kernels: pd.DataFrame,
    operations: np.ndarray,
    reached_rates: dict[int, float],
) -> pd.DataFrame:
    """One pass over parameters, gradients and moments at the bandwidth that is reached."""
    mine = kernels.iloc[found["kernel"].to_numpy()]
    found["device"] = mine["device"].to_numpy()
    length = mine["duration_ns"].to_numpy()
    found["work_ns"] = pd.Series(length).groupby(found["unit"]).transform("sum").to_numpy()
    rate = found["device"].map(lambda device: reached_rates.get(device, 1e12)).to_numpy()
    written = mine["written_bytes"].to_numpy()
    # of unknown traffic a kernel is taken to read two arrays and write one
    written = np.where(np.isnan(written), length * rate / 3e9, written)
    frame = pd.DataFrame(
        {"unit": found["unit"], "name": mine["name"].to_numpy(), "ns": length, "written": written}
    )
    by_name = frame.groupby(["unit", "name"], sort=True)[["ns", "written"]].sum().reset_index()
    whole = by_name.groupby("unit")["ns"].transform("sum")
    telling = by_name[by_name["ns"] >= 0.05 * whole]
    size = telling.groupby("unit")["written"].min()
    words = pd.Series(operations[mine["name"].to_numpy()] if len(mine) else [], dtype=object)
    adam = words.isin(["sqrt", "rsqrt", "div", "addcdiv"]).groupby(found["unit"]).transform("any")
    found["parameter_bytes"] = found["unit"].map(size).to_numpy(dtype=np.float64)
    arrays = np.where(adam.to_numpy(dtype=bool), _ADAM, _MOMENTUM)
    fused = np.maximum(found["parameter_bytes"] * arrays / rate * 1e9, _FLOOR_NS)
    for column, factor in (("fused_ns", 1.0), ("slow_ns", 1.5), ("fast_ns", 0.7)):
        found[column] = np.minimum(fused * factor, found["work_ns"]).astype(np.int64)
    return found
