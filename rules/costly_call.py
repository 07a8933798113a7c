"""Calls into CUDA that do no work for the device and hold the host while it idles."""

from __future__ import annotations

import re

import pandas as pd

from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.loop.driver_calls import recurs
from nsysdoctor.tables.steps.range_places import RangePlaces
from nsysdoctor.trace.recipe import table

_FAMILIES = (
    ("memory_info", r"MemGetInfo"),
    ("graph", r"Graph(?!ics)|Capture"),
    ("stream", r"^cu(da)?(Stream|Event)(Create|Destroy)"),
    ("timing", r"EventElapsedTime"),
    ("device", r"^cu(da)?(Device|Get|Driver|Runtime|Choose|Set)(?!.*Symbol)"),
    ("function", r"^cu(da)?(Func|Occupancy|Kernel|Module|Library)"),
    ("ipc", r"Ipc|PeerAccess|CanAccess|Export|Import|External"),
    ("pointer", r"Pointer|Symbol"),
    ("memory", r"^cu(da)?(Mem|Host|Array|Mipmapped|Create|Destroy|Tex|Surf|Bind|Unbind)"),
    ("context", r"^cu(Ctx|DevicePrimary|Init|GreenCtx)"),
)


@table
def costly_call(
    costly_calls: pd.DataFrame,
    steps: pd.DataFrame,
    window: pd.DataFrame,
    range_places: RangePlaces | None = None,
    *,
    min_ratio: float,
) -> pd.DataFrame:
    """Returns a row per name of calls that keep a device waiting: subject, device, thread, name,
    count, call_ns, typical_ns, longest_ns, idle_ns, place, variant."""
    span_ns = int(window["end_ns"].iloc[0] - window["start_ns"].iloc[0])
    rows = []
    for name, mine in costly_calls.groupby("name", sort=True):
        idle = mine[mine["idle_ns"] > 0]
        idle_ns = int(idle["idle_ns"].sum())
        if idle_ns <= min_ratio * span_ns:
            continue
        if not recurs(idle["start_ns"].to_numpy(), steps, window):
            continue
        place = range_places and range_places.most(
            idle["code"].to_numpy(), idle["start_ns"].to_numpy(), idle["idle_ns"].to_numpy()
        )
        rows.append(
            {
                "subject": str(name),
                "device": int(idle["device"].mode().iloc[0]),
                "thread": _threads(mine),
                "name": str(name),
                "_cause": str(name),
                "count": len(mine),
                "call_ns": int(mine["length_ns"].sum()),
                "typical_ns": int(mine["length_ns"].median()),
                "longest_ns": int(mine["length_ns"].max()),
                "idle_ns": idle_ns,
                "place": f", mostly in {place}" if place else "",
                "variant": _family(str(name)),
            }
        )
    return pd.DataFrame(rows)


def _threads(mine: pd.DataFrame) -> str:
    threads = sorted(mine["thread"].unique())
    more = len(threads) - 1
    return f"{threads[0]} and {more} more" if more else str(threads[0])


def _family(name: str) -> str:
    """What kind of call it is, which tells how to do without it."""
    return next((family for family, sign in _FAMILIES if re.search(sign, name)), "")


def cure(costly_call: pd.DataFrame, costly_calls: pd.DataFrame) -> pd.DataFrame:
    """The calls are gone."""
    row = {name: row for row, name in enumerate(costly_call["name"])}
    mine = costly_calls[costly_calls["name"].isin(row)]
    return edits(Change.UNBLOCK, mine["name"].map(row), mine["api"])


def evidence(costly_call: pd.DataFrame, costly_calls: pd.DataFrame) -> pd.DataFrame:
    """Returns the calls for which a device idled: row, start_ns, end_ns, what."""
    row = {name: row for row, name in enumerate(costly_call["name"])}
    mine = costly_calls[costly_calls["name"].isin(row) & (costly_calls["idle_ns"] > 0)]
    return pd.DataFrame(
        {
            "row": mine["name"].map(row),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": mine["name"],
        }
    )
