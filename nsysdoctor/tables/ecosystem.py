"""What kind of program the trace shows, so that cures speak its language."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.recipe import table


@table
def ecosystem(names: pd.DataFrame, range_names: pd.DataFrame | None = None) -> str:
    """Returns pytorch, jax, openacc or cuda, told from kernel and range names."""
    full = names.loc[names["kind"] == 0, "full"].astype(str)
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
