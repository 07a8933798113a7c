"""Strided copies: kernels that only bring a tensor into another layout."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.fused_kernels import unlaunched
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

_ATEN = r"^elementwise_kernel(?:_\w+)?$"
"""ATen takes this kernel, and not its vectorised or unrolled one, where a side is strided."""
_ATEN_COPY = "direct_copy_kernel"
_XLA = r"^(?:input_|wrapped_|loop_)?transpose(?:_fusion)?(?:_\d+)*$"
_SLOW = 0.5
"""Some of the copies may have to stay."""


@table
def strided_copies(
    kernels: Kernels,
    names: pd.DataFrame,
    kernels_inside: np.ndarray,
    inside_ns: pd.Series[int],
    *,
    min_share_ratio: float,
) -> pd.DataFrame:
    """Returns the strided copies in the window, where they take a share worth naming: kernel (row
    of `kernels`), op, device, name, start_ns, end_ns, duration_ns, share_ratio."""
    kinds, short = kernels.configurations, names["short"]
    aten = short.str.contains(_ATEN) & names["full"].str.contains(_ATEN_COPY, regex=False)
    strided = (aten | short.str.contains(_XLA)).to_numpy(dtype=bool)
    wanted = kinds["category"].isin(["copy_cast", "layout"]) & strided[kinds["name"]]
    kernel = np.flatnonzero(kernels.spread(wanted) & kernels_inside)
    columns = ("op", "device", "name", "start_ns", "end_ns", "duration_ns")
    found = kernels.at(kernel).frame(*columns).assign(kernel=kernel)
    total = found.groupby("device")["duration_ns"].transform("sum")
    share = total / found["device"].map(inside_ns)
    return found.assign(share_ratio=share)[(share >= min_share_ratio).to_numpy()]


@table
def layout_copy(strided_copies: pd.DataFrame, operations: np.ndarray) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, kinds, basis."""
    return pd.DataFrame(
        [_row(mine, operations) for _, mine in strided_copies.groupby("device", sort=True)]
    )


def _row(mine: pd.DataFrame, operations: np.ndarray) -> dict[str, object]:
    device = int(mine["device"].iloc[0])
    words = sorted(set(operations[mine["name"].to_numpy()].tolist()))
    return {
        "subject": f"strided copies on GPU {device}",
        "device": device,
        "count": len(mine),
        "work_ns": int(mine["duration_ns"].sum()),
        "share_ratio": float(mine["share_ratio"].iloc[0]),
        "kinds": ", ".join(words[:4]),
        "basis": "inferred",
    }


def cure(
    layout_copy: pd.DataFrame, strided_copies: pd.DataFrame, kernels: Kernels
) -> list[pd.DataFrame]:
    """The kernels around them read and write strides: the copies vanish with their launches."""
    subject = np.unique(strided_copies["device"], return_inverse=True)[1]
    length = strided_copies["duration_ns"].to_numpy()
    return join(
        edits(Change.OP_NS, subject, strided_copies["op"], 0, slow_ns=length * _SLOW),
        unlaunched(kernels.at(strided_copies["kernel"].to_numpy()), subject),
    )


def evidence(
    layout_copy: pd.DataFrame, strided_copies: pd.DataFrame, operations: np.ndarray
) -> pd.DataFrame:
    """Returns the copies: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": np.unique(strided_copies["device"], return_inverse=True)[1],
            "start_ns": strided_copies["start_ns"].to_numpy(),
            "end_ns": strided_copies["end_ns"].to_numpy(),
            "what": labels(operations, strided_copies["name"].to_numpy()),
        }
    )
