"""Kernels that only change the layout of a tensor for the next kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.fused_kernels import unlaunched
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

_CONVERT = r"(?i)nchw\w*nhwc|nhwc\w*nchw|AddPadding|tensorTransform|genericReformat"
_SLOW = 0.5
"""Some changes of layout may remain at the edges of what runs channels-last."""


@table
def changes(
    kernels: Kernels,
    names: pd.DataFrame,
    kernels_inside: np.ndarray,
    inside_ns: pd.Series[int],
    *,
    min_share_ratio: float,
) -> pd.DataFrame:
    """Returns the changes of layout in the window, where they take a share worth naming.

    Plain transposes count only on a GPU that runs convolutions.
    """
    kinds = kernels.configurations
    convert = names["short"].str.contains(_CONVERT, regex=True).to_numpy(dtype=bool)
    products = kernels.at(kernels.spread(kinds["category"] == "conv") & kernels_inside)
    wanted = (kinds["category"] == "layout") & ~kinds["fused"]
    wanted &= convert[kinds["name"]] | kinds["device"].isin(np.unique(products["device"]))
    kernel = np.flatnonzero(kernels.spread(wanted) & kernels_inside)
    columns = ("op", "device", "name", "start_ns", "end_ns", "duration_ns")
    found = kernels.at(kernel).frame(*columns).assign(kernel=kernel)
    total = found.groupby("device")["duration_ns"].transform("sum")
    share = total / found["device"].map(inside_ns)
    return found.assign(share_ratio=share)[(share >= min_share_ratio).to_numpy()]


@table
def layout_transform(changes: pd.DataFrame, operations: np.ndarray) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, kinds, basis."""
    return pd.DataFrame(
        [_row(mine, operations) for _, mine in changes.groupby("device", sort=True)]
    )


def _row(mine: pd.DataFrame, operations: np.ndarray) -> dict[str, object]:
    device = int(mine["device"].iloc[0])
    words = sorted(set(operations[mine["name"].to_numpy()].tolist()))
    return {
        "subject": f"layout changes on GPU {device}",
        "device": device,
        "count": len(mine),
        "work_ns": int(mine["duration_ns"].sum()),
        "share_ratio": float(mine["share_ratio"].iloc[0]),
        "kinds": ", ".join(words[:4]),
        "basis": "inferred",
    }


def cure(
    layout_transform: pd.DataFrame, changes: pd.DataFrame, kernels: Kernels
) -> list[pd.DataFrame]:
    """Everything runs in one layout: the changes take no time and are not launched."""
    subject = np.unique(changes["device"], return_inverse=True)[1]
    length = changes["duration_ns"].to_numpy()
    return join(
        edits(Change.OP_NS, subject, changes["op"], 0, slow_ns=length * _SLOW),
        unlaunched(kernels.at(changes["kernel"].to_numpy()), subject),
    )


def evidence(
    layout_transform: pd.DataFrame, changes: pd.DataFrame, operations: np.ndarray
) -> pd.DataFrame:
    """Returns the changes: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": np.unique(changes["device"], return_inverse=True)[1],
            "start_ns": changes["start_ns"].to_numpy(),
            "end_ns": changes["end_ns"].to_numpy(),
            "what": labels(operations, changes["name"].to_numpy()),
        }
    )
