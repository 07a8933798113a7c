"""Edits that cures of host calls share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.replay.edits import Change, Part, edits, join

LAUNCH_NS = 5_000
"""From the start of a call to the start of its operation when nothing is in the way."""


def shorten_calls(
    subject: int, call: Ints, ns: Ints | int, api: pd.DataFrame, launches: pd.DataFrame,
    *, blocking: bool = False, part: Part = Part.OWN,
) -> list[pd.DataFrame]:  # fmt: skip
    """Returns the edits after which each call (row of `api`) costs `ns` and what it submits
    starts that much earlier; with `blocking` the calls also stop waiting for operations. `part`
    tells what part of their time is taken away."""
    call = np.asarray(call, dtype=np.int64)
    target = np.broadcast_to(np.asarray(ns, dtype=np.int64), (len(call),))
    cost = pd.Series(target, index=call)
    length = (api["end_ns"] - api["start_ns"]).to_numpy()
    mine = launches[launches["api"].isin(call)]
    spared = np.maximum(length[mine["api"]] - cost.loc[mine["api"]].to_numpy(), 0)
    latency = np.maximum(mine["latency_ns"].to_numpy() - spared, LAUNCH_NS)
    change = Change.UNBLOCK if blocking else Change.CALL_NS
    return join(
        edits(change, subject, call, target, part=part),
        edits(Change.LAUNCH_NS, subject, mine["op"].to_numpy(), latency, part=part),
    )
