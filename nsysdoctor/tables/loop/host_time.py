"""What the host spends its time on: all calls in order, each with the time outside CUDA before
it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, overlaps, runs, spans, union
from nsysdoctor.arrays.order import Codes, narrowed, packed, time_order
from nsysdoctor.tables.account.idle_parts import IdleParts, outside_ns
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.tables.host.thread_states import Rests
from nsysdoctor.tables.host_activity.schedule import READY, off_cpu
from nsysdoctor.tables.steps.steps import in_window
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request


@table
def chain_calls(api: pd.DataFrame, thread_handoffs: Codes) -> Codes:
    """Returns the outermost calls, rows of `api`, in the order of their chain (see
    `thread_handoffs`) and start."""
    rows = np.flatnonzero(api["top"].to_numpy()).astype(np.int32)
    return rows[time_order(api["start_ns"].to_numpy()[rows], group=thread_handoffs[rows])]


@table
def host_calls(
    api: pd.DataFrame,
    chain_calls: Codes,
    thread_handoffs: Codes,
    waiting: Waiting,
    links: Links,
    idle_parts: IdleParts,
    request: Request,
) -> pd.DataFrame:
    """Returns the calls of `chain_calls`.

    Columns: api, chain, thread, verb, start_ns, end_ns, blocks (it waits for operations), op (the
    first operation it submits, -1 none), outside_ns (time since the end of the chain's previous
    call, as far as it was read), idle_ns (of the device that idled most because of what the host
    did then), device (that one, -1 none).
    """
    rows, chain = chain_calls, narrowed(thread_handoffs[chain_calls])
    start, end = (api[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))
    found = {
        "api": rows,
        "chain": chain,
        "thread": narrowed(api["thread"].to_numpy()[rows]),
        "verb": api["verb"].to_numpy()[rows],
        "start_ns": start,
        "end_ns": end,
        "blocks": waiting.blocks[rows],
        "op": _first_op(links, len(api))[rows],
        "outside_ns": request.within_read_time(outside_ns(chain, start, end), start),
        "idle_ns": idle_parts.before_ns,
        "device": idle_parts.before_device,
    }
    return pd.DataFrame(found, copy=False)


def _first_op(links: Links, calls: int) -> Codes:
    """The first operation that each call submits, -1 for none."""
    first = np.full(calls, -1, dtype=np.int32)
    submitted = np.flatnonzero(links.call >= 0)[::-1]
    # Operations are sorted by start; of several the one written last stays.
    first[links.call[submitted]] = submitted
    return first


def opens_chain(host_calls: pd.DataFrame) -> np.ndarray:
    """Returns which rows of `host_calls` are the first of their chain; all others follow the row
    before."""
    chain = host_calls["chain"].to_numpy()
    return np.concatenate(([True], chain[1:] != chain[:-1]))[: len(chain)]


def own_cost(host_calls: pd.DataFrame, waiting: Waiting) -> Ints:
    """Returns what each row of `host_calls` costs by itself, without waiting for operations."""
    length = (host_calls["end_ns"] - host_calls["start_ns"]).to_numpy()
    own = waiting.own_ns[host_calls["api"].to_numpy()]
    return np.asarray(np.where(host_calls["blocks"].to_numpy(), own, length))


@table
def loop_calls(
    host_calls: pd.DataFrame, api: pd.DataFrame, ops: pd.DataFrame, window: pd.DataFrame
) -> np.ndarray:
    """Returns which rows of `host_calls` belong to what the program repeats: the calls of the
    window. Where no steps mark where the start-up ends, these are only the calls that lead to a
    repeated launch."""
    inside = in_window(host_calls["start_ns"].to_numpy(), window)
    if window["basis"].iloc[0] == "all":
        inside &= _again(host_calls, api, ops)
    return inside


def _again(host_calls: pd.DataFrame, api: pd.DataFrame, ops: pd.DataFrame) -> np.ndarray:
    """Whether the next kernel that each call or a later one of its chain launches was launched by
    its process before. In a process without kernels, copies of one size count instead."""
    count, chain = len(host_calls), host_calls["chain"].to_numpy()
    calls = np.flatnonzero(host_calls["op"].to_numpy() >= 0)
    kind = ops["kind"].to_numpy()[host_calls["op"].to_numpy()[calls]]
    process = api["process"].to_numpy()[host_calls["api"].to_numpy()[calls]]
    executes = np.isin(kind, (KERNEL, GRAPH))
    chosen = executes | ~np.isin(process, np.unique(process[executes]))
    calls, process = calls[chosen], process[chosen]
    op = host_calls["op"].to_numpy()[calls]
    same = packed(process, *(ops[c].to_numpy()[op] for c in ("kind", "name", "bytes")))
    row = host_calls["api"].to_numpy()[calls]
    order = time_order(host_calls["start_ns"].to_numpy()[calls], lambda tied: (row[tied],))
    known = np.zeros(count, dtype=bool)
    known[calls[order]] = pd.Series(same[order]).duplicated()
    at = np.full(count + 1, count)
    at[calls] = calls
    following = np.minimum.accumulate(at[::-1])[::-1][:count]
    row = np.minimum(following, max(count - 1, 0))
    return np.asarray((following < count) & (chain[row] == chain) & known[row])


@table
def between_calls(
    host_calls: pd.DataFrame,
    thread_rests: dict[int, Rests],
    idle_parts: IdleParts,
    loader_ranges: pd.DataFrame | None = None,
    schedule: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns what a thread did before calls apart from running its code, for calls with such time.

    Columns: call (row of `host_calls`), wait_ns (asleep in OS calls), loader_ns (in ranges named
    like a loader), pause_ns (stopped by the profiler), idle_wait_ns (the part of `idle_ns` asleep).
    """
    start = host_calls["start_ns"].to_numpy()
    opens = start - host_calls["outside_ns"].to_numpy()
    shares: dict[str, list[Share]] = {
        name: [] for name in ("wait_ns", "loader_ns", "pause_ns", "ready_ns", "idle_wait_ns")
    }

    def add(name: str, rows: Ints, merged: Spans) -> None:
        if len(merged.start):
            place, ns = overlaps(Spans(opens[rows], start[rows]), merged)
            shares[name].append((rows[place], ns))

    for code, rest in thread_rests.items():
        rows = np.flatnonzero(host_calls["thread"].to_numpy() == code)
        add("wait_ns", rows, rest.asleep)
        add("pause_ns", rows, rest.paused)
        add("ready_ns", rows, off_cpu(schedule, code, (READY,)))
        if loader_ranges is not None:
            near = loader_ranges[loader_ranges["thread"] == code]
            add("loader_ns", rows, union(spans(near["start_ns"], near["end_ns"])))
    for rows, asleep in _asleep(host_calls, idle_parts.asleep):
        add("idle_wait_ns", rows, asleep)
    return _side_by_side(shares)


