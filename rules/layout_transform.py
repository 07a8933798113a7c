"""Kernels that only change the layout of a tensor for the next kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.removed_kernels import by_device, places, removed, worth_naming
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

_CONVERT = r"(?i)nchw\w*nhwc|nhwc\w*nchw|AddPadding|tensorTransform|genericReformat"


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
    return worth_naming(kernels, kernels.spread(wanted) & kernels_inside, inside_ns,
                        min_share_ratio)  # fmt: skip


@table
def layout_transform(changes: pd.DataFrame, operations: np.ndarray) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, kinds, basis."""
    return by_device(changes, operations, "layout changes")


def cure(
    layout_transform: pd.DataFrame, changes: pd.DataFrame, kernels: Kernels
) -> list[pd.DataFrame]:
    """Everything runs in one layout: the changes take no time and are not launched."""
    return removed(changes, kernels)


def evidence(
    layout_transform: pd.DataFrame, changes: pd.DataFrame, operations: np.ndarray
) -> pd.DataFrame:
    """Returns the changes: row, start_ns, end_ns, what."""
    return places(changes, operations)
