"""What each call stack says: where somebody's code enters what costs, and what that is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import distinct_rows
from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.arrays.order import Codes
from nsysdoctor.tables.host_activity.frames import (
    Role,
    function_name,
    is_told,
    module_name,
    role_of,
)
from nsysdoctor.tables.host_activity.signatures import load_signatures, signature_of

PROFILER = "the profiler"
"""How the profiler's own work is called."""

_NONE = np.iinfo(np.int32).max


class Stacks(NamedTuple):
    """What stacks say: `stack` are their ids, ascending, `function` a code into `names`.

    Of each name: `text`, `module` (file it lies in), `signature` (place among the signatures, -1),
    `profiler` (bool: the profiler's own work).
    """

    stack: Ints
    function: Codes
    names: pd.DataFrame


class Kinds(NamedTuple):
    """The distinct frames: of each its names, whose code it is, and what it is a sign of."""

    text: list[str]
    module: list[str]
    told: np.ndarray
    role: Codes
    signature: Codes


def named_stacks(frames: pd.DataFrame, strings: pd.Series[str]) -> Stacks:
    """Returns what the stacks of a table of frames say.

    The named frame is the innermost one of the program's or its framework's code, together with
    the one that a signature knows it by (`snprintf in report`); without such code the outermost
    function that is told. A stack of addresses alone counts for its module.
    """
    frames, key, kinds = _kinds(frames, strings)
    stack = frames["stack"].to_numpy()
    first = np.flatnonzero(np.diff(stack, prepend=stack[:1] - 1))
    if not len(first):
        none = np.empty(0, dtype=np.int64)
        columns = {"text": [], "module": [], "signature": none, "profiler": none.astype(bool)}
        return Stacks(none, none, pd.DataFrame(columns))
    own, known = _rows(key, first, kinds)
    pairs = [np.where(rows >= 0, key[rows], -1) for rows in (own, known)]
    sign = _signature(key, first, kinds)
    profiler = _of_profiler(kinds.role[key], first)
    code, at = distinct_rows([*pairs, sign, profiler.astype(np.int64)])
    told = [_told(kinds, *pair) for pair in zip(pairs[0][at], pairs[1][at], strict=True)]
    names = pd.DataFrame(told, columns=["text", "module"]).assign(signature=sign[at])
    names["profiler"] = profiler[at]
    names.loc[names["profiler"], ["text", "module", "signature"]] = (PROFILER, "", -1)
    # Frames at other addresses are called the same.
    same, one = distinct_rows([pd.factorize(names[column])[0] for column in names])
    return Stacks(stack[first].astype(np.int64), same[code], names.iloc[one].reset_index(drop=True))


def _kinds(frames: pd.DataFrame, strings: pd.Series[str]) -> tuple[pd.DataFrame, Codes, Kinds]:
    """The frames by stack and depth, the kind of each, and all kinds."""
    stack, depth = frames["stack"].to_numpy(), frames["depth"].to_numpy()
    if not (np.diff(stack.astype(np.int64) * (1 << 16) + depth) > 0).all():
        frames = frames.iloc[np.lexsort((depth, stack))].reset_index(drop=True)
    columns = ("symbol_id", "module_id", "unresolved", "special")
    key, at = distinct_rows([frames[c].to_numpy() for c in columns])
    one = frames.iloc[at]
    symbols = strings.reindex(one["symbol_id"]).fillna("").astype(str).tolist()
    modules = strings.reindex(one["module_id"]).fillna("").astype(str).tolist()
    told = np.array(
        [is_told(s, unresolved=bool(u)) for s, u in zip(symbols, one["unresolved"], strict=True)],
        dtype=bool,
    )
    rows = list(zip(symbols, modules, told.tolist(), one["special"].tolist(), strict=True))
    role = np.array([role_of(s, m, told=t, special=bool(x)) for s, m, t, x in rows], dtype=np.int8)
    sign = np.array([signature_of(s if t else "", m) for s, m, t, _ in rows], dtype=np.int64)
    sign[role == Role.NOTHING] = -1
    files = [module_name(m) for m in modules]
    return frames, key, Kinds(symbols, files, told, role, sign)


def _first(wanted: np.ndarray, first: Ints) -> Ints:
    """The innermost row of each stack that is wanted, -1 for none."""
    rows = np.where(wanted, np.arange(len(wanted), dtype=np.int32), _NONE)
    found = np.minimum.reduceat(rows, first).astype(np.int64)
    return np.where(found == _NONE, -1, found)


def _last(wanted: np.ndarray, first: Ints) -> Ints:
    """The outermost row of each stack that is wanted, -1 for none."""
    rows = np.where(wanted, np.arange(len(wanted), dtype=np.int32), -1)
    return np.maximum.reduceat(rows, first).astype(np.int64)


def _rows(key: Codes, first: Ints, kinds: Kinds) -> tuple[Ints, Ints]:
    """For each stack the row of somebody's own code and the row that says what costs, -1."""
    role, told = kinds.role[key], kinds.told[key]
    size = np.diff(first, append=len(key))
    own = _first((role == Role.CODE) & told, first)
    sign = np.repeat(_signature(key, first, kinds), size)
    known = _last((kinds.signature[key] == sign) & (sign >= 0) & told, first)
    # Without either: what the outermost library offers, an interpreter, any function, any file.
    fallback = np.full(len(first), -1, dtype=np.int64)
    for wanted in (
        (role == Role.LIBRARY) & told,
        (role == Role.INTERPRETER) & told,
        (role == Role.SYSTEM) & told,
        (role > Role.SYSTEM) & ~told & (role != Role.PROFILER),
        role > Role.NOTHING,
    ):
        fallback = np.where(fallback < 0, _last(wanted, first), fallback)
    # Somebody's code whose function is not told, below nothing that is.
    lone = np.where((own < 0) & (known < 0), fallback, -1)
    return own, np.where(known >= 0, known, lone)


def _signature(key: Codes, first: Ints, kinds: Kinds) -> Ints:
    """The first of the signatures that fits a frame which decides: all up to the innermost one of
    somebody's own code, and of those marked `anywhere` also the ones outside of it."""
    anywhere = np.array([one.anywhere for one in load_signatures()] + [False])
    sign, role = kinds.signature[key], kinds.role[key]
    own = _first(role == Role.CODE, first)
    size = np.diff(first, append=len(key))
    until = np.repeat(np.where(own < 0, len(key), own), size)
    decides = (sign >= 0) & ((np.arange(len(key)) <= until) | anywhere[sign])
    best = np.minimum.reduceat(np.where(decides, sign, len(anywhere)), first)
    return np.where(best == len(anywhere), -1, best).astype(np.int64)


def _of_profiler(role: Codes, first: Ints) -> np.ndarray:
    """Stacks whose innermost frame above the system is the profiler's."""
    inner = _first(role > Role.SYSTEM, first)
    return np.asarray((inner >= 0) & (role[inner] == Role.PROFILER))


def _told(kinds: Kinds, own: int, known: int) -> tuple[str, str]:
    """How a stack is called, what costs in whose function, and the file it lies in."""
    parts = [
        function_name(kinds.text[k]) if kinds.told[k] else kinds.module[k]
        for k in (known, own)
        if k >= 0
    ]
    text = " in ".join(dict.fromkeys(part for part in parts if part))
    lies = own if own >= 0 else known
    return text, kinds.module[lies] if lies >= 0 else ""
