"""The rows of the timeline before merging: devices, streams, host threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.errors import MissingTableError
from nsysdoctor.tables.host.call_kinds import ALLOCATIONS, SUBMITS, SYNCS, Verb
from nsysdoctor.tables.host.thread_states import CAUSES
from nsysdoctor.timeline.merge import Items, items
from nsysdoctor.timeline.payload import PAINTS, TrackKind

Tables = Callable[[str], Any]
Bounds = tuple[int, int]

MOST_STREAMS = 24
MOST_THREADS = 16
MOST_DEPTH = 12

KERNEL, COPY, SET, GRAPH = 0, 1, 2, 3
_PLACE = ["device", "process", "context", "stream"]
MATRIX = frozenset({"gemm", "conv", "attention"})
PAINT = {name: code for code, name in enumerate(PAINTS)}
BUCKET_PAINTS = np.array([PAINT["compute"], PAINT["communication"], PAINT["copy"]])
"""Paints of the buckets of `device_pieces`; the bucket after them is idle."""


@dataclass(frozen=True)
class Row:
    """One row of the timeline with all its items and its position on the page."""

    kind: TrackKind
    group: str
    label: str
    items: Items
    device: int = -1
    thread: int = -1
    depth: int = 0


@dataclass(frozen=True)
class DeviceRow:
    """The state of one device over its span: pieces that tile it."""

    group: str
    device: int
    start: Ints
    end: Ints
    paint: Ints


@dataclass
class Names:
    """Collects the texts that items refer to by code: each table's texts form one block."""

    full: list[str]
    short: list[str]

    def add(self, full: list[str], short: list[str] | None = None) -> int:
        """Returns the code of the first text added."""
        first = len(self.full)
        self.full += full
        self.short += full if short is None else short
        return first


def optional(tables: Tables, name: str) -> Any | None:
    """Returns the table, None where the trace cannot give it."""
    try:
        return tables(name)
    except MissingTableError:
        return None


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """Returns a column as int64."""
    return np.asarray(frame[column].to_numpy(), dtype=np.int64)


def name_paints(names: pd.DataFrame) -> Ints:
    """Returns the paint of each operation name, by its category."""
    own = {"communication": "communication", "memcpy": "copy", "memset": "set", "graph": "graph"}
    paints = [
        own.get(category, "compute" if category in MATRIX else "memory")
        for category in names["category"].astype(str)
    ]
    return np.array([PAINT[paint] for paint in paints], dtype=np.int64)


def op_paints(ops: pd.DataFrame, names: pd.DataFrame) -> Ints:
    """Returns the paint of each operation: by kind for copies, sets, graphs, else by name."""
    paint = name_paints(names)[ints(ops, "name")]
    kind = ints(ops, "kind")
    for code, name in ((COPY, "copy"), (SET, "set"), (GRAPH, "graph")):
        paint = np.where(kind == code, PAINT[name], paint)
    return paint


def launch_keys(tables: Tables, op_count: int) -> Ints:
    """Returns for each operation the row of its call + 1, 0 where none is known."""
    keys = np.zeros(op_count, dtype=np.int64)
    launches = optional(tables, "launches")
    if launches is not None:
        keys[ints(launches, "op")] = ints(launches, "api") + 1
    return keys


def launch_shapes(tables: Tables, ops: pd.DataFrame) -> tuple[Ints, list[str]]:
    """Returns for each operation a code + 1 of its grid and block, and the texts of the codes."""
    shapes = np.zeros(len(ops), dtype=np.int64)
    configurations = optional(tables, "configurations")
    if configurations is None or not len(configurations.code):
        return shapes, []
    sides = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
    launched = configurations.rows[sides]
    code = launched.groupby(sides, sort=True).ngroup().to_numpy()
    shapes[ints(ops, "kind") == KERNEL] = code[configurations.code] + 1
    return shapes, [
        f"grid {row[0]}×{row[1]}×{row[2]}, block {row[3]}×{row[4]}×{row[5]}"
        for row in launched.drop_duplicates().sort_values(sides).to_numpy().tolist()
    ]


def moved_bytes(tables: Tables, ops: pd.DataFrame) -> Ints:
    """Returns the bytes of each operation: measured for copies, estimated for kernels, else 0."""
    moved = ints(ops, "bytes").copy()
    kernels = optional(tables, "kernels")
    if kernels is not None:
        known = kernels.at(~np.isnan(kernels["bytes"]))
        moved[known["op"]] = np.maximum(known["bytes"], 0).astype(np.int64)
    return moved


