"""Kernels that need not run at all: which are worth naming, the edits that remove them, where."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.fused_kernels import unlaunched
from nsysdoctor.tables.kernels.kernel_columns import Kernels

_SLOW = 0.5
"""Some of them may have to stay."""
_NAMED_KINDS = 4


def worth_naming(
    kernels: Kernels, wanted: np.ndarray, inside_ns: pd.Series[int], min_share_ratio: float
) -> pd.DataFrame:
    """Returns the wanted kernels (a flag for each) of devices on which they take a share of the
    kernel time: kernel (row of `kernels`), op, device, name, start_ns, end_ns, duration_ns,
    share_ratio."""
    kernel = np.flatnonzero(wanted)
    columns = ("op", "device", "name", "start_ns", "end_ns", "duration_ns")
    found = kernels.at(kernel).frame(*columns).assign(kernel=kernel)
    total = found.groupby("device")["duration_ns"].transform("sum")
    share = total / found["device"].map(inside_ns)
    return found.assign(share_ratio=share)[(share >= min_share_ratio).to_numpy()]


def by_device(found: pd.DataFrame, operations: np.ndarray, subject: str) -> pd.DataFrame:
    """Returns a row per device of what `worth_naming` gives: subject, device, count, work_ns,
    share_ratio, kinds, basis."""
    rows = []
    for device, mine in found.groupby("device", sort=True):
        words = sorted(set(operations[mine["name"].to_numpy()].tolist()))
        rows.append(
            {
                "subject": f"{subject} on GPU {device}",
                "device": int(str(device)),
                "count": len(mine),
                "work_ns": int(mine["duration_ns"].sum()),
                "share_ratio": float(mine["share_ratio"].iloc[0]),
                "kinds": ", ".join(words[:_NAMED_KINDS]),
                "basis": "inferred",
            }
        )
    return pd.DataFrame(rows)


def removed(found: pd.DataFrame, kernels: Kernels) -> list[pd.DataFrame]:
    """Returns the edits after which they take no time and are not launched."""
    subject = np.unique(found["device"], return_inverse=True)[1]
    length = found["duration_ns"].to_numpy()
    return join(
        edits(Change.OP_NS, subject, found["op"], 0, slow_ns=length * _SLOW),
        unlaunched(kernels.at(found["kernel"].to_numpy()), subject),
    )


def places(found: pd.DataFrame, operations: np.ndarray) -> pd.DataFrame:
    """Returns where they run: row (of `by_device`), start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": np.unique(found["device"], return_inverse=True)[1],
            "start_ns": found["start_ns"].to_numpy(),
            "end_ns": found["end_ns"].to_numpy(),
            "what": labels(operations, found["name"].to_numpy()),
        }
    )
