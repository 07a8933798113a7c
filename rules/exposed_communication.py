"""Collectives during which the device computes nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import distinct_rows, labels
from nsysdoctor.arrays.intervals import Ints, Spans, covered, spans, union
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.steps.steps import window_span_ns
from nsysdoctor.trace.recipe import table
from nsysdoctor.units import ns_text

SPLIT = 4
"""Pieces that a lone collective can be cut into, of which the last stays exposed."""

_APART_NS = 10_000
"""Collectives with more compute than this between them do not follow each other directly."""


@table
def exchanged(
    collectives: pd.DataFrame,
    device_pieces: pd.DataFrame,
    names: pd.DataFrame,
    window: pd.DataFrame,
    rank_groups: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the communication kernels of the window with what of them is exposed.

    Columns as in `collectives`, and group (see `rank_groups`), exposed_ns, moving_ns (what of it
    is transfer and not waiting for another rank), stretch (collectives that follow each other
    without compute between), before_ns (compute since the stretch before), hidden_ns,
    hidden_low_ns and hidden_high_ns (what of `moving_ns` compute could cover).
    """
    low, high = window["start_ns"].iloc[0], window["end_ns"].iloc[0]
    inside = (collectives["start_ns"] >= low) & (collectives["start_ns"] < high)
    mine = collectives[inside]
    parts = [_on_device(rows, device_pieces, int(device), names)
             for device, rows in mine.groupby("device", sort=True)]  # fmt: skip
    if not parts:
        return mine.assign(group=-1, exposed_ns=0, moving_ns=0, stretch=0, before_ns=0,
                           hidden_ns=0, hidden_low_ns=0, hidden_high_ns=0)  # fmt: skip
    found = pd.concat(parts, ignore_index=True)
    # What one rank cannot cover, none of those that meet in the collective can.
    for column in ("hidden_ns", "hidden_low_ns", "hidden_high_ns"):
        least = found.groupby("meeting")[column].transform("min")
        found[column] = least.where(found["meeting"] >= 0, found[column])
    return found.merge(rank_groups[["device", "group"]], "left", "device")


def _on_device(
    rows: pd.DataFrame, pieces: pd.DataFrame, device: int, names: pd.DataFrame
) -> pd.DataFrame:
    rows = rows.sort_values(["start_ns", "end_ns", "op"], kind="stable", ignore_index=True)
    exposed = covered(_spans(rows), _bucket(pieces, device, "exposed_communication"))
    compute = _bucket(pieces, device, "compute")
    reach = np.maximum.accumulate(rows["end_ns"].to_numpy())
    between = spans(reach[:-1], np.maximum(rows["start_ns"].to_numpy()[1:], reach[:-1]))
    opens = np.concatenate(([True], covered(between, compute) > _APART_NS))
    rows = rows.assign(
        exposed_ns=exposed,
        moving_ns=np.minimum(exposed, rows["transfer_ns"]),
        stretch=np.cumsum(opens) - 1,
        pairwise=names["full"].str.contains("SendRecv").to_numpy()[rows["name"]],
    )
    return rows.assign(**_hidden(rows, compute))


def _spans(rows: pd.DataFrame) -> Spans:
    return spans(rows["start_ns"], rows["end_ns"])


def _bucket(pieces: pd.DataFrame, device: int, bucket: str) -> Spans:
    mine = pieces[(pieces["device"] == device) & (pieces["bucket"] == BUCKETS.index(bucket))]
    return union(_spans(mine))


