"""Devices that idle between kernels because launching takes longer than running."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, runs
from nsysdoctor.arrays.order import Codes, first_rows, narrowed, packed
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.tables.account.idle_parts import IdleParts, of_calls
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.tables.loop.launch_runs import GRAPH_NS, SLOW_RATIO
from nsysdoctor.tables.steps.steps import window_span_ns
from nsysdoctor.trace.recipe import table
from nsysdoctor.units import ns_text

_STREAM_NS, _SLOW_STREAM_NS, _FAST_STREAM_NS = 700, 2_000, 500
"""From the end of a kernel of a graph to the start of the next: NVIDIA measured 0.5 µs where
launches that keep ahead leave 0.9 µs (technical blog, Getting Started with CUDA Graphs)."""

_PASSED_ON_NS, _PASSING_NS = 1_000, 10_000
"""What passing on takes on a stream that is kept fed, and the longest that is taken for it. There
a graph is counted on for no more than this usual."""

_NAMED = 4


class RunCalls(NamedTuple):
    """The calls of the runs that are worth a graph, by thread and device.

    `groups` has thread (label) and device. `calls` has, run by run: call (row of `host_calls`),
    api, op (the operation it submits, -1 none), run (code), group (row of `groups`), first (bool:
    opens its run), launch (bool: submits a kernel or a set), late (bool: the device waited for
    the call or the time before it), idle_ns (for how long; else what passing on from kernel to
    kernel took beyond the usual; of a run's first call nothing counts).
    """

    groups: pd.DataFrame
    calls: pd.DataFrame

    def of(self, thread: str, device: int) -> pd.DataFrame:
        """Returns the calls of the runs of one thread on one device."""
        row = np.argmax((self.groups["thread"] == thread) & (self.groups["device"] == device))
        mine = self.calls["group"].to_numpy() == row
        return self.calls if mine.all() else self.calls[mine]


@table
def run_calls(
    launch_runs: pd.DataFrame,
    host_calls: pd.DataFrame,
    idle_parts: IdleParts,
    gaps: pd.DataFrame,
    ops: pd.DataFrame,
    thread_labels: list[str],
    *,
    min_launches: int,
) -> RunCalls:
    """Returns the calls of runs of at least `min_launches` launches."""
    opens = np.flatnonzero(launch_runs["first"].to_numpy())
    number = np.add.reduceat(launch_runs["launch"].to_numpy(), opens, dtype=np.int64)
    size = np.diff(opens, append=len(launch_runs))
    rows = np.flatnonzero(np.repeat(number >= min_launches, size))
    call, run, first, launch = (
        launch_runs[c].to_numpy()[rows] for c in ("call", "run", "first", "launch")
    )
    api, op, thread = (host_calls[c].to_numpy()[call] for c in ("api", "op", "thread"))
    idle = host_calls["idle_ns"].to_numpy()[call]
    idle += of_calls(api, idle_parts.calls, "launch_ns")
    idle[first] = 0
    late = idle > 0
    passed_on = np.flatnonzero(launch & ~first & ~late)
    idle[passed_on] = _passing_ns(op[passed_on], gaps)
    label, labels = pd.factorize(np.array(thread_labels, dtype=object), sort=True)
    label, device = narrowed(label)[thread], _run_device(run, op, ops)
    group = packed(label, device)
    one = first_rows(group)
    calls = {
        "call": call, "api": api, "op": op, "run": run, "group": narrowed(group),
        "first": first, "launch": launch, "late": late, "idle_ns": idle,
    }  # fmt: skip
    groups = pd.DataFrame({"thread": labels[label[one]], "device": device[one]})
    return RunCalls(groups, pd.DataFrame(calls, copy=False))


def _passing_ns(op: Codes, gaps: pd.DataFrame) -> Ints:
    """What the device took to pass on to each operation beyond the usual microsecond."""
    length = (gaps["end_ns"] - gaps["start_ns"]).to_numpy()
    short = np.flatnonzero((length > _PASSED_ON_NS) & (length < _PASSING_NS))
    # An operation ends one gap at most. The last row stands for gaps that the window ends.
    ended = gaps["op"].to_numpy()[short]
    passing = np.zeros(max(int(op.max(initial=0)), int(ended.max(initial=0))) + 2, dtype=np.int64)
    passing[ended] = length[short] - _PASSED_ON_NS
    return np.asarray(passing[op])


def _run_device(run: Codes, op: Codes, ops: pd.DataFrame) -> Codes:
    """The device of the first operation of each call's run."""
    submits = np.flatnonzero(op >= 0)
    one = submits[np.concatenate(([True], np.diff(run[submits]) > 0))[: len(submits)]]
    device = np.zeros(int(run.max(initial=-1)) + 1, dtype=ops["device"].dtype)
    device[run[one]] = ops["device"].to_numpy()[op[one]]
    return np.asarray(device[run])


@table
def graph_calls(slow_graphs: pd.DataFrame, thread_labels: list[str]) -> pd.DataFrame:
    """Returns `slow_graphs` with the label of the thread."""
    return slow_graphs.assign(thread=[thread_labels[t] for t in slow_graphs["thread"]])


@table
def launch_bound(
    run_calls: RunCalls,
    graph_calls: pd.DataFrame,
    host_calls: pd.DataFrame,
    ops: pd.DataFrame,
    names: pd.DataFrame,
    window: pd.DataFrame,
    *,
    min_ratio: float,
) -> pd.DataFrame:
    """Returns a row per thread and device, for runs of launches and for slow graph launches:
    subject, device, thread, kind, count, launch_ns, idle_ns, detail."""
    span_ns = window_span_ns(window)
    rows = []
    for thread, device in run_calls.groups.itertuples(index=False):
        mine = run_calls.of(thread, device)
        call = mine["call"].to_numpy()
        rows.append(
            {
                "subject": f"{thread} on GPU {device}",
                "device": device,
                "thread": thread,
                "kind": "launches",
                "_cause": "launches",
                "count": int(mine["launch"].sum()),
                "launch_ns": _spent_ns(host_calls, call),
                "idle_ns": int(mine["idle_ns"].sum()),
                "detail": _sequence(mine, ops, names),
            }
        )
    for (thread, device), mine in graph_calls.groupby(["thread", "device"], sort=True):
        usual = ns_text(float(mine["usual_ns"].median()))
        rows.append(
            {
                "subject": f"graph launches of {thread} on GPU {device}",
                "device": device,
                "thread": thread,
                "kind": "graph launches",
                "_cause": "graph launches",
                "count": len(mine),
                "launch_ns": int(mine["call_ns"].sum()),
                "idle_ns": int(mine["idle_ns"].sum()),
                "detail": f"each takes {ns_text(float(mine['call_ns'].median()))} where about"
                f" {usual} is usual for its size",
            }
        )
    found = pd.DataFrame(rows)
    return found[found["idle_ns"] > min_ratio * span_ns] if rows else found


def _spent_ns(host_calls: pd.DataFrame, call: Codes) -> int:
    """What calls take, with the time of their thread before them."""
    start, end, outside = (host_calls[c].to_numpy() for c in ("start_ns", "end_ns", "outside_ns"))
    length = end[call]
    length -= start[call]
    length += outside[call]
    return int(length.sum())


def _sequence(mine: pd.DataFrame, ops: pd.DataFrame, names: pd.DataFrame) -> str:
    """What repeats: the run of kernels that comes most often, by its kernels' names."""
    op, run = (mine[c].to_numpy()[mine["launch"].to_numpy()] for c in ("op", "run"))
    kernel = ops["kind"].to_numpy()[op] == KERNEL
    op, run = op[kernel], run[kernel]
    said = f"kernels typically take {ns_text(_typical_ns(op, ops))}"
    name = ops["name"].to_numpy()[op].astype(np.int32)
    # A run as the bytes of its codes, of which a dictionary takes a million in a moment.
    text, width = name.tobytes(), name.itemsize
    counts = Counter(text[rows.start * width : rows.stop * width] for _, rows in runs(run))
    repeated = {key: len(key) * times for key, times in counts.items() if times > 1}
    if not repeated:
        often = np.bincount(name)
        most = np.argsort(-often, kind="stable")[:_NAMED]
        return f"{said}; most often {_spoken(most[often[most] > 0].tolist(), names)}"
    # Of equally heavy sequences the one that comes first.
    best = max(repeated, key=lambda key: repeated[key])
    distinct = list(dict.fromkeys(np.frombuffer(best, dtype=np.int32).tolist()))
    return (
        f"{said}; a sequence of {len(best) // width} repeats {counts[best]} times: "
        f"{_spoken(distinct[:_NAMED], names)}" + (" …" if len(distinct) > _NAMED else "")
    )


def _typical_ns(op: Codes, ops: pd.DataFrame) -> float:
    length = ops["end_ns"].to_numpy()[op]
    length -= ops["start_ns"].to_numpy()[op]
    return float(np.median(length, overwrite_input=True)) if len(length) else math.nan


def _spoken(codes: list[int], names: pd.DataFrame) -> str:
    return ", ".join(str(t) for t in names["short"].to_numpy()[np.array(codes, dtype=np.int64)])


def cure(
    launch_bound: pd.DataFrame,
    run_calls: RunCalls,
    graph_calls: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
) -> list[pd.DataFrame]:
    """Each run is one launch, its kernels follow one another as the stream lets them; a slow
    graph launch takes what is usual."""
    parts = []
    for row, (kind, thread, device) in enumerate(_keys(launch_bound)):
        if kind == "launches":
            mine = run_calls.of(thread, device)
            api_row, op, first, launch, late = (mine[c].to_numpy() for c in _OF_CALLS)
            rest = api_row[~first]
            parts += [edits(Change.CALL_NS, row, rest), edits(Change.OUTSIDE_NS, row, rest)]
            node = ~first & launch
            after = np.where(late[node], np.int16(_STREAM_NS), np.int16(_PASSED_ON_NS))
            parts.append(
                edits(Change.STREAM_NS, row, op[node], after,
                      slow_ns=_SLOW_STREAM_NS, fast_ns=_FAST_STREAM_NS)
            )
        else:
            mine = _of(graph_calls, thread, device)
            parts.append(_usual_graphs(row, mine, api, launches))
    return join(*parts)


_OF_CALLS = ("api", "op", "first", "launch", "late")


def _of(graph_calls: pd.DataFrame, thread: str, device: int) -> pd.DataFrame:
    return graph_calls[(graph_calls["thread"] == thread) & (graph_calls["device"] == device)]


def _usual_graphs(
    row: int, mine: pd.DataFrame, api: pd.DataFrame, launches: pd.DataFrame
) -> list[pd.DataFrame]:
    call = mine["api"].to_numpy()
    slow = mine["usual_ns"].to_numpy() * SLOW_RATIO
    made = [
        shorten_calls(row, call, ns, api, launches)
        for ns in (mine["usual_ns"].to_numpy(), slow, np.full(len(call), GRAPH_NS))
    ]
    return [
        usual.assign(slow_ns=slow["ns"], fast_ns=fast["ns"])
        for usual, slow, fast in zip(*made, strict=True)
    ]


def _keys(rows: pd.DataFrame) -> list[tuple[str, str, int]]:
    return list(zip(rows["kind"], rows["thread"], rows["device"], strict=True))


def evidence(
    launch_bound: pd.DataFrame,
    run_calls: RunCalls,
    graph_calls: pd.DataFrame,
    api: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the runs and the slow graph launches: row, start_ns, end_ns, what."""
    start, end = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
    parts = []
    for row, (kind, thread, device) in enumerate(_keys(launch_bound)):
        if kind == "launches":
            mine = run_calls.of(thread, device)
            call, ends = mine["api"].to_numpy(), np.diff(mine["run"].to_numpy()) > 0
            first, last = call[np.append(True, ends)], call[np.append(ends, True)]
        else:
            first = last = _of(graph_calls, thread, device)["api"].to_numpy()
        parts.append(
            pd.DataFrame(
                {
                    "row": row,
                    "start_ns": start[first],
                    "end_ns": end[last],
                    "what": "a run of launches" if kind == "launches" else "a graph launch",
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
