"""Launches with too few blocks to give every multiprocessor one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import distinct, labels
from nsysdoctor.arrays.intervals import covered, spans, union
from nsysdoctor.errors import MissingTableError
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.tables.steps.steps import window_span_ns
from nsysdoctor.trace.recipe import table

_LEVELS = ((0.8, "high"), (0.6, "medium"), (0.4, "low"))
"""Shares of the window's multiprocessor time that stand empty."""


@table
def small(
    kernels: Kernels,
    devices: pd.DataFrame,
    kernels_inside: np.ndarray,
    window: pd.DataFrame,
    *,
    min_share_ratio: float,
    min_kernel_us: float,
) -> pd.DataFrame:
    """Returns the kernels of the window that leave multiprocessors empty while they run alone.

    Collectives and persistent tensor-core kernels choose few blocks on purpose.
    """
    if not (devices["sm_count"] > 0).any():
        raise MissingTableError(
            "the export does not tell how many multiprocessors its GPUs have",
            "export with a newer nsys",
        )
    kinds = kernels.configurations
    sms = kinds["device"].map(devices.set_index("device")["sm_count"])
    wanted = (kinds["blocks"] < 0.5 * sms) & (kinds["category"] != "communication")
    wanted &= kinds["math"] != "tensor"
    mine = kernels.at(kernels.spread(wanted) & kernels_inside)
    mine = mine.at(mine["duration_ns"] >= 1000 * min_kernel_us)
    columns = ("device", "lane", "name", "blocks", "configuration", "start_ns", "end_ns",
               "duration_ns")  # fmt: skip
    found = mine.frame(*columns).assign(sm_count=mine.spread(sms))
    found = found[_alone(found, kernels.at(kernels_inside))]
    span = window_span_ns(window)
    share = found.groupby("device")["duration_ns"].transform("sum") / max(span, 1)
    found = found.assign(share_ratio=np.minimum(share, 1.0))
    return found[(share >= min_share_ratio).to_numpy()]


def _alone(found: pd.DataFrame, here: Kernels) -> np.ndarray:
    """Kernels beside which no other stream of the device runs for half of their time."""
    alone = np.ones(len(found), dtype=bool)
    for (device, lane), rows in found.groupby(["device", "lane"], sort=True).indices.items():
        others = here.at((here["device"] == device) & (here["lane"] != lane))
        merged = union(spans(others["start_ns"], others["end_ns"]))
        mine = found.iloc[rows]
        beside = covered(spans(mine["start_ns"], mine["end_ns"]), merged)
        alone[rows] = beside < 0.5 * mine["duration_ns"].to_numpy()
    return alone


@table
def underfilled_grid(small: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, kernel,
    block_count, sm_count, level."""
    return pd.DataFrame([_row(mine, names) for _, mine in small.groupby("device", sort=True)])


def _row(mine: pd.DataFrame, names: pd.DataFrame) -> dict[str, object]:
    device, share = int(mine["device"].iloc[0]), float(mine["share_ratio"].iloc[0])
    by_name = mine.groupby("name", sort=True)["duration_ns"].sum()
    longest = mine[mine["name"] == by_name.idxmax()]
    return {
        "subject": f"small grids on GPU {device}",
        "device": device,
        "count": len(mine),
        "work_ns": int(mine["duration_ns"].sum()),
        "share_ratio": share,
        "kernel": " ".join(str(names["short"].iloc[int(by_name.idxmax())]).split())[:80],
        "block_count": int(longest["blocks"].median()),
        "sm_count": int(mine["sm_count"].iloc[0]),
        "level": _level(mine, share),
    }


def _level(mine: pd.DataFrame, share: float) -> str:
    """The level by how much of the device stands empty, over the window: most of it for most of
    the time is the first thing to say of a program."""
    filled = (mine["blocks"] / mine["sm_count"]).clip(upper=1.0)
    empty = share * float(1 - np.average(filled, weights=mine["duration_ns"]))
    return next((level for least, level in _LEVELS if empty >= least), "info")


def evidence(
    underfilled_grid: pd.DataFrame, small: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """Returns the launches: row, start_ns, end_ns, what."""
    code, first = distinct(small["configuration"].to_numpy())
    kinds = zip(names["short"].to_numpy()[small["name"]][first], small["blocks"].iloc[first],
                strict=True)  # fmt: skip
    return pd.DataFrame(
        {
            "row": np.unique(small["device"], return_inverse=True)[1],
            "start_ns": small["start_ns"].to_numpy(),
            "end_ns": small["end_ns"].to_numpy(),
            "what": labels([f"{name} with {blocks:,} blocks" for name, blocks in kinds], code),
        }
    )
