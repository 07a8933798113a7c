"""Which calls wait for which operations, and which operations wait for events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import first_rows, narrowed, time_order
from nsysdoctor.ingest.cut import widened
from nsysdoctor.tables.activity.devices import process_code
from nsysdoctor.tables.host.call_kinds import SYNCS, Verb
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_OWN_NS = 10_000
_LAG_NS = 20_000
_RETURN_NS = 5_000
"""What a call takes to return once the operation it waits for has ended."""

_QUEUE_DEPTH = 200
"""A launch that takes long while this many operations are queued waits for the queue."""

_QUEUEING = [Verb.LAUNCH, Verb.GRAPH_LAUNCH, Verb.COPY_ASYNC, Verb.SET_ASYNC]
_STREAM = ["process", "context", "stream"]
_NONE = np.empty(0, dtype=np.int64)


class Waiting(NamedTuple):
    """Pairs (call, op): the call ends after the operation, usually `lag_ns` later.

    Per row of `api`, `blocks` marks the calls that wait, and `own_ns` is what they cost apart from
    that. `event_waiter` starts after `event_op` because of a recorded event.
    """

    call: Ints
    op: Ints
    lag_ns: Ints
    blocks: np.ndarray
    own_ns: npt.NDArray[np.int32]
    event_waiter: Ints
    event_op: Ints


@table
def waiting(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
    submissions: pd.DataFrame,
    pageable_calls: Ints,
    ops_near: np.ndarray,
    request: Request,
    syncs: pd.DataFrame | None = None,
    event_records: pd.DataFrame | None = None,
) -> Waiting:
    """Returns which calls wait for which operations, and which operations for which.

    Synchronising calls wait for what was submitted to their stream, device or event before. A call
    waits for its own copy if that ends inside it. Any other call that takes much longer than usual
    and ends right after an operation waited for that operation. The awaited operations are those of
    `ops_near`.
    """
    queues = _Queues(ops, submissions)
    pairs = [_own_copies(ops, api, launches, pageable_calls)]
    if syncs is not None and len(syncs):
        pairs.append(_recorded_syncs(ops, ops_near, api, queues, syncs, event_records))
    blocks = np.zeros(len(api), dtype=bool)
    for call, _ in pairs:
        blocks[call] = True
    unusual = _unusual(api, np.flatnonzero(api["top"].to_numpy() & ~blocks), request)
    pairs.append(_observed(ops, api, submissions, unusual))
    call = np.concatenate([c for c, _ in pairs])
    op = np.concatenate([o for _, o in pairs])
    blocks[call] = True
    lag = api["end_ns"].to_numpy()[call] - ops["end_ns"].to_numpy()[op]
    waiter, event_op = (
        _event_waits(ops_near, api, queues, syncs, event_records)
        if syncs is not None and event_records is not None
        else (_NONE, _NONE)
    )
    return Waiting(
        call, op, np.clip(lag, 0, _RETURN_NS), blocks, _own(api), waiter, event_op
    )


def _own(api: pd.DataFrame) -> npt.NDArray[np.int32]:
    length = (api["end_ns"] - api["start_ns"]).to_numpy()
    return np.asarray(np.minimum(length, _OWN_NS), dtype=np.int32)


def _own_copies(
    ops: pd.DataFrame, api: pd.DataFrame, launches: pd.DataFrame, pageable_calls: Ints
) -> tuple[Ints, Ints]:
    """Copies and sets for which their own call waits: they end before it returns, and the call is
    not one that only queues. A tiny pinned copy may end before its call by chance."""
    verb, start, end = (api[c].to_numpy() for c in ("verb", "start_ns", "end_ns"))
    waits = np.isin(verb, [Verb.COPY_ASYNC, Verb.SET_ASYNC]) & (end - start > _LAG_NS)
    waits |= np.isin(verb, [Verb.COPY, Verb.SET])
    waits[pageable_calls] = True
    waits &= api["top"].to_numpy()
    mine = np.flatnonzero(waits[launches["api"].to_numpy()])
    op, call = launches["op"].to_numpy()[mine], launches["api"].to_numpy()[mine]
    inside = ops["end_ns"].to_numpy()[op] <= end[call]
    return call[inside], op[inside]


class _Queues:
    """The operations submitted to each stream or context, in the order of their calls."""

    def __init__(self, ops: pd.DataFrame, submissions: pd.DataFrame) -> None:
        self._called = submissions["called_ns"].to_numpy()
        self._op = submissions["op"].to_numpy()
        self._end = ops["end_ns"].to_numpy()
        lane = ops["lane"].to_numpy()
        first = first_rows(lane)
        self._lanes = pd.DataFrame({name: ops[name].to_numpy()[first] for name in _STREAM})
        op_lane = narrowed(lane[self._op])
        self._order = np.argsort(op_lane, kind="stable")
        count = np.bincount(op_lane, minlength=len(self._lanes))
        self._opens = np.append(0, np.cumsum(count))

    def at(self, place: dict[str, int]) -> tuple[Ints, Ints]:
        """Returns (called_ns, op) of the operations submitted to a stream or context."""
        lanes = self._lanes
        matching = np.logical_and.reduce([lanes[name] == value for name, value in place.items()])
        rows = [
            self._order[self._opens[lane] : self._opens[lane + 1]]
            for lane in np.flatnonzero(matching)
        ]
        every = np.sort(np.concatenate([_NONE, *rows]), kind="stable")
        return self._called[every], self._op[every]

    def last_before(self, place: dict[str, int], at: Ints) -> Ints:
        """Returns for each time, of the operations submitted to a stream or context before it, the
        one that ends last; -1 for none."""
        called, op = self.at(place)
        end = self._end[op]
        reach = np.maximum.accumulate(end)
        latest = np.maximum.accumulate(np.where(end == reach, np.arange(len(op)), 0))
        index = np.searchsorted(called, at) - 1
        found = np.full(len(at), -1, dtype=np.int64)
        found[index >= 0] = op[latest[index[index >= 0]]]
        return found


def _calls_of(api: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """The calls that may have made some records: process, correlation, api, called_ns. Of calls
    that share an id only the first counts."""
    rows = np.flatnonzero(np.isin(api["correlation"], records["correlation"]))
    process, correlation, called = (
        api[c].to_numpy()[rows] for c in ("process", "correlation", "start_ns")
    )
    calls = pd.DataFrame(
        {"process": process, "correlation": correlation, "api": rows, "called_ns": called}
    )
    return calls.drop_duplicates(["process", "correlation"])


def _with_calls(syncs: pd.DataFrame, api: pd.DataFrame) -> pd.DataFrame:
    """The synchronisation records with the row and start of the call that made each."""
    found = syncs.merge(_calls_of(api, syncs), "inner", ["process", "correlation"])
    return found.sort_values(["called_ns", "api"], kind="stable", ignore_index=True)


def _recorded_syncs(
    ops: pd.DataFrame,
    near: np.ndarray,
    api: pd.DataFrame,
    queues: _Queues,
    syncs: pd.DataFrame,
    event_records: pd.DataFrame | None,
) -> tuple[Ints, Ints]:
    records = _with_calls(syncs, api)
    call, op = [_NONE], [_NONE]
    for what, place in (("stream", _STREAM), ("device", _STREAM[:2])):
        for key, rows in records[records["what"] == what].groupby(place, sort=True):
            call.append(rows["api"].to_numpy())
            called = rows["called_ns"].to_numpy()
            op.append(queues.last_before(dict(zip(place, key, strict=True)), called))
    if event_records is not None:
        waits = records[records["what"] == "event"]
        call.append(waits["api"].to_numpy())
        op.append(_recorded_ops(queues, waits, event_records))
    calls, waited = np.concatenate(call), np.concatenate(op)
    real = (waited >= 0) & near[waited] & api["top"].to_numpy()[calls]
    real &= ops["end_ns"].to_numpy()[np.maximum(waited, 0)] <= api["end_ns"].to_numpy()[calls]
    return calls[real], waited[real]


@table
def event_records(
    event_rows: pd.DataFrame, api: pd.DataFrame, processes: pd.DataFrame, request: Request
) -> pd.DataFrame:
    """Returns the records of events by time: process, context, stream, event, recorded_ns (start of
    the call). For a given window (START:END), only those from the margin before it on."""
    made = event_rows.assign(process=process_code(processes, event_rows["global_pid"]))
    calls = _calls_of(api, event_rows).rename(columns={"called_ns": "recorded_ns"})
    made = made.merge(calls, "inner", ["process", "correlation"])
    if isinstance(request.window, tuple):
        made = made[made["recorded_ns"] >= widened(*request.window)[0]]
    made = made.sort_values(["recorded_ns", "event"], kind="stable", ignore_index=True)
    return made[["recorded_ns", "process", "event", "context", "stream"]]


def _recorded_ops(queues: _Queues, waits: pd.DataFrame, event_records: pd.DataFrame) -> Ints:
    """The last operation covered by the event of each wait, -1 where unknown.

    Handles of events are reused, so the latest record of the event before the wait counts.
    """
    ordered = waits.reset_index(names="wait").sort_values(["called_ns", "wait"], kind="stable")
    joined = pd.merge_asof(
        ordered[["wait", "called_ns", "process", "event"]],
        event_records,
        left_on="called_ns", right_on="recorded_ns", by=["process", "event"],
    )  # fmt: skip
    found = np.full(len(waits), -1, dtype=np.int64)
    position = {wait: i for i, wait in enumerate(waits.index)}
    for key, rows in joined.dropna().groupby(_STREAM, sort=True):
        place = {name: int(code) for name, code in zip(_STREAM, key, strict=True)}
        last = queues.last_before(place, rows["recorded_ns"].to_numpy(dtype=np.int64))
        found[[position[w] for w in rows["wait"]]] = last
    return found


def _event_waits(
    near: np.ndarray,
    api: pd.DataFrame,
    queues: _Queues,
    syncs: pd.DataFrame,
    event_records: pd.DataFrame,
) -> tuple[Ints, Ints]:
    """(waiter, awaited) for every stream wait on an event: the next operation submitted to the
    waiting stream starts after the last one that the event covers."""
    waits = _with_calls(syncs[syncs["what"] == "stream_wait"], api)
    awaited = _recorded_ops(queues, waits, event_records)
    waiter = np.full(len(waits), -1, dtype=np.int64)
    for key, rows in waits.groupby(_STREAM, sort=True):
        called, op = queues.at(dict(zip(_STREAM, key, strict=True)))
        index = np.searchsorted(called, rows["called_ns"].to_numpy())
        inside = index < len(op)
        waiter[rows.index.to_numpy()[inside]] = op[index[inside]]
    real = (waiter >= 0) & (awaited >= 0) & near[awaited]
    return waiter[real], awaited[real]


def _observed(
    ops: pd.DataFrame, api: pd.DataFrame, submissions: pd.DataFrame, rows: Ints
) -> tuple[Ints, Ints]:
    """Calls that took unusually long (`rows`) and returned right after an operation ended."""
    rows = rows[_may_wait(ops, api, submissions, rows)]
    start, end, process = (api[c].to_numpy()[rows] for c in ("start_ns", "end_ns", "process"))
    call, op = [_NONE], [_NONE]
    for code in np.unique(process):
        own = np.flatnonzero(ops["process"].to_numpy() == code)
        if not len(own):
            continue
        ends = ops["end_ns"].to_numpy()[own]
        order = time_order(ends)
        here = np.flatnonzero(process == code)
        index = np.searchsorted(ends[order], end[here], side="right") - 1
        last = ends[order[np.maximum(index, 0)]]
        near = (index >= 0) & (last > start[here]) & (end[here] - last <= _LAG_NS)
        call.append(rows[here[near]])
        op.append(own[order[index[near]]])
    return np.concatenate(call), np.concatenate(op)


def _unusual(api: pd.DataFrame, rows: Ints, request: Request) -> Ints:
    """Those of the calls that take long for their kind, and all long calls that synchronise."""
    length = (api["end_ns"] - api["start_ns"]).to_numpy()
    rows = rows[length[rows] > _LAG_NS]
    name, took = api["name"].to_numpy(), length[rows]
    unusual = np.isin(api["verb"].to_numpy()[rows], [int(v) for v in SYNCS])
    given = request.in_given_window(api)
    for code in np.unique(name[rows]):
        sample = length[name == code if given is None else (name == code) & given]
        usual = np.percentile(sample, 25) if len(sample) else np.inf
        unusual |= (name[rows] == code) & (took > 3 * usual + _LAG_NS)
    return rows[unusual]


def _may_wait(
    ops: pd.DataFrame, api: pd.DataFrame, submissions: pd.DataFrame, rows: Ints
) -> np.ndarray:
    """Which calls may have waited for an operation. A call that only queues may do so if, when it
    starts, many submitted operations of its process have not ended."""
    waits = ~np.isin(api["verb"].to_numpy()[rows], _QUEUEING)
    process, at = api["process"].to_numpy()[rows], api["start_ns"].to_numpy()[rows]
    owner, called = submissions["process"].to_numpy(), submissions["called_ns"].to_numpy()
    for code in np.unique(process[~waits]):
        own = np.flatnonzero(owner == code)
        ended = np.sort(ops["end_ns"].to_numpy()[submissions["op"].to_numpy()[own]], kind="stable")
        here = np.flatnonzero((process == code) & ~waits)
        before = np.searchsorted(called[own], at[here]) - np.searchsorted(ended, at[here])
        waits[here] = before >= _QUEUE_DEPTH
    return waits
