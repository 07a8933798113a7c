"""The edits that put one kernel in the place of several."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.kernels.kernel_columns import Kernels

REMOVABLE_NS = 250_000
_USUAL_TIMES = 2
"""Host time before one launch beyond this many times the median of its like, or beyond 250 µs,
is not what launching it costs: a step begins there, or the host did something else."""


def fuse(
    kernels: Kernels, subject: np.ndarray, unit: np.ndarray, times: pd.DataFrame,
    *, host_ratio: float = 0.0,
) -> list[pd.DataFrame]:  # fmt: skip
    """Returns the edits that make each unit one kernel: its first runs for the fused time, the
    others vanish with their launches.

    `kernels` are in order, `subject` and `unit` one code per kernel, equal units adjacent;
    `times` has fused_ns, slow_ns, fast_ns by unit. Of the host time between launches
    `host_ratio` remains in the slow case. Kernels of a CUDA graph keep their one launch.
    """
    op = kernels["op"]
    first = np.append(True, unit[1:] != unit[:-1])[: len(unit)]
    head = times[["fused_ns", "slow_ns", "fast_ns"]].loc[unit[first]]
    return join(
        edits(
            Change.OP_NS, subject[first], op[first], head["fused_ns"],
            slow_ns=head["slow_ns"], fast_ns=head["fast_ns"],
        ),
        edits(Change.OP_NS, subject[~first], op[~first], 0),
        edits(Change.RELEASE, subject[~first], op[~first]),
        unlaunched(kernels.at(~first), subject[~first], host_ratio),
    )  # fmt: skip


def unlaunched(
    kernels: Kernels, subject: np.ndarray, host_ratio: float = 0.0
) -> list[pd.DataFrame]:
    """Returns the edits under which the launches of kernels, and the host time that goes with
    each, are not there; of that time `host_ratio` remains in the slow case. What a launch takes
    beyond the usual, as the first one of a kernel that loads its code, remains as well."""
    alone = kernels["alone"]
    mine, owner = kernels.at(alone), subject[alone]
    call, outside, own = mine["api"], mine["outside_ns"], mine["call_ns"]
    costs = _removable(outside, owner)
    kept = outside - costs
    return join(
        edits(Change.CALL_NS, owner, call, own - _removable(own, owner)),
        edits(Change.OUTSIDE_NS, owner, call, kept, slow_ns=kept + host_ratio * costs),
    )


def _removable(times: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """The part of each time that is usual for its subject."""
    usual = pd.Series(times).groupby(owner).transform("median").to_numpy(dtype=np.float64)
    return np.asarray(np.minimum(times, np.minimum(_USUAL_TIMES * usual, REMOVABLE_NS)))
