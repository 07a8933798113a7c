"""The ledger itself: every piece of lost time with its bucket, cause, culprit and place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsysdoctor.arrays.order import Codes, narrowed
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.activity.gpu_rows import COPY
from nsysdoctor.tables.host.thread_states import CAUSE
from nsysdoctor.tables.host_activity.stacks import Stacks
from nsysdoctor.tables.ledger.culprits import KINDS, Words, culprits
from nsysdoctor.tables.ledger.device_phases import PHASES
from nsysdoctor.tables.ledger.functions import function_tiles
from nsysdoctor.tables.ledger.lost_pieces import IDLE, LOST_CAUSES, by_device
from nsysdoctor.tables.ledger.os_calls import OsCalls
from nsysdoctor.tables.ledger.tiles import Columns, Tiles, cut, joined
from nsysdoctor.tables.steps.range_places import RangePlaces
from nsysdoctor.trace.recipe import table

_BY_DEVICE = tuple(CAUSE[name] for name in ("dependency", "communication", "copy_queue", "unknown"))
"""Causes that lie with the device: the host's thread says nothing of them."""


@table
def placed_pieces(
    idle_pieces: Columns,
    exposed_pieces: Columns,
    around_pieces: Columns,
    device_phases: dict[int, Tiles],
    os_calls: OsCalls,
    named_places: RangePlaces | None = None,
    launches: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
    samples: pd.DataFrame | None = None,
) -> Columns:
    """Returns the pieces of lost time cut wherever the phase, the OS call or the range changes.

    Columns: those of `idle_pieces`, phase (code into `PHASES`), on_host (bool: a thread's doing),
    call (the call that launched the operation concerned, or that the thread stood in, -1), os_call
    (row of `os_calls`, -1), function (row of `sample_stacks.names`, -1), range (code into the
    titles of `named_places`).
    """
    pieces = joined(idle_pieces, exposed_pieces, around_pieces)
    outside = pieces["phase"] if len(around_pieces["phase"]) else -1
    inside = np.broadcast_to(np.asarray(outside) < 0, len(pieces["start_ns"]))
    pieces.setdefault("phase", np.full(len(inside), -1, dtype=np.int8))
    pieces["around"] = pieces.pop("phase")
    pieces = cut(pieces, "device", device_phases, "phase", inside)
    around = pieces.pop("around")
    pieces["phase"] = np.where(around >= 0, around, pieces["phase"])
    cause, thread = pieces["cause"], pieces["thread"]
    on_host = (pieces["bucket"] == IDLE) & ~np.isin(cause, _BY_DEVICE) & (thread >= 0)
    pieces["on_host"] = on_host
    pieces = cut(pieces, "thread", os_calls.tiles, "os_call", on_host)
    own = pieces["on_host"] & (pieces["api"] < 0) & (pieces["os_call"] < 0)
    own &= pieces["cause"] != CAUSE["profiler"]
    tiles = {} if samples is None else function_tiles(pieces, own, samples)
    pieces = cut(pieces, "thread", tiles, "function", own)
    if named_places is not None:
        pieces = _cut_by_ranges(pieces, named_places)
    pieces["call"] = _calls(pieces, launches)
    pieces["range"] = _ranges(pieces, named_places, api)
    return by_device(pieces)


def _cut_by_ranges(pieces: Columns, places: RangePlaces) -> Columns:
    """Inside a call no range of its thread opens or closes, so only a thread's own code is cut."""
    asked = pieces["on_host"] & (pieces["api"] < 0)
    tiles = {}
    for thread in np.unique(pieces["thread"][asked]).tolist():
        begins = np.concatenate(([np.iinfo(np.int64).min], places.changes(thread)))
        tiles[thread] = Tiles(begins, np.full(len(begins), -1))
    found = cut(pieces, "thread", tiles, "none", asked)
    del found["none"]
    return found


def _calls(pieces: Columns, launches: pd.DataFrame | None) -> Codes:
    """The call that the host stood in; for pieces of the device's own, the one that launched the
    operation which ran, or which came next."""
    call = pieces["api"].astype(np.int32)
    if launches is None or not len(launches):
        return call
    op = np.where(pieces["bucket"] == IDLE, pieces["next_op"], pieces["op"])
    mine = np.flatnonzero(~pieces["on_host"] & (op >= 0) & (call < 0))
    known = launches["op"].to_numpy()
    place = np.minimum(np.searchsorted(known, op[mine]), len(known) - 1)
    has = known[place] == op[mine]
    call[mine[has]] = launches["api"].to_numpy()[place[has]]
    return call


