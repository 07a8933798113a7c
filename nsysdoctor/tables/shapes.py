"""Which kernels were launched alike: the same kernel with the same grid and block."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import KERNEL

_SIDES = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]


@table
def kernel_shape(ops: pd.DataFrame, kernel_rows: pd.DataFrame) -> Ints:
    """Returns for every operation a code of its device, name, grid and block; -1 for what is no
    kernel."""
    shape = np.full(len(ops), -1, dtype=np.int64)
    mine = np.flatnonzero(ops["kind"].to_numpy() == KERNEL)
    rows = kernel_rows[_SIDES].iloc[ops["row"].to_numpy()[mine]].reset_index(drop=True)
    rows = rows.assign(name=ops["name"].to_numpy()[mine], device=ops["device"].to_numpy()[mine])
    shape[mine] = rows.groupby([*rows.columns], sort=True).ngroup().to_numpy(dtype=np.int64)
    return shape
