"""Devices that wait for host code which submits nothing."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.edits import Change, edits, join
from nsysdoctor.intervals import covered, spans, union
from nsysdoctor.recipe import table

_MANY = 4
"""Pauses at fewer times than this are one-off work."""


@table
def own_code(
    host_pauses: pd.DataFrame,
    host_calls: pd.DataFrame,
    thread_labels: list[str],
    ranges: pd.DataFrame | None = None,
    range_names: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the pauses with their place: the columns of `host_pauses`, thread (label),
    start_ns, end_ns, api, outside_ns, place (the range they mostly lie in, "" none)."""
    calls = host_calls.iloc[host_pauses["call"].to_numpy()].reset_index(drop=True)
    found = host_pauses.assign(
        thread=[thread_labels[t] for t in calls["thread"]],
        code=calls["thread"],
        start_ns=calls["start_ns"] - calls["outside_ns"],
        end_ns=calls["start_ns"],
        outside_ns=calls["outside_ns"],
        api=calls["api"],
        place="",
    )
    if ranges is not None and range_names is not None:
        found["place"] = _places(found, ranges, range_names)
    return found


def _places(found: pd.DataFrame, ranges: pd.DataFrame, names: pd.DataFrame) -> list[str]:
    """For each pause the text of the range of its thread that is deepest of those that cover
    most of it."""
    best = pd.Series("", index=found.index, dtype=object)
    depth = pd.Series(-1, index=found.index)
    length = found["end_ns"] - found["start_ns"]
    mine = ranges[ranges["thread"].isin(found["code"].unique()) & ranges["pushed"]]
    for (thread, level), rows in mine.groupby(["thread", "depth"], sort=True):
        here = found[found["code"] == thread]
        inside = covered(
            spans(here["start_ns"], here["end_ns"]),
            union(spans(rows["start_ns"], rows["end_ns"])),
        )
        start = rows["start_ns"].to_numpy()
        index = start.searchsorted((here["start_ns"] + here["end_ns"]) // 2, side="right") - 1
        mostly = (inside > 0.5 * length[here.index].to_numpy()) & (index >= 0)
        chosen = here.index[mostly & (level > depth[here.index].to_numpy())]
        picked = rows["text"].to_numpy()[index[here.index.get_indexer(chosen)]]
        best[chosen] = names["text"].to_numpy()[picked]
        depth[chosen] = level
    return best.tolist()


@table
def host_bound(own_code: pd.DataFrame, window: pd.DataFrame, *, min_idle_ns: int) -> pd.DataFrame:
    """Returns a row per thread that keeps a device waiting: subject, device, count (pauses),
    own_ns, idle_ns, longest_ns, typical_ns, place."""
    row = window.iloc[0]
    tenth = max((int(row["host_end_ns"]) - int(row["host_start_ns"])) // 10, 1)
    rows = []
    for thread, mine in own_code.groupby("thread", sort=True):
        idle = mine[mine["idle_ns"] > 0]
        idle_ns = int(idle["idle_ns"].sum())
        moments = (idle["start_ns"] - int(row["host_start_ns"])) // tenth
        # Without steps the window holds the start as well, which comes once.
        if idle_ns < min_idle_ns or (row["basis"] == "all" and moments.nunique() < _MANY):
            continue
        device = int(idle["device"].mode().iloc[0])
        rows.append(
            {
                "subject": f"{thread} before GPU {device}",
                "device": device,
                "thread": thread,
                "count": len(idle),
                "own_ns": int(idle["own_ns"].sum()),
                "idle_ns": idle_ns,
                "typical_ns": int(idle["own_ns"].median()),
                "longest_ns": int(idle["own_ns"].max()),
                "place": _usual_place(idle),
            }
        )
    return pd.DataFrame(rows)


def _usual_place(idle: pd.DataFrame) -> str:
    by_place = idle.groupby("place")["idle_ns"].sum().sort_index()
    place = str(by_place.idxmax())
    return f", mostly in {place}" if place else ""


def cure(host_bound: pd.DataFrame, own_code: pd.DataFrame) -> pd.DataFrame:
    """The code between two calls takes what launching usually takes."""
    parts = []
    for row, thread in enumerate(host_bound["thread"]):
        mine = own_code[own_code["thread"] == thread]
        left = mine["outside_ns"] - mine["own_ns"] + mine["kept_ns"]
        parts.append(edits(Change.OUTSIDE_NS, row, mine["api"], left))
    return join(*parts)


def evidence(host_bound: pd.DataFrame, own_code: pd.DataFrame) -> pd.DataFrame:
    """Returns the pauses that the device waits for: row, start_ns, end_ns, what."""
    row = {thread: row for row, thread in enumerate(host_bound["thread"])}
    mine = own_code[own_code["thread"].isin(row) & (own_code["idle_ns"] > 0)]
    return pd.DataFrame(
        {
            "row": mine["thread"].map(row),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": ["host code" + (f" in {p}" if p else "") for p in mine["place"]],
        }
    )
