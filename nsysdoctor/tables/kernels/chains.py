"""Chains: runs of memory-bound kernels that pass their data on through memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import distinct
from nsysdoctor.roofline.bound import BOUNDS
from nsysdoctor.roofline.taxonomy import CHAINABLE
from nsysdoctor.tables.kernels.kernel_columns import Column, Kernels
from nsysdoctor.tables.kernels.kernels import LONG_ENOUGH_NS
from nsysdoctor.trace.recipe import table

_PASSED_ON = {
    "norm": 0.5, "softmax": 0.5, "dropout": 0.5, "copy_cast": 0.5, "elementwise": 0.4,
    "reduction": 0.0, "memory": 1.0,
}  # fmt: skip
_UNKNOWN = BOUNDS.index("unknown")
_UNKNOWN_SHARE = 0.5
_SMALL = 0.1
_COPY = "copy_cast"


@table
def chain_kernels(
    stream_order: pd.DataFrame,
    kernels: Kernels,
    attention_kernels: pd.DataFrame,
    optimizer_steps: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the kernels of chains in order: chain (code), kernel (row of `kernels`).

    A chain is two or more memory-bound kernels, none of them fused already, that follow one another
    on a stream. It ends at other work, at a pause, and where stream, CUDA graph, host thread or
    step changes. Kernels of an unfused attention or optimizer are left to those tables. Copies
    alone are no chain, since one copies something else than the other. Kernels known to move far
    less than memory delivers are left out: something that fusing does not cure slows them down.
    """
    kinds = kernels.configurations
    free = kernels.spread(kinds["category"].isin([*CHAINABLE, "memory"]) & ~kinds["fused"])
    free &= (kernels["bound"] != _UNKNOWN) | np.isnan(kernels["bytes"])
    for taken in (attention_kernels, optimizer_steps):
        free[taken["kernel"].to_numpy()] = False
    member = np.append(free, False)[stream_order["kernel"].to_numpy()]
    starts = member & (stream_order["paused"].to_numpy() | ~np.append(False, member[:-1]))
    chain = np.cumsum(starts, dtype=np.int32)[member] - 1
    kernel = stream_order["kernel"].to_numpy()[member]
    mine = kernels.at(kernel)
    working = mine.spread(kinds["category"] != "memory")
    computing = mine.spread(~kinds["category"].isin(["memory", _COPY]))
    long = (np.bincount(chain, working) >= 2) & (np.bincount(chain, computing) >= 1)
    number = np.cumsum(long, dtype=np.int32) - 1
    kept = long[chain]
    return pd.DataFrame({"chain": number[chain[kept]], "kernel": kernel[kept]})


class _Chains(NamedTuple):
    """The kernels of chains, the chain of each kernel and the first kernel of each chain."""

    kernels: Kernels
    chain: Column
    first: Column

    @property
    def device(self) -> Column:
        """Returns the device of each chain."""
        return self.kernels.at(self.first)["device"]

    def total(self, values: Column) -> Column:
        """Returns the sum over each chain."""
        return np.bincount(self.chain, values, minlength=len(self.first))

    def least(self, column: str) -> Column:
        """Returns the smallest value in each chain."""
        return np.minimum.reduceat(self.kernels[column], self.first)

    def most(self, column: str) -> Column:
        """Returns the largest value in each chain."""
        return np.maximum.reduceat(self.kernels[column], self.first)


class _Traffic(NamedTuple):
    """What each kernel of a chain moves, reads and writes, whether its launch determines that
    (known), and the bandwidth of each chain."""

    moved: Column
    read: Column
    written: Column
    known: Column
    rate: Column


def _traffic(chains: _Chains, reached_rates: dict[int, float]) -> _Traffic:
    """Bytes per kernel from the launch, else from its time at the bandwidth of its chain. That
    bandwidth is what the chain's own kernels of known traffic reach, else what the device
    reaches."""
    kernels, length = chains.kernels, chains.kernels["duration_ns"]
    moved = kernels["bytes"]
    known = ~np.isnan(moved)
    long = known & (length >= LONG_ENOUGH_NS)
    total = chains.total(np.where(long, moved, 0.0))
    time = chains.total(np.where(long, length, 0))
    own = np.divide(total * 1e9, time, out=np.zeros(len(time)), where=time > 0)
    usual = kernels.configurations["device"].map(reached_rates).fillna(1e12)
    rate = np.where(own > 0, own, kernels.at(chains.first).spread(usual))
    guess = length * rate[chains.chain] / 1e9
    family = kernels.configurations["category"].astype("category").cat
    passed = np.array([_PASSED_ON.get(name, 0.0) for name in family.categories], dtype=np.float64)
    part = kernels.spread(passed[family.codes])
    written = np.where(known, kernels["written_bytes"], guess * part)
    moved = np.where(known, moved, guess)
    return _Traffic(moved, np.maximum(moved - written, 0), written, known, rate)


