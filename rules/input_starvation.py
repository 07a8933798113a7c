"""Steps that begin late because their input is not there."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.replay.edits import Change, Part, edits, join
from nsysdoctor.trace.recipe import table


@table
def late_inputs(
    input_waits: pd.DataFrame,
    host_calls: pd.DataFrame,
    thread_labels: list[str],
    waits: pd.DataFrame | None = None,
    range_names: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the waits for input with their place: the columns of `input_waits`, thread,
    start_ns, end_ns, outside_ns, api. All waits of a thread that starves a device belong to it."""
    if not len(input_waits) and waits is None and range_names is None:
        raise MissingTableError(
            "neither OS calls nor ranges were recorded, so a wait for input looks like host code",
            "record with --trace=cuda,nvtx,osrt",
        )
    calls = host_calls.iloc[input_waits["call"].to_numpy()].reset_index(drop=True)
    found = input_waits.assign(
        thread=[thread_labels[t] for t in calls["thread"]],
        start_ns=calls["start_ns"] - calls["outside_ns"],
        end_ns=calls["start_ns"],
        outside_ns=calls["outside_ns"],
        api=calls["api"],
    )
    starved = found[found["idle_ns"] > 0]
    device = starved.groupby("thread")["device"].agg(lambda d: int(d.mode().iloc[0]))
    found = found[found["thread"].isin(device.index)]
    return found.assign(device=found["thread"].map(device)).reset_index(drop=True)


@table
def input_starvation(
    late_inputs: pd.DataFrame, steps: pd.DataFrame, *, min_idle_ns: int
) -> pd.DataFrame:
    """Returns a row per thread: subject, device, count (waits that starve the device), waited_ns,
    idle_ns, typical_ns, rhythm, basis."""
    steady = int((steps["phase"] == "steady").sum())
    rows = []
    for thread, mine in late_inputs.groupby("thread", sort=True):
        long = mine[(mine["idle_ns"] > 0) & (mine["waited_ns"] > mine["typical_ns"])]
        if not len(long) or int(long["idle_ns"].sum()) < min_idle_ns:
            continue
        rows.append(
            {
                "subject": f"{thread} before GPU {int(mine['device'].iloc[0])}",
                "device": int(mine["device"].iloc[0]),
                "thread": thread,
                "count": len(long),
                "waited_ns": int(long["waited_ns"].sum()),
                "idle_ns": int(long["idle_ns"].sum()),
                "typical_ns": int(mine["typical_ns"].max()),
                "rhythm": _rhythm(len(long), steady),
                "basis": "inferred" if (long["basis"] == "inferred").any() else "measured",
            }
        )
    return pd.DataFrame(rows)


def _rhythm(count: int, steps: int) -> str:
    if not steps or count > steps:
        return "again and again"
    if count > 0.8 * steps:
        return "in nearly every step"
    return f"in {count} of {steps} steps, about 1 in {round(steps / count)}"


def cure(input_starvation: pd.DataFrame, late_inputs: pd.DataFrame) -> list[pd.DataFrame]:
    """The wait is gone down to what the thread does itself, or down to the typical wait where
    only a minority of steps waits long; at best that is gone as well."""
    parts = []
    for row, thread in enumerate(input_starvation["thread"]):
        mine = late_inputs[late_inputs["thread"] == thread]
        own = (mine["outside_ns"] - mine["waited_ns"]).clip(lower=0)
        parts.append(
            edits(
                Change.OUTSIDE_NS, row, mine["api"], own + mine["typical_ns"], fast_ns=own,
                part=Part.INPUT,
            )
        )
    return join(*parts)


def evidence(input_starvation: pd.DataFrame, late_inputs: pd.DataFrame) -> pd.DataFrame:
    """Returns the waits that starve the device: row, start_ns, end_ns, what."""
    row = {thread: row for row, thread in enumerate(input_starvation["thread"])}
    mine = late_inputs[late_inputs["thread"].isin(row) & (late_inputs["idle_ns"] > 0)]
    return pd.DataFrame(
        {
            "row": mine["thread"].map(row),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": "waiting for input",
        }
    )
