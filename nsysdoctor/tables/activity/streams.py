"""What kind of stream each lane is: the null stream of its context, or one that heeds it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.trace.recipe import table


class StreamKind(IntEnum):
    """The export's own numbering (CUPTI_STREAM_TYPE in TARGET_INFO_CUDA_STREAM.flag)."""

    UNKNOWN = 0
    BLOCKING = 1
    """Takes turns with the null stream."""
    NON_BLOCKING = 2
    """Ignores the null stream."""
    NULL = 3


_USUAL_NULL = 7
"""The number that the legacy default stream has in nearly every context."""


@table
def lane_kind(
    lanes: pd.DataFrame,
    processes: pd.DataFrame,
    context_rows: pd.DataFrame | None = None,
    stream_rows: pd.DataFrame | None = None,
) -> Ints:
    """Returns the `StreamKind` of every lane; without the export's word the null stream is told
    by its usual number and the others are unknown."""
    asked = lanes.assign(pid=processes["pid"].to_numpy()[lanes["process"]])
    kind = np.where(asked["stream"] == _USUAL_NULL, int(StreamKind.NULL), 0)
    if stream_rows is not None:
        key = ["pid", "context", "stream"]
        flags = stream_rows.drop_duplicates(key)[[*key, "flag"]]
        flag = asked.merge(flags, "left", key)["flag"].fillna(0).to_numpy(dtype=np.int64)
        kind = np.where(flag > 0, flag, kind)
    if context_rows is not None:
        key = ["pid", "context"]
        nulls = context_rows.drop_duplicates(key)[[*key, "null_stream"]]
        null = asked.merge(nulls, "left", key)["null_stream"].to_numpy()
        kind = np.where(asked["stream"].to_numpy() == null, int(StreamKind.NULL), kind)
    return np.asarray(kind, dtype=np.int64)
