"""CPU samples: at which instants which thread was in whose code."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes, narrowed, time_order
from nsysdoctor.ingest.export_codes import FAR_NS
from nsysdoctor.tables.activity.devices import thread_code
from nsysdoctor.tables.host_activity.stacks import Stacks, named_stacks
from nsysdoctor.trace.recipe import table


@table
def sample_stacks(
    sample_rows: pd.DataFrame, sample_frame_rows: pd.DataFrame, strings: pd.Series[str]
) -> Stacks:
    """Returns what the call stack of each sample says."""
    return named_stacks(sample_frame_rows, strings)


@table
def samples(
    sample_rows: pd.DataFrame, sample_stacks: Stacks, threads: pd.DataFrame
) -> pd.DataFrame:
    """Returns the CPU samples of the known threads, by thread and time.

    Columns: thread, start_ns, function (row of `sample_stacks.names`, -1 without a stack). Stacks
    of events other than the clock's are left out.
    """
    thread = thread_code(threads, sample_rows["global_tid"])
    start, weight = sample_rows["start_ns"].to_numpy(), sample_rows["weight"].to_numpy()
    kept = np.flatnonzero((thread >= 0) & (weight > 0) & (start > 0) & (start < FAR_NS))
    order = kept[time_order(start[kept], group=thread[kept])]
    return pd.DataFrame(
        {
            "thread": narrowed(thread[order]),
            "start_ns": start[order],
            "function": _functions(sample_rows["stack"].to_numpy()[order], sample_stacks),
        },
        copy=False,
    )


def _functions(stack: Codes, stacks: Stacks) -> Codes:
    """What the stack of each id says, -1 for ids without one."""
    if not len(stacks.stack):
        return np.full(len(stack), -1, dtype=np.int32)
    place = np.minimum(np.searchsorted(stacks.stack, stack), len(stacks.stack) - 1)
    found = np.where(stacks.stack[place] == stack, stacks.function[place], -1)
    return found.astype(np.int32)


def sample_at(samples: pd.DataFrame, thread: Codes, time: Ints) -> Ints:
    """Returns how many rows of `samples` lie before each time of a thread, in their order."""
    whose, start = samples["thread"].to_numpy(), samples["start_ns"].to_numpy()
    found = np.zeros(len(time), dtype=np.int64)
    for code in np.unique(thread).tolist():
        low, high = np.searchsorted(whose, (code, code + 1))
        mine = np.flatnonzero(thread == code)
        found[mine] = low + np.searchsorted(start[low:high], time[mine])
    return found
