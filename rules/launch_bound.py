"""Devices that idle between kernels because launching takes longer than running."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from nsysdoctor.cuts import shorter_calls
from nsysdoctor.edits import Change, edits, join
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import KERNEL
from nsysdoctor.tables.launch_runs import GRAPH_NS, SLOW_RATIO
from nsysdoctor.tables.states import CAUSE
from nsysdoctor.units import ns_text

_STREAM_NS, _SLOW_STREAM_NS, _FAST_STREAM_NS = 700, 2_000, 500
"""From the end of a kernel of a graph to the start of the next: NVIDIA measured 0.5 µs where
launches that keep ahead leave 0.9 µs (technical blog, Getting Started with CUDA Graphs)."""

_PASSED_ON_NS, _PASSING_NS = 1_000, 10_000
"""What passing on takes on a stream that is kept fed, and the longest that is taken for it. There
a graph is counted on for no more than this usual."""

_NAMED = 4


@table
def run_calls(
    launch_runs: pd.DataFrame,
    host_calls: pd.DataFrame,
    gap_causes: pd.DataFrame,
    gaps: pd.DataFrame,
    ops: pd.DataFrame,
    thread_labels: list[str],
    *,
    min_launches: int,
) -> pd.DataFrame:
    """Returns the calls of runs that are worth a graph: the columns of `launch_runs`, thread
    (label), device, name (of the kernel, -1 none), kernel_ns, late (bool: the device waited for
    the call or the time before it), idle_ns (for how long; else what passing on from kernel to
    kernel took beyond the usual; of a run's first call nothing counts)."""
    count = launch_runs.groupby("run")["launch"].transform("sum")
    found = launch_runs[count >= min_launches].reset_index(drop=True)
    calls = host_calls.iloc[found["call"].to_numpy()].reset_index(drop=True)
    launching = gap_causes[gap_causes["cause"] == CAUSE["launch"]]
    length = (launching["end_ns"] - launching["start_ns"]).groupby(launching["api"]).sum()
    idle = found["api"].map(length).fillna(0).astype(np.int64) + calls["idle_ns"]
    late = ((idle > 0) & ~found["first"]).to_numpy()
    op, has = np.maximum(found["op"].to_numpy(), 0), found["launch"].to_numpy()
    kernel = has & (ops["kind"].to_numpy()[op] == KERNEL)
    work = (ops["end_ns"] - ops["start_ns"]).to_numpy()[op]
    return found.assign(
        thread=[thread_labels[t] for t in calls["thread"]],
        device=_run_device(found, ops),
        name=np.where(kernel, ops["name"].to_numpy()[op], -1),
        kernel_ns=np.where(kernel, work, -1),
        call_ns=calls["end_ns"] - calls["start_ns"],
        outside_ns=calls["outside_ns"],
        late=late,
        idle_ns=np.where(late, idle, _passing_ns(found, gaps)),
    )


def _passing_ns(found: pd.DataFrame, gaps: pd.DataFrame) -> np.ndarray:
    """What the device took from one kernel of a run to the next beyond the usual microsecond."""
    length = (gaps["end_ns"] - gaps["start_ns"]).to_numpy()
    short = (length > _PASSED_ON_NS) & (length < _PASSING_NS)
    ended = pd.Series(length[short] - _PASSED_ON_NS, index=gaps["op"].to_numpy()[short])
    passing = found["op"].map(ended.groupby(level=0).sum()).fillna(0)
    return np.asarray(passing.where(~found["first"] & found["launch"], 0), dtype=np.int64)


def _run_device(found: pd.DataFrame, ops: pd.DataFrame) -> pd.Series:
    """The device of the first operation of each call's run."""
    op = found["op"].where(found["op"] >= 0)
    first = op.groupby(found["run"]).transform("first")
    return pd.Series(ops["device"].to_numpy()[first.to_numpy(dtype=np.int64)], index=found.index)


@table
def graph_calls(slow_graphs: pd.DataFrame, thread_labels: list[str]) -> pd.DataFrame:
    """Returns `slow_graphs` with the label of the thread."""
    return slow_graphs.assign(thread=[thread_labels[t] for t in slow_graphs["thread"]])


@table
def launch_bound(
    run_calls: pd.DataFrame,
    graph_calls: pd.DataFrame,
    names: pd.DataFrame,
    window: pd.DataFrame,
    *,
    min_ratio: float,
) -> pd.DataFrame:
    """Returns a row per thread and device, for runs of launches and for slow graph launches:
    subject, device, thread, kind, count, launch_ns, idle_ns, detail."""
    span_ns = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    rows = []
    for (thread, device), mine in run_calls.groupby(["thread", "device"], sort=True):
        rows.append(
            {
                "subject": f"{thread} on GPU {device}",
                "device": device,
                "thread": thread,
                "kind": "launches",
                "count": int(mine["launch"].sum()),
                "launch_ns": int((mine["call_ns"] + mine["outside_ns"]).sum()),
                "idle_ns": int(mine["idle_ns"].sum()),
                "detail": _sequence(mine, names),
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
                "count": len(mine),
                "launch_ns": int(mine["call_ns"].sum()),
                "idle_ns": int(mine["idle_ns"].sum()),
                "detail": f"each takes {ns_text(float(mine['call_ns'].median()))} where about"
                f" {usual} is usual for its size",
            }
        )
    found = pd.DataFrame(rows)
    return found[found["idle_ns"] > min_ratio * span_ns] if rows else found


def _sequence(mine: pd.DataFrame, names: pd.DataFrame) -> str:
    """What repeats: the run of kernels that comes most often, by its kernels' names."""
    kernels = mine[mine["name"] >= 0]
    typical = ns_text(float(kernels["kernel_ns"].median()))
    runs = kernels.groupby("run", sort=True)["name"].agg(tuple)
    counts = Counter(runs.tolist())
    repeated = {key: len(key) * times for key, times in counts.items() if times > 1}
    said = f"kernels typically take {typical}"
    if not repeated:
        often = kernels["name"].value_counts().sort_index().nlargest(_NAMED, keep="first")
        return f"{said}; most often {_spoken(list(often.index), names)}"
    # Of equally heavy sequences the one that comes first.
    best = max(repeated, key=lambda key: repeated[key])
    distinct = list(dict.fromkeys(best))
    return (
        f"{said}; a sequence of {len(best)} repeats {counts[best]} times: "
        f"{_spoken(distinct[:_NAMED], names)}" + (" …" if len(distinct) > _NAMED else "")
    )


def _spoken(codes: list[int], names: pd.DataFrame) -> str:
    return ", ".join(str(t) for t in names["short"].to_numpy()[np.array(codes, dtype=np.int64)])


def cure(
    launch_bound: pd.DataFrame,
    run_calls: pd.DataFrame,
    graph_calls: pd.DataFrame,
    api: pd.DataFrame,
    launches: pd.DataFrame,
) -> list[pd.DataFrame]:
    """Each run is one launch, its kernels follow one another as the stream lets them; a slow
    graph launch takes what is usual."""
    parts = []
    for row, (kind, thread, device) in enumerate(_keys(launch_bound)):
        calls = run_calls if kind == "launches" else graph_calls
        mine = calls[(calls["thread"] == thread) & (calls["device"] == device)]
        if kind == "launches":
            rest = mine.loc[~mine["first"], "api"].to_numpy()
            parts += [edits(Change.CALL_NS, row, rest), edits(Change.OUTSIDE_NS, row, rest)]
            node = mine[~mine["first"] & mine["launch"]]
            after = np.where(node["late"], _STREAM_NS, _PASSED_ON_NS)
            parts.append(
                edits(Change.STREAM_NS, row, node["op"], after,
                      slow_ns=_SLOW_STREAM_NS, fast_ns=_FAST_STREAM_NS)
            )
        else:
            parts.append(_usual_graphs(row, mine, api, launches))
    return join(*parts)


def _usual_graphs(
    row: int, mine: pd.DataFrame, api: pd.DataFrame, launches: pd.DataFrame
) -> list[pd.DataFrame]:
    call = mine["api"].to_numpy()
    slow = mine["usual_ns"].to_numpy() * SLOW_RATIO
    made = [
        shorter_calls(row, call, ns, api, launches)
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
    run_calls: pd.DataFrame,
    graph_calls: pd.DataFrame,
    api: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the runs and the slow graph launches: row, start_ns, end_ns, what."""
    start, end = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
    parts = []
    for row, (kind, thread, device) in enumerate(_keys(launch_bound)):
        calls = run_calls if kind == "launches" else graph_calls
        mine = calls[(calls["thread"] == thread) & (calls["device"] == device)]
        group = mine["run"] if kind == "launches" else mine["api"]
        edges = mine["api"].groupby(group).agg(["first", "last"])
        parts.append(
            pd.DataFrame(
                {
                    "row": row,
                    "start_ns": start[edges["first"].to_numpy()],
                    "end_ns": end[edges["last"].to_numpy()],
                    "what": "a run of launches" if kind == "launches" else "a graph launch",
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
