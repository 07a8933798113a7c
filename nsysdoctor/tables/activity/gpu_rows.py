"""GPU activity of all sources in one frame, before devices and names are resolved."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes, packed, stacked, time_order
from nsysdoctor.errors import MissingTableError
from nsysdoctor.ingest.export_codes import PROCESS_MASK, UNIFIED_MEMORY
from nsysdoctor.trace.recipe import table

KERNEL, COPY, SET, GRAPH = 0, 1, 2, 3
"""Values of the column `kind`."""

_COLUMNS = [
    "start_ns", "end_ns", "ordinal", "context", "green", "stream", "correlation", "bytes", "node",
]  # fmt: skip
_OVERRUN_NS, _OVERLAP_NS = 1_000_000, 100_000
"""By how much an operation may end after the next of its stream, and after the one behind that."""

_NEVER_NS = 1 << 62


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
    sources = ((KERNEL, kernel_rows), (COPY, memcpy_rows), (SET, memset_rows), (GRAPH, graph_rows))
    held = [(kind, rows, _rows_of(rows)) for kind, rows in sources if rows is not None]
    if not held:
        raise MissingTableError(
            "the trace holds no kernel, copy, set or graph table", "record with --trace=cuda"
        )
    found: dict[str, np.ndarray | pd.Categorical] = {
        name: stacked([_column(name, rows, mine) for _, rows, mine in held]) for name in _COLUMNS
    }
    found["global_pid"] = _processes([rows["global_pid"].iloc[mine] for _, rows, mine in held])
    found["kind"] = np.repeat(
        np.array([kind for kind, _, _ in held], dtype=np.int8), [len(mine) for _, _, mine in held]
    )
    found["row"] = stacked([mine.astype(np.int32) for _, _, mine in held])
    return pd.DataFrame(found, copy=False)


def _rows_of(rows: pd.DataFrame) -> np.ndarray:
    """The rows that belong to a stream: all but page migrations."""
    if "copy_kind" not in rows:
        return np.arange(len(rows))
    return np.flatnonzero(~np.isin(rows["copy_kind"].to_numpy(), UNIFIED_MEMORY))


def _column(name: str, rows: pd.DataFrame, mine: np.ndarray) -> np.ndarray:
    if name not in rows:
        return np.zeros(len(mine), dtype=np.int64)
    column: np.ndarray = rows[name].to_numpy()
    return column if len(mine) == len(rows) else column[mine]


def _processes(columns: list[pd.Series]) -> pd.Categorical:
    """The ids of all sources as one categorical."""
    known = np.unique(np.concatenate([c.cat.categories.to_numpy() for c in columns]))
    codes = [
        np.searchsorted(known, c.cat.categories.to_numpy()).astype(np.int32)[c.cat.codes]
        for c in columns
    ]
    return pd.Categorical.from_codes(stacked(codes), categories=pd.Index(known))


@table
def overruns(raw_activity: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows whose end cannot be, whatever their length: on their own in-order stream a
    later operation had ended long before.

    Columns: index (row of `raw_activity`), kind, claimed_ns (how long it says it ran). A dependent
    launch may begin, and even end, a little before its predecessor does; what ends 0.1 ms after
    the next operation but one, or 1 ms after the next one, was not recorded as it ran. Operations
    of one CUDA graph may overlap on a stream and are never listed.
    """
    place = ["global_pid", "ordinal", "context", "green", "stream"]
    plain = raw_activity[raw_activity["node"] == 0] if raw_activity["node"].any() else raw_activity
    group = packed(*(plain[name] for name in place))
    start, end, row = (plain[name].to_numpy() for name in ("start_ns", "end_ns", "row"))
    order = time_order(start, lambda rows: (end[rows], row[rows]), group)
    over = _ends_late(end[order], group[order])
    found = plain.iloc[np.sort(order[over])][["kind", "start_ns", "end_ns"]]
    found["claimed_ns"] = found.pop("end_ns") - found.pop("start_ns")
    return found.reset_index().sort_values("index", ignore_index=True)


def _ends_late(end: Ints, group: Codes) -> np.ndarray:
    """Which operations, by stream and start, end after later ones of their stream have."""
    # Sound streams end in the order in which they begin; only the others are looked at closely.
    late = np.zeros(len(end), dtype=bool)
    if not len(end):
        return late
    cuts = np.flatnonzero(np.diff(group)) + 1
    unsound = (np.diff(end) < -_OVERLAP_NS) & (group[1:] == group[:-1])
    for part in np.unique(np.searchsorted(cuts, np.flatnonzero(unsound), "right")).tolist():
        low = int(cuts[part - 1]) if part else 0
        high = int(cuts[part]) if part < len(cuts) else len(end)
        mine = end[low:high]
        # The earliest end from each operation on, with none behind the last two.
        soonest = np.append(np.minimum.accumulate(mine[::-1])[::-1], [_NEVER_NS] * 2)
        late[low:high] = (mine - _OVERRUN_NS > soonest[1:-1]) | (mine - _OVERLAP_NS > soonest[2:])
    return late


@table
def activity(
    raw_activity: pd.DataFrame, overruns: pd.DataFrame, api_rows: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Returns `raw_activity` without overruns, with a process for every row.

    Reduced exports lack globalPid; then, if all calls come from one process, it is the one.
    """
    kept = raw_activity
    if len(overruns):
        kept = kept[~kept.index.isin(overruns["index"])].reset_index(drop=True)
    known = kept["global_pid"].cat.categories
    if api_rows is not None and len(kept) and known.tolist() == [0]:
        tids = api_rows["global_tid"].cat.categories.to_numpy()
        callers = np.unique(tids & np.int64(PROCESS_MASK))
        if len(callers) == 1:
            one = kept["global_pid"].cat.rename_categories(callers)
            kept = kept.assign(global_pid=one)
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
    found = rows[wanted].rename(columns={"migration_cause": "cause"})
    return found.astype({"global_pid": "int64"})
