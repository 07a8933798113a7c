"""Attention that runs as products and memory-bound kernels instead of one fused kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.roofline.kernel_work import is_log_softmax
from nsysdoctor.roofline.peaks import DevicePeaks
from nsysdoctor.roofline.taxonomy import CHAINABLE
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

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


@table
def softmaxes(names: pd.DataFrame) -> np.ndarray:
    """Returns for each name whether it is a softmax of an attention, or the gradient of one."""
    rows = zip(names["full"], names["category"], names["fused"], strict=True)
    return np.array(
        [c == "softmax" and not fused and not is_log_softmax(full) for full, c, fused in rows],
        dtype=bool,
    )


@table
def attention_kernels(
    stream_order: pd.DataFrame,
    kernels: Kernels,
    reference_kernels: np.ndarray | slice,
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
    rows = _Rows(stream_order, kernels, reference_kernels, operations, softmaxes)
    regions = rows.regions()
    # Where regions overlap, a row belongs to the one that begins first: it is written last.
    row, unit = _inside(regions["first"].to_numpy()[::-1], regions["last"].to_numpy()[::-1] + 1)
    taken = np.full(len(stream_order), -1, dtype=np.int32)
    taken[row] = len(regions) - 1 - unit
    at = np.flatnonzero(taken >= 0)
    found = pd.DataFrame({"unit": taken[at], "op": stream_order["op"].to_numpy()[at]})
    found["kernel"] = stream_order["kernel"].to_numpy()[at]
    found["product"] = rows.product[at]
    for field in ("backward", "scores_bytes"):
        found[field] = regions[field].to_numpy()[found["unit"]]
    return _priced(found, kernels, kernels.at(reference_kernels), peaks)


class _Rows:
    """The rows of `stream_order` as arrays, to find regions of attention in them."""

    def __init__(
        self,
        stream_order: pd.DataFrame,
        kernels: Kernels,
        reference: np.ndarray | slice,
        operations: np.ndarray,
        softmaxes: np.ndarray,
    ) -> None:
        kinds = kernels.configurations
        name, free = kinds["name"].to_numpy(), ~kinds["fused"]
        self.kernels, self.apart = kernels, stream_order["apart"].to_numpy()
        self.reference = np.zeros(len(kernels), dtype=bool)
        self.reference[reference] = True
        self.kernel = stream_order["kernel"].to_numpy()
        self.kind = np.append(kernels["configuration"], -1)[self.kernel]
        self.product = self._on_rows(free & (kinds["category"] == "gemm"))
        self.inner = self._on_rows(free & kinds["category"].isin(_BETWEEN))
        self.batch = np.append(kinds["batch"].to_numpy(), 0)
        self.softmax = softmaxes[name]
        self.words = {word: np.isin(operations, these)[name] for word, these in _PARTS.items()}

    def _on_rows(self, kinds: pd.Series[bool]) -> np.ndarray:
        """Spreads a flag per configuration over the rows; it is False for copies."""
        return np.asarray(np.append(kinds.to_numpy(), False)[self.kind])

    def regions(self) -> pd.DataFrame:
        """Returns forward and backward attention, in order. A backward region is found by its
        softmax gradient, or by results as large as the scores of a forward region.

        Columns: first, last (the products before and behind, rows of `stream_order`), backward
        (bool), scores_bytes.
        """
        spans = self._spans()
        batch = self.batch[self.kind[spans["first"]]]
        same = batch == self.batch[self.kind[spans["last"]]]
        sized = spans.groupby([batch, "scores_bytes"], sort=False).ngroup()
        sure = spans["softmax"] | spans["written_out"]
        forward = sure & ~spans["backward"] & (batch > 1) & (spans["scores_bytes"] > 0)
        forward &= self.reference[self.kernel[spans["first"]]]
        by_size = np.isin(sized, sized[forward]) & same & (spans["alike"] >= 2)
        spans["backward"] = np.where(sure, spans["backward"], by_size)
        chosen = self._reaching(spans[sure | spans["backward"]])
        order = ["first", "last", "backward", "scores_bytes"]
        return chosen[order].sort_values(order, ignore_index=True)

    def _spans(self) -> pd.DataFrame:
        """Stretches between two products that hold only memory-bound kernels and are not
        interrupted.

        Columns: first, last (rows of the products); of the kernels between them scores_bytes (the
        largest result), alike (how many have a result of that size), and which operations they
        compute (softmax, written_out, backward: bool).
        """
        product = np.flatnonzero(self.product)
        first, last = product[:-1], product[1:]
        size = last - first - 1
        short = (size >= 1) & (size <= _MOST_BETWEEN)
        first, last = first[short], last[short]
        inside = _count(self.inner, first + 1, last) == size[short]
        kept = inside & (_count(self.apart, first + 1, last + 1) == 0)
        first, last = first[kept], last[kept]
        row, span = _inside(first + 1, last)
        written = np.nan_to_num(self.kernels.at(self.kernel[row])["written_bytes"])
        scores = np.zeros(len(first))
        np.maximum.at(scores, span, written)

        def any_of(flags: np.ndarray) -> np.ndarray:
            return np.bincount(span, flags[self.kind[row]], len(first)) > 0

        parts = {word: any_of(flags) for word, flags in self.words.items()}
        return pd.DataFrame(
            {
                "first": first,
                "last": last,
                "scores_bytes": scores,
                "alike": np.bincount(span[written == scores[span]], minlength=len(first)),
                "softmax": any_of(self.softmax),
                "written_out": parts["exp"] & parts["sum"] & parts["max"] & parts["quotient"],
                "backward": parts["backward"],
            }
        )

    def _reaching(self, spans: pd.DataFrame) -> pd.DataFrame:
        """Backward regions, extended by a second product of the same batch on either side."""
        first, last = spans["first"].to_numpy(), spans["last"].to_numpy()
        backward = spans["backward"].to_numpy(dtype=bool)
        before, behind = np.maximum(first - 1, 0), np.minimum(last + 1, len(self.product) - 1)
        earlier = backward & self._joined(before, first) & ~self.apart[first]
        later = backward & self._joined(behind, last) & ~self.apart[behind]
        return spans.assign(
            first=np.where(earlier, before, first), last=np.where(later, behind, last)
        )

    def _joined(self, other: np.ndarray, product: np.ndarray) -> np.ndarray:
        """Whether another row is a product of the same batch, and so belongs to the same
        attention."""
        batch = self.batch[self.kind[product]]
        same = self.batch[self.kind[other]] == batch
        return np.asarray((other != product) & self.product[other] & same)


_PARTS = {
    "exp": ["exp"], "sum": ["sum"], "max": ["max"], "backward": ["softmax_backward"],
    "quotient": ["div", "mul", "reciprocal"],
}  # fmt: skip


def _count(flags: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many rows of [first, end) are flagged."""
    total = np.append(0, np.cumsum(flags, dtype=np.int32))
    return np.asarray(total[end] - total[first])


