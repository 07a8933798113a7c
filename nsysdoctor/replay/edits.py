"""Edits: what a cure changes in a trace, as rows that the replay applies.

A cure returns a frame made by `edits`, or several of them, brought together by `join`: one row
per change, labelled with the row of the measured table (the subject) that it cures. There may be
several for every kernel, so frames hold narrow columns, and once what is the same in all rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum, unique
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd


@unique
class Change(IntEnum):
    """What an edit does; `row` counts in `api` for calls and in `ops` for operations."""

    CALL_NS = 0
    """The call itself costs `ns`, waiting for operations apart."""
    UNBLOCK = 1
    """The call waits for no operation any more and costs `ns`."""
    OUTSIDE_NS = 2
    """The thread spends `ns` outside CUDA before the call."""
    OP_NS = 3
    """The operation runs for `ns`."""
    FREE_OP = 4
    """The operation waits for its launch only, not for other operations."""
    RELEASE = 5
    """No operation waits for this one any more; its stream goes on without it."""
    LAUNCH_NS = 6
    """The operation starts `ns` after the start of its launching call, its turn permitting."""
    STREAM_NS = 7
    """The operation starts `ns` after the one before it on its stream, its launch permitting."""
    FREE_ENGINE = 8
    """The copy waits for no other copy of its direction; the next one waits for those before."""
    UNSEEN = 9
    """The operation waits for nothing that it is merely seen to wait for: launch, stream, copy
    engine, device and recorded events still count."""


@unique
class Part(IntEnum):
    """Which part of a call's or a thread's time an edit takes away: what edits take of different
    parts adds up."""

    OWN = 0
    """What the host does itself, and all else that is not named here."""
    INPUT = 1
    """A wait for input."""
    PROFILER = 2
    """The profiler's own work."""
    SLEEP = 3
    """Sleep in the OS inside a call or between calls."""


COLUMNS = ("subject", "change", "row", "ns", "slow_ns", "fast_ns", "only_fast", "part")

Values = npt.ArrayLike
Cure: TypeAlias = pd.DataFrame | Sequence[pd.DataFrame]

Scenario = Literal["slow", "middle", "fast"]
_VALUE = {"slow": "slow_ns", "middle": "ns", "fast": "fast_ns"}


def edits(
    change: Change,
    subject: Values,
    row: Values,
    ns: Values = 0,
    *,
    slow_ns: Values | None = None,
    fast_ns: Values | None = None,
    only_fast: bool = False,
    part: Part = Part.OWN,
) -> pd.DataFrame:
    """Returns one edit per row, columns subject, change, row, ns, slow_ns, fast_ns, only_fast,
    part.

    `ns` is the expected value; `slow_ns` and `fast_ns` bound it where it is uncertain and give
    the low and the high saving. `only_fast` edits count for the high saving alone. `part` tells
    what part of a call's or a thread's time is taken away.
    """
    rows = _narrow(row)
    middle = _narrow(ns)
    columns: dict[str, npt.NDArray[Any]] = {
        "subject": _narrow(subject),
        "change": np.array(change, dtype=np.int8),
        "row": rows,
        "ns": middle,
        "slow_ns": middle if slow_ns is None else _narrow(slow_ns),
        "fast_ns": middle if fast_ns is None else _narrow(fast_ns),
        "only_fast": np.array(only_fast),
        "part": np.array(part, dtype=np.int8),
    }
    whole = {name: np.broadcast_to(values, rows.shape) for name, values in columns.items()}
    # Uncopied, as what all rows share takes no room of its own.
    return pd.DataFrame(whole, copy=False)


def _narrow(values: Values) -> npt.NDArray[np.signedinteger[Any]]:
    """The values as int32, as int64 where that is too narrow; an array of its own."""
    given = np.asarray(values)
    if np.can_cast(given.dtype, np.int32):
        return given.astype(np.int32)
    wide, limit = given.astype(np.int64), np.iinfo(np.int32)
    fits = not wide.size or (wide.min() >= limit.min and wide.max() <= limit.max)
    return wide.astype(np.int32) if fits else wide


def join(*parts: Cure) -> list[pd.DataFrame]:
    """Returns the frames of all parts that hold any edits."""
    return [frame for part in parts for frame in frames_of(part)]


def frames_of(cure: Cure) -> list[pd.DataFrame]:
    """Returns the frames of a cure that hold any edits."""
    frames = [cure] if isinstance(cure, pd.DataFrame) else cure
    return [frame for frame in frames if len(frame)]


