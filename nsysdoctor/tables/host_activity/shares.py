"""How time of threads is shared among functions, as far as samples tell."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.host_activity.samples import sample_at
from nsysdoctor.tables.host_activity.stacks import Stacks

LEAST_SAMPLES = 5
"""Fewer samples of a function name it as seen, and say nothing of its share."""

_Z = 1.96
"""Of a normal distribution 95 % lie this many deviations around the middle."""


def wilson(count: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lowest and highest share that `count` of `total` samples are likely for (95 %).

    Wilson's score interval: E. B. Wilson, "Probable inference, the law of succession, and
    statistical inference", Journal of the American Statistical Association 22 (1927).
    """
    total = np.maximum(total, 1).astype(np.float64)
    share, square = count / total, _Z * _Z / total
    middle = (share + square / 2) / (1 + square)
    reach = _Z * np.sqrt(share * (1 - share) / total + square / (4 * total)) / (1 + square)
    return np.maximum(middle - reach, 0.0), np.minimum(middle + reach, 1.0)


def function_shares(
    samples: pd.DataFrame,
    stacks: Stacks,
    thread: Codes,
    start_ns: Ints,
    end_ns: Ints,
    group: Codes | None = None,
) -> pd.DataFrame:
    """Returns which functions the threads were seen in, for intervals or for groups of them.

    Columns: group (by default the row of the interval), function (row of `stacks.names`, -1 for
    samples without a stack), name, module, signature (place, -1), n (samples in it), total (all
    samples of the group), share_ratio, low_ratio, high_ratio (Wilson, 95 %), named (bool: at least
    `LEAST_SAMPLES`), by group, most samples first. Intervals of a group do not overlap.
    """
    which = np.arange(len(thread)) if group is None else group
    first, stop = (sample_at(samples, thread, at) for at in (start_ns, end_ns))
    size = stop - first
    row = np.arange(int(size.sum())) + np.repeat(first - np.cumsum(size) + size, size)
    seen = pd.DataFrame(
        {"group": np.repeat(which, size), "function": samples["function"].to_numpy()[row]}
    )
    found = seen.groupby(["group", "function"], sort=True).size().rename("n").reset_index()
    found["total"] = found.groupby("group")["n"].transform("sum")
    found["share_ratio"] = found["n"] / found["total"]
    found["low_ratio"], found["high_ratio"] = wilson(
        found["n"].to_numpy(), found["total"].to_numpy()
    )
    found["named"] = found["n"] >= LEAST_SAMPLES
    names = stacks.names.rename(columns={"text": "name"})
    found = found.merge(names, "left", left_on="function", right_index=True)
    found["signature"] = found["signature"].fillna(-1).astype(np.int64)
    found[["name", "module"]] = found[["name", "module"]].fillna("")
    return found.sort_values(
        ["group", "n", "name"], ascending=[True, False, True], kind="stable", ignore_index=True
    )
