"""Per operation: its call, its stream predecessor and its predecessors on shared resources."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import Numbers
from nsysdoctor.tables.dependencies.engine_turns import EngineTurns, previous
from nsysdoctor.trace.recipe import table


class Links(NamedTuple):
    """Per operation: the outermost call that submits it and its predecessors, -1 for none."""

    call: Numbers
    before: Numbers
    engine_turns: EngineTurns


@table
def links(
    ops: pd.DataFrame,
    ops_near: np.ndarray,
    api: pd.DataFrame,
    launches: pd.DataFrame,
    engine_turns: EngineTurns,
) -> Links:
    """Returns each operation's call and its predecessors on its stream and on shared resources.

    `before` is the previous operation of its stream. Predecessors are operations of `ops_near`.
    """
    call = np.full(len(ops), -1, dtype=np.int32)
    row = np.arange(len(api), dtype=np.int32)
    outer = np.maximum.accumulate(np.where(api["top"].to_numpy(), row, 0))
    call[launches["op"].to_numpy()] = outer[launches["api"].to_numpy()]
    before, engine, device = previous(ops["lane"].to_numpy()), *engine_turns
    if not ops_near.all():
        known = np.append(ops_near, True)
        before, engine, device = (
            np.where(known[row], row, np.int32(-1)) for row in (before, engine, device)
        )
    return Links(call, before, EngineTurns(engine, device))
