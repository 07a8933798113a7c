"""Who waits for whom: calls for operations, operations for events, threads for each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.verbs import SYNCS, Verb

_OWN_NS = 10_000
_LAG_NS = 20_000
_RETURN_NS = 5_000
"""What a call takes to return once the operation it waits for has ended."""

_QUEUE_DEPTH = 200
"""A launch that takes long while this many operations are queued waits for the queue."""

_BURST_CALLS, _BACK_AND_FORTH = 5, 3


class Waiting(NamedTuple):
    """Pairs (call, op): the call ends after the operation, `lag_ns` typical.

    `blocks` (per row of `api`) tells calls that wait, `own_ns` what they cost apart from that.
    `event_waiter` starts after `event_op` by a recorded event.
    """

    call: Ints
    op: Ints
    lag_ns: Ints
    blocks: np.ndarray
    own_ns: Ints
    event_waiter: Ints
    event_op: Ints


@table
def waiting(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
    submissions: pd.DataFrame,
    pageable_calls: Ints,
    syncs: pd.DataFrame | None = None,
    event_rows: pd.DataFrame | None = None,
    processes: pd.DataFrame | None = None,
) -> Waiting:
    """Returns which calls wait for which operations, and which operations for which.

    Synchronising calls wait for what was submitted to their stream, device or event before;
    copies that end inside their call are waited for by it; other calls that take much longer
    than usual and end right after an operation waited for that one.
    """
    pairs = [_own_copies(ops, api, launches, pageable_calls)]
    if syncs is not None and len(syncs):
        pairs.append(_recorded_syncs(ops, api, submissions, syncs, event_rows, processes))
    known = np.zeros(len(api), dtype=bool)
    for call, _ in pairs:
        known[call] = True
    pairs.append(_observed(ops, api, submissions, known))
    call = np.concatenate([c for c, _ in pairs])
    op = np.concatenate([o for _, o in pairs])
    blocks = np.zeros(len(api), dtype=bool)
    blocks[call] = True
    lag = api["end_ns"].to_numpy()[call] - ops["end_ns"].to_numpy()[op]
    waiter, event_op = (
        _event_waits(ops, api, submissions, syncs, event_rows, processes)
        if syncs is not None and event_rows is not None and processes is not None
        else (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    )
    return Waiting(
        call, op, np.clip(lag, 0, _RETURN_NS), blocks, _own(api), waiter, event_op
    )


def _own(api: pd.DataFrame) -> Ints:
    length = (api["end_ns"] - api["start_ns"]).to_numpy()
    return np.asarray(np.minimum(length, _OWN_NS), dtype=np.int64)


def _own_copies(
    ops: pd.DataFrame, api: pd.DataFrame, launches: pd.DataFrame, pageable_calls: Ints
) -> tuple[Ints, Ints]:
    """Copies and sets that their own call waits for: they end before it returns, and it is no
    call that only queues. A tiny pinned copy may be done before its call is, by chance."""
    op, call = launches["op"].to_numpy(), launches["api"].to_numpy()
    verb, start, end = (api[c].to_numpy()[call] for c in ("verb", "start_ns", "end_ns"))
    waits = np.isin(verb, [Verb.COPY, Verb.SET]) | np.isin(call, pageable_calls)
    waits |= np.isin(verb, [Verb.COPY_ASYNC, Verb.SET_ASYNC]) & (end - start > _LAG_NS)
    inside = ops["end_ns"].to_numpy()[op] <= end
    chosen = waits & inside & api["top"].to_numpy()[call]
    return call[chosen], op[chosen]


class _Submitted(NamedTuple):
    """Submissions to one place in call order: their times, and the latest end so far."""

    called_ns: Ints
    op: Ints

    def last_before(self, at: Ints) -> Ints:
        index = np.searchsorted(self.called_ns, at) - 1
        return np.asarray(np.where(index >= 0, self.op[np.maximum(index, 0)], -1), dtype=np.int64)


def _latest(submissions: pd.DataFrame, ops: pd.DataFrame) -> _Submitted:
    """Of the operations submitted so far the one that ends last, at each submission."""
    ordered = submissions.sort_values(["called_ns", "op"], kind="stable")
    op = ordered["op"].to_numpy()
    end = ops["end_ns"].to_numpy()[op]
    reach = np.maximum.accumulate(end)
    place = np.maximum.accumulate(np.where(end == reach, np.arange(len(op)), 0))
    return _Submitted(ordered["called_ns"].to_numpy(), op[place])


def _by_place(
    submissions: pd.DataFrame, ops: pd.DataFrame, columns: list[str]
) -> dict[tuple[int, ...], _Submitted]:
    places = ops[columns].iloc[submissions["op"].to_numpy()].reset_index(drop=True)
    groups = places.groupby(columns, sort=True).indices
    return {
        (key if isinstance(key, tuple) else (key,)): _latest(submissions.iloc[rows], ops)
        for key, rows in groups.items()
    }


def _with_calls(syncs: pd.DataFrame, api: pd.DataFrame) -> pd.DataFrame:
    """The synchronisation records with the row and start of the call that made each."""
    calls = pd.DataFrame(
        {
            "process": api["process"],
            "correlation": api["correlation"],
            "api": np.arange(len(api)),
            "called_ns": api["start_ns"],
        }
    ).drop_duplicates(["process", "correlation"])
    found = syncs.merge(calls, "inner", ["process", "correlation"])
    return found.sort_values(["called_ns", "api"], kind="stable", ignore_index=True)


def _recorded_syncs(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    submissions: pd.DataFrame,
    syncs: pd.DataFrame,
    event_rows: pd.DataFrame | None,
    processes: pd.DataFrame | None,
) -> tuple[Ints, Ints]:
    records = _with_calls(syncs, api)
    call, op = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for what, columns, keys in (
        ("stream", ["process", "context", "stream"], ["process", "context", "stream"]),
        ("device", ["process", "context"], ["process", "context"]),
    ):
        places = _by_place(submissions, ops, columns)
        for key, rows in records[records["what"] == what].groupby(keys, sort=True):
            place = places.get(key if isinstance(key, tuple) else (key,))
            if place is not None:
                call.append(rows["api"].to_numpy())
                op.append(place.last_before(rows["called_ns"].to_numpy()))
    if event_rows is not None and processes is not None:
        waits = records[records["what"] == "event"]
        recorded = _recorded_ops(ops, api, submissions, waits, event_rows, processes)
        call.append(waits["api"].to_numpy())
        op.append(recorded)
    calls, waited = np.concatenate(call), np.concatenate(op)
    real = (waited >= 0) & api["top"].to_numpy()[calls]
    real &= ops["end_ns"].to_numpy()[np.maximum(waited, 0)] <= api["end_ns"].to_numpy()[calls]
    return calls[real], waited[real]


def _recorded_ops(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    submissions: pd.DataFrame,
    waits: pd.DataFrame,
    event_rows: pd.DataFrame,
    processes: pd.DataFrame,
) -> Ints:
    """For each wait the last operation that its event covers, -1 where unknown.

    Handles of events are used again, so the latest record of the event before the wait counts.
    """
    from nsysdoctor.tables.devices import process_code

    made = event_rows.assign(process=process_code(processes, event_rows["global_pid"]))
    calls = pd.DataFrame(
        {
            "process": api["process"],
            "correlation": api["correlation"],
            "recorded_ns": api["start_ns"],
        }
    ).drop_duplicates(["process", "correlation"])
    made = made.merge(calls, "inner", ["process", "correlation"])
    made = made.sort_values(["recorded_ns", "event"], kind="stable")
    asked = waits.reset_index(names="wait").sort_values(["called_ns", "wait"], kind="stable")
    joined = pd.merge_asof(
        asked[["wait", "called_ns", "process", "event"]],
        made[["recorded_ns", "process", "event", "context", "stream"]],
        left_on="called_ns", right_on="recorded_ns", by=["process", "event"],
    )  # fmt: skip
    found = np.full(len(waits), -1, dtype=np.int64)
    position = {wait: i for i, wait in enumerate(waits.index)}
    places = _by_place(submissions, ops, ["process", "context", "stream"])
    for key, rows in joined.dropna().groupby(["process", "context", "stream"], sort=True):
        place = places.get(tuple(int(k) for k in key))
        if place is not None:
            last = place.last_before(rows["recorded_ns"].to_numpy(dtype=np.int64))
            found[[position[w] for w in rows["wait"]]] = last
    return found


def _event_waits(
    ops: pd.DataFrame,
    api: pd.DataFrame,
    submissions: pd.DataFrame,
    syncs: pd.DataFrame,
    event_rows: pd.DataFrame,
    processes: pd.DataFrame,
) -> tuple[Ints, Ints]:
    """(waiter, awaited) for every stream wait on an event: the next operation submitted to the
    waiting stream starts after the last one that the event covers."""
    waits = _with_calls(syncs[syncs["what"] == "stream_wait"], api)
    awaited = _recorded_ops(ops, api, submissions, waits, event_rows, processes)
    waiter = np.full(len(waits), -1, dtype=np.int64)
    keys = ["process", "context", "stream"]
    places = ops[keys].iloc[submissions["op"].to_numpy()].reset_index(drop=True)
    groups = places.groupby(keys, sort=True).indices
    for key, rows in waits.groupby(keys, sort=True):
        if key not in groups:
            continue
        mine = submissions.iloc[groups[key]].sort_values(["called_ns", "op"], kind="stable")
        index = np.searchsorted(mine["called_ns"].to_numpy(), rows["called_ns"].to_numpy())
        inside = index < len(mine)
        waiter[rows.index.to_numpy()[inside]] = mine["op"].to_numpy()[index[inside]]
    real = (waiter >= 0) & (awaited >= 0)
    return waiter[real], awaited[real]


def _observed(
    ops: pd.DataFrame, api: pd.DataFrame, submissions: pd.DataFrame, known: np.ndarray
) -> tuple[Ints, Ints]:
    """Calls that took unusually long and returned right after an operation ended."""
    start, end = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
    length, verb = end - start, api["verb"].to_numpy()
    usual = pd.Series(length).groupby(api["name"].to_numpy()).transform(lambda v: v.quantile(0.25))
    syncing = np.isin(verb, [int(v) for v in SYNCS])
    slow = (length > _LAG_NS) & (syncing | (length > 3 * usual.to_numpy() + _LAG_NS))
    launching = np.isin(verb, [Verb.LAUNCH, Verb.GRAPH_LAUNCH, Verb.COPY_ASYNC, Verb.SET_ASYNC])
    slow &= ~launching | (_queued(ops, api, submissions) >= _QUEUE_DEPTH)
    rows = np.flatnonzero(slow & ~known & api["top"].to_numpy())
    found_call, found_op = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for process in np.unique(api["process"].to_numpy()[rows]):
        mine = np.flatnonzero(ops["process"].to_numpy() == process)
        order = mine[np.argsort(ops["end_ns"].to_numpy()[mine], kind="stable")]
        here = rows[api["process"].to_numpy()[rows] == process]
        if not len(order):
            continue
        ends = ops["end_ns"].to_numpy()[order]
        index = np.searchsorted(ends, end[here], side="right") - 1
        last = ends[np.maximum(index, 0)]
        near = (index >= 0) & (last > start[here]) & (end[here] - last <= _LAG_NS)
        found_call.append(here[near])
        found_op.append(order[index[near]])
    return np.concatenate(found_call), np.concatenate(found_op)


def _queued(ops: pd.DataFrame, api: pd.DataFrame, submissions: pd.DataFrame) -> Ints:
    """How many operations of its process are submitted and not ended when each call starts."""
    queued = np.zeros(len(api), dtype=np.int64)
    for process, rows in submissions.groupby("process", sort=True):
        mine = np.flatnonzero(api["process"].to_numpy() == process)
        at = api["start_ns"].to_numpy()[mine]
        ended = np.sort(ops["end_ns"].to_numpy()[rows["op"].to_numpy()])
        called = np.sort(rows["called_ns"].to_numpy())
        queued[mine] = np.searchsorted(called, at) - np.searchsorted(ended, at)
    return queued


@table
def relay(api: pd.DataFrame) -> Ints:
    """Returns a chain code for each row of `api`: calls of one chain follow one another.

    A thread is a chain of its own, but threads of one process that take turns in bursts and
    never overlap hand work to each other, as the backward pass of a framework does; they are
    one chain.
    """
    chain = api["thread"].to_numpy().copy()
    top = api[["process", "thread", "start_ns", "end_ns"]][api["top"].to_numpy()]
    for _, calls in top.groupby("process", sort=True):
        chains: list[pd.DataFrame] = []
        for thread, rows in calls.groupby("thread", sort=True):
            place = next((i for i, c in enumerate(chains) if _take_turns(c, rows)), len(chains))
            if place == len(chains):
                chains.append(rows)
                continue
            chain[chain == thread] = chains[place]["thread"].iloc[0]
            chains[place] = pd.concat([chains[place], rows])
    return np.asarray(chain, dtype=np.int64)


def _take_turns(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two sets of calls alternate in bursts, going back and forth, without overlap."""
    both = pd.concat([one.assign(other=False), other.assign(other=True)])
    both = both.sort_values(["start_ns", "end_ns"], kind="stable")
    whose, start, end = (both[c].to_numpy() for c in ("other", "start_ns", "end_ns"))
    if (start[1:] < np.maximum.accumulate(end)[:-1]).any():
        return False
    bursts = 1 + int((whose[1:] != whose[:-1]).sum())
    enough = min(len(one), len(other)) >= _BURST_CALLS * bursts / 2
    return bursts >= _BACK_AND_FORTH and enough