@table
def chains(
    chain_kernels: pd.DataFrame, kernels: Kernels, reached_rates: dict[int, float]
) -> pd.DataFrame:
    """Returns one row per chain in order; the row number is `chain_kernels.chain`.

    Columns: device, kernel_count, start_ns, end_ns, called_ns (of its first launch), pattern (code
    of the sequence of names), work_ns, bytes, outer_bytes (its outer inputs and outputs),
    known_ratio (share of the time in kernels of known bytes), fp32_ratio, fused_ns, slow_ns,
    fast_ns.

    A fused kernel keeps intermediate results in registers and moves the other bytes at the chain's
    bandwidth. In `slow_ns` it still writes intermediates, as they are needed elsewhere; in
    `fast_ns` it also keeps what kernels before a reduction read, or made for those behind it.
    None is below the time of the chain's shortest kernel.
    """
    chain = chain_kernels["chain"].to_numpy()
    mine = kernels.at(chain_kernels["kernel"].to_numpy())
    these = _Chains(mine, chain, np.flatnonzero(np.diff(chain, prepend=-1)))
    length, traffic = mine["duration_ns"], _traffic(these, reached_rates)
    work, moved = these.total(length).astype(np.int64), these.total(traffic.moved)
    handed_on, reread = _inner(mine, chain, traffic)
    outer = moved - these.total(handed_on + reread)
    known = these.total(np.where(traffic.known, length, 0)) / np.maximum(work, 1)
    single = mine.spread(mine.configurations["dtype"] == "fp32")

    shortest = these.least("duration_ns")

    def time(moved: Column) -> Column:
        ns = np.clip(moved / traffic.rate * 1e9, shortest, work)
        return np.asarray(ns.astype(np.int64))

    fused, kept = time(outer), these.total(_kept_over_reductions(chain, traffic))
    return pd.DataFrame(
        {
            "device": these.device,
            "kernel_count": np.bincount(chain).astype(np.int32),
            "start_ns": these.least("start_ns"),
            "end_ns": these.most("end_ns"),
            "called_ns": these.least("called_ns"),
            "pattern": _patterns(mine["name"], chain),
            "work_ns": work,
            "bytes": moved,
            "outer_bytes": outer,
            "known_ratio": known,
            "fp32_ratio": these.total(np.where(single, length, 0)) / np.maximum(work, 1),
            "fused_ns": fused,
            "slow_ns": np.maximum(time(moved - these.total(reread)), fused),
            "fast_ns": time(np.maximum(outer * (1 - _UNKNOWN_SHARE * (1 - known)) - kept, 0)),
        }
    )


def _inner(kernels: Kernels, chain: Column, traffic: _Traffic) -> tuple[Column, Column]:
    """The bytes that each kernel of a chain writes for the next one, and the bytes of these that
    the next one reads. Both are 0 between two copies, which copy different tensors."""
    copies = kernels.spread(kernels.configurations["category"] == _COPY)
    passed = np.append(chain[1:] == chain[:-1], False)[: len(chain)]
    passed[:-1] &= ~(copies[1:] & copies[:-1])
    read_next = np.append(traffic.read[1:], 0.0)[: len(chain)]
    reread = np.where(passed, np.minimum(traffic.written, read_next), 0.0)
    return np.where(passed, traffic.written, 0.0), reread


def _kept_over_reductions(chain: Column, traffic: _Traffic) -> Column:
    """Bytes that each kernel behind a reduction reads again: data as large as its result that was
    there earlier in the chain. A norm reads in this way the data of which it took the mean."""
    read, written = traffic.read, traffic.written
    kept = np.zeros(len(chain))
    less = np.zeros(len(chain), dtype=bool)
    less[1:] = (chain[1:] == chain[:-1]) & (written[:-1] < _SMALL * written[1:])
    # Most chains have no reduction; only the others are gone through row by row.
    rows = np.flatnonzero(np.bincount(chain, less).astype(bool)[chain])
    largest = pd.Series(np.maximum(read, written)[rows]).groupby(chain[rows])
    before = largest.cummax().groupby(chain[rows]).shift(1).fillna(0.0).to_numpy()
    behind = less[rows] & (before >= (1 - _SMALL) * written[rows])
    kept[rows] = np.where(behind, np.minimum(read, written)[rows], 0.0)
    return kept


def _patterns(name: Column, chain: Column) -> Column:
    """A code per distinct sequence of names. Neighbours in a chain are joined pairwise until each
    chain is one code."""
    code = name.astype(np.int64)
    while len(code) and (chain[1:] == chain[:-1]).any():
        first = np.flatnonzero(np.diff(chain, prepend=-1))
        place = np.arange(len(chain)) - first[chain]
        even = place % 2 == 0
        followed = even & np.append(chain[1:] == chain[:-1], False)
        other = np.where(followed, np.append(code[1:], 0) + 1, 0)
        code, _ = distinct((code * (code.max() + 2) + other)[even])
        chain = chain[even]
    return np.asarray(pd.factorize(code)[0], dtype=np.int32)
