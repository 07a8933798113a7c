"""Copies and sets whose call waits for them, in every step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.tables.activity.gpu_rows import SET
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.tables.loop.loop_copies import pinned_ns, same_keys
from nsysdoctor.tables.steps.steps import in_window, tells_outside
from nsysdoctor.trace.recipe import table

ALIKE = ["device", "direction", "bytes"]
ONCE = -1
CALL_NS = 5_000
"""What a call costs that only queues a copy."""

KEYS = ["_where"]
_WORDS = {
    "HtoD": ("HtoD copy", "HtoD copies"),
    "DtoH": ("DtoH copy", "DtoH copies"),
    "set": ("memory set", "memory sets"),
}
_COLUMNS = [
    "op", "device", "direction", "bytes", "start_ns", "end_ns", "api", "called_ns", "returned_ns",
]  # fmt: skip


@table
def blocking(
    copies: pd.DataFrame,
    loop_copies: np.ndarray,
    staged_peers: np.ndarray,
    blocking_sets: pd.DataFrame,
    window: pd.DataFrame,
    *,
    scalar_bytes: int,
) -> pd.DataFrame:
    """Returns the copies between host and device, and the sets of the steps, whose synchronous
    call waits.

    Columns: op, device, direction (set for sets), bytes, start_ns, end_ns, api, called_ns,
    returned_ns, where (the device; ONCE for copies that no step repeats). Read-backs of a few
    bytes are left to the rule about synchronisation.
    """
    mine = copies["sync_call"].to_numpy() & ~staged_peers
    up = (copies["direction"] == "HtoD").to_numpy()
    down = (copies["direction"] == "DtoH").to_numpy()
    mine &= up | (down & (copies["bytes"] > scalar_bytes).to_numpy())
    where = copies["device"].where(loop_copies, ONCE)
    if not tells_outside(window):
        mine = mine & loop_copies
    taken = copies.assign(_where=where).loc[mine, [*_COLUMNS, "_where"]]
    repeated = taken[taken["_where"] != ONCE].drop_duplicates(ALIKE)
    taken = taken[(taken["_where"] != ONCE) | (same_keys(taken, repeated, ALIKE) < 0)]
    sets = blocking_sets.assign(_where=blocking_sets["device"])
    found = pd.concat([taken, sets], ignore_index=True)
    return found.sort_values(["op"], kind="stable", ignore_index=True)


@table
def blocking_sets(
    ops: pd.DataFrame,
    launches: pd.DataFrame,
    api: pd.DataFrame,
    waiting: Waiting,
    window: pd.DataFrame,
) -> pd.DataFrame:
    """Returns the memory sets of the steps whose synchronous call waits, as in `blocking`."""
    sets = np.flatnonzero(ops["kind"].to_numpy()[launches["op"].to_numpy()] == SET)
    op, call = launches["op"].to_numpy()[sets], launches["api"].to_numpy()[sets]
    mine = (api["verb"].to_numpy()[call] == Verb.SET) & waiting.blocks[call]
    mine &= in_window(api["start_ns"].to_numpy()[call], window)
    op, call = op[mine], call[mine]
    found = ops.iloc[op][["device", "bytes", "start_ns", "end_ns"]].reset_index(drop=True)
    return found.assign(
        op=op,
        direction="set",
        api=call,
        called_ns=api["start_ns"].to_numpy()[call],
        returned_ns=api["end_ns"].to_numpy()[call],
    )[_COLUMNS]


@table
def blocking_copy(blocking: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device, since the host stands in either direction in turn, and one (info)
    for all copies outside the steps.

    Columns: subject, device, where, place (words), count, what (words), bytes, htod_bytes,
    dtoh_bytes, rate_bytes_per_s, blocked_ns, level.
    """
    rows = []
    for where, mine in blocking.groupby("_where", sort=True):
        length = int((mine["end_ns"] - mine["start_ns"]).sum())
        size = mine.groupby("direction")["bytes"].sum()
        rows.append(
            {
                "subject": f"GPU {where}" if where != ONCE else "one-off copies",
                "device": where,
                "_where": where,
                "place": "in the loop" if where != ONCE else "outside the steady steps",
                "count": len(mine),
                "what": _what(mine["direction"].value_counts()),
                "bytes": int(mine["bytes"].sum()),
                "htod_bytes": int(size.get("HtoD", 0)),
                "dtoh_bytes": int(size.get("DtoH", 0)),
                "rate_bytes_per_s": int(mine["bytes"].sum()) * 1e9 / max(length, 1),
                "blocked_ns": int((mine["returned_ns"] - mine["called_ns"]).sum()),
                "level": "info" if where == ONCE else "",
            }
        )
    return pd.DataFrame(rows)


def _what(number: pd.Series) -> str:
    """The counts by direction in words."""
    return ", ".join(
        f"{number[direction]:,} {words[int(number[direction] > 1)]}"
        for direction, words in _WORDS.items()
        if direction in number
    )


def cure(
    blocking_copy: pd.DataFrame, blocking: pd.DataFrame, pinned_rates: pd.DataFrame
) -> list[pd.DataFrame]:
    """Asynchronous calls on pinned memory: they only queue; at best on a side stream, uploads one
    step ahead."""
    blocking = blocking[blocking["_where"] != ONCE]
    row = same_keys(blocking, blocking_copy, KEYS)
    call, op = blocking["api"].to_numpy(), blocking["op"].to_numpy()
    up = (blocking["direction"] == "HtoD").to_numpy()
    moved = (blocking["direction"] != "set").to_numpy()
    copied = blocking[moved]
    return join(
        edits(Change.UNBLOCK, row, call, CALL_NS),
        edits(Change.LAUNCH_NS, row, op, CALL_NS),
        edits(
            Change.OP_NS, row[moved], op[moved], pinned_ns(copied, pinned_rates),
            slow_ns=pinned_ns(copied, pinned_rates, "slow_bytes_per_s"),
            fast_ns=pinned_ns(copied, pinned_rates, "fast_bytes_per_s"),
        ),
        edits(Change.FREE_OP, row[up], op[up], only_fast=True),
        edits(Change.RELEASE, row[moved], op[moved], only_fast=True),
    )  # fmt: skip


def evidence(blocking_copy: pd.DataFrame, blocking: pd.DataFrame) -> pd.DataFrame:
    """Returns the calls that waited: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": same_keys(blocking, blocking_copy, KEYS),
            "start_ns": blocking["called_ns"].to_numpy(),
            "end_ns": blocking["returned_ns"].to_numpy(),
            "what": [f"{d} of {b:,} bytes" for d, b in
                     zip(blocking["direction"], blocking["bytes"], strict=True)],
        }
    )  # fmt: skip
