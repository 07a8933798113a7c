"""Streams that drain because work on the null stream comes between."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, covered, nearest_before, spans, union
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.activity.streams import StreamKind
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.loop.loop_copies import same_keys
from nsysdoctor.tables.steps.steps import work_in_window
from nsysdoctor.trace.recipe import table

KEYS = ["process", "device"]
NEAR_NS = 5_000
"""What starts this soon after the other ended has waited for it."""

LAUNCH_NS = 10_000
SLACK_NS = 3_000


@table
def meeting(lanes: pd.DataFrame, lane_kind: np.ndarray) -> pd.DataFrame:
    """Returns the lanes of contexts in which other streams take turns with a null stream: lane,
    process, device, group (code of the context), null (bool), sure (bool: the export tells the
    kind of stream)."""
    found = lanes[["process", "device", "context"]].assign(
        lane=np.arange(len(lanes)),
        null=lane_kind == StreamKind.NULL,
        sure=lane_kind != StreamKind.UNKNOWN,
    )[lane_kind != StreamKind.NON_BLOCKING]
    contexts = found.groupby(["process", "device", "context"], sort=True)
    both = contexts["null"].transform("any") & ~contexts["null"].transform("all")
    return found.assign(group=contexts.ngroup())[both]


@table
def turned(
    ops: pd.DataFrame,
    ops_near: np.ndarray,
    api: pd.DataFrame,
    links: Links,
    meeting: pd.DataFrame,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the operations of the window that waited across the null stream: op, process,
    device, start_ns, end_ns, waited_ns, null, sure, and cause (operation of the null stream that
    waited or was waited for)."""
    called = api["start_ns"].to_numpy()
    parts = [_NOTHING]
    for _, lanes in meeting.groupby("group", sort=True):
        null = _ready(ops, ops_near, called, links, lanes[lanes["null"]])
        other = _ready(ops, ops_near, called, links, lanes[~lanes["null"]])
        parts.append(_turned(null, _never_beside(other, null, lanes)))
    found = pd.concat(parts, ignore_index=True)
    launched = called[links.call[found["op"]]]
    found = found[work_in_window(found["start_ns"].to_numpy(), launched, window)]
    found = found.merge(meeting.drop(columns="group"), "left", "lane")
    return found.sort_values("op", ignore_index=True)


_NOTHING = pd.DataFrame(
    {name: np.empty(0, dtype=np.int64)
     for name in ("op", "lane", "start_ns", "end_ns", "ready_ns", "waited_ns", "cause")}
)  # fmt: skip


def _ready(
    ops: pd.DataFrame, near: np.ndarray, called: Ints, links: Links, lanes: pd.DataFrame
) -> pd.DataFrame:
    """The launched operations of some lanes: op, lane, start_ns, end_ns and ready_ns (when launch
    and stream allowed it to start)."""
    wanted = np.zeros(int(ops["lane"].max()) + 1, dtype=bool)
    wanted[lanes["lane"]] = True
    op = np.flatnonzero(wanted[ops["lane"].to_numpy()] & near & (links.call >= 0))
    end, before = ops["end_ns"].to_numpy(), links.before[op]
    free = np.where(before >= 0, end[before], 0)
    return pd.DataFrame(
        {
            "op": op,
            "lane": ops["lane"].to_numpy()[op],
            "start_ns": ops["start_ns"].to_numpy()[op],
            "end_ns": end[op],
            "ready_ns": np.maximum(called[links.call[op]] + LAUNCH_NS, free),
        }
    )


def _turned(null: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Of one context: null-stream operations that waited for the others, and those for them."""
    work = union(spans(other["start_ns"], other["end_ns"]))
    alone = covered(spans(null["start_ns"], null["end_ns"]), work) == 0
    null = null[alone].sort_values(["end_ns", "op"])
    waiting = null.assign(
        waited_ns=_waited(null, np.sort(other["end_ns"].to_numpy())), cause=null["op"]
    )
    ends = null["end_ns"].to_numpy()
    held = other.assign(waited_ns=_waited(other, ends), cause=-1)
    held = held[held["waited_ns"] > 0]
    if len(ends):
        index = nearest_before(ends, held["start_ns"].to_numpy())
        held["cause"] = null["op"].to_numpy()[np.maximum(index, 0)]
    return pd.concat([waiting[waiting["waited_ns"] > 0], held], ignore_index=True)


def _never_beside(
    other: pd.DataFrame, null: pd.DataFrame, lanes: pd.DataFrame
) -> pd.DataFrame:
    """The others without those lanes of unknown kind that run beside the null stream: they do
    not heed it."""
    work = union(spans(null["start_ns"], null["end_ns"]))
    unsure = other[other["lane"].isin(lanes.loc[~lanes["sure"], "lane"])]
    beside = covered(spans(unsure["start_ns"], unsure["end_ns"]), work) > 0
    free = unsure.loc[beside, "lane"].unique()
    return other[~other["lane"].isin(free)] if len(free) else other


def _waited(rows: pd.DataFrame, ends: np.ndarray) -> np.ndarray:
    """How long each operation was ready before it started right after one of the ends, else 0."""
    if not len(ends):
        return np.zeros(len(rows), dtype=np.int64)
    start, ready = rows["start_ns"].to_numpy(), rows["ready_ns"].to_numpy()
    index = nearest_before(ends, start)
    near = (index >= 0) & (start - ends[np.maximum(index, 0)] <= NEAR_NS)
    late = near & (start - ready > SLACK_NS)
    return np.where(late, start - ready, 0).astype(np.int64)


@table
def default_stream_serialization(turned: pd.DataFrame, *, least_count: int) -> pd.DataFrame:
    """Returns a row per process and device whose other streams drain around at least
    `least_count` operations of the null stream: subject, process, device, count (of those
    operations), held_count, stream_count, waited_ns, basis."""
    rows = []
    for (process, device), mine in turned.groupby(KEYS, sort=True):
        held = mine[~mine["null"].astype(bool)]
        if held["cause"].nunique() < least_count:
            continue
        rows.append(
            {
                "subject": f"null stream of GPU {device}",
                "process": process,
                "device": device,
                "count": int(held["cause"].nunique()),
                "held_count": len(held),
                "stream_count": int(held["lane"].nunique()),
                "waited_ns": int(held["waited_ns"].sum()),
                "basis": "measured" if held["sure"].all() else "inferred",
            }
        )
    return pd.DataFrame(rows)


def cure(default_stream_serialization: pd.DataFrame, turned: pd.DataFrame) -> pd.DataFrame:
    """The null stream and the others no longer wait for each other."""
    row = same_keys(turned, default_stream_serialization, KEYS)
    return edits(Change.UNSEEN, row[row >= 0], turned["op"].to_numpy()[row >= 0])


def evidence(default_stream_serialization: pd.DataFrame, turned: pd.DataFrame) -> pd.DataFrame:
    """Returns the waits: row, start_ns (when the operation could have started), end_ns, what."""
    row = same_keys(turned, default_stream_serialization, KEYS)
    what = np.where(turned["null"].astype(bool), "the null stream waits for the others",
                    "waits for the null stream")  # fmt: skip
    found = pd.DataFrame(
        {
            "row": row,
            "start_ns": turned["start_ns"] - turned["waited_ns"],
            "end_ns": turned["start_ns"],
            "what": what,
        }
    )
    return found[row >= 0]