def touching(start: Ints, end: Ints, bounds: Bounds | None) -> Ints:
    """Returns the positions of what overlaps a stretch of time; of everything where none is
    given."""
    if bounds is None:
        return np.arange(len(start))
    low, high = bounds
    return np.flatnonzero((end >= low) & (start < high))


def stream_rows(
    tables: Tables,
    names: Names,
    shapes: list[str],
    devices: list[int],
    bounds: Bounds | None = None,
) -> Iterator[Row]:
    """Yields a row per stream of the devices with the operations that overlap a stretch of time. A
    device with many streams yields its busiest ones, in order of stream."""
    ops, known = optional(tables, "ops"), optional(tables, "names")
    if ops is None or known is None or not len(ops):
        return
    base = names.add(known["full"].astype(str).tolist(), known["short"].astype(str).tolist())
    shape, texts = launch_shapes(tables, ops)
    shapes += texts
    start, end = ints(ops, "start_ns"), ints(ops, "end_ns")
    columns = (
        start,
        end,
        ints(ops, "name") + base,
        op_paints(ops, known),
        launch_keys(tables, len(ops)),
        moved_bytes(tables, ops),
        shape,
    )
    near = touching(start, end, bounds)
    frame = pd.DataFrame({"lane": ints(ops, "lane"), "busy": end - start}).iloc[near]
    busy = frame.groupby("lane", sort=True)["busy"].sum()
    rows_of = frame.groupby("lane", sort=True).indices
    place = ops[["lane", *_PLACE]].iloc[near].drop_duplicates("lane").set_index("lane")
    place = place[place["device"].isin(devices)]
    for lane in _busiest_lanes(place, busy):
        rows = near[rows_of[lane]]
        where = place.loc[lane]
        label = _stream_label(place, where)
        made = items(*(column[rows] for column in columns))
        device = int(where["device"])
        yield Row("stream", f"GPU {device}", label, made, device=device)


def _busiest_lanes(place: pd.DataFrame, busy: pd.Series[int]) -> list[int]:
    chosen: list[int] = []
    ranked = place.assign(busy=busy.reindex(place.index)).reset_index()
    for _, lanes in ranked.groupby("device", sort=True):
        top = lanes.sort_values(["busy", "lane"], ascending=[False, True]).head(MOST_STREAMS)
        ordered = top.sort_values(["process", "context", "stream", "lane"])
        chosen += [int(lane) for lane in ordered["lane"]]
    return chosen


def _stream_label(place: pd.DataFrame, where: pd.Series[int]) -> str:
    """The stream's number, with process and context where the device has several."""
    streams = place[place["device"] == where["device"]]
    label = f"stream {int(where['stream'])}"
    if streams["process"].nunique() > 1:
        label += f", process {int(where['process'])}"
    if streams["context"].nunique() > streams["process"].nunique():
        label += f", context {int(where['context'])}"
    return label


def device_rows(tables: Tables, devices: list[int]) -> Iterator[DeviceRow]:
    """Yields for each device the pieces of its span: work by bucket, idle time by cause."""
    pieces, causes = optional(tables, "device_pieces"), optional(tables, "gap_causes")
    if pieces is None or causes is None:
        return
    busy = pieces[pieces["bucket"] < len(BUCKET_PAINTS)]
    paint = np.concatenate([BUCKET_PAINTS[ints(busy, "bucket")], _cause_paints(causes)])
    start, end, owner = (
        np.concatenate([ints(busy, column), ints(causes, column)])
        for column in ("start_ns", "end_ns", "device")
    )
    order = np.lexsort((end, start))
    start, end, owner, paint = start[order], end[order], owner[order], paint[order]
    for device in devices:
        mine = owner == device
        yield DeviceRow(f"GPU {device}", device, start[mine], end[mine], paint[mine])


def _cause_paints(causes: pd.DataFrame) -> Ints:
    """Returns the paint of each piece of idle time by its cause."""
    table = np.array([PAINT[f"idle-{cause}"] for cause in CAUSES], dtype=np.int64)
    return np.asarray(table[ints(causes, "cause")])


def verb_paints(verbs: Ints) -> Ints:
    """Returns the paint of each CUDA call by its kind."""
    chosen = dict.fromkeys(Verb, "call")
    chosen |= dict.fromkeys((Verb.LAUNCH, Verb.GRAPH_LAUNCH), "launch")
    chosen |= dict.fromkeys(SUBMITS - {Verb.LAUNCH, Verb.GRAPH_LAUNCH}, "copy")
    chosen |= dict.fromkeys(SYNCS, "sync")
    chosen |= dict.fromkeys(ALLOCATIONS | {Verb.MODULE}, "allocation")
    table = np.full(max(Verb) + 1, PAINT["call"], dtype=np.int64)
    for verb, paint in chosen.items():
        table[verb] = PAINT[paint]
    return table[verbs]


