"""The kernels that a process runs in the window: the work that no cure of waiting makes shorter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.tables.activity.ops import COMMUNICATION
from nsysdoctor.trace.recipe import table


class WindowKernels(NamedTuple):
    """Kernels and graph replays of the window, rows of `ops` in order, the row in `lanes` of each,
    and whether it fills its device; of every lane the process and the device."""

    op: Numbers
    lane: Codes
    fills: np.ndarray
    process: Codes
    device: Codes


@table
def window_kernels(
    ops: pd.DataFrame,
    op_category: pd.Series[str],
    lanes: pd.DataFrame,
    window: pd.DataFrame,
    filling_kernels: Numbers,
) -> WindowKernels:
    """Returns what computes in the window; kernels that communicate wait for others and are not
    counted."""
    kind = ops["kind"].to_numpy()
    mine = (kind == KERNEL) | (kind == GRAPH)
    mine &= (op_category != COMMUNICATION).to_numpy()
    mine &= ops["end_ns"].to_numpy() > int(window["start_ns"].iloc[0])
    mine &= ops["start_ns"].to_numpy() < int(window["end_ns"].iloc[0])
    row = np.flatnonzero(mine).astype(np.int32)
    process, device = (lanes[name].to_numpy() for name in ("process", "device"))
    fills = np.isin(row, filling_kernels)
    return WindowKernels(row, ops["lane"].to_numpy()[row], fills, process, device)
