"""The roofs of a GPU: memory bandwidth and operations per second by type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, cast

import yaml

_CONSUMER = re.compile(r"\bGeForce\b", re.IGNORECASE)


@dataclass(frozen=True)
class DevicePeaks:
    """What a GPU can do at most; None, or a missing type, where no figure was published.

    `memory_bytes_per_s` in bytes/s. `simt_flops_per_s` and `tensor_flops_per_s` map a type (fp64,
    fp32, tf32, bf16, fp16, int8, fp8, fp4, fp16_accumulate_fp16) to operations/s, with a
    multiply-add counted as two.
    """

    memory_bytes_per_s: float | None = None
    sm_count: int | None = None
    simt_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    tensor_flops_per_s: Mapping[str, float] = field(default_factory=dict)

    def flops_per_s(self, dtype: str, math: str) -> float | None:
        """The roof for a type on `math` = simt or tensor units; None where unknown.

        `unknown` units get the higher of both, so that no kernel is put above its roof.
        """
        found = [
            peak
            for units, peak in (
                ("simt", self.simt_flops_per_s.get(dtype)),
                ("tensor", self.tensor_flops_per_s.get(dtype)),
            )
            if peak is not None and math in (units, "unknown")
        ]
        return max(found, default=None)

    def ridge_flops_per_byte(self, dtype: str, math: str) -> float | None:
        """The arithmetic intensity at which both roofs meet, in operations per byte."""
        flops = self.flops_per_s(dtype, math)
        return flops / self.memory_bytes_per_s if flops and self.memory_bytes_per_s else None


def device_peaks(
    name: str,
    memory_bandwidth_bytes_per_s: int,
    sm_count: int,
    clock_hz: int,
    compute_major: int,
    compute_minor: int,
) -> DevicePeaks:
    """The roofs of one GPU of the `devices` table; a figure of 0 means the export lacks it.

    Operations/s are SMs x maximum clock x 2 x multiply-adds per SM and clock (peaks.yaml).
    """
    rates = _rates(compute_major, compute_minor)
    tensor = {} if _lacks_tensor_cores(rates, name) else dict(rates.get("tensor", {}))
    if tensor and _CONSUMER.search(name):
        tensor.update(rates.get("geforce", {}))
    per_rate = 2.0 * sm_count * clock_hz
    known = per_rate > 0
    return DevicePeaks(
        memory_bytes_per_s=float(memory_bandwidth_bytes_per_s) or None,
        sm_count=sm_count or None,
        simt_flops_per_s=_scaled(rates.get("simt", {}), per_rate) if known else {},
        tensor_flops_per_s=_scaled(tensor, per_rate) if known else {},
    )


def has_tensor_dtype(compute_major: int, compute_minor: int, dtype: str, name: str = "") -> bool:
    """Returns whether tensor cores of a compute capability work on a type; False where unknown.

    `name` distinguishes the GTX 16 cards, which have no tensor cores, from the RTX 20 cards of the
    same capability 7.5.
    """
    rates = _rates(compute_major, compute_minor)
    listed = {*rates.get("tensor", {}), *rates.get("supports", [])}
    return dtype in listed and not _lacks_tensor_cores(rates, name)


def _scaled(rates: Mapping[str, float], factor: float) -> dict[str, float]:
    return {dtype: rate * factor for dtype, rate in rates.items()}


def _lacks_tensor_cores(rates: Mapping[str, Any], name: str) -> bool:
    pattern = rates.get("without_tensor")
    return pattern is not None and re.search(pattern, name) is not None


def _rates(major: int, minor: int) -> Mapping[str, Any]:
    return _table().get(f"{major}.{minor}", {})


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    text = files("nsysdoctor.roofline").joinpath("peaks.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return cast("Mapping[str, Mapping[str, Any]]", yaml.load(text, Loader=loader))
