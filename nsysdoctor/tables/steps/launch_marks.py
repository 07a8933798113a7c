"""Steps that show in the order in which a program launches its work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.period import INPUT, KERNEL_RUN, find_period
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.tables.activity.ops import COPY_NAMES
from nsysdoctor.tables.host.call_kinds import SYNCS
from nsysdoctor.tables.steps.marks import Floats, Marks, work_of

_SYNCS = [int(verb) for verb in SYNCS]
_MOST_RATIO = 0.5
_HTOD = f"Memcpy {COPY_NAMES[1]}"
LABEL = "period of the launch sequence"


class Launches(NamedTuple):
    """The tables in which launches are looked for."""

    submissions: pd.DataFrame
    ops: pd.DataFrame
    api: pd.DataFrame
    thread_handoffs: Ints
    op_names: pd.DataFrame


class _Symbols(NamedTuple):
    """What one chain did in order: operations by name, synchronising calls by verb; their times
    and threads, how much of the work each is, and what `find_period` asks of them."""

    symbol: Ints
    called: Ints
    thread: Ints
    work: Floats
    kind: npt.NDArray[np.int8]

    def since(self, time_ns: int) -> _Symbols:
        """Returns what was done from a time on."""
        kept = slice(int(np.searchsorted(self.called, time_ns)), None)
        called, thread = self.called[kept], self.thread[kept]
        return _Symbols(self.symbol[kept], called, thread, self.work[kept], self.kind[kept])


def marked_by_launches(told: Launches, after_ns: int) -> Marks | None:
    """Returns steps from what recurs in the order in which the chain of calls that launches most
    work submits and synchronises from a time on, None without."""
    chain = told.thread_handoffs[told.submissions["api"].to_numpy()]
    weight = work_of(told.ops)[told.submissions["op"].to_numpy()]
    work = pd.Series(weight).groupby(chain).sum().sort_index()
    told_by = int(work.idxmax())
    process = told.submissions["process"].to_numpy()
    own = int(process[np.argmax(chain == told_by)])
    # Other ranks in the file do as much again.
    if work.max() < _MOST_RATIO * float(weight[process == own].sum()):
        return None
    made = _symbols(told, told.thread_handoffs == told_by)
    if after_ns:
        made = made.since(after_ns)
    run = find_period(made.symbol, made.work, made.called, made.kind)
    if run is None:
        return None
    start = made.called[run.position]
    end = made.called[run.stop - 1] + 1
    follows = np.flatnonzero(run.stop[:-1] == run.position[1:])
    end[follows] = start[follows + 1]
    thread = int(made.thread[run.position[0]])
    evidence = f"{run.period:,} launches and synchronizations that repeat whole"
    return Marks(start, end, "period", LABEL, thread, own, evidence)


def _symbols(told: Launches, chained: npt.NDArray[np.bool_]) -> _Symbols:
    """What one chain did; `chained` tells which calls belong to it."""
    api, ops = told.api, told.ops
    start, verb, thread = (api[c].to_numpy() for c in ("start_ns", "verb", "thread"))
    call, op = told.submissions["api"].to_numpy(), told.submissions["op"].to_numpy()
    call, op = call[chained[call]], op[chained[call]]
    waits = np.flatnonzero(chained & api["top"].to_numpy() & np.isin(verb, _SYNCS))
    symbol = np.concatenate(
        [ops["name"].to_numpy()[op].astype(np.int64), -1 - verb[waits].astype(np.int64)]
    )
    call = np.concatenate([call, waits])
    order = np.lexsort((symbol, start[call]))
    call = call[order]
    none = np.zeros(len(waits))
    work = np.concatenate([work_of(ops)[op], none])[order]
    kind = np.concatenate([_kinds(told)[op], none.astype(np.int8)])[order]
    return _Symbols(symbol[order], start[call], thread[call], work, kind)


def _kinds(told: Launches) -> npt.NDArray[np.int8]:
    """Which operations are kernels, and which bring input."""
    kind = told.ops["kind"].to_numpy()
    kernel = (kind == KERNEL) | (kind == GRAPH)
    brings = (told.op_names["short"] == _HTOD).to_numpy()[told.ops["name"].to_numpy()]
    return np.asarray(kernel * KERNEL_RUN + brings * INPUT, dtype=np.int8)
