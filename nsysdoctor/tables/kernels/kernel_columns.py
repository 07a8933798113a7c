"""Kernels as narrow arrays; what launches of one configuration share is stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.roofline.bound import BASES
from nsysdoctor.roofline.geometry_work import limit_bytes

Column = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_OF_OPS = ("start_ns", "end_ns", "lane", "node")
_BLOCK = 1 << 18


class Kernels:
    """Kernels in the order of `ops`.

    `kernels["bytes"]` is a column, an array with a value per kernel. `at` gives the kernels of some
    rows, `frame` some columns as a DataFrame. `configurations` has a row per distinct launch
    configuration; names, sizes and categories are computed there, and `spread` copies a value per
    configuration to its kernels. Its columns are also available from `kernels` directly.

    Columns of kernels: op, configuration (row of `configurations`), lane, start_ns, end_ns,
    duration_ns, node, bytes, bytes_low, bytes_high, written_bytes, flops (floats, NaN where
    unknown), traffic_basis and basis (places in BASES), bound (place in BOUNDS), api (the launching
    call, -1 without), thread (-1 without), called_ns (start_ns without a call), alone (bool: its
    call launches nothing else), outside_ns (the thread's time outside CUDA before the call),
    call_ns (the call's own).
    """

    def __init__(
        self,
        configurations: pd.DataFrame,
        each: Mapping[str, Column],
        ops: pd.DataFrame,
        api: pd.DataFrame | None = None,
        rows: Column | None = None,
    ) -> None:
        """`each` has the stored columns with a value for every kernel; `rows` selects the kernels
        of this object, all by default."""
        self.configurations = configurations
        self._each, self._rows = dict(each), rows
        self._ops, self._api = ops, api

    def __len__(self) -> int:
        return len(self._each["op"] if self._rows is None else self._rows)

    def __getitem__(self, name: str) -> Column:
        if name in self._each:
            values = self._each[name]
            return values if self._rows is None else values[self._rows]
        if name in _OF_OPS:
            return np.asarray(self._ops[name].to_numpy()[self["op"]])
        if name in _MADE:
            return _MADE[name](self)
        return self.spread(self.configurations[name])

    def at(self, rows: Column | slice) -> Kernels:
        """Returns the kernels of some rows, given as numbers, flags or a slice."""
        if self._rows is not None:
            rows = self._rows[rows]
        elif isinstance(rows, slice):
            each = {name: values[rows] for name, values in self._each.items()}
            return Kernels(self.configurations, each, self._ops, self._api)
        elif rows.dtype == bool:
            rows = np.flatnonzero(rows)
        return Kernels(self.configurations, self._each, self._ops, self._api, rows)

    def frame(self, *columns: str) -> pd.DataFrame:
        """Returns some columns as a DataFrame."""
        return pd.DataFrame({name: self[name] for name in columns})

    def spread(self, values: pd.Series[Any] | Column) -> Column:
        """Returns for each kernel the value of its configuration."""
        return np.asarray(np.asarray(values)[self["configuration"]])

    def blocks(self) -> Iterator[tuple[slice, Kernels]]:
        """Yields the kernels in blocks, each with its place, so that arithmetic on all of them
        needs little memory."""
        for first in range(0, len(self), _BLOCK):
            rows = slice(first, first + _BLOCK)
            yield rows, self.at(rows)

    def with_columns(self, **columns: Column) -> Kernels:
        """Returns the same kernels with columns added or replaced."""
        each = {name: self[name] for name in self._each}
        return Kernels(self.configurations, each | columns, self._ops, self._api)

    def _duration(self) -> Column:
        return np.asarray(self["end_ns"] - self["start_ns"], dtype=np.int64)

    def _of_call(self, name: str, otherwise: Column) -> Column:
        """A column of the launching calls, and `otherwise` for kernels without one."""
        call = self["api"]
        if self._api is None or not len(self._api):
            return otherwise
        values = self._api[name].to_numpy()[np.maximum(call, 0)]
        return np.where(call >= 0, values, otherwise)

    def _call_ns(self) -> Column:
        start = self["start_ns"]
        return self._of_call("end_ns", start) - self._of_call("start_ns", start)

    def _outside(self) -> Column:
        if self._api is None or not len(self._api):
            return np.zeros(len(self), dtype=np.int64)
        return np.where(self["api"] >= 0, _time_before(self._api, np.maximum(self["api"], 0)), 0)

    def _limited(self, name: str) -> Column:
        """A bound of the bytes: by geometry, at most what memory delivers; the bytes themselves
        where measured."""
        by_geometry = self.spread(self.configurations[f"launch_{name}"])
        limit = limit_bytes(self["duration_ns"], self["peak_bytes_per_s"])
        measured = self["traffic_basis"] == BASES.index("measured")
        return np.where(measured, self["bytes"], np.minimum(by_geometry, limit))

    def _written(self) -> Column:
        moved, most = self["bytes"], self["written_most_bytes"]
        share = moved * self["written_ratio"]
        return np.where(np.isnan(most), share, np.minimum(most, moved))


_MADE: dict[str, Callable[[Kernels], Column]] = {
    "duration_ns": Kernels._duration,
    "called_ns": lambda kernels: kernels._of_call("start_ns", kernels["start_ns"]),
    "thread": lambda kernels: kernels._of_call("thread", np.full(len(kernels), -1)),
    "call_ns": Kernels._call_ns,
    "outside_ns": Kernels._outside,
    "bytes_low": lambda kernels: kernels._limited("bytes_low"),
    "bytes_high": lambda kernels: kernels._limited("bytes_high"),
    "written_bytes": Kernels._written,
    "flops": lambda kernels: np.full(len(kernels), np.nan),
}


def _time_before(api: pd.DataFrame, calls: Ints) -> Ints:
    """For outermost calls the time since the previous outermost call of the thread, else 0."""
    top = np.flatnonzero(api["top"].to_numpy())
    place = np.searchsorted(top, calls)
    before = top[np.maximum(place - 1, 0)]
    thread, start, end = (api[name].to_numpy() for name in ("thread", "start_ns", "end_ns"))
    outermost = api["top"].to_numpy()[calls] & (place > 0) & (thread[before] == thread[calls])
    return np.where(outermost, np.maximum(start[calls] - end[before], 0), 0)
