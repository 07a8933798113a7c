"""Which rows of an export the results for a window can depend on, as conditions on its tables.

For a window [low, high) these are:

- operations and calls that overlap the window or a margin around it: the first operations may have
  waited for what ran just before, and chains of kernels may cross the edges;
- the calls that launched those operations, and the operations that those calls launched.
  Correlation ids rise with the order of calls in a process, so one range of ids holds all of them;
  calls that began before this range are listed by id;
- operations that were launched earlier and start later: they wait in the queue meanwhile;
- the last call of each thread before the margin, since the thread's own code runs from there on;
  and the nearest calls around it that begin or end the capture of a stream;
- the next operation of each device, for which a device that is idle at the window's end waits; and
  the last operation to end before, for a device that is idle at the window's start;
- the operation that follows, on the same stream, one that crosses the edges: it shows whether the
  recorded end of the earlier one is possible;
- what else the host did (ranges, OS calls, pauses, samples, scheduling) from the first to the last
  of those calls.

Rows with impossible times meet every condition, so that they are counted as in a full read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pandas as pd

from nsysdoctor.ingest.export_codes import FAR_NS, PROCESS_MASK
from nsysdoctor.ingest.host_sources import HOST_SPANS
from nsysdoctor.ingest.source import Source

LONGEST_NS = 100 * 86_400 * 10**9
"""No capture lasts a hundred days."""

LARGE_BYTES = 1 << 20
"""Copies of this size show the rate of the link."""

OPERATIONS = ("kernel", "memcpy", "memset", "graph")
_ON_DEVICE = (*OPERATIONS, "api")
_ON_HOST = ("nvtx", "osrt", "overhead", "cuda_overhead", "sync", *HOST_SPANS)
_LINKED = (*OPERATIONS, "api", "sync", "event")

_SHARE, _LEAST_NS, _MOST_NS = 10, 20_000_000, 1_000_000_000
"""The time around a window that counts as well: a tenth of it, within these bounds."""

_DOMAIN, _MARK = 75, 34
"""Rows of NVTX_EVENTS that name a domain, whenever it was made, and instants, which have no end."""

_DETAILS = frozenset(
    {
        *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers"),
        *("static_shared_bytes", "dynamic_shared_bytes", "local_bytes_per_thread"),
        *("bytes", "src_ordinal", "dst_ordinal", "migration_cause", "return_value"),
    }
)

_OUTLINED = frozenset(
    {*OPERATIONS, "api", "nvtx", "gpu", "old_gpu", "cuda_device", "context", "stream"}
)


def widened(low_ns: int, high_ns: int) -> tuple[int, int]:
    """Returns a window with the margin around it in which its events may have their causes."""
    around = min(max((high_ns - low_ns) // _SHARE, _LEAST_NS), _MOST_NS)
    return low_ns - around, high_ns + around


class Capture(NamedTuple):
    """Facts about the whole capture that are known although only a window of it is read.

    `first_ns` and `last_ns` bound its operations (0 without any). `places` has a row per process
    and CUDA ordinal that ran operations: global_pid, ordinal. `kernels` has a row per process and
    kernel that ran: global_pid, full_id, early (1 if it ran before everything that is read).
    `copies` has a row per copy of LARGE_BYTES or more between pinned memory and a device:
    global_pid, ordinal, copy_kind, bytes, start_ns, end_ns.
    """

    first_ns: int
    last_ns: int
    places: pd.DataFrame
    kernels: pd.DataFrame
    copies: pd.DataFrame


class Stretch(NamedTuple):
    """The calls of a process from one correlation id to another."""

    process: int
    first: int
    last: int


@dataclass(frozen=True)
class Cut:
    """Which rows of an export to read; times in ns, processes as globalPid.

    `lone` has, per process, ids of single calls outside the stretches. `further` lists single
    operations by values of their columns. `by_process` is False when the export does not say which
    process a row belongs to. `clean` names the sources that are known to hold no impossible times.
    """

    low_ns: int
    high_ns: int
    host_low_ns: int
    host_high_ns: int
    stretches: tuple[Stretch, ...] = ()
    lone: Mapping[int, frozenset[int]] = field(default_factory=dict)
    further: tuple[Mapping[str, int], ...] = ()
    by_process: bool = True
    clean: frozenset[str] = frozenset()

    def condition(self, source: Source, present: Sequence[str]) -> str:
        """Returns the SQL condition on the rows of a source whose table has these columns."""
        kept = []
        if source.name in _ON_DEVICE:
            kept.append(self._near(source, present, self.low_ns, self.high_ns))
        if source.name in _ON_HOST:
            kept.append(self._near(source, present, self.host_low_ns, self.host_high_ns))
        if source.name in ("sample", "sched", "sample_frame"):
            kept.append(self._instants(source, present))
        if source.name in _LINKED:
            kept += self._linked(source, present) or ["0"]
        if source.name in OPERATIONS:
            kept += [equal(source, present, one) for one in self.further]
        return " OR ".join(kept) or "1"

    def lone_of(self, process: int) -> frozenset[int]:
        """Returns the single ids of a process."""
        return self.lone.get(process, frozenset())

    def calls(self, source: Source, present: Sequence[str]) -> str:
        """Returns the condition on rows whose id lies in one of the stretches or is one of the
        single ids."""
        return " OR ".join(self._linked(source, present)) or "0"

    def _near(self, source: Source, present: Sequence[str], low_ns: int, high_ns: int) -> str:
        """Rows that overlap a stretch of time, or have impossible times."""
        start, end = _times(source, present)
        if source.name in self.clean:
            return f"({end} > {low_ns} AND {start} < {high_ns})"
        apart = f"({end} <= {low_ns} OR {start} >= {high_ns})"
        if source.name == "nvtx":
            kind = quoted_column(source, "event_type", present)
            early = f"{kind} = {_MARK} AND {start} < {low_ns}"
            apart = f"({apart} OR {early}) AND {kind} != {_DOMAIN}"
        return f"({apart} AND {possible_times(source, present)}) IS NOT TRUE"

    def _instants(self, source: Source, present: Sequence[str]) -> str:
        """Samples taken while the selected calls ran, with their stack frames, and the scheduler
        events of each thread: those in that time, the last before and the first after it."""
        low, high = self.host_low_ns, self.host_high_ns
        inside = f"start >= {low} AND start < {high}"
        if source.name == "sample_frame":
            return f"id IN (SELECT id FROM COMPOSITE_EVENTS WHERE {inside})"
        if source.name == "sample" or quoted_column(source, "global_tid", present) is None:
            return inside
        table = source.tables[0]
        nearest = " OR ".join(
            f"(globalTid, start) IN (SELECT globalTid, {end}(start) FROM {table} "
            f"WHERE {where} GROUP BY globalTid)"
            for end, where in (("max", f"start < {low}"), ("min", f"start >= {high}"))
        )
        return f"{inside} OR {nearest}"

    def _linked(self, source: Source, present: Sequence[str]) -> list[str]:
        id_of = quoted_column(source, "correlation", present)
        if id_of is None:
            return []
        stretches = [
            f"({id_of} BETWEEN {first} AND {last}{self._of(source, present, process)})"
            for process, first, last in self.stretches
        ]
        lone = [
            f"({id_of} IN ({', '.join(map(str, sorted(ids)))}){self._of(source, present, process)})"
            for process, ids in sorted(self.lone.items())
        ]
        return stretches + lone

    def _of(self, source: Source, present: Sequence[str], process: int) -> str:
        return f" AND {process_of(source, present)} = {process}" if self.by_process else ""


class View(NamedTuple):
    """The part of an export that is read, and what is known of the rest. Both are None when all of
    it is read."""

    cut: Cut | None
    capture: Capture | None


WHOLE = View(None, None)


def outlined(source: Source) -> Source | None:
    """Returns the source with only the columns that finding steps needs, None if it needs none of
    them."""
    if source.name not in _OUTLINED:
        return None
    kept = tuple(c for c in source.columns if c.name not in _DETAILS)
    return replace(source, columns=kept)


def quoted_column(source: Source, name: str, present: Sequence[str]) -> str | None:
    """Returns the quoted name that the export gives to one of our columns, None where it lacks
    it."""
    column = next((c for c in source.columns if c.name == name), None)
    found = next((s for s in column.spellings if s in present), None) if column else None
    return f'"{found}"' if found else None


def process_of(source: Source, present: Sequence[str]) -> str:
    """Returns SQL for the process of a row, 0 where the table does not hold it."""
    process = quoted_column(source, "global_pid", present)
    thread = quoted_column(source, "global_tid", present)
    if process is not None:
        return process
    return f"({thread} & {PROCESS_MASK})" if thread is not None else "0"


def equal(source: Source, present: Sequence[str], values: Mapping[str, int]) -> str:
    """Returns the condition that some of our columns have these values."""
    pairs = [(quoted_column(source, name, present), value) for name, value in values.items()]
    terms = [f"ifnull({name}, 0) = {value}" for name, value in pairs if name is not None]
    return "(" + " AND ".join(terms) + ")"


def _times(source: Source, present: Sequence[str]) -> tuple[str, str]:
    start, end = (quoted_column(source, name, present) for name in ("start_ns", "end_ns"))
    return start or "NULL", end or "NULL"


def possible_times(source: Source, present: Sequence[str]) -> str:
    """Returns the condition that a row's times are possible, by the same criteria as
    `Export.read`."""
    start, end = _times(source, present)
    if source.name == "nvtx":
        end = f"ifnull({end}, {start})"
    return (
        f"{start} BETWEEN {1 - FAR_NS} AND {end} AND {end} - {start} <= {LONGEST_NS} "
        f"AND {end} < {FAR_NS} AND ({start} != 0 OR {end} != 0) "
        f"AND typeof({start} + {end}) = 'integer'"
    )
