"""Synchronisations and read-backs in the loop that drain the device's queue."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.tables.account.idle_parts import IdleParts
from nsysdoctor.tables.activity.gpu_rows import COPY, KERNEL
from nsysdoctor.tables.host.call_kinds import SYNCS
from nsysdoctor.tables.loop.host_time import opens_chain
from nsysdoctor.tables.steps.range_places import RangePlaces
from nsysdoctor.tables.steps.steps import window_span_ns
from nsysdoctor.trace.recipe import table

_READ_NS = 5_000
"""What a read-back costs that is only queued."""

_NEAR_NS = 20_000
"""A device that runs dry this soon after a wait has returned was drained by it."""

_SELECTS = re.compile(
    r"DeviceSelect|DeviceScan|DevicePartition|NonZero|nonzero|DeviceReduce.*\bbool\b|unique_by_key"
    r"|DeviceRunLength"
)
_SELECT_KERNELS = 3


@table
def read_backs(copies: pd.DataFrame | None = None, *, max_bytes: int) -> pd.DataFrame:
    """Returns the small copies to the host whose call is asynchronous: op, api, blocks (it
    returned after the copy, since its target is pageable)."""
    if copies is None:
        return pd.DataFrame({"op": [], "api": [], "blocks": []}, dtype=np.int64)
    small = (copies["direction"] == "DtoH") & copies["async_call"]
    mine = copies[small & (copies["bytes"] < max_bytes) & (copies["api"] >= 0)]
    blocks = mine["pageable"] & mine["in_call"]
    return mine[["op", "api"]].assign(blocks=blocks).reset_index(drop=True)


@table
def drains(
    host_calls: pd.DataFrame,
    read_backs: pd.DataFrame,
    host_pauses: pd.DataFrame,
    input_waits: pd.DataFrame,
    slow_graphs: pd.DataFrame,
    driver_calls: pd.DataFrame,
    costly_calls: pd.DataFrame,
    ops: pd.DataFrame,
    ops_near: np.ndarray,
    gaps: pd.DataFrame,
    idle_parts: IdleParts,
    loop_calls: np.ndarray,
    thread_labels: list[str],
) -> pd.DataFrame:
    """Returns the calls of the window that wait for the device: synchronisations and small
    blocking read-backs, without those behind which something else is what binds.

    Columns: call (row of `host_calls`), api, sync (bool), thread (label), code (its row in
    `threads`), device, start_ns, end_ns, gap (row of the gap that opened at the wait, -1 none).
    """
    is_sync = np.isin(host_calls["verb"].to_numpy(), [int(v) for v in SYNCS])
    blocking = read_backs["api"].to_numpy()[read_backs["blocks"].to_numpy(dtype=bool)]
    chosen = is_sync | np.isin(host_calls["api"].to_numpy(), blocking)
    rows = np.flatnonzero(chosen & loop_calls)
    calls = host_calls.iloc[rows].reset_index(drop=True)
    found = pd.DataFrame(
        {
            "call": rows,
            "api": calls["api"],
            "sync": is_sync[rows],
            "thread": [thread_labels[t] for t in calls["thread"]],
            "code": calls["thread"],
            "device": _devices(host_calls, ops, ops_near)[rows],
            "start_ns": calls["start_ns"],
            "end_ns": calls["end_ns"],
        }
    )
    found = found[found["device"] >= 0].reset_index(drop=True)
    gap = _gap_behind(found, gaps)
    found = found.assign(gap=_behind_copies(gap, gaps, host_calls, ops) if len(gaps) else gap)
    late = pd.concat([host_pauses, input_waits, slow_graphs, driver_calls, costly_calls])
    kept = ~_held_elsewhere(found, host_calls, read_backs, gaps, late)
    kept &= ~_profiled(found, gaps, idle_parts.profiled)
    return found[kept].reset_index(drop=True)


def _held_elsewhere(
    found: pd.DataFrame,
    host_calls: pd.DataFrame,
    read_backs: pd.DataFrame,
    gaps: pd.DataFrame,
    late: pd.DataFrame,
) -> np.ndarray:
    """Waits behind which something else holds the device up for most of the hole: input that is
    not there, the code of a host that binds, a graph launch that takes too long, the driver, a
    call that asks for something.

    The waits between two pieces of work that a chain submits share the hole behind them.
    """
    reads = host_calls["api"].isin(read_backs["api"]).to_numpy()
    opens = opens_chain(host_calls)
    work = (host_calls["op"].to_numpy() >= 0) & ~reads
    group = np.cumsum(work | opens)
    call = late["call"].to_numpy(dtype=np.int64)
    held = np.zeros(len(host_calls) + 1, dtype=np.int64)
    np.add.at(held, group[call - 1], np.where(opens[call], 0, late["idle_ns"]))
    hole = np.zeros(len(host_calls) + 1, dtype=np.int64)
    mine = group[found["call"].to_numpy()]
    np.maximum.at(hole, mine, _hole_ns(found, gaps))
    return np.asarray(held[mine] > 0.5 * hole[mine])


def _hole_ns(found: pd.DataFrame, gaps: pd.DataFrame) -> Ints:
    """The length of the gap behind each wait, 0 where there is none."""
    gap = found["gap"].to_numpy()
    length = np.zeros(len(found), dtype=np.int64)
    holes = gaps.iloc[gap[gap >= 0]]
    length[gap >= 0] = holes["end_ns"] - holes["start_ns"]
    return length


def _profiled(found: pd.DataFrame, gaps: pd.DataFrame, profiled: pd.DataFrame) -> np.ndarray:
    """Waits behind which the profiler makes most of the hole."""
    paused = (profiled["end_ns"] - profiled["start_ns"]).groupby(profiled["gap"]).sum()
    gap = found["gap"].to_numpy()
    held = paused.reindex(gap).fillna(0).to_numpy()
    return np.asarray((gap >= 0) & (held > 0.5 * _hole_ns(found, gaps)))


def _devices(host_calls: pd.DataFrame, ops: pd.DataFrame, near: np.ndarray) -> Ints:
    """The device of what each call or the chain's last call before it submitted, -1 none."""
    op, opens = host_calls["op"].to_numpy(), opens_chain(host_calls)
    op = np.where((op >= 0) & near[np.maximum(op, 0)], op, -1)
    at = np.maximum.accumulate(np.where((op >= 0) | opens, np.arange(len(op)), 0))
    last = op[at]
    device = ops["device"].to_numpy()[np.maximum(last, 0)]
    return np.asarray(np.where(last >= 0, device, -1), dtype=np.int64)


