"""NVTX ranges: what the program itself says it was doing."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints, innermost, spans
from nsysdoctor.recipe import table
from nsysdoctor.tables.devices import thread_code

_OPEN = -(1 << 63)
_PUSH_POP, _START_END = (59, 70), (60, 71)
_DOMAIN = 75


@table
def range_names(nvtx_rows: pd.DataFrame, strings: pd.Series[str]) -> pd.DataFrame:
    """Returns the distinct texts of ranges: text. `ranges.text` is the row number.

    A plain C string is stored in the row, a registered one in StringIds; one of them is set.
    """
    return pd.DataFrame({"text": np.unique(_texts(nvtx_rows, strings).astype(str))}).astype(object)


def _texts(nvtx_rows: pd.DataFrame, strings: pd.Series[str]) -> np.ndarray:
    text = nvtx_rows["text"].to_numpy(dtype=object)
    registered = strings.reindex(nvtx_rows["text_id"]).fillna("").to_numpy(dtype=object)
    texts: np.ndarray = np.where(text == "", registered, text)
    return texts


@table
def ranges(
    nvtx_rows: pd.DataFrame,
    strings: pd.Series[str],
    range_names: pd.DataFrame,
    threads: pd.DataFrame,
    activity: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the ranges of known threads by thread, start and longest first.

    Columns: thread, process, start_ns, end_ns, text (row of `range_names`), domain (text, ""
    the default), pushed (bool: push/pop, nested on one thread; else start/end, process-wide),
    open (bool: never closed, so it ends with the capture), depth (0 outermost, push/pop only).
    """
    kind = nvtx_rows["event_type"].to_numpy()
    mine = np.isin(kind, _PUSH_POP + _START_END)
    rows = nvtx_rows[mine]
    texts = _texts(rows, strings)
    end = rows["end_ns"].to_numpy().copy()
    still_open = end == _OPEN
    last = int(activity["end_ns"].max()) if len(activity) else 0
    end[still_open] = np.maximum(rows["start_ns"].to_numpy(), last)[still_open]
    domain = _domains(nvtx_rows, strings)
    pid = rows["global_tid"].to_numpy() >> 24
    found = pd.DataFrame(
        {
            "thread": thread_code(threads, rows["global_tid"]),
            "start_ns": rows["start_ns"].to_numpy(),
            "end_ns": end,
            "text": np.searchsorted(range_names["text"].to_numpy(dtype=str), texts.astype(str)),
            "domain": [
                domain.get(k, "")
                for k in zip(pid.tolist(), rows["domain"].tolist(), strict=True)
            ],
            "pushed": np.isin(kind[mine], _PUSH_POP),
            "open": still_open,
        }
    )
    found = found[found["thread"] >= 0].sort_values(
        ["thread", "start_ns", "end_ns", "text"], ascending=[True, True, False, True],
        kind="stable", ignore_index=True,
    )  # fmt: skip
    found["process"] = threads["process"].to_numpy()[found["thread"].to_numpy()]
    found["depth"] = _depth(found)
    return found


def _domains(nvtx_rows: pd.DataFrame, strings: pd.Series[str]) -> dict[tuple[int, int], str]:
    """Domain names by (process, id): ids are unique per process only."""
    rows = nvtx_rows[nvtx_rows["event_type"] == _DOMAIN]
    texts = _texts(rows, strings)
    pids = (rows["global_tid"].to_numpy() >> 24).tolist()
    return dict(zip(zip(pids, rows["domain"].tolist(), strict=True), texts, strict=True))


def _depth(ranges: pd.DataFrame) -> Ints:
    """How many push/pop ranges of the same thread enclose each: opened minus closed before it."""
    depth = np.zeros(len(ranges), dtype=np.int64)
    for _, rows in ranges[ranges["pushed"]].groupby("thread", sort=True):
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        closed = np.searchsorted(np.sort(end), start, side="right")
        depth[rows.index.to_numpy()] = np.maximum(np.arange(len(rows)) - closed, 0)
    return depth


def innermost_range(ranges: pd.DataFrame, thread: int, at: Ints) -> Ints:
    """Returns the row of `ranges` that is innermost on a thread at each time, -1 for none."""
    mine = ranges[(ranges["thread"] == thread) & ranges["pushed"]]
    pieces, owner = innermost(spans(mine["start_ns"], mine["end_ns"]))
    if not len(pieces.start):
        return np.full(len(at), -1, dtype=np.int64)
    index = np.searchsorted(pieces.start, at, side="right") - 1
    inside = (index >= 0) & (at < pieces.end[index])
    return np.where(inside, mine.index.to_numpy()[owner[index]], -1).astype(np.int64)
