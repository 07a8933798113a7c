"""Every GPU operation: what it was, where it ran and when."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes, first_rows, narrowed, packed, taken, time_order
from nsysdoctor.ingest.cut import widened
from nsysdoctor.roofline.kernel_names import short_name
from nsysdoctor.roofline.taxonomy import classify
from nsysdoctor.tables.activity.devices import process_code
from nsysdoctor.tables.activity.gpu_rows import COPY, GRAPH, KERNEL, SET
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request, holds

COPY_NAMES = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
    8: "DtoD", 9: "HtoH", 10: "PtoP",
}  # fmt: skip
MEMORY_NAMES = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static",
    6: "managed static",
}  # fmt: skip
"""The export's own numbering of memory kinds, which is not CUPTI's."""

COMMUNICATION = "communication"


@table
def op_names(
    activity: pd.DataFrame,
    strings: pd.Series[str],
    kernel_rows: pd.DataFrame | None = None,
    memcpy_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the distinct names of operations, with the key by which `ops` finds them.

    Columns: kind, key (StringIds id of a kernel, packed kinds of a copy, graph id), full, short.
    """
    distinct = pd.DataFrame(
        {"kind": activity["kind"], "key": _name_keys(activity, kernel_rows, memcpy_rows)}
    ).drop_duplicates()
    distinct = distinct.sort_values(["kind", "key"], ignore_index=True)
    short_of: dict[int, int] = {}
    if kernel_rows is not None:
        pairs = kernel_rows[["full_id", "short_id"]].drop_duplicates("full_id")
        short_of = dict(zip(pairs["full_id"], pairs["short_id"], strict=True))
    texts = [
        _texts(kind, name, strings, short_of)
        for kind, name in zip(distinct["kind"], distinct["key"], strict=True)
    ]
    distinct["full"] = [full for full, _ in texts]
    distinct["short"] = [short for _, short in texts]
    return distinct


def _name_keys(
    activity: pd.DataFrame, kernel_rows: pd.DataFrame | None, memcpy_rows: pd.DataFrame | None
) -> Ints:
    kind, row = activity["kind"].to_numpy(), activity["row"].to_numpy()
    key = np.zeros(len(activity), dtype=np.int64)
    if kernel_rows is not None:
        mine = kind == KERNEL
        key[mine] = kernel_rows["full_id"].to_numpy()[row[mine]]
    if memcpy_rows is not None:
        mine = kind == COPY
        packed = (
            (memcpy_rows["copy_kind"].to_numpy() << 16)
            + ((memcpy_rows["src_kind"].to_numpy() & 0xFF) << 8)
            + (memcpy_rows["dst_kind"].to_numpy() & 0xFF)
        )
        key[mine] = packed[row[mine]]
    return key


def _texts(
    kind: int, key: int, strings: pd.Series[str], short_of: dict[int, int]
) -> tuple[str, str]:
    if kind == KERNEL:
        full = str(strings.get(key, "")) or "(unnamed kernel)"
        short = str(strings.get(short_of.get(key, key), "")) or full
        # Recorders other than nsys give one name, with its arguments.
        return full, (short_name(full) or full) if short == full else short
    if kind == COPY:
        direction = COPY_NAMES.get(key >> 16, "unknown")
        source = MEMORY_NAMES.get((key >> 8) & 0xFF, "unknown")
        target = MEMORY_NAMES.get(key & 0xFF, "unknown")
        return f"Memcpy {direction} ({source} to {target})", f"Memcpy {direction}"
    return ("Memset", "Memset") if kind == SET else ("CUDA graph replay", "CUDA graph")


