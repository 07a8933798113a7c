"""NVTX ranges: what the program itself says it was doing."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.intervals import Ints
from nsysdoctor.recipe import table
from nsysdoctor.tables.devices import thread_code

_OPEN = -(1 << 63)
_PUSH_POP, _START_END = (59, 70), (60, 71)
_DOMAIN = 75
_LOADER = re.compile(
    r"(?i)data_?(load|set|iter|wait|time|fetch)|(load|read)(ing|er)?[ _.-]?(data|batch|input|image)"
    r"|(next|get|fetch|wait|prefetch)\w*[ _.:-]*(for[ _])?(data|batch|input|sample|image|item)"
    r"|(data|batch|input|sample)s?[ _.-]?(load|wait|fetch|read|pipeline|decod)|__next__|prefetch"
    r"|decode[ _]?(image|jpeg|video|sample)|^(data|input|fetch|load)$"
)


@table
def range_text(nvtx_rows: pd.DataFrame, strings: pd.Series[str]) -> pd.Categorical:
    """Returns the text of every row of `nvtx_rows`, its categories sorted.

    A plain C string is stored in the row, a registered one in StringIds; one of them is set.
    """
    own = nvtx_rows["text"].cat
    code, ids = pd.factorize(nvtx_rows["text_id"].to_numpy())
    registered = strings.reindex(ids).fillna("").astype(str).to_numpy(dtype=object)
    texts = np.concatenate([own.categories.to_numpy(dtype=object), registered])
    place, distinct = pd.factorize(texts, sort=True)
    empty = (own.categories == "")[own.codes.to_numpy()]
    chosen = np.where(empty, len(own.categories) + code, own.codes.to_numpy())
    found = place[chosen]
    counted = np.bincount(found, minlength=len(distinct)) > 0
    used, codes = np.flatnonzero(counted), (np.cumsum(counted) - 1)[found].astype(np.int32)
    return pd.Categorical.from_codes(codes, categories=pd.Index(distinct[used], dtype=object))


@table
def range_names(range_text: pd.Categorical) -> pd.DataFrame:
    """Returns the distinct texts of ranges: text. `ranges.text` is the row number."""
    return pd.DataFrame({"text": np.asarray(range_text.categories, dtype=object)})


@table
def ranges(
    nvtx_rows: pd.DataFrame,
    range_text: pd.Categorical,
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
    end = rows["end_ns"].to_numpy().copy()
    still_open = end == _OPEN
    last = int(activity["end_ns"].max()) if len(activity) else 0
    end[still_open] = np.maximum(rows["start_ns"].to_numpy(), last)[still_open]
    thread = thread_code(threads, rows["global_tid"])
    order = np.lexsort(
        [range_text.codes[mine], -end, rows["start_ns"].to_numpy(), thread]
    )
    order = order[thread[order] >= 0]
    found = pd.DataFrame(
        {
            "thread": thread.astype(np.int32),
            "start_ns": rows["start_ns"].to_numpy(),
            "end_ns": end,
            "text": range_text.codes[mine],
            "domain": _domains(nvtx_rows, range_text, mine),
            "pushed": np.isin(kind[mine], _PUSH_POP),
            "open": still_open,
        }
    ).iloc[order].reset_index(drop=True)
    found["process"] = threads["process"].to_numpy()[found["thread"].to_numpy()]
    found["depth"] = _depth(found)
    return found


def _domains(
    nvtx_rows: pd.DataFrame, range_text: pd.Categorical, mine: np.ndarray
) -> pd.Categorical:
    """The domain's name of each chosen row; domain ids are unique per process only."""
    made = (nvtx_rows["event_type"] == _DOMAIN).to_numpy()
    if not made.any():
        return pd.Categorical.from_codes(np.zeros(int(mine.sum()), np.int8), categories=[""])
    pid, _ = pd.factorize(nvtx_rows["global_tid"].to_numpy() >> 24)
    domain, _ = pd.factorize(nvtx_rows["domain"].to_numpy())
    key = pid * (int(domain.max()) + 1) + domain
    names = np.full(int(key.max()) + 1, "", dtype=object)
    names[key[made]] = np.asarray(range_text[made], dtype=object)
    place, distinct = pd.factorize(names, sort=True)
    return pd.Categorical.from_codes(place[key[mine]], categories=pd.Index(distinct, dtype=object))


def _depth(ranges: pd.DataFrame) -> Ints:
    """How many push/pop ranges of the same thread enclose each: opened minus closed before it."""
    depth = np.zeros(len(ranges), dtype=np.int64)
    for _, rows in ranges[ranges["pushed"]].groupby("thread", sort=True):
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        closed = np.searchsorted(np.sort(end), start, side="right")
        depth[rows.index.to_numpy()] = np.maximum(np.arange(len(rows)) - closed, 0)
    return depth


@table
def loader_ranges(ranges: pd.DataFrame, range_names: pd.DataFrame) -> pd.DataFrame:
    """Returns the ranges that are named like a data loader: columns as `ranges`."""
    named = np.array([bool(_LOADER.search(str(t))) for t in range_names["text"]], dtype=bool)
    mine = ranges[named[ranges["text"].to_numpy()]] if len(named) else ranges
    return mine.reset_index(drop=True)
