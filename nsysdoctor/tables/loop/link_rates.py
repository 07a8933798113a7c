"""The highest rate that the links between host and devices carry, by everything in the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nsysdoctor.ingest.cut import LARGE_BYTES
from nsysdoctor.roofline.profile import DeviceProfile
from nsysdoctor.tables.account.copies import PINNED
from nsysdoctor.tables.loop.loop_copies import link_bytes_per_s
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_SETUP_NS = 2_000
_INTEGRATED = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""Capabilities of GPUs that share the host's memory: there is no link to publish a rate of."""

_LEAST_COPIES = 3


@table
def link_rates(
    copies: pd.DataFrame, devices: pd.DataFrame, request: Request | None = None
) -> pd.DataFrame:
    """Returns what the host link of each device carries, per direction.

    Columns: device, direction (HtoD, DtoH), could_bytes_per_s, measured (bool). The highest of:
    what an upper tenth of the large pinned copies reached on any device of this model, in any
    direction; what a profile of the model says; what a x16 link of its generation carries.
    Devices of which nothing is known have no row.
    """
    profile = request.profile if request is not None else None
    host = copies["src_kind"].where(copies["direction"] == "HtoD", copies["dst_kind"])
    large = (copies["bytes"] >= LARGE_BYTES) & copies["direction"].isin(("HtoD", "DtoH"))
    pinned = copies[large & (host == PINNED)].merge(devices[["device", "name"]], "left", "device")
    rows = []
    for about in devices.to_dict("records"):
        seen = pinned[pinned["name"] == about["name"]]
        for direction in ("HtoD", "DtoH"):
            rate, measured = _best(about, direction, seen, profile)
            if rate > 0:
                rows.append((int(about["device"]), direction, rate, measured))
    return pd.DataFrame(rows, columns=["device", "direction", "could_bytes_per_s", "measured"])


def _best(
    about: dict[str, Any], direction: str, seen: pd.DataFrame, profile: DeviceProfile | None
) -> tuple[float, bool]:
    """The highest rate of all sources, and whether it was measured."""
    rates = [(_published(about), False)]
    reached = [
        float(np.percentile(copies["rate_bytes_per_s"], 90))
        for _, copies in seen.groupby(["device", "direction"], sort=True)
        if len(copies) >= _LEAST_COPIES
    ]
    rates += [(rate, True) for rate in reached]
    if profile is not None and profile.is_of(str(about["name"])):
        spread = profile.pinned_rate(direction)
        # A rate measured on this machine replaces the published one of its link.
        rates = [(spread.median, True), *rates[1:]] if spread is not None else rates
    return max(rates)


def _published(about: dict[str, Any]) -> float:
    capability = int(about["compute_major"]), int(about["compute_minor"])
    if capability[0] <= 0 or capability in _INTEGRATED:
        return 0.0
    return link_bytes_per_s(capability[0])


def link_ns(slow: pd.DataFrame, share: float = 1.0) -> np.ndarray:
    """Returns how long each copy takes at a share of `could_bytes_per_s`, at most as long as it
    took, ns."""
    took = (slow["end_ns"] - slow["start_ns"]).to_numpy()
    moved = _SETUP_NS + slow["bytes"].to_numpy() * 1e9 / (share * slow["could_bytes_per_s"])
    return np.asarray(np.minimum(took, moved), dtype=np.int64)


def of_one_row(
    copies: pd.DataFrame, api: pd.DataFrame | None, api_names: pd.DataFrame | None
) -> np.ndarray:
    """Returns which copies move one contiguous piece, as far as the name of their call shows."""
    if api is None or api_names is None or not len(api):
        return np.ones(len(copies), dtype=bool)
    strided = api_names["name"].str.contains(r"2D|3D|Array").to_numpy()
    call = copies["api"].to_numpy()
    name = api["name"].to_numpy()[np.maximum(call, 0)]
    return np.asarray((call < 0) | ~strided[name])
