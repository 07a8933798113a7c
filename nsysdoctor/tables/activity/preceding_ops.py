"""What ran before the window that was read."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.ingest.cut import Capture
from nsysdoctor.tables.activity.devices import process_code
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.trace.recipe import table


@table
def preceding_kernels(
    capture: Capture | None,
    op_names: pd.DataFrame,
    strings: pd.Series[str],
    processes: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the kernels of which a launch came before all that was read: process, name (row of
    `names`). Empty where the capture was read whole."""
    if capture is None:
        return pd.DataFrame({"process": [], "name": []}, dtype=np.int64)
    ran = capture.kernels[capture.kernels["early"] == 1]
    kernel = op_names[op_names["kind"] == KERNEL]
    # Several string ids may spell one name; operations have the first row of it.
    row_of = {full: row for row, full in zip(kernel.index[::-1], kernel["full"][::-1], strict=True)}
    texts = strings.reindex(ran["full_id"]).fillna("").astype(str)
    process = process_code(processes, ran["global_pid"])
    if len(processes) == 1:
        process = np.zeros(len(ran), dtype=np.int32)
    name = np.array([row_of.get(text, -1) for text in texts], dtype=np.int64)
    found = pd.DataFrame({"process": process, "name": name})
    return found[(process >= 0) & (name >= 0)].drop_duplicates(ignore_index=True)