def host_rows(
    tables: Tables, names: Names, bounds: Bounds | None = None
) -> tuple[list[Row], int]:
    """Returns the rows of host threads that overlap a stretch of time, and how many threads were
    left out.

    Threads that call CUDA come first, then those with ranges, then those that only wait.
    """
    threads = optional(tables, "threads")
    if threads is None:
        return [], 0
    found = [*_call_rows(tables, names), *_range_rows(tables, names), *_wait_rows(tables, names)]
    if bounds is not None:
        found = [row for row in (_near(row, bounds) for row in found) if len(row.items.start)]
    rank = {"calls": 0, "ranges": 1, "waits": 2}
    first: dict[int, tuple[int, int]] = {}
    for row in found:
        size = len(row.items.start)
        first[row.thread] = min(first.get(row.thread, (9, 0)), (rank[row.kind], -size))
    ordered = sorted(first, key=lambda thread: (first[thread], thread))
    shown = {thread: place for place, thread in enumerate(ordered[:MOST_THREADS])}
    order = {"ranges": 0, "calls": 1, "waits": 2}
    rows = [row for row in found if row.thread in shown]
    rows.sort(key=lambda row: (shown[row.thread], order[row.kind], row.depth))
    return [_in_group(row, tables, threads) for row in rows], len(ordered) - len(shown)


def _near(row: Row, bounds: Bounds) -> Row:
    return replace(row, items=row.items.take(touching(row.items.start, row.items.end, bounds)))


def _in_group(row: Row, tables: Tables, threads: pd.DataFrame) -> Row:
    thread = threads.iloc[row.thread]
    parts = [f"thread {int(thread['tid'])}", str(thread["name"])]
    processes = optional(tables, "processes")
    if processes is not None and len(processes) > 1:
        process = processes.iloc[int(thread["process"])]
        parts.insert(0, f"process {int(process['pid'])}")
    group = " ".join(part for part in parts if part)
    return Row(row.kind, group, row.label, row.items, -1, row.thread, row.depth)


def _call_rows(tables: Tables, names: Names) -> Iterator[Row]:
    api, texts = optional(tables, "api"), optional(tables, "api_names")
    if api is None or texts is None:
        return
    base = names.add(texts["name"].astype(str).tolist())
    key = np.arange(1, len(api) + 1, dtype=np.int64)
    columns = (
        ints(api, "start_ns"),
        ints(api, "end_ns"),
        ints(api, "name") + base,
        verb_paints(ints(api, "verb")),
        key,
    )
    for thread, rows in api.groupby("thread", sort=True).indices.items():
        made = items(*(column[rows] for column in columns))
        yield Row("calls", "", "CUDA calls", made, thread=int(str(thread)))


def _wait_rows(tables: Tables, names: Names) -> Iterator[Row]:
    waits = optional(tables, "waits")
    if waits is None:
        return
    code, distinct = pd.factorize(waits["name"].astype(str), sort=True)
    base = names.add([str(text) for text in distinct])
    paint = np.full(len(waits), PAINT["wait"])
    columns = (ints(waits, "start_ns"), ints(waits, "end_ns"), code + base, paint)
    for thread, rows in waits.groupby("thread", sort=True).indices.items():
        made = items(*(column[rows] for column in columns))
        yield Row("waits", "", "OS calls", made, thread=int(str(thread)))


def _range_rows(tables: Tables, names: Names) -> Iterator[Row]:
    ranges, texts, depths = (
        optional(tables, name) for name in ("ranges", "range_names", "range_depth")
    )
    if ranges is None or texts is None or depths is None:
        return
    base = names.add(texts["text"].astype(str).tolist())
    depth = ints(depths, "depth")
    if "pushed" in ranges:
        depth = np.where(ranges["pushed"].to_numpy(dtype=bool), depth, -1)
    start, end = ints(ranges, "start_ns"), ints(ranges, "end_ns")
    frame = pd.DataFrame({"thread": ints(ranges, "thread"), "depth": depth})
    paint = np.full(len(ranges), PAINT["range"])
    columns = (start, end, ints(ranges, "text") + base, paint)
    kept = frame[frame["depth"] < MOST_DEPTH]
    for (thread, level), rows in kept.groupby(["thread", "depth"], sort=True).groups.items():
        at = rows.to_numpy(dtype=np.int64)
        made = items(*(column[at] for column in columns))
        label = "NVTX ranges" if level <= 0 else ""
        label = "NVTX start/end" if level < 0 else label
        yield Row("ranges", "", label, made, thread=int(thread), depth=int(level))
