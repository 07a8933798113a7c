"""Copies between devices that arrive as two: down to the host and up again."""

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
    """Returns for each copy whether it is a piece of a copy between two devices that the driver
    stages in host memory.

    Told from its call: one call that both brings down and takes up, on different devices; or one
    that is named as a copy between peers and yet goes to or comes from the host.
    """
    staged = np.zeros(len(copies), dtype=bool)
    if api is None or api_names is None or not len(api) or not len(copies):
        return staged
    bus = copies["direction"].isin(("HtoD", "DtoH")).to_numpy()
    mine = np.flatnonzero(bus & (copies["api"] >= 0).to_numpy())
    call = copies["api"].to_numpy()[mine]
    named = api_names["name"].str.contains(PEER_CALL).to_numpy()[api["name"].to_numpy()[call]]
    ends = pd.DataFrame({"call": call, "device": copies["device"].to_numpy()[mine]})
    both = ends.groupby("call", sort=False)["device"].transform("nunique") > 1
    staged[mine] = named | both.to_numpy()
    return staged
