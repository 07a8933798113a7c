"""Attention that runs as products and memory-bound kernels instead of one fused kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.operations import is_log_softmax
from nsysdoctor.peaks import DevicePeaks
from nsysdoctor.recipe import table
from nsysdoctor.tables.taxonomy import CHAINABLE

_BETWEEN = CHAINABLE | {"memory", "embedding", "rng"}
"""Families that may stand between the two products: masks are also made by index and dropout
masks by random numbers."""
_MOST_BETWEEN = 40
_SLOW, _FAST = 1.5, 0.6
"""A fused kernel against the products it replaces: it does their operations, at a share of the
arithmetic peak that differs with head size and mask, and writes no scores."""
_BACKWARD = 1.25
"""The gradient of a fused kernel computes the scores again: five products instead of four."""
_HALF_EFFICIENCY = 0.6


class Region(NamedTuple):
    """Rows of the sequence: the products before and behind, all kernels of it, its direction."""

    first: int
    last: int
    backward: bool
    scores_bytes: float


@table
def softmaxes(names: pd.DataFrame) -> np.ndarray:
    """Returns per name whether it is a softmax of an attention or its gradient."""
    rows = zip(names["full"], names["category"], names["fused"], strict=True)
    return np.array(
        [c == "softmax" and not fused and not is_log_softmax(full) for full, c, fused in rows],
        dtype=bool,
    )


@table
def attentions(
    sequence: pd.DataFrame,
    kernels: pd.DataFrame,
    operations: np.ndarray,
    softmaxes: np.ndarray,
    peaks: dict[int, DevicePeaks],
) -> pd.DataFrame:
    """Returns the kernels of unfused attention, in order.

    Columns: unit (code of one forward or backward attention), op, kernel, product (bool), and
    per unit backward (bool), simt (bool: FP32 products on ordinary units), scores_bytes (NaN
    where unknown), device, work_ns, product_ns, fused_ns, slow_ns, fast_ns (of one kernel that
    replaces the unit).

    A unit is a softmax, or a maximum, exponential, sum and quotient, between two products on one
    stream with only memory-bound kernels in between. Its gradient holds the gradient of a
    softmax, or kernels that write as much as the scores between products of the same batch.
    """
    rows = _Rows(sequence, kernels, operations, softmaxes)
    regions = sorted(rows.regions())
    taken = np.full(len(sequence), -1, dtype=np.int64)
    for unit, region in enumerate(regions):
        place = np.arange(region.first, region.last + 1)
        taken[place[taken[place] < 0]] = unit
    at = np.flatnonzero(taken >= 0)
    found = pd.DataFrame({"unit": taken[at], "op": sequence["op"].to_numpy()[at]})
    found["kernel"] = sequence["kernel"].to_numpy()[at]
    found["product"] = rows.product[at]
    for field in ("backward", "scores_bytes"):
        values = np.array([getattr(region, field) for region in regions])
        found[field] = values[found["unit"]] if regions else []
    return _priced(found, kernels, peaks)


class _Rows:
    """The sequence as arrays, to look for regions in."""

    def __init__(
        self,
        sequence: pd.DataFrame,
        kernels: pd.DataFrame,
        operations: np.ndarray,
        softmaxes: np.ndarray,
    ) -> None:
        row = np.maximum(sequence["kernel"].to_numpy(), 0)
        kernel = sequence["kernel"].to_numpy() >= 0
        empty = not len(kernels)
        self.apart = sequence["apart"].to_numpy()
        name = np.zeros(len(row), dtype=np.int64) if empty else kernels["name"].to_numpy()[row]
        category = kernels["category"].cat
        codes = category.codes.to_numpy()[row] if not empty else np.full(len(row), -1)

        def among(families: frozenset[str]) -> np.ndarray:
            return np.asarray(
                kernel & np.isin(codes, np.flatnonzero(category.categories.isin(families)))
            )

        fused = kernels["fused"].to_numpy()[row] if not empty else np.zeros(len(row), dtype=bool)
        self.product = among(frozenset({"gemm"})) & ~fused
        self.inner = among(frozenset(_BETWEEN)) & ~fused
        self.softmax = softmaxes[name] & kernel
        self.word = operations[name]
        self.batch = kernels["batch"].to_numpy()[row] if not empty else row
        self.written = np.nan_to_num(kernels["written_bytes"].to_numpy()[row]) if not empty else row

    def regions(self) -> Iterator[Region]:
        """Yields forward and backward attention, whole or by the size of their scores."""
        spans = list(self._spans())
        found = [region for span in spans if (region := self._by_softmax(*span))]
        yield from found
        known = {
            (int(self.batch[r.first]), r.scores_bytes)
            for r in found
            if not r.backward and self.batch[r.first] > 1 and r.scores_bytes > 0
        }
        sure = {(r.first, r.last) for r in found}
        for first, last in spans:
            region = self._by_size(first, last, known)
            if region and not any(a <= region.last and region.first <= b for a, b in sure):
                yield region

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Products with only memory-bound kernels, and nothing apart, between them."""
        product = np.flatnonzero(self.product)
        for first, last in zip(product[:-1].tolist(), product[1:].tolist(), strict=True):
            if not 1 < last - first <= _MOST_BETWEEN + 1:
                continue
            between = slice(first + 1, last)
            if self.inner[between].all() and not self.apart[first + 1 : last + 1].any():
                yield first, last

    def _by_softmax(self, first: int, last: int) -> Region | None:
        words = set(self.word[first + 1 : last].tolist())
        parts = {"exp", "sum"} <= words and bool({"div", "mul", "reciprocal"} & words)
        if not (self.softmax[first + 1 : last].any() or (parts and "max" in words)):
            return None
        backward = "softmax_backward" in words
        scores = float(self.written[first + 1 : last].max())
        return Region(*self._reach(first, last, backward), backward, scores)

    def _by_size(
        self, first: int, last: int, known: set[tuple[int, float]]
    ) -> Region | None:
        """The gradient of a softmax in parts: kernels as big as scores between such products."""
        if self.batch[first] != self.batch[last]:
            return None
        scores = float(self.written[first + 1 : last].max())
        alike = int((self.written[first + 1 : last] == scores).sum())
        if alike < 2 or (int(self.batch[first]), scores) not in known:
            return None
        return Region(*self._reach(first, last, True), True, scores)

    def _reach(self, first: int, last: int, backward: bool) -> tuple[int, int]:
        """With the second product on either side of a gradient: of the same batch."""
        if not backward:
            return first, last
        before, behind = first - 1, last + 1
        if before >= 0 and self.product[before] and not self.apart[first]:
            first = before if self.batch[before] == self.batch[first] else first
        if behind < len(self.product) and self.product[behind] and not self.apart[behind]:
            last = behind if self.batch[behind] == self.batch[last] else last
        return first, last