def _gap_behind(found: pd.DataFrame, gaps: pd.DataFrame) -> Ints:
    """The gap in which each wait returned, if the device ran dry during the wait or right
    after it; of several waits in one gap the first."""
    gap = np.full(len(found), -1, dtype=np.int64)
    for device, rows in found.groupby("device", sort=True).indices.items():
        mine = np.flatnonzero(gaps["device"].to_numpy() == device)
        opens, closes = (gaps[c].to_numpy()[mine] for c in ("start_ns", "end_ns"))
        start, end = (found[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
        index = np.searchsorted(opens, end + _NEAR_NS, side="right") - 1
        if not len(mine):
            continue
        hit = (index >= 0) & (closes[np.maximum(index, 0)] > end)
        hit &= opens[np.maximum(index, 0)] >= start - _NEAR_NS
        gap[rows[hit]] = mine[index[hit]]
    later = pd.Series(gap).duplicated().to_numpy() & (gap >= 0)
    gap[later] = -1
    return gap


def _behind_copies(
    gap: Ints, gaps: pd.DataFrame, host_calls: pd.DataFrame, ops: pd.DataFrame
) -> Ints:
    """The gaps, or where a copy that the host waits for as well ends one the gap behind it, if
    that is longer: such a copy hides the hole that the wait makes."""
    blocking = host_calls["blocks"].to_numpy() & (host_calls["op"].to_numpy() >= 0)
    waited = np.zeros(len(ops), dtype=bool)
    waited[host_calls["op"].to_numpy()[blocking]] = True
    waited &= ops["kind"].to_numpy() == COPY
    device, start, end, op = (gaps[c].to_numpy() for c in ("device", "start_ns", "end_ns", "op"))
    following = np.minimum(gap + 1, len(gaps) - 1)
    moves = (gap >= 0) & (following > gap)
    moves &= (op[gap] >= 0) & waited[np.maximum(op[gap], 0)] & (device[following] == device[gap])
    done = ops["end_ns"].to_numpy()[np.maximum(op[gap], 0)]
    moves &= start[following] <= done + _NEAR_NS
    moves &= (end - start)[following] > (end - start)[gap]
    moves &= ~np.isin(following, gap[gap >= 0])
    return np.asarray(np.where(moves, following, gap), dtype=np.int64)


@table
def sync_in_loop(
    drains: pd.DataFrame,
    host_calls: pd.DataFrame,
    read_backs: pd.DataFrame,
    gaps: pd.DataFrame,
    ops: pd.DataFrame,
    ops_near: np.ndarray,
    names: pd.DataFrame,
    steps: pd.DataFrame,
    window: pd.DataFrame,
    ecosystem: str,
    range_places: RangePlaces | None = None,
    copies: pd.DataFrame | None = None,
    *,
    min_count: int,
    min_ratio: float,
) -> pd.DataFrame:
    """Returns a row per thread and device whose waits leave the device idle: subject, device,
    count, drained_count (waits with a hole behind), hole_ns, waited_ns, per_step_count, what,
    pattern, place, variant."""
    steady = max(int((steps["phase"] == "steady").sum()), 1)
    shaped = _shape_waits(drains, host_calls, ops, ops_near, names)
    behind = _last_copies(drains, host_calls, copies)
    rows = []
    for (thread, device), mine in drains.groupby(["thread", "device"], sort=True):
        holes = gaps.iloc[mine.loc[mine["gap"] >= 0, "gap"]]
        hole_ns = int((holes["end_ns"] - holes["start_ns"]).sum())
        if len(mine) < min_count or hole_ns < max(min_ratio * window_span_ns(window), 1):
            continue
        reads = host_calls["api"].iloc[_behind_reads(mine, host_calls)].isin(read_backs["api"])
        rows.append(
            {
                "subject": f"{thread} on GPU {device}",
                "device": device,
                "thread": thread,
                "count": len(mine),
                "drained_count": len(holes),
                "per_step_count": len(mine) / steady,
                "hole_ns": hole_ns,
                "waited_ns": int((mine["end_ns"] - mine["start_ns"]).sum()),
                "what": _what(mine, int(reads.sum())),
                "variant": _variant(behind.loc[mine.index], ecosystem),
                "pattern": _pattern(shaped[mine.index.to_numpy()]),
                "place": _place(mine, range_places),
            }
        )
    return pd.DataFrame(rows)


def _behind_reads(mine: pd.DataFrame, host_calls: pd.DataFrame) -> Ints:
    """The calls themselves and for synchronisations the ones before."""
    call = mine["call"].to_numpy()
    follows = mine["sync"].to_numpy() & ~opens_chain(host_calls)[call]
    return np.asarray(np.where(follows, call - 1, call))


def _last_copies(
    drains: pd.DataFrame, host_calls: pd.DataFrame, copies: pd.DataFrame | None
) -> pd.DataFrame:
    """What each wait's chain submitted last before it, where that is a copy over the bus:
    direction ("" none), bytes; rows as in `drains`."""
    op = host_calls["op"].to_numpy()
    at = np.maximum.accumulate(np.where((op >= 0) | opens_chain(host_calls), np.arange(len(op)), 0))
    last = op[at[drains["call"].to_numpy()]]
    told = copies if copies is not None else pd.DataFrame({"op": [], "direction": [], "bytes": []})
    one = told.drop_duplicates("op").set_index("op")[["direction", "bytes"]].reindex(last)
    known = one.assign(direction=one["direction"].astype(object).fillna(""))
    return known.fillna({"bytes": -1}).set_index(drains.index)


_PREDICATE_BYTES = 1


def _variant(behind: pd.DataFrame, ecosystem: str) -> str:
    """Which cure fits: for a compiled loop, for waits behind uploads, or for values read."""
    fetched = behind["direction"] == "DtoH"
    predicate = fetched & (behind["bytes"] == _PREDICATE_BYTES)
    if ecosystem == "jax" and predicate.mean() > _MOSTLY:
        return "xla_loop"
    return "upload" if (behind["direction"] == "HtoD").mean() > _MOSTLY else ""


_MOSTLY = 0.5


def _what(mine: pd.DataFrame, reads: int) -> str:
    if reads == 0:
        return "synchronisations"
    return "read-backs" if reads > 0.8 * len(mine) else "read-backs and synchronisations"


def _pattern(shaped: np.ndarray) -> str:
    if not len(shaped) or shaped.mean() <= 0.5:
        return ""
    return "; kernels that count or select come before, a data-dependent shape is likely"


def _shape_waits(
    drains: pd.DataFrame,
    host_calls: pd.DataFrame,
    ops: pd.DataFrame,
    near: np.ndarray,
    names: pd.DataFrame,
) -> np.ndarray:
    """Which waits come behind a kernel that counts or selects elements."""
    selects = np.array([bool(_SELECTS.search(n)) for n in names["full"]], dtype=bool)
    op, chain = host_calls["op"].to_numpy(), host_calls["chain"].to_numpy()
    kernel = (op >= 0) & ((ops["kind"].to_numpy() == KERNEL) & near)[np.maximum(op, 0)]
    rows = np.flatnonzero(kernel)
    place = np.searchsorted(rows, drains["call"].to_numpy()) - 1
    found = np.zeros(len(drains), dtype=bool)
    for back in range(_SELECT_KERNELS):
        index = place - back
        row = rows[np.maximum(index, 0)] if len(rows) else np.zeros(len(drains), dtype=np.int64)
        same = (index >= 0) & (chain[row] == chain[drains["call"].to_numpy()])
        found |= same & selects[ops["name"].to_numpy()[np.maximum(op[row], 0)]]
    return found


def _place(mine: pd.DataFrame, range_places: RangePlaces | None) -> str:
    """The range in which most of the waits begin, as words."""
    if range_places is None:
        return ""
    place = range_places.most(mine["code"].to_numpy(), mine["start_ns"].to_numpy())
    return f", mostly in {place}" if place else ""


def cure(
    sync_in_loop: pd.DataFrame, drains: pd.DataFrame, api: pd.DataFrame, launches: pd.DataFrame
) -> list[pd.DataFrame]:
    """The synchronisations are gone; the read-backs are only queued."""
    parts = []
    for row, (thread, device) in _keys(sync_in_loop):
        mine = drains[(drains["thread"] == thread) & (drains["device"] == device)]
        call, sync = mine["api"].to_numpy(), mine["sync"].to_numpy()
        parts.append(edits(Change.UNBLOCK, row, call[sync]))
        parts.append(
            shorten_calls(row, call[~sync], _READ_NS, api, launches, blocking=True)
        )
    return join(*parts)


def _keys(rows: pd.DataFrame) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(rows["thread"], rows["device"], strict=True)))


def evidence(
    sync_in_loop: pd.DataFrame, drains: pd.DataFrame, gaps: pd.DataFrame
) -> pd.DataFrame:
    """Returns the holes behind the waits, longest first where there are many: row, start_ns,
    end_ns, what."""
    row = {key: row for row, key in _keys(sync_in_loop)}
    mine = drains[drains["gap"] >= 0]
    keys = list(zip(mine["thread"], mine["device"], strict=True))
    mine = mine[[key in row for key in keys]]
    holes = gaps.iloc[mine["gap"].to_numpy()]
    return pd.DataFrame(
        {
            "row": [row[key] for key in keys if key in row],
            "start_ns": np.minimum(holes["start_ns"].to_numpy(), mine["end_ns"].to_numpy()),
            "end_ns": holes["end_ns"].to_numpy(),
            "what": "the device is drained",
        }
    )