def _inside(first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of each stretch [first, end), and the number of the stretch of each row."""
    size = end - first
    span = np.repeat(np.arange(len(first)), size)
    offset = np.arange(len(span)) - np.repeat(np.cumsum(size) - size, size)
    return first[span] + offset, span


def _priced(
    found: pd.DataFrame, kernels: Kernels, reference: Kernels, peaks: dict[int, DevicePeaks]
) -> pd.DataFrame:
    """The units with the time of a fused kernel: that of the products, which run faster where the
    fused kernel uses tensor cores instead of SIMT units."""
    mine, kinds = kernels.at(found["kernel"].to_numpy()), kernels.configurations
    length = mine["duration_ns"]
    product = found["product"].to_numpy()
    single = mine.spread((kinds["math"] == "simt") & (kinds["dtype"] == "fp32")) & product
    found["device"] = mine["device"]
    unit = found["unit"]
    found["simt"] = pd.Series(single).groupby(unit).transform("any").to_numpy(dtype=bool)
    found["work_ns"] = pd.Series(length).groupby(unit).transform("sum").to_numpy()
    product_ns = pd.Series(np.where(product, length, 0)).groupby(unit).transform("sum")
    found["product_ns"] = product_ns.to_numpy()
    gain = _half_gain(found["device"].to_numpy(), peaks)
    half = _uses_half(found["device"].to_numpy(), reference)
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
    """How much faster tensor cores in BF16 or FP16 are than SIMT units in FP32."""

    def gain(roof: DevicePeaks) -> float:
        half = roof.flops_per_s("bf16", "tensor") or roof.flops_per_s("fp16", "tensor")
        single = roof.flops_per_s("fp32", "simt")
        return max(half / single, 1.0) if half and single else 1.0

    table = {number: gain(roof) for number, roof in peaks.items()}
    return np.array([table.get(number, 1.0) for number in device.tolist()], dtype=np.float64)


def _uses_half(device: np.ndarray, reference: Kernels) -> np.ndarray:
    """Whether a device's other products run in half precision. If so, FP32 attention is a
    fallback."""
    kinds = reference.configurations
    ran = np.zeros(len(kinds), dtype=bool)
    ran[reference["configuration"]] = True
    half = ran & (kinds["category"] == "gemm") & kinds["dtype"].isin(["bf16", "fp16"])
    return np.isin(device, kinds.loc[half, "device"])
