"""Optimizer steps that run as many small kernels instead of one fused pass."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import spans, union
from nsysdoctor.roofline.taxonomy import CHAINABLE, COMPUTE_HEAVY
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.tables.kernels.stream_order import changes
from nsysdoctor.trace.recipe import table

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
def optimizer_steps(
    stream_order: pd.DataFrame,
    kernels: Kernels,
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
    kernel, kinds = stream_order["kernel"].to_numpy(), kernels.configurations
    kind = np.append(kernels["configuration"], -1)[kernel]

    def among(*families: str) -> np.ndarray:
        return np.asarray(np.append(kinds["category"].isin(families), False)[kind])

    fused = np.append(kinds["fused"], False)[kind]
    member = ~fused & among(*CHAINABLE, "memory", "optimizer")
    heavy, optimizer = among(*COMPUTE_HEAVY), among("optimizer")
    lane, step = stream_order["lane"].to_numpy(), stream_order["step"].to_numpy()
    starts = heavy | changes(lane) | changes(step)
    run = np.cumsum(starts, dtype=np.int32)
    known = member & optimizer
    known |= member & np.append(_in_phase(kernels, ranges, range_names), False)[kernel]
    name = kinds["name"].to_numpy()[kind] if len(kinds) else kind
    update = _between(run, known) | _tails(stream_order, run, member, heavy, operations, name)
    update &= member & ~_any(run, fused & optimizer)[run]
    at = np.flatnonzero(update)
    at = at[np.bincount(run[at])[run[at]] >= MIN_KERNELS] if len(at) else at
    found = pd.DataFrame(
        {
            "unit": np.unique(run[at], return_inverse=True)[1].astype(np.int32),
            "op": stream_order["op"].to_numpy()[at],
            "kernel": kernel[at],
        }
    )
    return _priced(found, kernels, operations, reached_rates)


def _in_phase(
    kernels: Kernels, ranges: pd.DataFrame | None, range_names: pd.DataFrame | None
) -> np.ndarray:
    """Whether each kernel was launched in a range that names an optimizer."""
    inside = np.zeros(len(kernels), dtype=bool)
    if ranges is None or range_names is None:
        return inside
    named = np.array([bool(_PHASE.search(t)) for t in range_names["text"].astype(str)], dtype=bool)
    if not named.any():
        return inside
    named_ranges = ranges[named[ranges["text"].to_numpy()] & ~ranges["open"]]
    called, thread = kernels["called_ns"], kernels["thread"]
    for code, rows in named_ranges.groupby("thread", sort=True):
        merged = union(spans(rows["start_ns"], rows["end_ns"]))
        index = np.searchsorted(merged.start, called, side="right") - 1
        hit = (index >= 0) & (called < merged.end[np.maximum(index, 0)])
        inside |= hit & (thread == code)
    return inside


def _any(run: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Whether any row of each run is flagged."""
    found = np.zeros(int(run[-1]) + 1 if len(run) else 0, dtype=bool)
    found[run[flags]] = True
    return found


def _between(run: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Rows from the first to the last known row of each run."""
    at = np.flatnonzero(known)
    steps = np.zeros(len(run) + 1, dtype=np.int8)
    steps[at[changes(run[at])]] += 1
    steps[at[changes(run[at][::-1])[::-1]] + 1] -= 1
    return np.asarray(np.cumsum(steps[:-1], dtype=np.int8) > 0)


def _tails(
    stream_order: pd.DataFrame,
    run: np.ndarray,
    member: np.ndarray,
    heavy: np.ndarray,
    operations: np.ndarray,
    name: np.ndarray,
) -> np.ndarray:
    """The last run of a step that began with a product, if it repeats the same arithmetic."""
    step, lane = stream_order["step"].to_numpy(), stream_order["lane"].to_numpy()
    starts = np.flatnonzero(changes(run))
    following = np.append(starts[1:], len(run))
    tail = np.zeros(len(run), dtype=bool)
    long = (following - starts > _TAIL_KERNELS) & heavy[starts] & (step[starts] >= 0)
    for first, end in zip(starts[long].tolist(), following[long].tolist(), strict=True):
        same = end < len(run) and step[end] == step[first] and lane[end] == lane[first]
        inner = first + 1 + np.flatnonzero(member[first + 1 : end])
        if same or len(inner) < _TAIL_KERNELS:
            continue
        words = operations[name[inner]]
        plain = np.isin(words, list(_ARITHMETIC)).mean() >= 0.8
        if plain and len(inner) >= _REPEATS * len(np.unique(name[inner])):
            tail[first + 1 : end] = True
    return tail


def _priced(
    found: pd.DataFrame,
    kernels: Kernels,
    operations: np.ndarray,
    reached_rates: dict[int, float],
) -> pd.DataFrame:
    """One pass over parameters, gradients and moments at the bandwidth that is reached."""
    mine, kinds = kernels.at(found["kernel"].to_numpy()), kernels.configurations
    found["device"] = mine["device"]
    length = mine["duration_ns"]
    found["work_ns"] = pd.Series(length).groupby(found["unit"]).transform("sum").to_numpy()
    rate = mine.spread(kinds["device"].map(reached_rates).fillna(1e12))
    written = mine["written_bytes"]
    # a kernel of unknown traffic is assumed to read two arrays and write one
    written = np.where(np.isnan(written), length * rate / 3e9, written)
    frame = pd.DataFrame(
        {"unit": found["unit"], "name": mine["name"], "ns": length, "written": written}
    )
    by_name = frame.groupby(["unit", "name"], sort=True)[["ns", "written"]].sum().reset_index()
    whole = by_name.groupby("unit")["ns"].transform("sum")
    large = by_name[by_name["ns"] >= 0.05 * whole]
    size = large.groupby("unit")["written"].min()
    of_adam = np.isin(operations, ["sqrt", "rsqrt", "div", "addcdiv"])[kinds["name"].to_numpy()]
    adam = pd.Series(mine.spread(of_adam)).groupby(found["unit"]).transform("any")
    found["parameter_bytes"] = found["unit"].map(size).to_numpy(dtype=np.float64)
    arrays = np.where(adam.to_numpy(dtype=bool), _ADAM, _MOMENTUM)
    fused = np.maximum(found["parameter_bytes"] * arrays / rate * 1e9, _FLOOR_NS)
    for column, factor in (("fused_ns", 1.0), ("slow_ns", 1.5), ("fast_ns", 0.7)):
        found[column] = np.minimum(fused * factor, found["work_ns"]).astype(np.int64)
    return found
