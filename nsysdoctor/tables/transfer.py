"""What a copy would take from pinned memory on this machine."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.recipe import table
from nsysdoctor.tables.copies import PINNED

_LARGE_BYTES = 1 << 20
_SETUP_NS = 2_000
"""What even the smallest copy takes on a copy engine."""

# Achievable rates of a x16 link by compute capability: PCIe 3 before 8.0, 4 for 8.x, 5 from 9.0.
# Host links that are no PCIe (GH200, GB10) are faster; measured copies say so.
_LINK_BYTES_PER_S = ((9, 52e9), (8, 25e9), (0, 12e9))


@table
def pinned_rates(copies: pd.DataFrame, devices: pd.DataFrame) -> pd.DataFrame:
    """Returns the rate of large pinned copies per device and direction.

    Columns: device, direction (HtoD, DtoH), bytes_per_s, slow_bytes_per_s, fast_bytes_per_s,
    measured (bool: from at least three pinned copies of a megabyte or more in this trace, else
    from the link that GPUs of this generation have).
    """
    rows = [
        _rate(copies, int(device["device"]), direction, int(device["compute_major"]))
        for device in devices.to_dict("records")
        for direction in ("HtoD", "DtoH")
    ]
    names = ("device", "direction", "bytes_per_s", "slow_bytes_per_s", "fast_bytes_per_s",
             "measured")  # fmt: skip
    return pd.DataFrame(rows, columns=list(names))


def _rate(
    copies: pd.DataFrame, device: int, direction: str, major: int
) -> tuple[int, str, float, float, float, bool]:
    mine = copies[(copies["device"] == device) & (copies["direction"] == direction)]
    mine = mine[(mine["bytes"] >= _LARGE_BYTES) & ~mine["pageable"]]
    pinned = mine[(mine["src_kind"] == PINNED) | (mine["dst_kind"] == PINNED)]
    if len(pinned) >= 3:
        slow, middle, fast = np.percentile(pinned["rate_bytes_per_s"], (25, 50, 75))
        return device, direction, float(middle), float(slow), float(fast), True
    link = next(rate for least, rate in _LINK_BYTES_PER_S if major >= least)
    return device, direction, link, link / 2, link * 1.2, False


def pinned_ns(
    copies: pd.DataFrame, rates: pd.DataFrame, column: str = "bytes_per_s"
) -> np.ndarray:
    """Returns what each copy would take at the pinned rate of its device and direction, ns; no
    more than it took."""
    known = rates.set_index(["device", "direction"])[column].to_dict()
    rate = np.array(
        [known.get(k, np.inf) for k in zip(copies["device"], copies["direction"], strict=True)]
    )
    took = (copies["end_ns"] - copies["start_ns"]).to_numpy()
    needed = _SETUP_NS + copies["bytes"].to_numpy() * 1e9 / rate
    return np.asarray(np.minimum(took, needed), dtype=np.int64)
