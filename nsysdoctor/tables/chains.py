"""Runs of memory-bound kernels that hand their data on through memory."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.recipe import table
from nsysdoctor.tables.kernels import TELLING_NS
from nsysdoctor.tables.taxonomy import CHAINABLE

_PASSED_ON = {
    "norm": 0.5, "softmax": 0.5, "dropout": 0.5, "copy_cast": 0.5, "elementwise": 0.4,
    "reduction": 0.0, "memory": 1.0,
}  # fmt: skip
_UNKNOWN_SHARE = 0.5
_SMALL = 0.1
_USED = ["device", "category", "bytes", "written_bytes", "duration_ns"]


@table
def chain_kernels(
    sequence: pd.DataFrame,
    kernels: pd.DataFrame,
    attentions: pd.DataFrame,
    updates: pd.DataFrame,
    reached_rates: dict[int, float],
) -> pd.DataFrame:
    """Returns the kernels of chains in order: chain (code), op, kernel, and what each moves.

    Further columns: moved_bytes, written_bytes (floats; from the launch, else what its time
    allows at the bandwidth that is reached), known (bool: from the launch).

    A chain is two or more memory-bound kernels, none of them fused already, that follow one
    another on a stream; other work, another stream, CUDA graph, host thread or step, and pauses
    split it. Kernels of an unfused attention or optimizer belong there and not here.
    """
    row = sequence["kernel"].to_numpy()
    member = np.zeros(len(sequence), dtype=bool)
    if len(kernels):
        chainable = kernels["category"].isin([*CHAINABLE, "memory"]) & ~kernels["fused"]
        free = chainable.to_numpy() & _free(kernels, attentions, updates)
        member = (row >= 0) & free[np.maximum(row, 0)]
    starts = member & (sequence["paused"].to_numpy() | ~np.append(False, member[:-1]))
    code = np.cumsum(starts) - 1
    at = np.flatnonzero(member)
    found = pd.DataFrame(
        {"chain": code[at], "op": sequence["op"].to_numpy()[at], "kernel": row[at]}
    )
    fill = (kernels["category"] == "memory").to_numpy()[row[at]]
    working = pd.Series(~fill).groupby(found["chain"]).transform("sum")
    found = found[(working >= 2).to_numpy()].reset_index(drop=True)
    found["chain"] = np.unique(found["chain"], return_inverse=True)[1]
    return _with_traffic(found, kernels, reached_rates)


def _free(
    kernels: pd.DataFrame, attentions: pd.DataFrame, updates: pd.DataFrame
) -> np.ndarray:
    free = np.ones(len(kernels), dtype=bool)
    for taken in (attentions, updates):
        free[taken["kernel"].to_numpy()] = False
    return free


def _with_traffic(
    found: pd.DataFrame, kernels: pd.DataFrame, reached_rates: dict[int, float]
) -> pd.DataFrame:
    mine = kernels[_USED].iloc[found["kernel"].to_numpy()]
    moved, written = mine["bytes"].to_numpy(), mine["written_bytes"].to_numpy()
    known = ~np.isnan(moved)
    length = mine["duration_ns"].to_numpy()
    rate = _chain_rate(found["chain"].to_numpy(), moved, length, mine, reached_rates)
    guess = length * rate / 1e9
    category = mine["category"].cat
    passed = np.array([_PASSED_ON.get(family, 0.0) for family in category.categories])
    part = passed[category.codes.to_numpy()]
    found["moved_bytes"] = np.where(known, moved, guess)
    found["written_bytes"] = np.where(known, written, guess * part)
    found["known"] = known
    found["rate_bytes_per_s"] = rate
    found["duration_ns"] = length
    return found


def _chain_rate(
    chain: np.ndarray,
    moved: np.ndarray,
    length: np.ndarray,
    mine: pd.DataFrame,
    reached_rates: dict[int, float],
) -> np.ndarray:
    """The bandwidth that a chain's own kernels of known traffic reach, else the device's."""
    usual = mine["device"].map(lambda device: reached_rates.get(device, 1e12)).to_numpy()
    telling = ~np.isnan(moved) & (length >= TELLING_NS)
    size = int(chain.max()) + 1 if len(chain) else 0
    total = np.bincount(chain[telling], weights=moved[telling], minlength=size)
    time = np.bincount(chain[telling], weights=length[telling], minlength=size)
    own = np.divide(total * 1e9, time, out=np.zeros(size), where=time > 0)
    return np.asarray(np.where(own[chain] > 0, own[chain], usual) if size else usual)


@table
def chains(
    chain_kernels: pd.DataFrame, kernels: pd.DataFrame, operations: np.ndarray
) -> pd.DataFrame:
    """Returns one row per chain in order; the row number is `chain_kernels.chain`.

    Columns: device, kernel_count, start_ns, end_ns, called_ns (of its first launch), pattern
    (code of the sequence of names), work_ns, bytes, outer_bytes (its outer inputs and outputs),
    rate_bytes_per_s, known_ratio (share of the time whose bytes the launch tells), fp32_ratio,
    fused_ns, slow_ns, fast_ns.

    A fused kernel keeps each intermediate in registers: it is neither written nor read again. It
    moves what is left at the bandwidth of the chain, slowest when intermediates are needed
    elsewhere and still written, fastest when it also keeps what the kernels before a reduction
    read or made for those behind it, and takes no less than the chain's shortest kernel.
    """
    part = chain_kernels
    mine = kernels.iloc[part["kernel"].to_numpy()].reset_index(drop=True)
    chain = part["chain"].to_numpy()
    size = int(chain.max()) + 1 if len(chain) else 0

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(chain, weights=values.astype(np.float64), minlength=size)

    moved, written = part["moved_bytes"].to_numpy(), part["written_bytes"].to_numpy()
    read = np.maximum(moved - written, 0)
    passed = np.append(chain[1:] == chain[:-1], False) if size else np.empty(0, dtype=bool)
    reread = np.where(passed, np.minimum(written, np.append(read[1:], 0.0)), 0.0)
    length = part["duration_ns"].to_numpy()
    by_chain = mine.groupby(chain, sort=True)
    found = by_chain.agg(
        device=("device", "first"), kernel_count=("op", "size"), start_ns=("start_ns", "min"),
        end_ns=("end_ns", "max"), called_ns=("called_ns", "min"), node=("node", "max"),
        work_ns=("duration_ns", "sum"), shortest_ns=("duration_ns", "min"),
    ).reset_index(drop=True)  # fmt: skip
    found["bytes"] = total(moved)
    found["outer_bytes"] = found["bytes"] - total(np.where(passed, written, 0.0) + reread)
    found["rate_bytes_per_s"] = part.groupby(chain, sort=True)["rate_bytes_per_s"].first()
    work = np.maximum(found["work_ns"].to_numpy(), 1)
    found["known_ratio"] = total(np.where(part["known"], length, 0)) / work
    found["fp32_ratio"] = total(np.where(mine["dtype"] == "fp32", length, 0)) / work
    found["pattern"] = _patterns(mine["name"].to_numpy(), chain, size)
    kept = total(_kept_over_reductions(chain, read, written))
    return _fused(found, found["bytes"].to_numpy() - total(reread), kept)


def _kept_over_reductions(chain: np.ndarray, read: np.ndarray, written: np.ndarray) -> np.ndarray:
    """Bytes that each kernel behind a reduction reads once more: data as large as its result
    that the chain had before, as a norm reads what it took the mean of."""
    if not len(chain):
        return np.empty(0)
    largest = pd.Series(np.maximum(read, written)).groupby(chain)
    before = largest.cummax().groupby(chain).shift(1).fillna(0.0).to_numpy()
    made = pd.Series(written).groupby(chain).shift(1).to_numpy()
    behind = (made < _SMALL * written) & (before >= (1 - _SMALL) * written)
    return np.asarray(np.where(behind, np.minimum(read, written), 0.0))


def _fused(found: pd.DataFrame, most_bytes: np.ndarray, kept_bytes: np.ndarray) -> pd.DataFrame:
    def time(moved: np.ndarray) -> np.ndarray:
        ns = moved / found["rate_bytes_per_s"].to_numpy() * 1e9
        bounded = np.clip(ns, found["shortest_ns"].to_numpy(), found["work_ns"].to_numpy())
        return np.asarray(bounded.astype(np.int64))

    outer = found["outer_bytes"].to_numpy()
    unknown = 1 - found["known_ratio"].to_numpy()
    found["fused_ns"] = time(outer)
    found["slow_ns"] = np.maximum(time(most_bytes), found["fused_ns"])
    found["fast_ns"] = time(np.maximum(outer * (1 - _UNKNOWN_SHARE * unknown) - kept_bytes, 0))
    return found.drop(columns="shortest_ns")


def _patterns(name: np.ndarray, chain: np.ndarray, size: int) -> np.ndarray:
    """A code per distinct sequence of names."""
    ends = np.flatnonzero(np.diff(chain, append=-1)) + 1
    starts = np.append(0, ends[:-1]) if size else np.empty(0, dtype=np.int64)
    keys = [name[a:b].tobytes() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.asarray(pd.factorize(pd.Series(keys, dtype=object))[0], dtype=np.int64)
