"""Which kernels were launched in the same way: the same kernel with the same grid and block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.codes import distinct_rows
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.trace.recipe import table

Codes = npt.NDArray[np.int32]

_OF_OPS = ["device", "name"]
_SIDES = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_OF_ROWS = [*_SIDES, "registers", "local_bytes_per_thread"]


class Configurations(NamedTuple):
    """The distinct ways to launch a kernel.

    `rows` has device, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers and
    local_bytes_per_thread; `code` the row of every kernel, in the order of `ops`.
    """

    rows: pd.DataFrame
    code: Codes


@table
def configurations(ops: pd.DataFrame, kernel_rows: pd.DataFrame) -> Configurations:
    """Returns the distinct launch configurations. There are few of them, however many kernels
    ran."""
    op = np.flatnonzero(ops["kind"].to_numpy() == KERNEL)
    row = ops["row"].to_numpy()[op]
    columns = {name: (ops[name].to_numpy(), op) for name in _OF_OPS}
    columns |= {name: (kernel_rows[name].to_numpy(), row) for name in _OF_ROWS}
    code, first = distinct_rows(values[places] for values, places in columns.values())
    rows = {
        name: values[places[first]].astype(np.int64)
        for name, (values, places) in columns.items()
    }
    return Configurations(pd.DataFrame(rows), code.astype(np.int32))


@table
def kernel_shape(ops: pd.DataFrame, configurations: Configurations) -> Codes:
    """Returns for every operation a code of its device, name, grid and block; -1 for operations
    that are no kernels."""
    shape = np.full(len(ops), -1, dtype=np.int32)
    of_configuration = configurations.rows.groupby([*_OF_OPS, *_SIDES], sort=True).ngroup()
    op = np.flatnonzero(ops["kind"].to_numpy() == KERNEL)
    shape[op] = of_configuration.to_numpy(dtype=np.int32)[configurations.code]
    return shape
