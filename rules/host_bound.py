"""Devices that wait for host code which submits nothing."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.host_activity.doings import Witnesses, doing
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
        thread=_labels(calls["thread"], thread_labels),
        code=calls["thread"],
        start_ns=calls["start_ns"] - calls["outside_ns"],
        end_ns=calls["start_ns"],
        outside_ns=calls["outside_ns"],
        api=calls["api"],
    )


def _labels(codes: pd.Series[int], thread_labels: list[str]) -> list[str]:
    """A label for each thread of its own; of threads with one name the later ones are numbered."""
    label: dict[int, str] = {}
    for code in sorted(set(codes.tolist())):
        name = thread_labels[code]
        before = sum(known == name or known.startswith(f"{name} #") for known in label.values())
        label[code] = f"{name} #{before + 1}" if before else name
    return [label[code] for code in codes]


@table
def host_bound(
    own_code: pd.DataFrame,
    window: pd.DataFrame,
    witnesses: Witnesses,
    range_places: RangePlaces | None = None,
    *,
    min_idle_ns: int,
) -> pd.DataFrame:
    """Returns a row per thread that keeps a device waiting: subject, device, count (pauses),
    own_ns, idle_ns, longest_ns, typical_ns, place, doing (runs, sleeps or is off its CPU), seen
    (what samples show), asleep_ns, off_ns, variant, culprit, signature."""
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
                "place": _place(idle, range_places),
                **_doing(idle, witnesses),
            }
        )
    return pd.DataFrame(rows)


def _doing(idle: pd.DataFrame, witnesses: Witnesses) -> dict[str, Any]:
    """What the thread does while the device idles, as words, and the cure for that."""
    start, end = (idle[name].to_numpy() for name in ("start_ns", "end_ns"))
    found = doing(witnesses, int(idle["code"].iloc[0]), start, end)
    own_ns, sign = int(idle["own_ns"].sum()), found.signature
    told: dict[str, Any] = {
        "doing": "runs code of its own",
        "asleep_ns": found.asleep_ns,
        "off_ns": found.off_ns,
        "variant": "",
        "seen": found.evidence(),
        "culprit": found.seen or found.first_seen,
        "signature": sign.name if sign else "",
        "_fixes": sign.fix if sign else None,
    }
    if found.asleep_ns > _MOSTLY * own_ns:
        told |= {"doing": f"sleeps in {found.os_call}", "variant": "asleep", "_fixes": None}
        told |= {"seen": "", "culprit": found.os_call, "signature": ""}
    elif found.asleep_ns + found.off_ns > _MOSTLY * own_ns:
        off = "is off its CPU, outside of any recorded call,"
        told |= {"doing": off, "variant": "off", "_fixes": None}
    return told


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
