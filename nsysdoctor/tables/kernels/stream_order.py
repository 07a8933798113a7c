"""The order of work on each stream, and the places where a kernel cannot be joined with the
next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.order import narrowed
from nsysdoctor.tables.activity.gpu_rows import SET
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

PAUSE_NS = 250_000
"""A stream that waits this long runs something else's work next."""


@table
def stream_order(
    ops: pd.DataFrame,
    ops_near: npt.NDArray[np.bool_],
    kernels: Kernels,
    steps: pd.DataFrame,
) -> pd.DataFrame:
    """Returns all operations of `ops_near` except sets, sorted by stream and start.

    Columns: op, lane, kernel (row of `kernels`, -1 for copies and graph replays), step (-1 outside
    of steps), apart (bool: its stream, CUDA graph, host thread or step differs from the row
    before), paused (bool: apart, or the stream was idle for 250 µs or more before it).
    """
    op = np.flatnonzero((ops["kind"].to_numpy() != SET) & ops_near)
    lane = narrowed(ops["lane"].to_numpy()[op])
    order = np.argsort(lane, kind="stable")
    op, lane = op[order].astype(np.int32), lane[order]
    kernel = np.full(len(ops), -1, dtype=np.int32)
    kernel[kernels["op"]] = np.arange(len(kernels))
    kernel = kernel[op]
    # Operations that are no kernels get the step of time 0: none, unless one begins there.
    step = _step_of(np.append(kernels["called_ns"], 0), steps)[kernel]
    apart = changes(lane) | changes(_graph(ops, op))
    both = (kernel >= 0) & np.append(False, kernel[:-1] >= 0)[: len(kernel)]
    apart |= both & (changes(step) | changes(np.append(kernels["thread"], -1)[kernel]))
    paused = apart.copy()
    start, end = ops["start_ns"].to_numpy()[op], ops["end_ns"].to_numpy()[op]
    paused[1:] |= start[1:] - end[:-1] >= PAUSE_NS
    return pd.DataFrame(
        {"op": op, "lane": lane, "kernel": kernel, "step": step, "apart": apart, "paused": paused}
    )


def _step_of(called: np.ndarray, steps: pd.DataFrame) -> np.ndarray:
    """The step with the call that launched each operation in its host time."""
    if not len(steps):
        return np.full(len(called), -1, dtype=np.int32)
    index = np.searchsorted(steps["start_ns"].to_numpy(), called, side="right") - 1
    inside = (index >= 0) & (called < steps["end_ns"].to_numpy()[np.maximum(index, 0)])
    return np.where(inside, index, -1).astype(np.int32)


def _graph(ops: pd.DataFrame, op: np.ndarray) -> np.ndarray:
    """A code of the graph replay of each operation: operations of a graph belong together only
    within one replay."""
    node = ops["node"].to_numpy()[op]
    return np.where(node != 0, ops["correlation"].to_numpy()[op], -1)


def changes(values: np.ndarray) -> np.ndarray:
    """Returns whether each value differs from the one before it; the first one does."""
    changed = np.ones(len(values), dtype=bool)
    changed[1:] = values[1:] != values[:-1]
    return changed
