"""Which phase of the program a device is in, by the device's own clock."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import runs
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.tables.ledger.tiles import Tiles
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

PHASES = ("before", "start_up", "warm_up", "steady", "pause", "tail", "after")
"""The values of `lost_time.phase`; the first and the last lie around the device's span."""

PHASE = {name: code for code, name in enumerate(PHASES)}

_OF_STEPS = {"warmup": "warm_up", "steady": "steady", "tail": "tail"}
_FIRST = np.iinfo(np.int64).min


@table
def device_phases(
    ops: pd.DataFrame, device_steps: pd.DataFrame, request: Request
) -> dict[int, Tiles]:
    """Returns for each device its time in tiles whose owner is a code into `PHASES`.

    With steps: what precedes the first step is start-up, what lies between two steps is a pause,
    the last step and what follows are the tail. Without steps: what precedes the first kernel or
    graph replay is start-up, what follows the last one is the tail, all between is steady, and so
    is all of a window told by its times, around which not everything is known.
    """
    stepped = {
        device: _of_steps(device_steps.iloc[rows])
        for device, rows in runs(device_steps["device"].to_numpy())
    }
    device, kind = ops["device"].to_numpy(), ops["kind"].to_numpy()
    works = (kind == KERNEL) | (kind == GRAPH)
    if isinstance(request.window, tuple):
        works[:] = False
    return {
        code: stepped[code] if code in stepped else _of_work(ops[works & (device == code)])
        for code in np.unique(device).tolist()
    }


def _of_steps(steps: pd.DataFrame) -> Tiles:
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy().copy()
    # A step that the host began before the last one was done reaches to its start.
    end[:-1] = np.minimum(end[:-1], start[1:])
    own = np.array([PHASE[_OF_STEPS.get(str(p), "steady")] for p in steps["phase"]])
    begins = np.concatenate(([_FIRST], np.column_stack((start, end)).ravel()))
    owner = np.full(len(begins), PHASE["pause"], dtype=np.int64)
    owner[1::2] = own
    owner[0], owner[-1] = PHASE["start_up"], PHASE["tail"]
    lasts = np.append(begins[1:] > begins[:-1], True)
    begins, owner = begins[lasts], owner[lasts]
    changes = np.append(True, owner[1:] != owner[:-1])
    return Tiles(begins[changes], owner[changes])


def _of_work(work: pd.DataFrame) -> Tiles:
    if not len(work):
        return Tiles(np.array([_FIRST]), np.array([PHASE["steady"]]))
    first, last = int(work["start_ns"].min()), int(work["end_ns"].max())
    codes = [PHASE[name] for name in ("start_up", "steady", "tail")]
    return Tiles(np.array([_FIRST, first, max(last, first + 1)]), np.array(codes))