def _hidden(rows: pd.DataFrame, compute: Spans) -> dict[str, Ints]:
    """What of each collective could run beside the compute before its stretch.

    A stretch of several: all but the last, which needs the last results. A lone one: all but the
    last of its pieces, if it can be cut at all. None where the program overlaps already and this
    is the tail, nor for exchanges between pairs, whose partner sets the pace.
    """
    grouped = rows.groupby("stretch", sort=True)
    end = grouped["end_ns"].max().to_numpy()
    opened = grouped["start_ns"].min().to_numpy()
    since = np.concatenate((opened[:1], end[:-1]))
    before = covered(spans(np.minimum(since, opened), opened), compute)
    if len(before):
        before[0] = before[1:].max(initial=0)
    moving = grouped["moving_ns"].sum().to_numpy()
    last = grouped["moving_ns"].last().to_numpy()
    lone = grouped.size().to_numpy() == 1
    free = (rows["exposed_ns"] >= 0.5 * (rows["end_ns"] - rows["start_ns"])) & ~rows["pairwise"]
    whole = free.groupby(rows["stretch"]).all().to_numpy()
    cut = moving - moving // SPLIT
    middle = np.where(lone, np.minimum(cut, before // SPLIT), np.minimum(moving - last, before))
    fast = np.where(lone, np.minimum(cut, before), middle)
    slow = np.where(lone, 0, middle)
    share = _share(rows, moving, last, lone)
    at = rows["stretch"].to_numpy()
    found = {"before_ns": before[at]}
    for name, value in (("hidden_ns", middle), ("hidden_low_ns", slow), ("hidden_high_ns", fast)):
        found[name] = (np.where(whole, value, 0)[at] * share).astype(np.int64)
    return found


def _share(rows: pd.DataFrame, moving: Ints, last: Ints, lone: np.ndarray) -> np.ndarray:
    """The part of a stretch's hidden time that falls on each of its collectives."""
    at = rows["stretch"].to_numpy()
    is_last = ~rows["stretch"].duplicated(keep="last").to_numpy()
    rest = np.maximum(moving - np.where(lone, 0, last), 1)[at]
    mine = rows["moving_ns"].to_numpy() / rest
    return np.where(is_last & ~lone[at], 0.0, mine)


@table
def exposed_communication(
    exchanged: pd.DataFrame,
    rank_groups: pd.DataFrame,
    window: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    min_ratio: float,
) -> pd.DataFrame:
    """Returns a row per group of devices whose collectives meet: subject, device (-1 for
    several), group, count, rank_count, exposed_ns (per device), exposed_ratio (of the window),
    waited_ns (of it, for other ranks), waiting, per_step (words), basis."""
    span = window_span_ns(window)
    steady = int((steps["phase"] == "steady").sum()) if len(steps) else 0
    rows = []
    for group, mine in exchanged[exchanged["exposed_ns"] > 0].groupby("group", sort=True):
        here = rank_groups[rank_groups["group"] == group]
        exposed = int(mine["exposed_ns"].sum()) // len(here)
        if exposed < min_ratio * span:
            continue
        each = f", {ns_text(exposed / steady)} per step" if steady else ""
        rows.append(
            {
                "subject": str(here["label"].iloc[0]),
                "device": int(here["device"].iloc[0]) if len(here) == 1 else -1,
                "group": group,
                "count": len(mine),
                "rank_count": len(here),
                "exposed_ns": exposed,
                "exposed_ratio": min(exposed / max(span, 1), 1.0),
                "waiting": _waiting(mine, len(here)),
                "waited_ns": int((mine["exposed_ns"] - mine["moving_ns"]).sum()) // len(here),
                "per_step": each,
                "basis": "measured" if (mine["meeting"] >= 0).all() else "inferred",
            }
        )
    return pd.DataFrame(rows)


def _waiting(mine: pd.DataFrame, devices: int) -> str:
    """How much of it the ranks wait for one another, which only ranks that meet here can tell."""
    met = mine[mine["meeting"] >= 0]
    if not len(met):
        return "how much of that is waiting for another rank, one rank cannot tell"
    waited = int((met["exposed_ns"] - met["moving_ns"]).sum()) // devices
    return f"{ns_text(waited)} of that is waiting for another rank"


def cure(exposed_communication: pd.DataFrame, exchanged: pd.DataFrame) -> pd.DataFrame:
    """Collectives start as soon as their part of the data is there: what compute can cover of
    them takes no time of its own any more."""
    row_of = {group: row for row, group in enumerate(exposed_communication["group"])}
    row = exchanged["group"].map(row_of).fillna(-1).to_numpy(dtype=np.int64)
    mine, row = exchanged[row >= 0], row[row >= 0]
    takes = mine["transfer_ns"]
    return edits(
        Change.OP_NS, row, mine["op"].to_numpy(), takes - mine["hidden_ns"],
        slow_ns=takes - mine["hidden_low_ns"], fast_ns=takes - mine["hidden_high_ns"],
    )  # fmt: skip


def evidence(
    exposed_communication: pd.DataFrame, exchanged: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """Returns the exposed collectives: row, start_ns, end_ns, what."""
    row_of = {group: row for row, group in enumerate(exposed_communication["group"])}
    shown = exchanged[exchanged["exposed_ns"] > 0]
    code, first = distinct_rows([shown["name"].to_numpy(), shown["device"].to_numpy()])
    kinds = shown[["name", "device"]].iloc[first].itertuples(index=False)
    what = [f"{names['short'].iloc[name]} on GPU {device}" for name, device in kinds]
    found = pd.DataFrame(
        {
            "row": shown["group"].map(row_of).fillna(-1).to_numpy(dtype=np.int64),
            "start_ns": shown["start_ns"].to_numpy(),
            "end_ns": shown["end_ns"].to_numpy(),
            "what": labels(what, code),
        }
    )
    return found[found["row"] >= 0]
