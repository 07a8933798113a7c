"""What every host thread did: CUDA calls, OS calls, profiler pauses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, runs
from nsysdoctor.arrays.order import Codes, narrowed, time_order
from nsysdoctor.errors import MissingTableError
from nsysdoctor.ingest.export_codes import PROCESS_MASK
from nsysdoctor.ingest.schema import INVALID_ID
from nsysdoctor.tables.activity.devices import process_code, thread_code
from nsysdoctor.tables.host.call_kinds import bare_name, verb_of, waits_for_others
from nsysdoctor.trace.recipe import table


@table
def api_names(api_rows: pd.DataFrame, strings: pd.Series[str]) -> pd.DataFrame:
    """Returns the distinct CUDA calls: name_id, name (suffix stripped), verb (see `Verb`).

    Raises MissingTableError when no call has a name: then nothing tells what any of them did.
    """
    ids = np.unique(api_rows["name_id"].to_numpy())
    texts = [str(strings.get(i, "")) for i in ids]
    if texts and not any(texts):
        raise MissingTableError(
            "the export names none of its CUDA calls", "export again with nsys export --type sqlite"
        )
    return pd.DataFrame(
        {
            "name_id": ids,
            "name": pd.Series([bare_name(t) or "(unnamed call)" for t in texts], dtype="str"),
            "verb": np.array([int(verb_of(t)) for t in texts], dtype=np.int8),
        }
    )


@table
def api(
    api_rows: pd.DataFrame,
    api_names: pd.DataFrame,
    threads: pd.DataFrame,
) -> pd.DataFrame:
    """Returns one row per CUDA call, in order of thread, start and enclosing call first.

    Columns: thread, process (codes), start_ns, end_ns, correlation, name (row of `api_names`),
    verb (int8), top (bool: not inside another call of its thread).
    """
    thread = thread_code(threads, api_rows["global_tid"])
    start, end = api_rows["start_ns"].to_numpy(), api_rows["end_ns"].to_numpy()
    correlation = api_rows["correlation"].to_numpy()
    order = time_order(start, lambda rows: (-end[rows], correlation[rows]), thread)
    ids = api_names["name_id"].to_numpy()
    name = np.searchsorted(ids, api_rows["name_id"].to_numpy())
    name = narrowed(name)[order]
    thread, start, end = thread[order], start[order], end[order]
    found = {
        "thread": thread,
        "process": narrowed(threads["process"].to_numpy())[thread],
        "start_ns": start,
        "end_ns": end,
        "correlation": correlation[order],
        "name": name,
        "verb": api_names["verb"].to_numpy()[name],
        "top": _not_nested(thread, start, end),
    }
    return pd.DataFrame(found, copy=False)


def _not_nested(thread: Codes, start: Ints, end: Ints) -> np.ndarray:
    """Rows in (thread, start, -end) order that no earlier row of their thread reaches over."""
    top = np.ones(len(thread), dtype=bool)
    for _, rows in runs(thread):
        top[rows][1:] = start[rows][1:] >= np.maximum.accumulate(end[rows][:-1])
    return top


@table
def launches(ops: pd.DataFrame, api: pd.DataFrame) -> pd.DataFrame:
    """Returns, for every operation with a call of its process and correlation id, that call.

    Columns: op (row of `ops`), api (row of `api`), latency_ns (call start to operation start).
    Correlation ids repeat between processes, hence the pair. Where calls repeat an id the
    enclosing one is meant; one call of a graph may have many operations. Operations without a
    call are missing here: the call lies outside the capture or its row was cut.
    """
    asked, known = _call_keys(ops, api)
    called = api["start_ns"].to_numpy()
    order = time_order(known, lambda rows: (called[rows],))
    order = order[api["correlation"].to_numpy()[order] != 0]
    known = known[order]
    first = np.ones(len(known), dtype=bool)
    first[1:] = known[1:] != known[:-1]
    known, order = known[first], order[first].astype(np.int32)
    place = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
    found = known[place] == asked if len(known) else np.zeros(len(asked), dtype=bool)
    op, call = np.flatnonzero(found).astype(np.int32), order[place[found]]
    latency = ops["start_ns"].to_numpy()[op] - called[call]
    return pd.DataFrame({"op": op, "api": call, "latency_ns": latency}, copy=False)


def _call_keys(ops: pd.DataFrame, api: pd.DataFrame) -> tuple[Ints, Ints]:
    """One number for process and correlation id, of operations and of calls."""
    ids = [frame["correlation"].to_numpy() for frame in (ops, api)]
    if any(column.dtype.itemsize > 4 for column in ids):
        distinct = np.unique(np.concatenate(ids))
        ids = [np.searchsorted(distinct, column) for column in ids]
    whose = [frame["process"].to_numpy().astype(np.int64) << 32 for frame in (ops, api)]
    return whose[0] + ids[0], whose[1] + ids[1]


@table
def waits(
    osrt_rows: pd.DataFrame, strings: pd.Series[str], threads: pd.DataFrame
) -> pd.DataFrame:
    """Returns the OS calls of the known threads, nested ones too, by thread, start, longest.

    Columns: thread, start_ns, end_ns, name (text), blocking (bool: the thread sleeps in it).
    The profiler's own marker rows are left out.
    """
    ids = np.unique(osrt_rows["name_id"].to_numpy())
    texts = np.array([str(strings.get(i, "")) for i in ids], dtype=object)
    code = np.searchsorted(ids, osrt_rows["name_id"].to_numpy())
    marker = np.array([t.startswith("OS runtime libraries") for t in texts], dtype=bool)
    blocking = np.array([waits_for_others(t) for t in texts], dtype=bool)
    thread = thread_code(threads, osrt_rows["global_tid"])
    kept = thread >= 0
    if len(ids):
        kept &= ~marker[code]
    found = pd.DataFrame(
        {
            "thread": thread,
            "start_ns": osrt_rows["start_ns"],
            "end_ns": osrt_rows["end_ns"],
            "name": pd.Categorical.from_codes(code, categories=pd.Index(texts)) if _distinct(texts)
            else texts[code],
            "blocking": blocking[code] if len(ids) else False,
        }
    )[kept]
    return found.sort_values(
        ["thread", "start_ns", "end_ns"], ascending=[True, True, False], kind="stable",
        ignore_index=True,
    )  # fmt: skip


def _distinct(texts: np.ndarray) -> bool:
    return len(set(texts.tolist())) == len(texts)


@table
def syncs(
    sync_rows: pd.DataFrame, processes: pd.DataFrame
) -> pd.DataFrame:
    """Returns the synchronisation records, classified by which ids they carry.

    Columns: process, ordinal, context, stream (-1 all), event (-1 none), event_sync,
    correlation, start_ns, end_ns, what (device, stream, event, stream_wait). The stored
    syncType changed its meaning between versions; stream and event ids did not.
    """
    has_stream = sync_rows["stream"] != INVALID_ID
    has_event = sync_rows["event"] != INVALID_ID
    what = np.select(
        [has_stream & has_event, has_stream, has_event],
        ["stream_wait", "stream", "event"],
        "device",
    )
    found = pd.DataFrame(
        {
            "process": process_code(processes, sync_rows["global_pid"]),
            "ordinal": sync_rows["ordinal"],
            "context": sync_rows["context"],
            "stream": sync_rows["stream"].where(has_stream, -1),
            "event": sync_rows["event"].where(has_event, -1),
            "event_sync": sync_rows["event_sync"],
            "correlation": sync_rows["correlation"],
            "start_ns": sync_rows["start_ns"],
            "end_ns": sync_rows["end_ns"],
            "what": what,
        }
    )
    return found.sort_values(
        ["start_ns", "end_ns", "process", "correlation"], kind="stable", ignore_index=True
    )


@table
def pauses(
    threads: pd.DataFrame,
    strings: pd.Series[str],
    overhead_rows: pd.DataFrame | None = None,
    cuda_overhead_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the stretches in which the profiler itself held one of `threads`.

    Columns: thread (-1: the whole process, as the row names no thread), process, start_ns, end_ns,
    name. What holds a thread of the profiler's own holds no other. Comes from
    PROFILER_OVERHEAD and the buffer-flush, instrumentation and resource kinds (3, 4, 5) of
    CUPTI_ACTIVITY_KIND_OVERHEAD; module loading and full queues (2, 6, 7, 8) are the program's.
    """
    frames = []
    if overhead_rows is not None:
        names = [str(strings.get(i, "")) for i in overhead_rows["name_id"]]
        frames.append(overhead_rows[["start_ns", "end_ns", "global_tid"]].assign(name=names))
    if cuda_overhead_rows is not None:
        own = cuda_overhead_rows[cuda_overhead_rows["overhead_type"].isin((3, 4, 5))]
        frames.append(own[["start_ns", "end_ns", "global_tid"]].assign(name="CUPTI overhead"))
    columns = ["thread", "process", "start_ns", "end_ns", "name"]
    if not frames:
        return pd.DataFrame({c: np.empty(0, dtype=np.int64) for c in columns})
    rows = pd.concat(frames, ignore_index=True)
    known = threads.drop_duplicates("process")
    owner = dict(
        zip((known["global_tid"].to_numpy() >> 24).tolist(), known["process"], strict=True)
    )
    found = pd.DataFrame(
        {
            "thread": thread_code(threads, rows["global_tid"]),
            "process": [owner.get(t >> 24, -1) for t in rows["global_tid"].tolist()],
            "start_ns": rows["start_ns"],
            "end_ns": rows["end_ns"],
            "name": rows["name"],
        }
    )
    named = (rows["global_tid"].to_numpy() & ~PROCESS_MASK) != 0
    return found[(found["thread"] >= 0) | ((found["process"] >= 0) & ~named)].sort_values(
        ["start_ns", "end_ns", "thread", "name"], kind="stable", ignore_index=True
    )
