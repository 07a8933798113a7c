"""How much a metric differs between runs of the same program, before any run was repeated.

Two things vary from run to run: the clocks of the device, which stretch all kernels, and the host,
which stretches what lies between them. From the two follows what each metric may differ by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """The stated spread between runs, one standard deviation as a share.

    `device` is that of kernel times, `host` that of everything else; `least` is the smallest
    spread that a few alike runs are believed.
    """

    device: float = 0.03
    host: float = 0.10
    least: float = 0.003


def run_spread(noise: Noise, metric: str, value: float, busy_ratio: float) -> float:
    """Returns the standard deviation between runs that is assumed of a metric, in its unit.

    A step of which `busy_ratio` is kernels varies by both shares, added as independent errors; a
    ratio u of the two by u (1 - u) times their common spread. Counts and bytes do not vary.
    """
    if metric in ("step_ns", "span_ns"):
        return value * math.hypot(noise.device * busy_ratio, noise.host * (1 - busy_ratio))
    if metric in ("utilization_ratio", "busy_ratio"):
        return value * (1 - min(value, 1.0)) * math.hypot(noise.device, noise.host)
    if metric in ("kernel_ns", "busy_ns"):
        return value * noise.device
    return value * noise.host if metric.endswith("_ns") else 0.0


def least_spread(noise: Noise, metric: str, value: float) -> float:
    """Returns the smallest spread between runs that is believed, in the metric's unit."""
    if metric.endswith("_ratio"):
        return min(value, 1 - min(value, 1.0)) * noise.least
    return abs(value) * noise.least if metric.endswith("_ns") else 0.0
