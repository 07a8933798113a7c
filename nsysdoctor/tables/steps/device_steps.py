"""The steps on the clock of the devices: the one definition of how long a step takes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, ascending
from nsysdoctor.tables.steps.marks import Marks, busiest, work_of
from nsysdoctor.trace.recipe import table


@table
def device_steps(
    every_step: pd.DataFrame,
    devices: pd.DataFrame,
    ops: pd.DataFrame,
    submissions: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns the stretch of device time that belongs to each step: device, step, phase, start_ns,
    end_ns; host time where a step launched nothing on the device."""
    parts = []
    known = submissions is not None and len(every_step)
    for device in devices["device"].tolist() if known else ():
        found = _device_steps(every_step, submissions, ops, device)
        bounds = {"start_ns": found.start, "end_ns": found.end}
        parts.append(every_step[["step", "phase"]].assign(device=device, **bounds))
    if not parts:
        columns = dict.fromkeys(("device", "step", "start_ns", "end_ns"), np.empty(0, np.int64))
        return pd.DataFrame(columns).assign(phase=np.empty(0, dtype=object))
    return pd.concat(parts, ignore_index=True)


def _device_steps(
    steps: pd.DataFrame, submissions: pd.DataFrame, ops: pd.DataFrame, device: int
) -> Spans:
    op = submissions["op"].to_numpy()
    here = ops["device"].to_numpy() == device
    kernels = here & (work_of(ops) > 0)
    # A device that only copies has its steps told by its copies.
    runs_there = kernels if kernels[op].any() else here
    mine = np.flatnonzero(runs_there[op])
    called = submissions["called_ns"].to_numpy()[mine]
    if not ascending(called):
        order = np.argsort(called, kind="stable")
        called, mine = called[order], mine[order]
    low, high = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    first, stop = np.searchsorted(called, low), np.searchsorted(called, high)
    some = stop > first
    start, end = low.astype(np.int64), high.astype(np.int64)
    start[some] = ops["start_ns"].to_numpy()[op[mine[first[some]]]]
    end[some] = ops["end_ns"].to_numpy()[op[mine[stop[some] - 1]]]
    start = np.maximum.accumulate(start)
    follows = np.append(high[:-1] == low[1:], False)
    end[follows] = np.append(start[1:], 0)[follows]
    return Spans(start, np.maximum(end, start))


@table
def step_times(
    device_steps: pd.DataFrame,
    every_step: pd.DataFrame,
    ops: pd.DataFrame,
    step_marks: Marks | None,
) -> pd.DataFrame:
    """Returns `every_step` on the clock of the device that works most for it: step, phase,
    start_ns, end_ns. A step reaches from the first of its kernels to the first of the next, so
    that a host that runs ahead does not count; this is how long a step takes, wherever it is
    told."""
    columns = ["step", "phase", "start_ns", "end_ns"]
    if step_marks is None or not len(every_step):
        return every_step[columns]
    mine = ops["process"].to_numpy() == step_marks.process
    device = busiest(ops["device"].to_numpy()[mine], work_of(ops)[mine])
    return device_steps.loc[device_steps["device"] == device, columns].reset_index(drop=True)


@table
def step_lengths(step_times: pd.DataFrame) -> Ints:
    """Returns how long each step took on its device, ns."""
    return np.asarray(step_times["end_ns"] - step_times["start_ns"], dtype=np.int64)