@table
def names(op_names: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per distinct operation name; `ops.name` is the row number.

    Columns: kind, key, full, short, category, dtype, fused (bool), library, and what else the
    taxonomy tells. Copies, sets and graph replays have the category of their kind.
    """
    told = classify(op_names["full"].tolist(), op_names["short"].tolist())
    found: pd.DataFrame = pd.concat([op_names, told.reset_index(drop=True)], axis=1)
    for kind, category in ((COPY, "memcpy"), (SET, "memset"), (GRAPH, "graph")):
        mine = found["kind"] == kind
        found.loc[mine, "category"] = category
        found.loc[mine, ["dtype", "library"]] = ""
        found.loc[mine, "fused"] = False
    return found


@table
def ops(
    activity: pd.DataFrame,
    places: pd.DataFrame,
    processes: pd.DataFrame,
    op_names: pd.DataFrame,
    kernel_rows: pd.DataFrame | None = None,
    memcpy_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns one row per GPU operation in order of start, end, kind and source row.

    Columns: start_ns, end_ns, kind (int8: 0 kernel, 1 copy, 2 set, 3 graph), device (physical),
    process, context, stream, lane (code of process, device, context, green context and stream),
    correlation, name (row of `names`), bytes (copies and sets, else 0), node (graph node, 0
    without), row (row of the source frame).
    """
    start, end, kind, row = (activity[c].to_numpy() for c in ("start_ns", "end_ns", "kind", "row"))
    order = time_order(start, lambda rows: (end[rows], kind[rows], row[rows]))
    process = process_code(processes, activity["global_pid"])
    device = _device(activity, places)
    place = [process, device, *(activity[name] for name in ("context", "green", "stream"))]
    found = {
        "start_ns": start,
        "end_ns": end,
        "kind": kind,
        "device": device,
        "process": process,
        **{name: activity[name].to_numpy() for name in ("context", "stream")},
        "lane": narrowed(packed(*place)),
        "correlation": activity["correlation"].to_numpy(),
        "name": _name(activity, op_names, kernel_rows, memcpy_rows),
        **{name: activity[name].to_numpy() for name in ("bytes", "node", "row")},
    }
    return pd.DataFrame({name: taken(column, order) for name, column in found.items()}, copy=False)


def _device(activity: pd.DataFrame, places: pd.DataFrame) -> Codes:
    """The physical device of each row."""
    pair = packed(activity["global_pid"], activity["ordinal"])
    keys = activity[["global_pid", "ordinal"]].iloc[first_rows(pair)].astype("int64")
    device = keys.merge(places, "left", ["global_pid", "ordinal"])["device"].to_numpy()
    return np.asarray(narrowed(device)[pair])


def _name(
    activity: pd.DataFrame,
    op_names: pd.DataFrame,
    kernel_rows: pd.DataFrame | None,
    memcpy_rows: pd.DataFrame | None,
) -> Codes:
    # `op_names` lists the combinations in the order in which they are numbered.
    number = packed(activity["kind"], _name_keys(activity, kernel_rows, memcpy_rows))
    # Several string ids may spell one name; all operations of a name have its first row.
    rows = op_names.assign(code=np.arange(len(op_names), dtype=np.int32))
    first = rows.groupby(["kind", "full"], sort=False)["code"].transform("min")
    return np.asarray(narrowed(first.to_numpy(dtype=np.int32))[number])


@table
def lanes(ops: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per stream of a context; the row number is `ops.lane`.

    Columns: process, device, context, stream, op_count.
    """
    grouped = ops.groupby("lane", sort=True)
    found = grouped[["process", "device", "context", "stream"]].first()
    found["op_count"] = grouped.size()
    return found.reset_index(drop=True)


@table
def op_category(ops: pd.DataFrame, names: pd.DataFrame) -> pd.Series[str]:
    """Returns the category of every operation, in the order of `ops`."""
    distinct, codes = np.unique(names["category"].to_numpy(dtype=str), return_inverse=True)
    found = codes[ops["name"].to_numpy()]
    return pd.Series(pd.Categorical.from_codes(found, categories=pd.Index(distinct)))


@table
def ops_near(
    ops: pd.DataFrame, request: Request, submissions: pd.DataFrame | None = None
) -> npt.NDArray[np.bool_]:
    """Returns for each operation whether it runs or was called in a window told by its times or
    around it, where all is read; else all of them."""
    if not isinstance(request.window, tuple):
        return np.broadcast_to(np.True_, len(ops))
    start, end = (ops[name].to_numpy() for name in ("start_ns", "end_ns"))
    called = start.copy()
    if submissions is not None:
        called[submissions["op"]] = submissions["called_ns"]
    return holds(widened(*request.window), start, end, called)
