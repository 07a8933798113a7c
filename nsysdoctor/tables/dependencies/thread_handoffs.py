"""Which host threads hand work over to each other."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Spans, runs
from nsysdoctor.arrays.order import Codes, time_order
from nsysdoctor.ingest.cut import widened
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_BURST_CALLS, _BACK_AND_FORTH = 5, 3


@table
def whole_thread_handoffs(api: pd.DataFrame) -> Codes:
    """Returns a chain code for each row of `api`: calls of one chain follow one another.

    A thread is a chain of its own. But threads of one process that alternate in bursts and never
    overlap hand work to each other, as frameworks do for the backward pass; these form one chain.
    """
    return _chained(api, api["top"].to_numpy())


@table
def thread_handoffs(api: pd.DataFrame, whole_thread_handoffs: Codes, request: Request) -> Codes:
    """Returns `whole_thread_handoffs`; for a given window (START:END), the chains found from the
    calls in it and around it alone."""
    if not isinstance(request.window, tuple):
        return whole_thread_handoffs
    low, high = widened(*request.window)
    near = (api["end_ns"].to_numpy() > low) & (api["start_ns"].to_numpy() < high)
    return _chained(api, near & api["top"].to_numpy())


def _chained(api: pd.DataFrame, counted: np.ndarray) -> Codes:
    """The chain of each call, found from the calls that `counted` selects."""
    thread, process, start, end = (
        api[c].to_numpy() for c in ("thread", "process", "start_ns", "end_ns")
    )
    chain = np.array(thread, dtype=np.int32)
    chains: dict[int, dict[int, Spans]] = {}
    for code, rows in runs(thread):
        outer = counted[rows]
        calls = Spans(start[rows][outer], end[rows][outer])
        known = chains.setdefault(int(process[rows.start]), {})
        owner = next((code for code, those in known.items() if _take_turns(those, calls)), None)
        if owner is None:
            known[code] = calls
            continue
        chain[rows] = owner
        pairs = zip(known[owner], calls, strict=True)
        known[owner] = Spans(*(np.concatenate(pair) for pair in pairs))
    return chain


def _take_turns(one: Spans, other: Spans) -> bool:
    """Whether two sets of calls alternate in bursts, going back and forth, without overlap."""
    start = np.concatenate((one.start, other.start))
    end = np.concatenate((one.end, other.end))
    order = time_order(start, lambda rows: (end[rows],))
    if (start[order][1:] < np.maximum.accumulate(end[order])[:-1]).any():
        return False
    whose = order >= len(one.start)
    bursts = 1 + int((whose[1:] != whose[:-1]).sum())
    enough = min(len(one.start), len(other.start)) >= _BURST_CALLS * bursts / 2
    return bursts >= _BACK_AND_FORTH and enough
