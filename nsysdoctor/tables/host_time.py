"""What the host spends its time on: every call in order, and the time before it outside CUDA."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.intervals import EMPTY, Ints, Spans, covered, spans, union
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import GRAPH, KERNEL
from nsysdoctor.tables.constraints import Links
from nsysdoctor.tables.states import CAUSE, States
from nsysdoctor.tables.steps import in_window
from nsysdoctor.tables.waiting import Waiting

_SAME = ["kind", "name", "bytes"]
_WAITS = (CAUSE["os_wait"], CAUSE["input_wait"])


@table
def host_calls(
    api: pd.DataFrame,
    relay: Ints,
    waiting: Waiting,
    links: Links,
    ops: pd.DataFrame,
    gap_causes: pd.DataFrame,
    thread_states: dict[int, States] | None = None,
    loader_ranges: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the outermost calls in the order of their chain (see `relay`) and start.

    Columns: api, chain, thread, process, verb, start_ns, end_ns, own_ns (the call's own cost,
    waiting for operations apart), blocks (it waits for operations), op (the first operation it
    submits, -1 none), before (row of this table of the chain's previous call, -1 none), again
    (bool: what the chain launches next was launched before) and, about the time between the two
    outside CUDA: outside_ns, wait_ns (asleep in OS calls), loader_ns (in ranges named like a
    loader), pause_ns (held by the profiler), idle_ns (a device idled because of it), idle_wait_ns
    (that part of it asleep), device (the one that idled most, -1 none).
    """
    rows = np.flatnonzero(api["top"].to_numpy())
    rows = rows[np.lexsort((rows, api["start_ns"].to_numpy()[rows], relay[rows]))]
    columns = ["thread", "process", "verb", "start_ns", "end_ns"]
    found = api.iloc[rows][columns].reset_index(drop=True)
    found.insert(0, "api", rows)
    found.insert(1, "chain", relay[rows])
    found["blocks"] = waiting.blocks[rows]
    length = (found["end_ns"] - found["start_ns"]).to_numpy()
    found["own_ns"] = np.where(found["blocks"], waiting.own_ns[rows], length)
    found["op"] = _first_op(links, rows, len(api), ops)
    same = found["chain"].to_numpy()[1:] == found["chain"].to_numpy()[:-1]
    found["before"] = np.concatenate(([-1], np.where(same, np.arange(len(rows) - 1), -1)))[
        : len(rows)
    ]
    found["again"] = _again(found, ops)
    found = _with_outside(found, thread_states or {}, loader_ranges)
    return _with_idle(found, gap_causes)


def _first_op(links: Links, rows: Ints, calls: int, ops: pd.DataFrame) -> Ints:
    first = np.full(calls + 1, -1, dtype=np.int64)
    submitted = np.flatnonzero(links.call >= 0)[::-1]
    order = submitted[np.argsort(-ops["start_ns"].to_numpy()[submitted], kind="stable")]
    first[links.call[order]] = order
    return first[rows]


def _again(found: pd.DataFrame, ops: pd.DataFrame) -> np.ndarray:
    """Whether the kernel (in a process without kernels the copy of that size) that each call or a
    later one of its chain launches next is one that its process launched before."""
    count, op = len(found), found["op"].to_numpy()
    mine = found[op >= 0].assign(**{c: ops[c].to_numpy()[op[op >= 0]] for c in _SAME})
    runs = mine["kind"].isin((KERNEL, GRAPH))
    mine = mine[runs | ~mine["process"].isin(mine.loc[runs, "process"].unique())]
    mine = mine.sort_values(["start_ns", "api"], kind="stable")
    known = pd.Series(False, index=np.arange(count))
    known[mine.index] = mine.duplicated(["process", *_SAME])
    at = np.full(count + 1, count)
    at[mine.index] = mine.index
    following = np.minimum.accumulate(at[::-1])[::-1][:count]
    row = np.minimum(following, max(count - 1, 0))
    chain = found["chain"].to_numpy()
    return np.asarray((following < count) & (chain[row] == chain) & known.to_numpy()[row])


def in_loop(host_calls: pd.DataFrame, window: pd.DataFrame) -> np.ndarray:
    """Returns which rows of `host_calls` belong to what the program repeats: the calls of the
    window, and where no steps tell the start apart, only those that lead to a repeated launch."""
    inside = in_window(host_calls["start_ns"].to_numpy(), window)
    if window["basis"].iloc[0] == "all":
        inside = inside & host_calls["again"].to_numpy()
    return np.asarray(inside)


def _with_outside(
    found: pd.DataFrame, states: dict[int, States], loader: pd.DataFrame | None
) -> pd.DataFrame:
    end, before = found["end_ns"].to_numpy(), found["before"].to_numpy()
    start = found["start_ns"].to_numpy()
    opens = np.where(before >= 0, end[np.maximum(before, 0)], start).astype(np.int64)
    names = ("wait_ns", "loader_ns", "pause_ns")
    shares = {name: np.zeros(len(found), dtype=np.int64) for name in names}
    for thread, rows in found.groupby("thread", sort=True).indices.items():
        mine, state = Spans(opens[rows], start[rows]), states.get(int(thread))
        shares["wait_ns"][rows] = covered(mine, _in_state(state, _WAITS))
        shares["pause_ns"][rows] = covered(mine, _in_state(state, (CAUSE["profiler"],)))
        if loader is not None:
            near = loader[loader["thread"] == thread]
            named = union(spans(near["start_ns"], near["end_ns"]))
            shares["loader_ns"][rows] = covered(mine, named)
    return found.assign(outside_ns=start - opens, **shares)


def _with_idle(found: pd.DataFrame, gap_causes: pd.DataFrame) -> pd.DataFrame:
    start = found["start_ns"].to_numpy()
    opens = start - found["outside_ns"].to_numpy()
    idle, asleep = (np.zeros(len(found), dtype=np.int64) for _ in range(2))
    device = np.full(len(found), -1, dtype=np.int64)
    outside = gap_causes[gap_causes["api"] < 0]
    for _, rows in found.groupby("chain", sort=True).indices.items():
        threads = found["thread"].iloc[rows].unique()
        mine = Spans(opens[rows], start[rows])
        for number, pieces in outside[outside["thread"].isin(threads)].groupby("device", sort=True):
            share = covered(mine, union(spans(pieces["start_ns"], pieces["end_ns"])))
            waits = pieces[pieces["cause"].isin(_WAITS)]
            waited = covered(mine, union(spans(waits["start_ns"], waits["end_ns"])))
            more = share > idle[rows]
            idle[rows[more]], asleep[rows[more]] = share[more], waited[more]
            device[rows[more]] = number
    return found.assign(idle_ns=idle, idle_wait_ns=asleep, device=device)


def _in_state(state: States | None, causes: tuple[int, ...]) -> Spans:
    if state is None:
        return EMPTY
    mine = np.isin(state.cause, causes)
    return union(Spans(state.pieces.start[mine], state.pieces.end[mine]))


@table
def thread_labels(threads: pd.DataFrame, processes: pd.DataFrame) -> list[str]:
    """Returns what each thread is called in findings: its name, else its process's.

    Threads of one name share a label, so that a pool of workers is one subject and labels
    stay the same from run to run.
    """
    process = processes["name"].to_numpy()[threads["process"].to_numpy()]
    pairs = zip(threads["name"].tolist(), process.tolist(), strict=True)
    return [f"thread {own}" if own else f"thread of {of or 'the process'}" for own, of in pairs]
