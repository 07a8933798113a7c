"""GPU activity of all sources in one frame, before devices and names are resolved."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.recipe import table

KERNEL, COPY, SET, GRAPH = 0, 1, 2, 3
"""Values of the column `kind`."""

UNIFIED_MEMORY = (11, 12, 13)
"""copyKind of page migrations: they carry no device, stream or correlation of their own."""

_COLUMNS = [
    "start_ns", "end_ns", "ordinal", "context", "green", "stream", "correlation", "global_pid",
]  # fmt: skip
_OVERRUN_NS = 1_000_000_000


@table
def raw_activity(
    kernel_rows: pd.DataFrame | None = None,
    memcpy_rows: pd.DataFrame | None = None,
    memset_rows: pd.DataFrame | None = None,
    graph_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns one row per kernel, explicit copy, set and graph replay.

    Columns: start_ns, end_ns, ordinal, context, green, stream, correlation, global_pid, bytes,
    node, kind (int8) and row, the row number in the source's own frame. Page migrations of
    unified memory are left out: they belong to no stream. Raises MissingTableError when the
    export has none of the four tables.
    """
    if memcpy_rows is not None:
        memcpy_rows = memcpy_rows[~memcpy_rows["copy_kind"].isin(UNIFIED_MEMORY)]
    sources = ((KERNEL, kernel_rows), (COPY, memcpy_rows), (SET, memset_rows), (GRAPH, graph_rows))
    frames = [_taken(kind, rows) for kind, rows in sources if rows is not None]
    if not frames:
        raise MissingTableError(
            "the trace holds no kernel, copy, set or graph table", "record with --trace=cuda"
        )
    return pd.concat(frames, ignore_index=True)


def _taken(kind: int, rows: pd.DataFrame) -> pd.DataFrame:
    taken = rows[_COLUMNS].copy()
    for optional in ("bytes", "node"):
        taken[optional] = rows[optional] if optional in rows else np.int64(0)
    taken["kind"] = np.int8(kind)
    taken["row"] = rows.index.to_numpy(dtype=np.int64)
    return taken


@table
def overruns(raw_activity: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows whose end cannot be: later, by more than a second, than the end of the
    next operation that their own in-order stream ran.

    Columns: index (row of `raw_activity`), kind. Operations of one CUDA graph may overlap on a
    stream and are never listed.
    """
    place = ["global_pid", "ordinal", "context", "green", "stream"]
    plain = raw_activity[raw_activity["node"] == 0].sort_values(
        [*place, "start_ns", "end_ns", "row"], kind="stable"
    )
    same = (plain[place].shift(-1) == plain[place]).all(axis=1)
    over = same & (plain["end_ns"] > plain["end_ns"].shift(-1) + _OVERRUN_NS)
    found = plain.loc[over, ["kind"]]
    return found.reset_index().sort_values("index", ignore_index=True)


@table
def activity(
    raw_activity: pd.DataFrame, overruns: pd.DataFrame, api_rows: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Returns `raw_activity` without overruns, with a process for every row.

    Reduced exports lack globalPid; then, if all calls come from one process, it is the one.
    """
    kept = raw_activity[~raw_activity.index.isin(overruns["index"])].reset_index(drop=True)
    if api_rows is not None and len(kept) and not kept["global_pid"].any():
        callers = np.unique(api_rows["global_tid"].to_numpy() & ~np.int64(0xFFFFFF))
        if len(callers) == 1:
            kept["global_pid"] = callers[0]
    return kept


@table
def migrations(memcpy_rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the page migrations of unified memory.

    Columns: start_ns, end_ns, bytes, copy_kind (11 to the device, 12 to the host, 13 between
    devices), cause (1 prefetch, 2 page fault, 3 speculative, 4 eviction, 5 access counters),
    global_pid.
    """
    rows = memcpy_rows[memcpy_rows["copy_kind"].isin(UNIFIED_MEMORY)]
    rows = rows.sort_values(["start_ns", "end_ns", "bytes"], kind="stable", ignore_index=True)
    wanted = ["start_ns", "end_ns", "bytes", "copy_kind", "migration_cause", "global_pid"]
    return rows[wanted].rename(columns={"migration_cause": "cause"})
