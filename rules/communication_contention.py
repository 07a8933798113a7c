"""Kernels that run slower while a collective runs beside them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, covered, spans, union
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.rulebook.evidence import longest_places
from nsysdoctor.trace.recipe import table
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
    inside = (kernel_shape >= 0) & ((ops["start_ns"] >= low) & (ops["end_ns"] <= high)).to_numpy()
    inside[collectives["op"].to_numpy()] = False
    op = np.flatnonzero(inside)
    shape, beside = kernel_shape[op], _beside(ops, op, collectives)
    shape_count = int(shape.max(initial=-1)) + 1
    sizes = [np.bincount(shape[mine], minlength=shape_count) for mine in (beside > 0, beside == 0)]
    kept = (np.minimum(*sizes) >= least_count)[shape]
    found = ops[["device", "name", "start_ns", "end_ns"]].iloc[op[kept]].reset_index(drop=True)
    found = found.assign(op=op[kept], shape=shape[kept], beside_ns=beside[kept])
    return _slow(found, min_slowdown).merge(rank_groups[["device", "group"]], "left", "device")


def _beside(ops: pd.DataFrame, op: Ints, collectives: pd.DataFrame) -> Ints:
    """How long a collective runs on the device beside each of some operations."""
    beside = np.zeros(len(op), dtype=np.int64)
    on = ops["device"].to_numpy()[op]
    start, end = (ops[name].to_numpy() for name in ("start_ns", "end_ns"))
    for device, rows in collectives.groupby("device", sort=True):
        mine = np.flatnonzero(on == device)
        busy = union(spans(rows["start_ns"], rows["end_ns"]))
        beside[mine] = covered(spans(start[op[mine]], end[op[mine]]), busy)
    return beside


def _slow(kernels: pd.DataFrame, min_slowdown: float) -> pd.DataFrame:
    """Those beside a collective, of shapes that lose time there, with what each loses."""
    length = kernels["end_ns"] - kernels["start_ns"]
    beside = kernels["beside_ns"] > 0
    alone = length[~beside].groupby(kernels["shape"][~beside]).quantile([0.5, 0.9]).unstack()
    mine = kernels[beside].assign(length=length[beside])
    mine["alone_ns"] = mine["shape"].map(alone[0.5] if len(alone) else {})
    mine["worst_ns"] = mine["shape"].map(alone[0.9] if len(alone) else {})
    by_shape = mine.groupby("shape", sort=True)
    total = by_shape[["length", "beside_ns", "alone_ns", "worst_ns"]].transform("sum")
    # While a collective runs, a kernel works at 1/slowdown of its speed: of the overlap the share
    # 1 - 1/slowdown is lost. The sums over all launches give that share.
    share = (total["length"] - total["alone_ns"]) / total["beside_ns"]
    sure = (total["length"] - total["worst_ns"]) / total["beside_ns"]
    real = (share.clip(upper=1) >= 1 - 1 / min_slowdown) & (sure > 0)
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
    found = slowed[["start_ns", "end_ns"]].assign(row=slowed["group"].map(row_of), what="")
    took = (slowed["end_ns"] - slowed["start_ns"]).to_numpy()
    groups = found.groupby("row").indices.values()
    shown = np.concatenate([rows[longest_places(took[rows])] for rows in groups])
    mine = zip(names["short"].iloc[slowed["name"].iloc[shown]], took[shown],
               slowed["alone_ns"].iloc[shown], strict=True)  # fmt: skip
    what = [f"{name}: {ns_text(ns)}, alone {ns_text(alone)}" for name, ns, alone in mine]
    found.iloc[shown, found.columns.get_loc("what")] = what
    return found
