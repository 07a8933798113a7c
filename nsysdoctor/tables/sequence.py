"""The order of work on each stream, and where one kernel cannot be joined with the next."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import KERNEL, SET

PAUSE_NS = 250_000
"""A stream that waits this long runs something else's work next."""


@table
def sequence(ops: pd.DataFrame, kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Returns all operations but sets by stream and start: what follows what.

    Columns: op, lane, kernel (row of `kernels`, -1 for copies and graph replays), step (-1
    outside of steps), apart (bool: other stream, CUDA graph, host thread or step than the row
    before), paused (bool: apart, or the stream was idle for 250 µs or more before it).
    """
    found = ops.loc[ops["kind"] != SET, ["lane", "start_ns", "end_ns", "node", "correlation"]]
    found = found.assign(op=found.index.to_numpy())
    found["kernel"] = _row_of(found, ops, kernels)
    known = found["kernel"].to_numpy() >= 0
    row = np.maximum(found["kernel"].to_numpy(), 0)
    for column, missing in (("thread", -1), ("called_ns", 0)):
        values = kernels[column].to_numpy() if len(kernels) else np.zeros(1, dtype=np.int64)
        found[column] = np.where(known, values[row], missing)
    found["step"] = _step_of(found, steps)
    found = found.sort_values(["lane", "start_ns", "end_ns", "op"], ignore_index=True)
    found["apart"] = _apart(found)
    idle = found["start_ns"].to_numpy()[1:] - found["end_ns"].to_numpy()[:-1]
    found["paused"] = found["apart"]
    found.loc[1:, "paused"] |= idle >= PAUSE_NS
    return found[["op", "lane", "kernel", "step", "apart", "paused"]]


def _row_of(found: pd.DataFrame, ops: pd.DataFrame, kernels: pd.DataFrame) -> np.ndarray:
    row = np.full(len(ops), -1, dtype=np.int64)
    row[np.flatnonzero(ops["kind"].to_numpy() == KERNEL)] = np.arange(len(kernels))
    return np.asarray(row[found["op"].to_numpy()])


def _step_of(found: pd.DataFrame, steps: pd.DataFrame) -> np.ndarray:
    """The step whose host time holds the call that launched each operation."""
    called = found["called_ns"].to_numpy()
    if not len(steps):
        return np.full(len(found), -1, dtype=np.int64)
    index = np.searchsorted(steps["start_ns"].to_numpy(), called, side="right") - 1
    inside = (index >= 0) & (called < steps["end_ns"].to_numpy()[np.maximum(index, 0)])
    return np.where(inside, index, -1).astype(np.int64)


def _apart(found: pd.DataFrame) -> np.ndarray:
    """Operations of a graph belong together only within one replay of it."""
    graph = np.where(found["node"] != 0, found["correlation"], -1)
    kernel = found["kernel"].to_numpy() >= 0
    apart = np.ones(len(found), dtype=bool)
    if len(found) < 2:
        return apart
    both = kernel[1:] & kernel[:-1]
    apart[1:] = found["lane"].to_numpy()[1:] != found["lane"].to_numpy()[:-1]
    apart[1:] |= graph[1:] != graph[:-1]
    for column in ("thread", "step"):
        values = found[column].to_numpy()
        apart[1:] |= both & (values[1:] != values[:-1])
    return apart
