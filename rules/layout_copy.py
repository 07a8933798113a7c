"""Strided copies: kernels that only bring a tensor into another layout."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.removed_kernels import by_device, places, removed, worth_naming
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

_ATEN = r"^elementwise_kernel(?:_\w+)?$"
"""ATen takes this kernel, and not its vectorised or unrolled one, where a side is strided."""
_ATEN_COPY = "direct_copy_kernel"
_XLA = r"^(?:input_|wrapped_|loop_)?transpose(?:_fusion)?(?:_\d+)*$"


@table
def strided_copies(
    kernels: Kernels,
    names: pd.DataFrame,
    kernels_inside: np.ndarray,
    inside_ns: pd.Series[int],
    *,
    min_share_ratio: float,
) -> pd.DataFrame:
    """Returns the strided copies in the window where they take a share worth naming, with the
    columns of `worth_naming`."""
    kinds, short = kernels.configurations, names["short"]
    aten = short.str.contains(_ATEN) & names["full"].str.contains(_ATEN_COPY, regex=False)
    strided = (aten | short.str.contains(_XLA)).to_numpy(dtype=bool)
    wanted = kinds["category"].isin(["copy_cast", "layout"]) & strided[kinds["name"]]
    return worth_naming(kernels, kernels.spread(wanted) & kernels_inside, inside_ns,
                        min_share_ratio)  # fmt: skip


@table
def layout_copy(strided_copies: pd.DataFrame, operations: np.ndarray) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, kinds, basis."""
    return by_device(strided_copies, operations, "strided copies")


def cure(
    layout_copy: pd.DataFrame, strided_copies: pd.DataFrame, kernels: Kernels
) -> list[pd.DataFrame]:
    """The kernels around them read and write strides: the copies vanish with their launches."""
    return removed(strided_copies, kernels)


def evidence(
    layout_copy: pd.DataFrame, strided_copies: pd.DataFrame, operations: np.ndarray
) -> pd.DataFrame:
    """Returns the copies: row, start_ns, end_ns, what."""
    return places(strided_copies, operations)
