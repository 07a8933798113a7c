"""Kernels that run slower while a collective runs beside them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.edits import Change, edits
from nsysdoctor.intervals import Ints, covered, spans, union
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import KERNEL
from nsysdoctor.units import ns_text


@table
def slowed(
    ops: pd.DataFrame,
    collectives: pd.DataFrame,
    kernel_shape: Ints,
    window: pd.DataFrame,
    rank_groups: pd.DataFrame,
    *,
    min_slowdown: float,
    least_count: int,
) -> pd.DataFrame:
    """Returns the kernels of the window that overlap a collective and are of a launch (name,
    grid, block) that runs at least `min_slowdown` times faster alone.

    Columns: op, device, group, name, shape, start_ns, end_ns, beside_ns (overlap), alone_ns (the
    median without one), lost_ns. A launch counts where at least `least_count` ran alone and as
    many beside a collective, and where the slowest tenth of those alone is faster as well.
    """
    low, high = window["start_ns"].iloc[0], window["end_ns"].iloc[0]
    kernel = np.flatnonzero(ops["kind"].to_numpy() == KERNEL)
    kernel = np.setdiff1d(kernel, collectives["op"].to_numpy())
    found = ops.iloc[kernel][["device", "name", "start_ns", "end_ns"]].reset_index(drop=True)
    found = found.assign(op=kernel, shape=kernel_shape[kernel], beside_ns=0)
    for device, rows in found.groupby("device", sort=True):
        here = collectives[collectives["device"] == device]
        busy = union(spans(here["start_ns"], here["end_ns"]))
        found.loc[rows.index, "beside_ns"] = covered(spans(rows["start_ns"], rows["end_ns"]), busy)
    inside = (found["start_ns"] >= low) & (found["end_ns"] <= high)
    slow = _slow(found[inside].reset_index(drop=True), min_slowdown, least_count)
    return slow.merge(rank_groups[["device", "group"]], "left", "device")


def _slow(kernels: pd.DataFrame, min_slowdown: float, least_count: int) -> pd.DataFrame:
    """Those beside a collective, of shapes that lose time there, with what each loses."""
    length = kernels["end_ns"] - kernels["start_ns"]
    beside = kernels["beside_ns"] > 0
    alone = length[~beside].groupby(kernels["shape"][~beside]).quantile([0.5, 0.9]).unstack()
    number = kernels["shape"][~beside].value_counts()
    mine = kernels[beside].assign(length=length[beside])
    mine["alone_ns"] = mine["shape"].map(alone[0.5] if len(alone) else {})
    mine["worst_ns"] = mine["shape"].map(alone[0.9] if len(alone) else {})
    by_shape = mine.groupby("shape", sort=True)
    total = by_shape[["length", "beside_ns", "alone_ns", "worst_ns"]].transform("sum")
    real = (mine["shape"].map(number).fillna(0) >= least_count) & (
        by_shape["op"].transform("size") >= least_count
    )
    # While a collective runs, a kernel works at 1/slowdown of its speed: of the overlap the share
    # 1 - 1/slowdown is lost. The sums over all launches give that share.
    share = (total["length"] - total["alone_ns"]) / total["beside_ns"]
    sure = (total["length"] - total["worst_ns"]) / total["beside_ns"]
    real &= (share.clip(upper=1) >= 1 - 1 / min_slowdown) & (sure > 0)
    lost = (mine["beside_ns"] * share.clip(0, 1))[real]
    return mine[real].assign(lost_ns=lost.astype(np.int64)).reset_index(drop=True)


@table
def communication_contention(
    slowed: pd.DataFrame, rank_groups: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """Returns a row per group of devices whose collectives meet: subject, device (-1 for
    several), group, count, shape_count, beside_ns (per device), lost_ns (per device), slowdown
    (while a collective runs), kernel (the name that loses most)."""
    rows = []
    for group, mine in slowed.groupby("group", sort=True):
        here = rank_groups[rank_groups["group"] == group]
        beside, lost = int(mine["beside_ns"].sum()), int(mine["lost_ns"].sum())
        most = mine.groupby("name", sort=True)["lost_ns"].sum().idxmax()
        rows.append(
            {
                "subject": str(here["label"].iloc[0]),
                "device": int(here["device"].iloc[0]) if len(here) == 1 else -1,
                "group": group,
                "count": len(mine),
                "shape_count": int(mine["shape"].nunique()),
                "beside_ns": beside // len(here),
                "lost_ns": lost // len(here),
                "slowdown": round(beside / max(beside - lost, 1), 2),
                "kernel": str(names["short"].iloc[most]),
            }
        )
    return pd.DataFrame(rows)


def cure(communication_contention: pd.DataFrame, slowed: pd.DataFrame) -> pd.DataFrame:
    """Kernels as fast as alone; at worst nothing is gained, since the collective then takes
    longer."""
    row_of = {group: row for row, group in enumerate(communication_contention["group"])}
    took = (slowed["end_ns"] - slowed["start_ns"]).to_numpy()
    return edits(
        Change.OP_NS,
        slowed["group"].map(row_of).to_numpy(dtype=np.int64),
        slowed["op"].to_numpy(),
        took - slowed["lost_ns"].to_numpy(),
        slow_ns=took,
    )


def evidence(
    communication_contention: pd.DataFrame, slowed: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """Returns the slowed kernels: row, start_ns, end_ns, what."""
    row_of = {group: row for row, group in enumerate(communication_contention["group"])}
    short = names["short"].to_numpy()[slowed["name"].to_numpy()]
    took = slowed["end_ns"] - slowed["start_ns"]
    return pd.DataFrame(
        {
            "row": slowed["group"].map(row_of).to_numpy(dtype=np.int64),
            "start_ns": slowed["start_ns"],
            "end_ns": slowed["end_ns"],
            "what": [f"{name}: {ns_text(t)}, alone {ns_text(a)}" for name, t, a in
                     zip(short, took, slowed["alone_ns"], strict=True)],
        }
    )  # fmt: skip
