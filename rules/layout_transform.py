"""Kernels that only change the layout of a tensor for the next kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.edits import Change, edits, join
from nsysdoctor.fusing import unlaunched
from nsysdoctor.recipe import table
from nsysdoctor.tables.steps import in_window

_CONVERT = r"(?i)nchw\w*nhwc|nhwc\w*nchw|AddPadding|tensorTransform|genericReformat"
_SLOW = 0.5
"""Some changes of layout may remain at the edges of what runs channels-last."""


@table
def changes(
    kernels: pd.DataFrame, names: pd.DataFrame, window: pd.DataFrame, *, min_share_ratio: float
) -> pd.DataFrame:
    """Returns the changes of layout in the window, where they take a share worth naming.

    Plain transposes count only on a GPU that runs convolutions.
    """
    here = kernels[in_window(kernels["called_ns"].to_numpy(), window)]
    convert = names["short"].str.contains(_CONVERT, regex=True).to_numpy(dtype=bool)
    convolving = here.loc[here["category"] == "conv", "device"].unique()
    mine = (here["category"] == "layout") & ~here["fused"]
    mine &= convert[here["name"].to_numpy()] | here["device"].isin(convolving)
    found = here[mine]
    whole = here.groupby("device", sort=True)["duration_ns"].sum()
    share = found.groupby("device")["duration_ns"].transform("sum") / found["device"].map(whole)
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


def cure(layout_transform: pd.DataFrame, changes: pd.DataFrame) -> list[pd.DataFrame]:
    """Everything runs in one layout: the changes take no time and are not launched."""
    subject = np.unique(changes["device"], return_inverse=True)[1]
    length = changes["duration_ns"].to_numpy()
    return join(
        edits(Change.OP_NS, subject, changes["op"], 0, slow_ns=length * _SLOW),
        unlaunched(changes, subject),
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
            "what": operations[changes["name"].to_numpy()],
        }
    )