def _priced(
    found: pd.DataFrame, kernels: pd.DataFrame, peaks: dict[int, DevicePeaks]
) -> pd.DataFrame:
    """What a fused kernel takes: the time of the products, faster where they leave SIMT units."""
    mine = kernels.iloc[found["kernel"].to_numpy()]
    length = mine["duration_ns"].to_numpy()
    product = found["product"].to_numpy()
    single = (mine["math"] == "simt").to_numpy() & (mine["dtype"] == "fp32").to_numpy() & product
    found["device"] = mine["device"].to_numpy()
    unit = found["unit"]
    found["simt"] = pd.Series(single).groupby(unit).transform("any").to_numpy(dtype=bool)
    found["work_ns"] = pd.Series(length).groupby(unit).transform("sum").to_numpy()
    product_ns = pd.Series(np.where(product, length, 0)).groupby(unit).transform("sum")
    found["product_ns"] = product_ns.to_numpy()
    gain = _half_gain(found["device"].to_numpy(), peaks)
    half = _uses_half(found["device"].to_numpy(), kernels)
    simt = found["simt"].to_numpy()
    base = product_ns.to_numpy() * np.where(found["backward"], _BACKWARD, 1.0)
    gained = _HALF_EFFICIENCY * gain
    middle = base / np.where(simt & half, np.maximum(gained, 1), 1.0)
    fast = base * np.where(simt, 1 / np.maximum(gain * 0.8, 1), _FAST)
    slow = base * np.where(simt, 1.0, _SLOW)
    most = found["work_ns"].to_numpy()
    for column, value in (("fused_ns", middle), ("slow_ns", slow), ("fast_ns", fast)):
        found[column] = np.minimum(value, most).astype(np.int64)
    found["fast_ns"] = np.minimum(found["fast_ns"], found["fused_ns"])
    found["slow_ns"] = np.maximum(found["slow_ns"], found["fused_ns"])
    return found


def _half_gain(device: np.ndarray, peaks: dict[int, DevicePeaks]) -> np.ndarray:
    """How much faster tensor cores in BF16 or FP16 are than ordinary units in FP32."""

    def gain(roof: DevicePeaks) -> float:
        half = roof.flops_per_s("bf16", "tensor") or roof.flops_per_s("fp16", "tensor")
        single = roof.flops_per_s("fp32", "simt")
        return max(half / single, 1.0) if half and single else 1.0

    table = {number: gain(roof) for number, roof in peaks.items()}
    return np.array([table.get(number, 1.0) for number in device.tolist()], dtype=np.float64)


def _uses_half(device: np.ndarray, kernels: pd.DataFrame) -> np.ndarray:
    """Whether a device's other products run in half precision: then plain FP32 is a fallback."""
    gemm = kernels[(kernels["category"] == "gemm") & kernels["dtype"].isin(["bf16", "fp16"])]
    using = gemm["device"].unique()
    return np.isin(device, using)
