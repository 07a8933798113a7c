"""Which OS call, and which pause of the profiler, each thread stood in at every moment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, innermost, runs
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.ledger.tiles import Tiles, tiles_of
from nsysdoctor.trace.recipe import table


class OsCalls(NamedTuple):
    """The innermost OS call of each thread at every moment: `tiles` own rows of the other arrays.

    `name` is a code into `names`; `blocking` tells whether the thread sleeps in the call.
    """

    tiles: dict[int, Tiles]
    start_ns: Ints
    name: Codes
    names: list[str]
    blocking: np.ndarray


@table
def os_calls(waits: pd.DataFrame | None = None) -> OsCalls:
    """Returns the OS calls of every thread; none where they were not recorded."""
    if waits is None:
        none = np.empty(0, dtype=np.int64)
        return OsCalls({}, none, none, [], none.astype(bool))
    start, end = waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy()
    tiles = {}
    for thread, rows in runs(waits["thread"].to_numpy()):
        span, owner = innermost(Spans(start[rows], end[rows]))
        tiles[thread] = tiles_of(span, owner + rows.start)
    named = pd.Categorical(waits["name"])
    names = [str(name) for name in named.categories]
    return OsCalls(tiles, start, named.codes, names, waits["blocking"].to_numpy())