def of_subject(cure: Cure, subject: int) -> list[pd.DataFrame]:
    """Returns the edits that cure one subject."""
    return frames_of([_where(f, (f["subject"] == subject).to_numpy()) for f in frames_of(cure)])


def of_rows(cure: Cure, subjects: Sequence[int]) -> list[pd.DataFrame]:
    """Returns the edits that cure some subjects, under the numbers that they have."""
    return frames_of([_where(f, f["subject"].isin(subjects).to_numpy()) for f in frames_of(cure)])


def of_subjects(cure: Cure, subjects: Sequence[int]) -> list[pd.DataFrame]:
    """Returns the edits that cure some subjects, numbered anew in the order given."""
    return [
        frame.assign(subject=np.int32(number))
        for number, subject in enumerate(subjects)
        for frame in of_subject(cure, subject)
    ]


class Step(NamedTuple):
    """Edits of one kind in a scenario: what is edited, to what values, ns, and which part of the
    time they take away."""

    row: npt.NDArray[Any]
    ns: npt.NDArray[Any]
    part: npt.NDArray[np.int8] | None = None

    @property
    def distinct(self) -> bool:
        """Returns whether the rows rise, so that there is one edit of each."""
        return bool((self.row[1:] > self.row[:-1]).all())

    @classmethod
    def rows_of(cls, steps: Sequence[Step]) -> npt.NDArray[Any]:
        """Returns the rows that the steps edit, each once, in order."""
        if len(steps) == 1 and steps[0].distinct:
            return steps[0].row
        return np.unique(np.concatenate([step.row for step in steps]))

    @classmethod
    def by_part(cls, steps: Sequence[Step]) -> list[Step]:
        """Returns a step for each part of the time, with one edit of each row: of several of one
        part the lowest value counts."""
        if len(steps) == 1 and steps[0].distinct and steps[0].part is None:
            return [*steps]
        row, ns = (np.concatenate([step[column] for step in steps]) for column in (0, 1))
        part = np.concatenate(
            [np.zeros(len(s.row), dtype=np.int8) if s.part is None else s.part for s in steps]
        )
        return [_lowest(row[mine], ns[mine]) for mine in (part == p for p in np.unique(part))]


def _lowest(row: npt.NDArray[Any], ns: npt.NDArray[Any]) -> Step:
    """The rows in order, each with its lowest value."""
    order = np.lexsort((ns, row))
    row, ns = row[order], ns[order]
    first = np.append(True, row[1:] != row[:-1])[: len(row)]
    return Step(row[first], ns[first])


def steps_of(cure: Cure, scenario: Scenario) -> dict[Change, list[Step]]:
    """Returns what a cure edits in a scenario, by the kind of change, in the order given."""
    steps = defaultdict(list)
    for frame in frames_of(cure):
        mine = frame if scenario == "fast" else _where(frame, ~frame["only_fast"].to_numpy())
        for change in _changes(mine):
            part = _where(mine, mine["change"].to_numpy() == change)
            values = part[_VALUE[scenario]].to_numpy()
            taken = part["part"].to_numpy()
            whole = None if not taken.any() else taken
            steps[change].append(Step(part["row"].to_numpy(), values, whole))
    return steps


def differs(frame: pd.DataFrame, scenario: Scenario) -> bool:
    """Returns whether a scenario makes other edits than the middle one."""
    other = (frame[_VALUE[scenario]] != frame["ns"]).any()
    return bool(other or (scenario == "fast" and frame["only_fast"].any()))


def parted(cure: Cure) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Returns the edits of such kinds as are the same in all scenarios, and the others."""
    frames = frames_of(cure)
    uncertain = [f for f in frames if differs(f, "slow") or differs(f, "fast")]
    open_to = {change for frame in uncertain for change in _changes(frame)}
    certain = [frame for frame in frames if open_to.isdisjoint(_changes(frame))]
    return certain, [f for f in frames if not open_to.isdisjoint(_changes(f))]


def _changes(frame: pd.DataFrame) -> list[Change]:
    """The kinds of change in a frame, most often one."""
    change = frame["change"].to_numpy()
    if len(change) and (change == change[0]).all():
        return [Change(change[0])]
    return [Change(code) for code in np.unique(change)]


def _where(frame: pd.DataFrame, kept: npt.NDArray[np.bool_]) -> pd.DataFrame:
    return frame if kept.all() else frame[kept]
