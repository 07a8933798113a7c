"""What kind of program the trace shows, so that cures speak its language."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.ingest.cut import Capture
from nsysdoctor.trace.recipe import table


@table
def ecosystem(
    names: pd.DataFrame,
    capture: Capture | None,
    strings: pd.Series[str],
    range_names: pd.DataFrame | None = None,
) -> str:
    """Returns pytorch, jax, openacc or cuda, told from kernel and range names; from the kernels
    of the whole capture, since a part of a program may look like another."""
    full = names.loc[names["kind"] == 0, "full"].astype(str)
    if capture is not None:
        ids = capture.kernels["full_id"].unique()
        full = pd.concat([full, strings.reindex(ids).fillna("").astype(str)])
    texts = range_names["text"].astype(str) if range_names is not None else full.iloc[:0]
    if full.str.contains("at::native|at_cuda_detail|triton_|c10::", regex=True).any():
        return "pytorch"
    if texts.str.contains(r"^aten::|^autograd::|^torch|^Optimizer\.step#", regex=True).any():
        return "pytorch"
    if texts.str.contains(r"#hlo_op=|^XlaModule|^TSL:", regex=True).any():
        return "jax"
    if full.str.contains(r"^(?:loop_|input_|wrapped_|fusion)\w*", regex=True).any():
        return "jax"
    if full.str.contains(r"_gpu__|^nvkernel_|_\d+_gpu$|__nv_\w+_F\d+L\d+", regex=True).any():
        return "openacc"
    return "cuda"
