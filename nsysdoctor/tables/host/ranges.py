"""NVTX ranges: what the program itself says it was doing."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, rows_of, runs
from nsysdoctor.arrays.order import Codes, narrowed, packed, time_order
from nsysdoctor.tables.activity.devices import thread_code
from nsysdoctor.trace.recipe import table

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
    own, ids = nvtx_rows["text"].cat, nvtx_rows["text_id"].cat
    registered = strings.reindex(ids.categories).fillna("").astype(str).to_numpy(dtype=object)
    texts = np.concatenate([own.categories.to_numpy(dtype=object), registered])
    place, distinct = pd.factorize(texts, sort=True)
    place = narrowed(place)
    found = place[len(own.categories) :][ids.codes.to_numpy()]
    stored = (own.categories != "")[own.codes.to_numpy()]
    if stored.any():
        found = np.where(stored, place[: len(own.categories)][own.codes.to_numpy()], found)
    counted = np.bincount(found, minlength=len(distinct)) > 0
    used = np.flatnonzero(counted)
    if not counted.all():
        found = narrowed(np.cumsum(counted) - 1)[found]
    made: pd.Categorical = pd.Categorical.from_codes(
        found, categories=pd.Index(distinct[used], dtype=object)
    )
    return made


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

    Columns: thread, start_ns, end_ns, text (row of `range_names`), domain (text, "" the default),
    pushed (bool: push/pop, nested on one thread; else start/end, process-wide), open (bool: never
    closed, so it ends with the capture).
    """
    kind, start = nvtx_rows["event_type"].to_numpy(), nvtx_rows["start_ns"].to_numpy()
    thread = narrowed(thread_code(threads, nvtx_rows["global_tid"]))
    text, stored_end = range_text.codes, nvtx_rows["end_ns"].to_numpy()
    last = int(activity["end_ns"].max()) if len(activity) else 0

    def ties(rows: np.ndarray) -> tuple[np.ndarray, ...]:
        return -_closed(stored_end[rows], start[rows], last), text[rows]

    order = time_order(start, ties, thread)
    order = order[(np.isin(kind, _PUSH_POP + _START_END) & (thread >= 0))[order]]
    begun, end = start[order], stored_end[order]
    return pd.DataFrame(
        {
            "thread": thread[order],
            "start_ns": begun,
            "end_ns": _closed(end, begun, last),
            "text": text[order],
            "domain": _domains(nvtx_rows, range_text, order),
            "pushed": np.isin(kind, _PUSH_POP)[order],
            "open": end == _OPEN,
        },
        copy=False,
    )


def _closed(end: Ints, start: Ints, last: int) -> Ints:
    """The ends, those of ranges never closed at the end of the capture."""
    still_open = end == _OPEN
    return np.where(still_open, np.maximum(start, last), end) if still_open.any() else end


def _domains(
    nvtx_rows: pd.DataFrame, range_text: pd.Categorical, order: np.ndarray
) -> pd.Categorical:
    """The domain's name of each chosen row; domain ids are unique per process only."""
    made = (nvtx_rows["event_type"] == _DOMAIN).to_numpy()
    if not made.any():
        return pd.Categorical.from_codes(np.zeros(len(order), np.int8), categories=[""])
    tids = nvtx_rows["global_tid"].cat
    pid = (tids.categories.to_numpy() >> 24)[tids.codes.to_numpy()]
    key = packed(pid, nvtx_rows["domain"])
    names = np.full(int(key.max()) + 1, "", dtype=object)
    names[key[made]] = np.asarray(range_text[made], dtype=object)
    place, distinct = pd.factorize(names, sort=True)
    codes = narrowed(place)[key][order]
    return pd.Categorical.from_codes(codes, categories=pd.Index(distinct, dtype=object))


@table
def range_depth(ranges: pd.DataFrame) -> pd.DataFrame:
    """Returns how many push/pop ranges of its thread enclose each row of `ranges`, 0 for others,
    in the column `depth`."""
    depth = np.zeros(len(ranges), dtype=np.int32)
    for _, rows in runs(ranges["thread"].to_numpy()):
        depth[rows] = depth_of(ranges, np.arange(rows.start, rows.stop))
    return pd.DataFrame({"depth": depth})


def depth_of(ranges: pd.DataFrame, rows: np.ndarray) -> Codes:
    """Returns how many push/pop ranges enclose each of some rows of one thread, in order: those
    opened before it less those closed; 0 for ranges that are not pushed."""
    if not len(rows):
        return np.zeros(0, dtype=np.int32)
    thread = ranges["thread"].to_numpy()
    own = rows_of(int(thread[rows[0]]), thread)
    pushed, place = ranges["pushed"].to_numpy()[own], rows - own.start
    ends = np.sort(ranges["end_ns"].to_numpy()[own][pushed])
    opened = np.cumsum(pushed)[place] - 1
    closed = np.searchsorted(ends, ranges["start_ns"].to_numpy()[rows], side="right")
    return np.where(pushed[place], np.maximum(opened - closed, 0), 0).astype(np.int32)


@table
def loader_ranges(ranges: pd.DataFrame, range_names: pd.DataFrame) -> pd.DataFrame:
    """Returns the ranges that are named like a data loader: columns as `ranges`."""
    named = np.array([bool(_LOADER.search(str(t))) for t in range_names["text"]], dtype=bool)
    mine = ranges[named[ranges["text"].to_numpy()]] if len(named) else ranges
    return mine.reset_index(drop=True)
