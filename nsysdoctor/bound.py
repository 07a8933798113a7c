"""Which roof binds each kernel, and how that is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.peaks import DevicePeaks
from nsysdoctor.tables.taxonomy import COMPUTE_HEAVY, MATHS, MEMORY_BOUND

Floats = npt.NDArray[np.float64]

BOUNDS = ("unknown", "memory", "compute", "latency")
BASES = ("", "measured", "geometry", "inferred")
MEMORY_BOUND_RATIO = 0.6
"""Above this share of peak bandwidth a kernel is on the memory roof."""
SHORT_NS = 5_000
"""Below this a kernel spends its time on launch, ramp-up and drain."""


def bound(kernels: pd.DataFrame, peaks: DevicePeaks) -> pd.DataFrame:
    """What limits each kernel: memory, compute, latency or unknown, and how that is known.

    `kernels` has category, dtype, math, blocks, duration_ns, bytes, rate_bytes_per_s, basis (one
    of BASES), and optionally flops (NaN where unknown). Returns bound and basis (categorical),
    same index; basis is the one of the bytes where they decided, "measured" for latency,
    "inferred" where only the category did, "" for unknown.

    A kernel is on the memory roof above 60 % of peak bandwidth, on the compute roof above 60 %
    of peak operations/s. Below both it is latency bound if it has fewer blocks than the device
    has SMs or takes less than 5 µs; else its arithmetic intensity decides, else its category.
    """
    memory, compute, intensity = _utilisation(kernels, peaks)
    matrix = _by_value(kernels["category"], COMPUTE_HEAVY.__contains__)
    # matrix kernels of unknown units may be helpers, or read their matrix only once
    known = _by_value(kernels["math"], lambda math: math != "unknown")
    conditions = [
        _by_value(kernels["category"], lambda category: category == "communication"),
        memory > MEMORY_BOUND_RATIO,
        compute > MEMORY_BOUND_RATIO,
        _too_small(kernels, peaks),
        intensity < 1,
        intensity >= 1,
        _by_value(kernels["category"], MEMORY_BOUND.__contains__),
        matrix & (known | _by_value(kernels["category"], lambda name: name == "attention")),
    ]
    given = _by_value(kernels["basis"], BASES.index)
    nothing, measured, inferred = (BASES.index(basis) for basis in ("", "measured", "inferred"))
    sources: list[int | npt.NDArray[np.int8]] = [
        nothing,
        given,
        given,
        measured,
        given,
        given,
        inferred,
        inferred,
    ]
    verdict = _select(conditions, [BOUNDS.index(verdict) for verdict in _VERDICTS], 0)
    basis = _select(conditions, sources, nothing)
    return pd.DataFrame(
        {
            "bound": pd.Categorical.from_codes(verdict, BOUNDS),
            "basis": pd.Categorical.from_codes(basis, BASES),
        },
        index=kernels.index,
    )


# in the order of the conditions in `bound`
_VERDICTS = ("unknown", "memory", "compute", "latency", "memory", "compute", "memory", "compute")


def _select(
    conditions: Sequence[npt.NDArray[np.bool_]],
    values: Sequence[int | npt.NDArray[np.int8]],
    otherwise: int,
) -> npt.NDArray[np.int8]:
    """The value of the first condition that holds, per row."""
    choices = [np.asarray(value, dtype=np.int8) for value in values]
    return np.select(conditions, choices, np.int8(otherwise))


def _by_value(column: pd.Series[str], function: Callable[[str], object]) -> npt.NDArray[Any]:
    """`function` of every row, called once per distinct value."""
    values = column.astype("category").cat
    table = np.array([function(value) for value in values.categories])
    codes = values.codes.to_numpy()
    return table[codes] if len(table) else np.zeros(len(codes), dtype=bool)


def _utilisation(kernels: pd.DataFrame, peaks: DevicePeaks) -> tuple[Floats, Floats, Floats]:
    """Shares of peak bandwidth and of peak operations/s, and intensity over the ridge; or NaN."""
    rate = kernels["rate_bytes_per_s"].to_numpy(dtype=np.float64)
    memory = rate / (peaks.memory_bytes_per_s or np.nan)
    if "flops" not in kernels:
        nothing = np.full(len(kernels), np.nan)
        return memory, nothing, nothing
    flops = kernels["flops"].to_numpy(dtype=np.float64)
    duration_ns = kernels["duration_ns"].to_numpy(dtype=np.float64)
    moved = kernels["bytes"].to_numpy(dtype=np.float64)
    roof = _roofs(kernels, peaks)
    compute = flops / (np.where(duration_ns > 0, duration_ns, np.nan) / 1e9) / roof
    ridge = roof / (peaks.memory_bytes_per_s or np.nan)
    intensity = flops / np.where(moved > 0, moved, np.nan) / ridge
    # more than the roof means that the shapes are not this kernel's
    possible = ~(compute > 1)
    return memory, np.where(possible, compute, np.nan), np.where(possible, intensity, np.nan)


def _roofs(kernels: pd.DataFrame, peaks: DevicePeaks) -> Floats:
    """Operations/s of each kernel's type on its units, NaN where unknown."""
    roofs = np.full(len(kernels), np.nan)
    for math in MATHS:
        on_units = _by_value(kernels["math"], math.__eq__).astype(bool)
        roofs = np.where(on_units, _by_value(kernels["dtype"], _roof_on(math, peaks)), roofs)
    return roofs


def _roof_on(math: str, peaks: DevicePeaks) -> Callable[[str], float]:
    return lambda dtype: peaks.flops_per_s(dtype, math) or np.nan


def _too_small(kernels: pd.DataFrame, peaks: DevicePeaks) -> npt.NDArray[np.bool_]:
    """Kernels that cannot fill the device.

    Persistent tensor-core kernels come in clusters and may leave some SMs without a block.
    """
    tensor = _by_value(kernels["math"], lambda math: math == "tensor")
    blocks = kernels["blocks"].to_numpy(dtype=np.int64) * np.where(tensor, 2, 1)
    short = kernels["duration_ns"].to_numpy(dtype=np.int64) < SHORT_NS
    result: npt.NDArray[np.bool_] = (blocks < (peaks.sm_count or 0)) | short
    return result
