"""Devices that wait for host code which submits nothing."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.arrays.intervals import covered, spans, union
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.steps.range_places import RangePlaces
from nsysdoctor.trace.recipe import table

_MANY = 4
"""Pauses at fewer times than this are one-off work."""

_MOSTLY = 0.5


@table
def own_code(
    host_pauses: pd.DataFrame, host_calls: pd.DataFrame, thread_labels: list[str]
) -> pd.DataFrame:
    """Returns the pauses with their place: the columns of `host_pauses`, thread (label), code
    (its row in `threads`), start_ns, end_ns, api, outside_ns."""
    calls = host_calls.iloc[host_pauses["call"].to_numpy()].reset_index(drop=True)
    return host_pauses.assign(
        thread=[thread_labels[t] for t in calls["thread"]],
        code=calls["thread"],
        start_ns=calls["start_ns"] - calls["outside_ns"],
        end_ns=calls["start_ns"],
        outside_ns=calls["outside_ns"],
        api=calls["api"],
    )


@table
def host_bound(
    own_code: pd.DataFrame,
    window: pd.DataFrame,
    waits: pd.DataFrame | None = None,
    range_places: RangePlaces | None = None,
    *,
    min_idle_ns: int,
) -> pd.DataFrame:
    """Returns a row per thread that keeps a device waiting: subject, device, count (pauses),
    own_ns, idle_ns, longest_ns, typical_ns, place, doing, asleep_ns, variant."""
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
        asleep_ns, name = _asleep(idle, waits)
        sleeps = asleep_ns > _MOSTLY * int(idle["own_ns"].sum())
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
                "place": _place(idle, range_places),
                "doing": f"sleeps in {name}" if sleeps else "runs code of its own",
                "asleep_ns": asleep_ns,
                "variant": "asleep" if sleeps else "",
            }
        )
    return pd.DataFrame(rows)


def _asleep(idle: pd.DataFrame, waits: pd.DataFrame | None) -> tuple[int, str]:
    """How long the thread slept in OS calls in its pauses, and in which of them longest."""
    if waits is None:
        return 0, ""
    pauses = union(spans(idle["start_ns"], idle["end_ns"]))
    mine = waits[waits["blocking"] & waits["thread"].isin(idle["code"].unique())]
    near = (mine["end_ns"] > idle["start_ns"].min()) & (mine["start_ns"] < idle["end_ns"].max())
    shares: dict[str, int] = {}
    for name, those in mine[near].groupby(mine["name"].astype(str), sort=True):
        slept = covered(pauses, union(spans(those["start_ns"], those["end_ns"])))
        shares[str(name)] = int(slept.sum())
    every = union(spans(mine["start_ns"], mine["end_ns"]))
    longest = max(shares, key=lambda name: shares[name], default="")
    return int(covered(pauses, every).sum()), longest


def _place(idle: pd.DataFrame, range_places: RangePlaces | None) -> str:
    """The range in which the device mostly waits, as words."""
    if range_places is None:
        return ""
    middle = (idle["start_ns"] + idle["end_ns"]).to_numpy() // 2
    place = range_places.most(idle["code"].to_numpy(), middle, idle["idle_ns"].to_numpy())
    return f", mostly in {place}" if place else ""


def cure(host_bound: pd.DataFrame, own_code: pd.DataFrame) -> list[pd.DataFrame]:
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
    asleep = zip(host_bound["thread"], host_bound["variant"], host_bound["doing"], strict=True)
    doing = {thread: what if variant else "host code" for thread, variant, what in asleep}
    mine = own_code[own_code["thread"].isin(row) & (own_code["idle_ns"] > 0)]
    return pd.DataFrame(
        {
            "row": mine["thread"].map(row),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": mine["thread"].map(doing),
        }
    )