Share = tuple[Ints, Ints]


def _side_by_side(shares: dict[str, list[Share]]) -> pd.DataFrame:
    """Several times of calls as columns, with a row for each call that has any of them."""
    none = np.empty(0, dtype=np.int64)
    call = np.unique(np.concatenate([none, *(r for parts in shares.values() for r, _ in parts)]))
    found = {"call": call}
    for name, parts in shares.items():
        found[name] = np.zeros(len(call), dtype=np.int64)
        for rows, ns in parts:
            found[name][np.searchsorted(call, rows)] = ns
    return pd.DataFrame(found, copy=False)


def _asleep(host_calls: pd.DataFrame, pieces: pd.DataFrame) -> Iterator[tuple[Ints, Spans]]:
    """For each chain and device: the calls for which this device idled most, and when it idled
    while a thread of the chain slept."""
    device, thread = (host_calls[c].to_numpy() for c in ("device", "thread"))
    for _, chain in runs(host_calls["chain"].to_numpy()):
        mine = pieces[pieces["thread"].isin(np.unique(thread[chain]))]
        for number, slept in mine.groupby("device", sort=True):
            rows = np.flatnonzero(device[chain] == number) + chain.start
            yield rows, union(spans(slept["start_ns"], slept["end_ns"]))


@table
def thread_labels(threads: pd.DataFrame, processes: pd.DataFrame) -> list[str]:
    """Returns each thread's label in findings: its name, else its process's.

    Threads of one name share a label, so that a pool of workers is one subject and labels are the
    same in every run.
    """
    process = processes["name"].to_numpy()[threads["process"].to_numpy()]
    pairs = zip(threads["name"].tolist(), process.tolist(), strict=True)
    return [f"thread {own}" if own else f"thread of {of or 'the process'}" for own, of in pairs]
