"""Copies between devices that appear as two: down to the host and up again."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.trace.recipe import table

PEER_CALL = r"MemcpyPeer|Memcpy3DPeer"


@table
def staged_peers(
    copies: pd.DataFrame,
    api: pd.DataFrame | None = None,
    api_names: pd.DataFrame | None = None,
) -> np.ndarray:
    """Returns for each copy whether it is part of a copy between two devices that the driver stages
    in host memory.

    This is recognised by the call: it copies both to and from the host, on different devices; or it
    is named as a copy between peers and yet goes to or comes from the host.
    """
    staged = np.zeros(len(copies), dtype=bool)
    if api is None or api_names is None or not len(api) or not len(copies):
        return staged
    bus = copies["direction"].isin(("HtoD", "DtoH")).to_numpy()
    rows = np.flatnonzero(bus & (copies["api"] >= 0).to_numpy())
    call = copies["api"].to_numpy()[rows]
    named = api_names["name"].str.contains(PEER_CALL).to_numpy()[api["name"].to_numpy()[call]]
    ends = pd.DataFrame({"call": call, "device": copies["device"].to_numpy()[rows]})
    both = ends.groupby("call", sort=False)["device"].transform("nunique") > 1
    staged[rows] = named | both.to_numpy()
    return staged
