"""Bringing ranks together: one clock for all, and the collectives at which they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints

_SAME_NS = 5_000_000
"""After the session clocks are aligned, ends of one collective lie this close."""

_TOGETHER_NS = 100_000
_FEWEST_POINTS = 2


class RankSummary(NamedTuple):
    """What a worker sends of one trace: its tables, clock offset and names."""

    arrivals: pd.DataFrame
    activity: pd.DataFrame
    clock_ns: int
    label: str
    host: str | None
    window_ns: int


class Job(NamedTuple):
    """The tables that rules over several ranks read.

    participants: participant (row), trace, device, label, window_ns;
    meetings: participant, meeting, start_ns, end_ns on the participant's own clock;
    activity: participant, what, ns; residual_ns: how far ends of collectives differ after
    alignment, None with a single clock.
    """

    participants: pd.DataFrame
    meetings: pd.DataFrame
    activity: pd.DataFrame
    residual_ns: int | None


def bring_together(summaries: Sequence[RankSummary]) -> Job:
    """Returns the job that the summaries describe; participants are devices of traces."""
    people: list[tuple[int, int, int, str, int]] = []
    # Empty parts first: a device that ran nothing but instants does nothing for any time.
    nothing = summaries[0]
    arrivals = [nothing.arrivals.iloc[:0].assign(participant=0, shift_ns=0)]
    activity = [nothing.activity.iloc[:0][["what", "ns"]].assign(participant=0)]
    for trace, summary in enumerate(summaries):
        devices = np.unique(summary.activity["device"].to_numpy()).tolist()
        for device in devices:
            code = len(people)
            several = len(summaries) == 1 or len(devices) > 1
            label = f"{summary.label}GPU {device}" if several else summary.label.rstrip(" ,")
            people.append((code, trace, device, label, summary.window_ns))
            mine = summary.arrivals[summary.arrivals["device"] == device]
            arrivals.append(mine.assign(participant=code, shift_ns=summary.clock_ns))
            did = summary.activity[summary.activity["device"] == device]
            activity.append(did[["what", "ns"]].assign(participant=code))
    participants = pd.DataFrame(
        people, columns=["participant", "trace", "device", "label", "window_ns"]
    )
    stacked = pd.concat(arrivals, ignore_index=True)
    if len(summaries) == 1:
        met, residual = stacked[stacked["meeting"] >= 0], None
    else:
        met, residual = _matched(stacked)
    columns = ["participant", "meeting", "start_ns", "end_ns"]
    return Job(participants, met[columns].reset_index(drop=True),
               pd.concat(activity, ignore_index=True), residual)  # fmt: skip


def _matched(arrivals: pd.DataFrame) -> tuple[pd.DataFrame, int | None]:
    """Numbers the collectives at which participants of several traces meet.

    Session clocks agree to some milliseconds; the ends of the first participant's collectives
    then give each other one a finer shift: the median distance to the nearest end of the same
    name.
    """
    if arrivals.empty:
        return arrivals, None
    first = arrivals[arrivals["participant"] == arrivals["participant"].min()]
    aligned, residuals = [], []
    for participant, rows in arrivals.groupby("participant", sort=True):
        shift, residual = _shift(first, rows)
        aligned.append(rows.assign(common_ns=rows["end_ns"] + rows["shift_ns"] + shift))
        if participant != first["participant"].iloc[0] and residual is not None:
            residuals.append(residual)
    joined = pd.concat(aligned, ignore_index=True)
    joined["meeting"] = _meetings(joined)
    residual_ns = max(residuals) if residuals else None
    return joined[joined["meeting"] >= 0], residual_ns


def _shift(first: pd.DataFrame, rows: pd.DataFrame) -> tuple[int, int | None]:
    """What to add to the ends of `rows`, and how far they then still differ (median)."""
    distances: list[Ints] = []
    for name, mine in rows.groupby("name", sort=True):
        known = first.loc[first["name"] == name, ["end_ns", "shift_ns"]].sum(axis=1)
        theirs = np.sort(known.to_numpy(dtype=np.int64))
        ends = (mine["end_ns"] + mine["shift_ns"]).to_numpy(dtype=np.int64)
        if not len(theirs):
            continue
        index = np.clip(np.searchsorted(theirs, ends), 1, max(len(theirs) - 1, 1))
        near = np.minimum(index, len(theirs) - 1)
        left, right = theirs[index - 1], theirs[near]
        nearest = np.where(np.abs(ends - left) <= np.abs(right - ends), left, right)
        distances.append(nearest - ends)
    if not distances:
        return 0, None
    every = np.concatenate(distances)
    every = every[np.abs(every) <= _SAME_NS]
    # One point fits any clock, so it tells nothing of it.
    if len(every) < _FEWEST_POINTS:
        return 0, None
    shift = int(np.median(every))
    return shift, int(np.median(np.abs(every - shift)))


def _meetings(joined: pd.DataFrame) -> Ints:
    """Codes of collectives of one name that end together on several participants."""
    order = joined.sort_values(["name", "common_ns", "participant"], kind="stable").index
    name = joined["name"].to_numpy()[order]
    end = joined["common_ns"].to_numpy()[order]
    who = joined["participant"].to_numpy()[order]
    opens = np.ones(len(order), dtype=bool)
    opens[1:] = (name[1:] != name[:-1]) | (end[1:] - end[:-1] > _TOGETHER_NS)
    group = np.cumsum(opens)
    sizes = pd.DataFrame({"group": group, "who": who}).groupby("group")["who"]
    real = (sizes.transform("size") > 1) & (sizes.transform("size") == sizes.transform("nunique"))
    meeting = np.full(len(joined), -1, dtype=np.int64)
    meeting[order] = np.where(real, group, -1)
    return meeting
