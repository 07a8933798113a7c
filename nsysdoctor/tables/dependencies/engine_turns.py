"""Operations that take turns on a device: copies of one direction, kernels that fill it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import narrowed, packed
from nsysdoctor.tables.activity.gpu_rows import COPY, KERNEL
from nsysdoctor.tables.activity.ops import COMMUNICATION
from nsysdoctor.trace.recipe import table

_SM_COUNT = 100
"""Blocks that fill a device where the export lacks its number of multiprocessors."""


class EngineTurns(NamedTuple):
    """For each operation the previous one on the same resource, -1 for none.

    `engine`: the previous copy of its direction on the device. `device`: for a kernel that fills
    its device the previous such kernel, if that one ran on another stream and had ended.
    """

    engine: Numbers
    device: Numbers


@table
def engine_turns(
    ops: pd.DataFrame,
    op_names: pd.DataFrame,
    op_category: pd.Series[str],
    filling_kernels: Numbers,
) -> EngineTurns:
    """Returns what each operation has to wait for because a resource serves one at a time.

    A copy engine serves one copy of its direction. A kernel with at least one block for every
    multiprocessor leaves no room in which another such kernel could run faster.
    """
    copy = np.flatnonzero(ops["kind"].to_numpy() == COPY)
    direction = op_names["key"].to_numpy()[ops["name"].to_numpy()[copy]] >> 16
    engine = packed(direction, ops["device"].to_numpy()[copy])
    full = filling_kernels
    full = full[(op_category != COMMUNICATION).to_numpy()[full]]
    device = previous(ops["device"].to_numpy()[full], full, len(ops))
    lane, start, end = (ops[c].to_numpy() for c in ("lane", "start_ns", "end_ns"))
    after = np.flatnonzero(device >= 0)
    before = device[after]
    device[after[(lane[before] == lane[after]) | (end[before] > start[after])]] = -1
    return EngineTurns(previous(engine, copy, len(ops)), device)


@table
def filling_kernels(
    ops: pd.DataFrame, devices: pd.DataFrame, kernel_rows: pd.DataFrame | None = None
) -> Numbers:
    """Returns the kernels, rows of `ops`, that have a block for every multiprocessor of their
    device."""
    kernel = np.flatnonzero(ops["kind"].to_numpy() == KERNEL).astype(np.int32)
    if kernel_rows is None:
        return kernel[:0]
    row = ops["row"].to_numpy()[kernel]
    blocks = np.ones(len(kernel), dtype=np.int64)
    for side in ("grid_x", "grid_y", "grid_z"):
        blocks *= np.maximum(kernel_rows[side].to_numpy()[row], 1)
    count = devices["sm_count"].to_numpy()
    place = np.searchsorted(devices["device"].to_numpy(), ops["device"].to_numpy()[kernel])
    enough = blocks >= np.where(count > 0, count, _SM_COUNT)[place]
    return np.asarray(kernel[enough])


def previous(group: np.ndarray, rows: Ints | None = None, size: int | None = None) -> Numbers:
    """Returns for each of `size` rows the previous one of its group, -1 for the first of a group.

    `group` has a code for each of `rows`, which are in order; the others are in no group.
    """
    found = np.full(len(group) if size is None else size, -1, dtype=np.int32)
    order = np.argsort(narrowed(group), kind="stable")
    same = group[order][1:] == group[order][:-1]
    if rows is not None:
        order = rows[order]
    found[order[1:][same]] = order[:-1][same]
    return found
