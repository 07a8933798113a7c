"""Collectives: which communication kernels of a trace meet each other."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.tables.activity.ops import COMMUNICATION
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_TOGETHER_NS = 50_000
"""Kernels of one collective end within this time of each other on all ranks."""


@table
def collectives(ops: pd.DataFrame, op_category: pd.Series[str]) -> pd.DataFrame:
    """Returns the communication kernels in the order of `ops`.

    Columns: op, device, lane, name, start_ns, end_ns, meeting (code of the kernels that are one
    collective on several devices of the trace, -1 for none), ranks (kernels of the meeting, else
    1), transfer_ns (of the shortest of them: the others waited for the last to come).
    Kernels of one name on distinct devices that overlap and end together are one collective.
    """
    mine = np.flatnonzero((op_category == COMMUNICATION).to_numpy())
    columns = ("device", "lane", "name", "start_ns", "end_ns")
    found = pd.DataFrame({c: ops[c].to_numpy()[mine] for c in columns})
    found["op"] = mine.astype(np.int32)
    length = found["end_ns"] - found["start_ns"]
    found["meeting"] = _meetings(found)
    met = found["meeting"] >= 0
    grouped = length.groupby(found["meeting"])
    found["ranks"] = grouped.transform("size").where(met, 1)
    found["transfer_ns"] = grouped.transform("min").where(met, length)
    return found


def _meetings(found: pd.DataFrame) -> Ints:
    meeting = np.full(len(found), -1, dtype=np.int64)
    if found["device"].nunique() < 2:
        return meeting
    order = np.lexsort([found[c].to_numpy() for c in ("device", "end_ns", "name")])
    name, end, start, device = (
        found[c].to_numpy()[order] for c in ("name", "end_ns", "start_ns", "device")
    )
    opens = np.ones(len(order), dtype=bool)
    opens[1:] = (name[1:] != name[:-1]) | (end[1:] - end[:-1] > _TOGETHER_NS)
    group = np.cumsum(opens)
    frame = pd.DataFrame({"group": group, "start": start, "end": end, "device": device})
    by_group = frame.groupby("group", sort=True)
    real = (
        (by_group["device"].transform("nunique") == by_group["device"].transform("size"))
        & (by_group["device"].transform("size") > 1)
        & (by_group["start"].transform("max") < by_group["end"].transform("min"))
    )
    meeting[order] = np.where(real, group, -1)
    return meeting


@table
def rank_groups(
    devices: pd.DataFrame, collectives: pd.DataFrame, request: Request
) -> pd.DataFrame:
    """Returns which devices work together: device, group (code), label (GPU 0, GPUs 0 to 3).

    Devices whose collectives meet are one group: what slows one down slows all of them.
    """
    found = devices[["device"]].sort_values("device", ignore_index=True)
    group = {device: device for device in found["device"].tolist()}
    shown, real = request.in_given_window(collectives), collectives["meeting"].to_numpy() >= 0
    met = collectives[real if shown is None else real & shown]
    met = met[["meeting", "device"]].drop_duplicates()
    first = met.groupby("meeting")["device"].transform("min")
    pairs = pd.DataFrame({"one": first, "other": met["device"]}).drop_duplicates()
    for one, other in pairs.itertuples(index=False):
        low, high = sorted((group[one], group[other]))
        group = {d: low if g == high else g for d, g in group.items()}
    found["group"] = pd.factorize(found["device"].map(group))[0]
    labels = found.groupby("group", sort=True)["device"].agg(lambda d: gpus_text(d.tolist()))
    return found.assign(label=found["group"].map(labels))


def gpus_text(devices: list[int]) -> str:
    """Returns the devices in words, given in order."""
    if len(devices) == 1:
        return f"GPU {devices[0]}"
    if len(devices) > 2 and devices[-1] - devices[0] == len(devices) - 1:
        return f"GPUs {devices[0]} to {devices[-1]}"
    return "GPUs " + ", ".join(str(device) for device in devices)
