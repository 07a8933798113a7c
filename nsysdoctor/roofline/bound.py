"""Which roof binds each kernel, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.roofline.peaks import DevicePeaks
from nsysdoctor.roofline.taxonomy import COMPUTE_HEAVY, MEMORY_BOUND

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

BOUNDS = ("unknown", "memory", "compute", "latency")
BASES = ("", "measured", "geometry", "inferred")
MEMORY_BOUND_RATIO = 0.6
"""Above this share of peak bandwidth a kernel is on the memory roof."""
FAR_RATIO = 0.1
"""Below this share of peak bandwidth, known traffic shows that something else holds a kernel up,
whatever its family usually waits for."""
SHORT_NS = 5_000
"""Below this a kernel spends its time on launch, ramp-up and drain."""

_UNKNOWN, _MEMORY, _COMPUTE, _LATENCY = range(len(BOUNDS))
_NOTHING, _MEASURED, _, _INFERRED = range(len(BASES))


def roofs_of(configurations: pd.DataFrame, peaks: Mapping[int, DevicePeaks]) -> pd.DataFrame:
    """Returns the roofs over launch configurations, which have device, dtype and math.

    Columns: peak_bytes_per_s, peak_flops_per_s (NaN where unknown), sm_count (0 where unknown).
    """
    key = ["device", "dtype", "math"]
    code = configurations.groupby(key, sort=False, observed=True).ngroup().to_numpy()
    roofs = [
        _roof(peaks.get(int(device), DevicePeaks()), str(dtype), str(math))
        for device, dtype, math in configurations[key].drop_duplicates().itertuples(index=False)
    ]
    columns = ["peak_bytes_per_s", "peak_flops_per_s", "sm_count"]
    values = np.array(roofs, dtype=np.float64).reshape(-1, len(columns))
    return pd.DataFrame(values[code], configurations.index, columns)


def _roof(peaks: DevicePeaks, dtype: str, math: str) -> tuple[float, float, int]:
    flops = peaks.flops_per_s(dtype, math)
    return peaks.memory_bytes_per_s or np.nan, flops or np.nan, peaks.sm_count or 0


class Roofline:
    """What limits kernels of some launch configurations: memory, compute, latency or unknown.

    A kernel is on the memory roof above 60 % of peak bandwidth, on the compute roof above 60 % of
    peak operations/s. Below both it is latency bound if it has fewer blocks than the device has SMs
    or takes less than 5 µs. A kernel known to move less than 10 % of what memory delivers stays
    unknown. For the others the arithmetic intensity decides, and without one the category.
    """

    def __init__(self, configurations: pd.DataFrame) -> None:
        """`configurations` has category, math, blocks and the columns of `roofs_of`."""
        category, math = configurations["category"], configurations["math"]
        self._bytes_per_s, self._flops_per_s = (
            configurations[name].to_numpy() for name in ("peak_bytes_per_s", "peak_flops_per_s")
        )
        # Persistent tensor-core kernels come in clusters and may leave some SMs without a block.
        least = configurations["sm_count"].to_numpy() / np.where(math == "tensor", 2, 1)
        self._few_blocks = configurations["blocks"].to_numpy() < least
        self._silent = (category == "communication").to_numpy()
        # Matrix kernels of unknown units may be helpers, or read their matrix only once.
        matrix = category.isin(COMPUTE_HEAVY) & ((math != "unknown") | (category == "attention"))
        usual = np.where(matrix, _COMPUTE, _UNKNOWN)
        self._usual = np.where(category.isin(MEMORY_BOUND), _MEMORY, usual).astype(np.int8)

    def bound(
        self,
        of: npt.NDArray[Any],
        duration_ns: npt.NDArray[np.int64],
        moved: Floats,
        basis: Codes,
        flops: Floats | None = None,
    ) -> tuple[Codes, Codes]:
        """Returns what binds each kernel (place in BOUNDS) and how that is known (place in BASES).

        Each kernel has a configuration, a duration, the bytes it moved (NaN where unknown) with
        their basis, and operations. The returned basis is that of the bytes where these decided,
        "measured" for latency, "inferred" where only the category decided, and "" for unknown.
        """
        seconds = np.where(duration_ns > 0, duration_ns, np.nan) / 1e9
        reached = moved / seconds / self._bytes_per_s[of]
        far = (reached < FAR_RATIO) & (self._usual[of] == _MEMORY)
        cases: list[tuple[npt.NDArray[np.bool_], int, int | Codes]] = [
            (self._silent[of], _UNKNOWN, _NOTHING),
            (reached > MEMORY_BOUND_RATIO, _MEMORY, basis),
            (self._few_blocks[of] | (duration_ns < SHORT_NS), _LATENCY, _MEASURED),
            (far, _UNKNOWN, _NOTHING),
        ]
        if flops is not None:
            compute, intensity = self._arithmetic(of, seconds, moved, flops)
            cases.insert(2, (compute > MEMORY_BOUND_RATIO, _COMPUTE, basis))
            cases += [(intensity < 1, _MEMORY, basis), (intensity >= 1, _COMPUTE, basis)]
        usual = self._usual[of]
        inferred = np.where(usual == _UNKNOWN, np.int8(_NOTHING), np.int8(_INFERRED))
        conditions, verdicts, bases = zip(*cases, strict=True)
        return _select(conditions, verdicts, usual), _select(conditions, bases, inferred)

    def _arithmetic(
        self, of: npt.NDArray[Any], seconds: Floats, moved: Floats, flops: Floats
    ) -> tuple[Floats, Floats]:
        """Achieved operations/s as a share of the peak, and arithmetic intensity relative to the
        ridge; NaN where unknown."""
        roof = self._flops_per_s[of]
        compute = flops / seconds / roof
        ridge = roof / self._bytes_per_s[of]
        intensity = flops / np.where(moved > 0, moved, np.nan) / ridge
        # A figure above the roof means that the shapes belong to another kernel.
        possible = ~(compute > 1)
        return np.where(possible, compute, np.nan), np.where(possible, intensity, np.nan)


def _select(
    conditions: Sequence[npt.NDArray[np.bool_]], values: Sequence[int | Codes], otherwise: Codes
) -> Codes:
    """For each kernel the value that belongs to the first condition that holds."""
    choices = [np.asarray(value, dtype=np.int8) for value in values]
    return np.asarray(np.select(conditions, choices, otherwise), dtype=np.int8)
