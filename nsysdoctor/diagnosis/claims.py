"""Which lost time a cure addresses: told by what its edits touch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, covered, runs, union
from nsysdoctor.arrays.order import Codes
from nsysdoctor.replay.edits import Change, Cure, frames_of
from nsysdoctor.tables.host.thread_states import CAUSE, CAUSES

_CALLS = (Change.CALL_NS, Change.UNBLOCK)
_OPS = (Change.OP_NS, Change.FREE_OP, Change.RELEASE, Change.FREE_ENGINE)
_WAITS = (
    Change.FREE_OP, Change.LAUNCH_NS, Change.STREAM_NS, Change.FREE_ENGINE, Change.UNSEEN,
)  # fmt: skip

_LAUNCH = CAUSES[CAUSE["launch"]]


class Addressed:
    """Tells which pieces of the ledger a cure addresses.

    An edit of a call addresses the idle time in which a host stood in that call, and what the
    call's operation leaves exposed; one that unblocks a call also what the host did afterwards in
    the same gap, which it could have done before. An edit of the time before a call addresses the
    idle time in which its thread was on the way to it. An edit of an operation addresses its own
    exposed time; one of what an operation waits for the idle time that ends with it and is no
    thread's doing. A released operation addresses the idle time that was spent waiting for it.
    """

    def __init__(self, pieces: pd.DataFrame, api: pd.DataFrame | None, ops: int) -> None:
        """`pieces` are those of `lost_time`, `ops` counts the operations."""
        self._api, self._call, self._op, self._next_op, self._host = (
            pieces[name].to_numpy() for name in ("api", "call", "op", "next_op", "on_host")
        )
        self._start, self._end = pieces["start_ns"].to_numpy(), pieces["end_ns"].to_numpy()
        self._device = pieces["device"].to_numpy()
        self._idle = (pieces["bucket"] == "idle").to_numpy()
        self._launch = self._idle & (pieces["cause"] == _LAUNCH).to_numpy()
        self._calls, self._ops = len(api) if api is not None else 0, ops
        self._gap = self._gaps()
        self._toward = self._next_calls(pieces["thread_code"].to_numpy(), api)

    def none(self) -> np.ndarray:
        """Returns that no piece is addressed."""
        return np.zeros(len(self._start), dtype=bool)

    def by(self, cure: Cure) -> np.ndarray:
        """Returns which pieces the edits of a cure address."""
        found = self.none()
        for frame in frames_of(cure):
            change = frame["change"].to_numpy()
            for code in np.unique(change).tolist():
                rows = frame["row"].to_numpy()[change == code]
                found |= self._by(Change(code), rows)
        return found

    def within(self, places: pd.DataFrame) -> np.ndarray:
        """Returns which pieces lie for more than half in stretches of time (start_ns, end_ns and,
        where they are of one device only, device)."""
        found = self.none()
        device = places["device"].to_numpy() if "device" in places else np.full(len(places), -1)
        length = self._end - self._start
        for code in np.unique(device).tolist():
            mine = places[device == code]
            merged = union(Spans(*(mine[c].to_numpy(np.int64) for c in ("start_ns", "end_ns"))))
            inside = 2 * covered(Spans(self._start, self._end), merged) > length
            found |= inside & ((self._device == code) if code >= 0 else True)
        return found

    def _by(self, change: Change, rows: np.ndarray) -> np.ndarray:
        found = self.none()
        if change in _CALLS:
            found = self._of_calls(rows, unblocks=change == Change.UNBLOCK)
        if change == Change.OUTSIDE_NS:
            found = self._idle & self._host & self._among(self._toward, rows, self._calls)
        if change in _OPS:
            found |= ~self._idle & self._among(self._op, rows, self._ops)
        if change == Change.RELEASE:
            found |= self._idle & self._among(self._op, rows, self._ops)
        if change in _WAITS:
            waited = self._launch if change == Change.LAUNCH_NS else ~self._host
            found |= self._idle & waited & self._among(self._next_op, rows, self._ops)
        return found

    def _of_calls(self, rows: np.ndarray, *, unblocks: bool) -> np.ndarray:
        inside = self._idle & self._host & self._among(self._api, rows, self._calls)
        exposed = ~self._idle & self._among(self._call, rows, self._calls)
        if not unblocks or not inside.any():
            return np.asarray(inside | exposed)
        gaps, first = np.unique(self._gap[inside], return_index=True)
        begun = np.full(int(self._gap.max()) + 1, len(inside))
        begun[gaps] = np.flatnonzero(inside)[first]
        later = self._idle & self._host & (np.arange(len(inside)) >= begun[self._gap])
        return np.asarray(later | exposed)

    @staticmethod
    def _among(code: Codes, rows: np.ndarray, size: int) -> np.ndarray:
        """Which codes are among some rows; -1 never is."""
        asked = np.zeros(size + 1, dtype=bool)
        asked[rows] = True
        asked[-1] = False
        return np.asarray(asked[code])

    def _gaps(self) -> Ints:
        """A number per stretch of idle time; pieces come by device and start."""
        opens = np.ones(len(self._start), dtype=bool)
        follows = self._idle[1:] & self._idle[:-1] & (self._device[1:] == self._device[:-1])
        opens[1:] = ~follows | (self._start[1:] != self._end[:-1])
        return np.cumsum(opens)

    def _next_calls(self, thread: Codes, api: pd.DataFrame | None) -> Codes:
        """The call that each piece of a thread's time outside calls leads to, -1 for others."""
        toward = np.full(len(thread), -1, dtype=np.int32)
        if api is None:
            return toward
        outside = self._host & (self._api < 0)
        top, whose = api["top"].to_numpy(), api["thread"].to_numpy()
        for code, rows in runs(whose):
            mine = np.flatnonzero(outside & (thread == code))
            calls = np.flatnonzero(top[rows]) + rows.start
            place = np.searchsorted(api["start_ns"].to_numpy()[calls], self._end[mine])
            some = place < len(calls)
            toward[mine[some]] = calls[place[some]]
        return toward
