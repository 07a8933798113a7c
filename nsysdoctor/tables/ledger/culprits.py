"""The name of what each piece of lost time is owed to: the most specific one that is proven."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.activity.gpu_rows import COPY
from nsysdoctor.tables.host.thread_states import CAUSE
from nsysdoctor.tables.ledger.os_calls import OsCalls
from nsysdoctor.tables.ledger.tiles import Columns

KINDS = (
    "none", "call", "os_call", "function", "range", "copy", "collective", "operation",
    "thread_state",
)  # fmt: skip
"""The values of `lost_time.culprit_kind`."""

KIND = {name: code for code, name in enumerate(KINDS)}


class Named(NamedTuple):
    """The kind of each piece's culprit (code into `KINDS`), and its name by code into `names`."""

    kind: Codes
    code: Codes
    names: list[str]


class Words(NamedTuple):
    """The texts that culprits are made of, by the codes that pieces know them by."""

    calls: list[str]
    ops: list[str]
    ranges: list[str]
    os_names: list[str]
    functions: list[str]


def culprits(
    pieces: Columns, words: Words, os_calls: OsCalls, ops: pd.DataFrame, api: pd.DataFrame | None
) -> Named:
    """Returns the culprit of each piece of `placed_pieces`."""
    kind, first, second = _codes(pieces, os_calls, ops, api)
    width, high = len(words.calls) + 1, int(first.max(initial=0)) + 1
    packed = (kind.astype(np.int64) * high + first) * width + second + 1
    distinct, code = np.unique(packed, return_inverse=True)
    names = [
        _TEXT[KINDS[value // width // high]](words, value // width % high, value % width - 1)
        for value in distinct.tolist()
    ]
    return Named(kind, code.astype(np.int32), names)


def _codes(
    pieces: Columns, os_calls: OsCalls, ops: pd.DataFrame, api: pd.DataFrame | None
) -> tuple[Codes, Codes, Codes]:
    """For each piece the kind of its culprit, what names it, and the name of its call, -1 without
    one. Later assignments are the more specific ones."""
    count = len(pieces["start_ns"])
    kind, first = np.zeros(count, dtype=np.int8), np.zeros(count, dtype=np.int64)
    call = _call_names(pieces, api)
    host, op = pieces["on_host"], pieces["op"]

    def name(mine: np.ndarray, what: str, code: np.ndarray) -> None:
        kind[mine], first[mine] = KIND[what], code[mine]

    in_call = host & (pieces["api"] >= 0)
    name(host & (pieces["range"] > 0), "range", pieces["range"])
    name(host & (pieces["function"] >= 0), "function", pieces["function"])
    name(host & (pieces["cause"] == CAUSE["profiler"]), "thread_state", np.zeros(count, np.int8))
    name(in_call, "call", np.maximum(call, 0))
    os_row = np.maximum(pieces["os_call"], 0)
    if len(os_calls.name):
        name(_in_os_call(pieces, os_calls, api), "os_call", os_calls.name[os_row])
    named = ops["name"].to_numpy()[np.maximum(op, 0)]
    copies = ops["kind"].to_numpy()[np.maximum(op, 0)] == COPY
    name(op >= 0, "operation", named)
    copied = (op >= 0) & copies & (pieces["bucket"] == BUCKETS.index("exposed_copy"))
    name(copied, "copy", named)
    name((op >= 0) & (pieces["cause"] == CAUSE["communication"]), "collective", named)
    told = copied | (in_call & (kind == KIND["os_call"]))
    return kind, first, np.where(told, call, -1)


def _in_os_call(pieces: Columns, os_calls: OsCalls, api: pd.DataFrame | None) -> np.ndarray:
    """Which pieces stand in an OS call that no CUDA call was made from."""
    row, call = pieces["os_call"], pieces["api"]
    inside = (row >= 0) & (pieces["cause"] != CAUSE["profiler"])
    if api is not None and len(api):
        begun = api["start_ns"].to_numpy()[np.maximum(call, 0)]
        inside &= (call < 0) | (os_calls.start_ns[np.maximum(row, 0)] >= begun)
    return np.asarray(inside)


def _call_names(pieces: Columns, api: pd.DataFrame | None) -> Codes:
    call = pieces["call"]
    if api is None or not len(api):
        return np.full(len(call), -1, dtype=np.int64)
    name = api["name"].to_numpy()[np.maximum(call, 0)].astype(np.int64)
    return np.where(call >= 0, name, -1)


def _within(name: str, words: Words, call: int, by: str) -> str:
    return f"{name} {by} {words.calls[call]}" if call >= 0 else name


_TEXT: dict[str, Callable[[Words, int, int], str]] = {
    "none": lambda words, first, call: "",
    "call": lambda words, first, call: words.calls[first],
    "os_call": lambda words, first, call: _within(words.os_names[first], words, call, "in"),
    "function": lambda words, first, call: words.functions[first],
    "range": lambda words, first, call: words.ranges[first],
    "thread_state": lambda words, first, call: "the profiler",
    "copy": lambda words, first, call: _within(words.ops[first], words, call, "by"),
    "collective": lambda words, first, call: words.ops[first],
    "operation": lambda words, first, call: words.ops[first],
}