def _ranges(pieces: Columns, places: RangePlaces | None, api: pd.DataFrame | None) -> Codes:
    """The innermost range around each piece of a thread, or around the call that launched what
    the device did."""
    found = np.zeros(len(pieces["start_ns"]), dtype=np.int32)
    if places is None:
        return found
    thread, time = pieces["thread"].copy(), pieces["start_ns"].copy()
    if api is not None:
        launched = np.flatnonzero(~pieces["on_host"] & (pieces["call"] >= 0))
        calls = pieces["call"][launched]
        thread[launched] = api["thread"].to_numpy()[calls]
        time[launched] = api["start_ns"].to_numpy()[calls]
    known = np.flatnonzero(thread >= 0)
    found[known] = places.at(thread[known], time[known])
    return found


@table
def lost_time(
    placed_pieces: Columns,
    os_calls: OsCalls,
    ops: pd.DataFrame,
    names: pd.DataFrame,
    threads: pd.DataFrame,
    thread_labels: list[str],
    api: pd.DataFrame | None = None,
    api_names: pd.DataFrame | None = None,
    named_places: RangePlaces | None = None,
    sample_stacks: Stacks | None = None,
) -> pd.DataFrame:
    """Returns the ledger: pieces that tile the lost time of each device, by device and start.

    Columns: device, start_ns, end_ns, bucket (idle, exposed_copy, exposed_communication), cause (of
    `LOST_CAUSES`), culprit (text, "" for none), culprit_kind (of `KINDS`), thread (label, ""
    without one), thread_code (row of `threads`, -1), api (row of the call that the host stood in,
    -1), call (its row; for the device's own pieces that of the call that launched the operation,
    -1), op (row of the operation that ran or was waited for, -1), next_op (row of the operation
    that ends the gap, -1), range (title of the innermost range, "" outside all), phase (of
    `PHASES`), on_host (bool: a thread's doing).

    Pieces of the phases `before` and `after` lie around the device's span, in the program's
    recorded time; all others add up to its idle, exposed copy and exposed communication time.
    """
    titles = named_places.titles if named_places is not None else [""]
    calls = api_names["name"].tolist() if api_names is not None else []
    functions = sample_stacks.names["text"].tolist() if sample_stacks is not None else []
    words = Words(calls, _op_texts(names), titles, os_calls.names, functions)
    named = culprits(placed_pieces, words, os_calls, ops, api)
    text = {
        "bucket": (placed_pieces["bucket"], BUCKETS),
        "cause": (_told_causes(placed_pieces, os_calls), LOST_CAUSES),
        "culprit": (named.code, named.names),
        "culprit_kind": (named.kind, KINDS),
        "thread": (placed_pieces["thread"] + 1, ["", *thread_labels]),
        "range": (placed_pieces["range"], titles),
        "phase": (placed_pieces["phase"], PHASES),
    }
    plain = ("device", "start_ns", "end_ns", "api", "call", "op", "next_op", "on_host")
    found = {name: placed_pieces[name] for name in plain}
    found |= {name: _labelled(*codes) for name, codes in text.items()}
    found["thread_code"] = narrowed(placed_pieces["thread"])
    return pd.DataFrame(found, copy=False)


def _op_texts(names: pd.DataFrame) -> list[str]:
    """What to call each operation: kernels by their short names, copies by what they move."""
    whole = (names["kind"] == COPY).to_numpy()
    return [str(text) for text in np.where(whole, names["full"], names["short"])]


def _told_causes(pieces: Columns, os_calls: OsCalls) -> Codes:
    """The causes; a thread that makes no CUDA calls has its waits told by its OS calls alone."""
    cause = pieces["cause"].copy()
    if len(os_calls.blocking):
        asleep = os_calls.blocking[np.maximum(pieces["os_call"], 0)] & (pieces["os_call"] >= 0)
        cause[asleep & (cause == CAUSE["host_code"]) & (pieces["api"] < 0)] = CAUSE["os_wait"]
    return cause


def _labelled(code: Codes, texts: Sequence[str]) -> pd.Categorical:
    """The text of each code; several codes may have one text."""
    place, distinct = pd.factorize(np.asarray(texts, dtype=object))
    return pd.Categorical.from_codes(narrowed(place)[code], categories=pd.Index(distinct))
