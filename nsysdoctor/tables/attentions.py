"""Attention that runs as products and memory-bound kernels instead of one fused kernel."""

from __future__ import annotations

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
    for unit, region in reversed(list(enumerate(regions))):
        taken[region.first : region.last + 1] = unit
    at = np.flatnonzero(taken >= 0)
    found = pd.DataFrame({"unit": taken[at], "op": sequence["op"].to_numpy()[at]})
    found["kernel"] = sequence["kernel"].to_numpy()[at]
    found["product"] = rows.product[at]
    for field in ("backward", "scores_bytes"):
        values = np.array([getattr(region, field) for region in regions])
        found[field] = values[found["unit"]] if regions else []
    return _priced(found, kernels, peaks)


class _Spans(NamedTuple):
    """Stretches between two products with only memory-bound kernels, and nothing apart, inside:
    the rows of the products, and of the kernels between them the largest result and what is
    computed (bool per stretch)."""

    first: np.ndarray
    last: np.ndarray
    scores: np.ndarray
    alike: np.ndarray
    softmax: np.ndarray
    written_out: np.ndarray
    backward: np.ndarray


class _Rows:
    """The sequence as arrays, to look for regions in."""

    def __init__(
        self,
        sequence: pd.DataFrame,
        kernels: pd.DataFrame,
        operations: np.ndarray,
        softmaxes: np.ndarray,
    ) -> None:
        row = sequence["kernel"].to_numpy()
        known = np.flatnonzero(row >= 0)
        mine = row[known]

        def spread(values: np.ndarray) -> np.ndarray:
            """Values of kernels on the rows of the sequence; copies have none."""
            found = np.zeros(len(row), dtype=values.dtype)
            found[known] = values[mine]
            return found

        name = kernels["name"].to_numpy()
        free = ~kernels["fused"].to_numpy()
        self.apart = sequence["apart"].to_numpy()
        self.product = spread((kernels["category"] == "gemm").to_numpy() & free)
        self.inner = spread(kernels["category"].isin(_BETWEEN).to_numpy() & free)
        self.batch = spread(kernels["batch"].to_numpy())
        self.written = spread(np.nan_to_num(kernels["written_bytes"].to_numpy()))
        self.softmax = spread(softmaxes[name])
        self.words = {
            word: spread(np.isin(operations, names)[name]) for word, names in _PARTS.items()
        }

    def regions(self) -> list[Region]:
        """Returns forward and backward attention, whole or by the size of their scores."""
        spans = self._spans()
        known = {
            (int(self.batch[first]), float(scores))
            for first, scores, hit in zip(
                spans.first, spans.scores, self._forward(spans), strict=True
            )
            if hit and self.batch[first] > 1 and scores > 0
        }
        by_size = np.array(
            [
                (int(batch), float(scores)) in known
                for batch, scores in zip(self.batch[spans.first], spans.scores, strict=True)
            ],
            dtype=bool,
        )
        same = self.batch[spans.first] == self.batch[spans.last]
        sure = spans.softmax | spans.written_out
        gradient = np.where(sure, spans.backward, by_size & same & (spans.alike >= 2))
        chosen = np.flatnonzero(sure | gradient.astype(bool))
        return [
            Region(*self._reach(int(spans.first[i]), int(spans.last[i]), bool(gradient[i])),
                   bool(gradient[i]), float(spans.scores[i]))
            for i in chosen.tolist()
        ]  # fmt: skip

    def _forward(self, spans: _Spans) -> np.ndarray:
        return np.asarray((spans.softmax | spans.written_out) & ~spans.backward)

    def _spans(self) -> _Spans:
        product = np.flatnonzero(self.product)
        first, last = product[:-1], product[1:]
        size = last - first - 1
        inside = self._count(self.inner, first + 1, last) == size
        close = self._count(self.apart, first + 1, last + 1) == 0
        kept = inside & close & (size >= 1) & (size <= _MOST_BETWEEN)
        first, last = first[kept], last[kept]
        row, span = _between(first, last)
        scores = np.zeros(len(first))
        np.maximum.at(scores, span, self.written[row])
        alike = np.bincount(span[self.written[row] == scores[span]], minlength=len(first))

        def any_of(flags: np.ndarray) -> np.ndarray:
            return self._count(flags, first + 1, last) > 0

        told = {word: any_of(flags) for word, flags in self.words.items()}
        written_out = told["exp"] & told["sum"] & told["max"] & told["quotient"]
        return _Spans(
            first, last, scores, alike, any_of(self.softmax), written_out, told["backward"]
        )

    @staticmethod
    def _count(flags: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        """How many rows of [first, end) are flagged."""
        total = np.concatenate([[0], np.cumsum(flags)])
        return np.asarray(total[end] - total[first])

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


_PARTS = {
    "exp": ["exp"], "sum": ["sum"], "max": ["max"], "backward": ["softmax_backward"],
    "quotient": ["div", "mul", "reciprocal"],
}  # fmt: skip


def _between(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All rows strictly between each pair, and the pair of each."""
    size = last - first - 1
    span = np.repeat(np.arange(len(first)), size)
    offset = np.arange(len(span)) - np.repeat(np.cumsum(size) - size, size)
    return first[span] + 1 + offset, span


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
