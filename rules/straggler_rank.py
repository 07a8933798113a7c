"""The rank that the others wait for."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.trace.recipe import table

WORDS = {
    "compute": "computing (slower kernels or more work)",
    "exposed_copy": "copying",
    "host_code": "running host code that launches nothing, such as a garbage collection",
    "input_wait": "waiting for input",
    "os_wait": "waiting in the operating system",
    "synchronization": "synchronizing",
    "blocking_copy": "standing in blocking copies",
    "allocation": "allocating memory",
    "module_load": "loading code",
    "launch": "launching work",
    "profiler": "being profiled",
    "unknown": "nothing that the trace shows",
}


@table
def lateness(participants: pd.DataFrame, meetings: pd.DataFrame) -> pd.DataFrame:
    """Returns for every collective who came last and how much later than the others.

    Columns: meeting, participant, lateness_ns (the others' median length less the last one's),
    start_ns, end_ns (the last one's, on its own clock). All end together, so who is shortest
    came last.
    """
    if len(participants) < 2 or not len(meetings):
        raise MissingTableError(
            "one rank alone does not tell whom the others wait for",
            "name the traces of all ranks, recorded at the same time",
        )
    length = (meetings["end_ns"] - meetings["start_ns"]).rename("length_ns")
    ranked = meetings.assign(length_ns=length).sort_values(
        ["meeting", "length_ns", "participant"], kind="stable"
    )
    last = ranked.drop_duplicates("meeting")
    others = ranked[ranked.duplicated("meeting")].groupby("meeting")["length_ns"].median()
    late = others.reindex(last["meeting"]).to_numpy() - last["length_ns"].to_numpy()
    found = last[["meeting", "participant", "start_ns", "end_ns"]]
    return found.assign(lateness_ns=late.astype("int64")).reset_index(drop=True)


@table
def straggler_rank(
    participants: pd.DataFrame,
    lateness: pd.DataFrame,
    activity: pd.DataFrame,
    *,
    min_meetings: int,
    min_share: float,
    min_lateness_ratio: float,
) -> pd.DataFrame:
    """Returns at most one row, the rank that causes most of the waiting: subject, trace, device,
    count, label, last_count, meeting_count, lateness_ns, reason, excess_ns, saving_ns."""
    caused = lateness.groupby("participant")["lateness_ns"].sum()
    caused = caused.reindex(range(len(participants)), fill_value=0)
    who = int(caused.idxmax())
    person = participants.iloc[who]
    total, count = int(caused.sum()), len(participants)
    # Somebody comes last by chance as well: the others' own lateness is what chance gives.
    late = int(caused[who] - caused.drop(who).mean())
    least = max(min_share, (1 + 1 / count) / 2)
    enough = len(lateness) >= min_meetings and caused[who] >= least * total
    if not enough or late < min_lateness_ratio * person["window_ns"]:
        return pd.DataFrame()
    what, excess = _excess(activity, who)
    mine = lateness[lateness["participant"] == who]
    return pd.DataFrame(
        [
            {
                "subject": person["label"],
                "trace": int(person["trace"]),
                "device": int(person["device"]),
                "count": len(mine),
                "label": person["label"],
                "last_count": len(mine),
                "meeting_count": len(lateness),
                "lateness_ns": late,
                "reason": WORDS.get(what, what.replace("_", " ")),
                "excess_ns": excess,
                "saving_ns": late,
            }
        ]
    )


def _excess(activity: pd.DataFrame, who: int) -> tuple[str, int]:
    """What one participant does longest beyond the others' median, waiting for peers apart."""
    own = activity[~activity["what"].isin(["exposed_communication", "communication"])]
    mine = own[own["participant"] == who].set_index("what")["ns"]
    others = own[own["participant"] != who].groupby("what")["ns"].median()
    excess = (mine - others.reindex(mine.index).fillna(0)).sort_index()
    return str(excess.idxmax()), int(excess.max())


def evidence(
    straggler_rank: pd.DataFrame, participants: pd.DataFrame, lateness: pd.DataFrame
) -> pd.DataFrame:
    """Returns the stretches before this rank came, on its own clock."""
    row = straggler_rank.iloc[0]
    labels = participants["label"].tolist()
    mine = lateness[lateness["participant"] == labels.index(row["label"])]
    return pd.DataFrame(
        {
            "row": 0,
            "start_ns": mine["start_ns"] - mine["lateness_ns"],
            "end_ns": mine["start_ns"],
            "what": "the others wait in their collective",
        }
    )
