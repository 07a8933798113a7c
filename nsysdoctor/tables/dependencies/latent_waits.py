"""Calls that would wait for the device if work were left: they free memory behind a drained one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, runs
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.trace.recipe import table

_WAITING = ("cudaFree", "cuMemFree", "cudaFreeArray")


class LatentWaits(NamedTuple):
    """Pairs (call, op): the call began after the operation had ended, and would not end before."""

    call: Ints
    op: Ints


@table
def latent_waits(
    api: pd.DataFrame,
    api_names: pd.DataFrame,
    ops: pd.DataFrame,
    ops_near: np.ndarray,
    submissions: pd.DataFrame,
    waiting: Waiting,
) -> LatentWaits:
    """Returns the calls that free device memory and found nothing to wait for, with the operation
    that they would wait for: of those that their context got before them the last to end.

    Freeing memory waits for the device, unless it is ordered by a stream. Behind another wait
    nothing shows that; with that wait gone the call takes its place.
    """
    waits = np.isin(api_names["name"].to_numpy(dtype=str), _WAITING)
    frees = waits[api["name"].to_numpy()] & api["top"].to_numpy() & ~waiting.blocks
    call, op = np.flatnonzero(frees), submissions["op"].to_numpy()
    awaited = np.full(len(call), -1, dtype=np.int64)
    thread, context = api["thread"].to_numpy(), ops["context"].to_numpy()[op]
    process, called = submissions["process"].to_numpy(), submissions["called_ns"].to_numpy()
    by = thread[submissions["api"].to_numpy()]
    order = np.argsort(thread[call], kind="stable")
    for code, rows in runs(thread[call][order]):
        mine, own = order[rows], np.flatnonzero(by == code)
        at = api["start_ns"].to_numpy()[call[mine]]
        last = np.searchsorted(called[own], at) - 1
        used = np.where(last >= 0, context[own[np.maximum(last, 0)]] if len(own) else -1, -1)
        for place in np.unique(used[used >= 0]).tolist():
            here = np.flatnonzero((context == place) & (process == process[own[0]]))
            asking = mine[used == place]
            awaited[asking] = _last_to_end(ops, op[here], called[here], at[used == place])
    known = (awaited >= 0) & ops_near[np.maximum(awaited, 0)]
    known &= ops["end_ns"].to_numpy()[np.maximum(awaited, 0)] <= api["start_ns"].to_numpy()[call]
    return LatentWaits(call[known], awaited[known])


def _last_to_end(ops: pd.DataFrame, op: Ints, called: Ints, at: Ints) -> Ints:
    """Of the operations that were called before each time the one that ends last, -1 for none."""
    end = ops["end_ns"].to_numpy()[op]
    reach = np.maximum.accumulate(end)
    latest = np.maximum.accumulate(np.where(end == reach, np.arange(len(op)), 0))
    index = np.searchsorted(called, at) - 1
    return np.where(index >= 0, op[latest[np.maximum(index, 0)]], -1)
