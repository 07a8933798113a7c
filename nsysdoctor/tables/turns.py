"""What takes turns on a device: copies of one direction, kernels that fill it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import COPY, KERNEL
from nsysdoctor.tables.ops import COMMUNICATION

_SM_COUNT = 100
"""Blocks that fill a device whose number of multiprocessors the export does not tell."""


class Turns(NamedTuple):
    """Per operation the one before it on the same resource, -1 for none.

    `engine`: the previous copy of its direction on the device. `device`: for a kernel that fills
    its device the previous such kernel, where that one belongs to another stream and had ended.
    """

    engine: Ints
    device: Ints


@table
def turns(
    ops: pd.DataFrame,
    op_names: pd.DataFrame,
    op_category: pd.Series[str],
    devices: pd.DataFrame,
    kernel_rows: pd.DataFrame | None = None,
) -> Turns:
    """Returns what each operation has to wait for because a resource serves one at a time.

    A copy engine serves one copy of its direction. A kernel with at least one block for every
    multiprocessor leaves no room that another such kernel would gain from.
    """
    copying = ops["kind"].to_numpy() == COPY
    direction = (op_names["key"].to_numpy() >> 16)[ops["name"].to_numpy()]
    place = direction * 4096 + ops["device"].to_numpy()
    fills = _fills(ops, devices, kernel_rows) & (op_category != COMMUNICATION).to_numpy()
    before = previous(ops["device"].to_numpy(), fills)
    lane, start, end = (ops[c].to_numpy() for c in ("lane", "start_ns", "end_ns"))
    other = (before >= 0) & (lane[before] != lane) & (end[before] <= start)
    return Turns(previous(place, copying), np.where(other, before, -1))


def _fills(
    ops: pd.DataFrame, devices: pd.DataFrame, kernel_rows: pd.DataFrame | None
) -> np.ndarray:
    """Which kernels have a block for every multiprocessor of their device."""
    fills = np.zeros(len(ops), dtype=bool)
    kernel = np.flatnonzero(ops["kind"].to_numpy() == KERNEL)
    if kernel_rows is None or not len(kernel):
        return fills
    row = ops["row"].to_numpy()[kernel]
    blocks = np.ones(len(kernel), dtype=np.int64)
    for side in ("grid_x", "grid_y", "grid_z"):
        blocks *= np.maximum(kernel_rows[side].to_numpy()[row], 1)
    count = devices["sm_count"].to_numpy()
    place = np.searchsorted(devices["device"].to_numpy(), ops["device"].to_numpy()[kernel])
    fills[kernel] = blocks >= np.where(count > 0, count, _SM_COUNT)[place]
    return fills


def previous(group: Ints, mine: np.ndarray) -> Ints:
    """Returns the previous row of the same group for each row that counts, in row order; -1 for
    the first of a group and for rows that do not count."""
    found = np.full(len(group), -1, dtype=np.int64)
    rows = np.flatnonzero(mine)
    order = rows[np.argsort(group[rows], kind="stable")]
    same = group[order][1:] == group[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found
