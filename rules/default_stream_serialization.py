"""Streams that drain because work on the null stream comes between."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.edits import Change, edits
from nsysdoctor.intervals import covered, nearest_before, spans, union
from nsysdoctor.recipe import table
from nsysdoctor.tables.constraints import Links
from nsysdoctor.tables.steps import in_window
from nsysdoctor.tables.streams import StreamKind
from nsysdoctor.tables.transfer import same_keys

KEYS = ["process", "device"]
NEAR_NS = 5_000
"""What starts this soon after the other ended has waited for it."""

LAUNCH_NS = 10_000
SLACK_NS = 3_000
_PARTS = ["op", "process", "device", "context", "start_ns", "end_ns", "ready_ns", "inside"]


@table
def readiness(
    ops: pd.DataFrame, api: pd.DataFrame, links: Links, lane_kind: np.ndarray, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns the operations of null streams and of those that take turns with them.

    Columns: op, process, device, context, lane, start_ns, end_ns, ready_ns (when launch and
    stream allowed it to start), inside (bool: submitted in the window), null (bool), sure (bool:
    the export tells the kind of stream).
    """
    kind = lane_kind[ops["lane"].to_numpy()]
    mine = np.flatnonzero((kind != StreamKind.NON_BLOCKING) & (links.call >= 0))
    taken = ops.iloc[mine]
    called = api["start_ns"].to_numpy()[links.call[mine]]
    before = links.before[mine]
    free = np.where(before >= 0, ops["end_ns"].to_numpy()[before], 0)
    return pd.DataFrame(
        {
            "op": mine,
            **{c: taken[c].to_numpy() for c in ("process", "device", "context", "lane")},
            "start_ns": taken["start_ns"].to_numpy(),
            "end_ns": taken["end_ns"].to_numpy(),
            "ready_ns": np.maximum(called + LAUNCH_NS, free),
            "inside": in_window(called, window),
            "null": kind[mine] == StreamKind.NULL,
            "sure": kind[mine] != StreamKind.UNKNOWN,
        }
    )


@table
def turned(readiness: pd.DataFrame) -> pd.DataFrame:
    """Returns the operations of the window that waited across the null stream: op, process,
    device, start_ns, end_ns, waited_ns, null, sure, and cause (operation of the null stream that
    waited or was waited for)."""
    keys = ["process", "device", "context"]
    parts = [_turned(here) for _, here in readiness.groupby(keys, sort=True)]
    if not parts:
        return pd.DataFrame(columns=[*_PARTS, "waited_ns", "null", "sure", "cause"])
    found = pd.concat(parts, ignore_index=True)
    return found[found["inside"]].sort_values("op", ignore_index=True)


def _turned(here: pd.DataFrame) -> pd.DataFrame:
    """Of one context: null-stream operations that waited for the others, and those for them."""
    null = here[here["null"]]
    other = _never_beside(here[~here["null"]], null)
    work = union(spans(other["start_ns"], other["end_ns"]))
    alone = covered(spans(null["start_ns"], null["end_ns"]), work) == 0
    null = null[alone].sort_values(["end_ns", "op"])
    waiting = null.assign(
        waited_ns=_waited(null, np.sort(other["end_ns"].to_numpy())), cause=null["op"]
    )
    ends = null["end_ns"].to_numpy()
    held = other.assign(waited_ns=_waited(other, ends), cause=-1)
    if len(ends):
        index = nearest_before(ends, held["start_ns"].to_numpy())
        held["cause"] = null["op"].to_numpy()[np.maximum(index, 0)]
    both = pd.concat([waiting, held], ignore_index=True)
    return both[both["waited_ns"] > 0]


def _never_beside(other: pd.DataFrame, null: pd.DataFrame) -> pd.DataFrame:
    """The others without those lanes of unknown kind that run beside the null stream: they do
    not heed it."""
    work = union(spans(null["start_ns"], null["end_ns"]))
    beside = covered(spans(other["start_ns"], other["end_ns"]), work) > 0
    free = other.loc[beside & ~other["sure"].to_numpy(), "lane"].unique()
    return other[~other["lane"].isin(free)]


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
