"""The tables of an export, filled while events are read."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]

_PLACE = "deviceId, contextId, streamId, correlationId"
_GRID = "gridX, gridY, gridZ, blockX, blockY, blockZ"
COLUMNS: Mapping[str, str] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"start, end, {_PLACE}, globalPid, demangledName, shortName, {_GRID}, registersPerThread,"
        " staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"start, end, {_PLACE}, globalPid, bytes, copyKind, srcKind, dstKind, graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"start, end, {_PLACE}, globalPid, bytes, graphNodeId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start, end, eventClass, globalTid, correlationId, nameId, returnValue"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"start, end, {_PLACE}, globalPid, eventId, eventSyncId"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": f"{_PLACE}, globalPid, eventId, eventSyncId",
    "NVTX_EVENTS": "start, end, eventType, textId, globalTid, domainId, text",
    "ThreadNames": "nameId, priority, globalTid",
    "PROCESSES": "globalPid, name",
    "TARGET_INFO_GPU": (
        "id, cuDevice, name, totalMemory, smCount, clockRate, memoryBandwidth, computeMajor,"
        " computeMinor"
    ),
    "TARGET_INFO_CUDA_STREAM": "streamId, processId, contextId, priority, flag",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "MPI_RANKS": "globalPid, rank",
    "DIAGNOSTIC_EVENT": "severity, text",
    "StringIds": "id, value",
    "META_DATA_EXPORT": "name, value",
}
"""Columns by table, named as exports name them; the rows' order is this one."""

_BATCH = 20_000
_MACHINE = 1 << 48
_TID_BITS = 24


class Tables:
    """An export in the making: rows go in by table, names become ids, threads get global ids."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("BEGIN")
        self._waiting: dict[str, list[Row]] = defaultdict(list)
        self._made: set[str] = set()
        self._strings: dict[str, int] = {}
        self._threads: dict[str, int] = {}
        self._events = 0
        self.pid = 0
        self._guessed = False
        self.origin_ns: int | None = None
        """What a time of 0 in the tables is on the clock of the events."""
        self.thread_names: dict[str, str] = {}

    @property
    def gpu_process(self) -> int:
        """Returns the global id of the process; a profiler's file is of one process."""
        self._guessed |= not self.pid
        return _MACHINE | self.pid << _TID_BITS

    def time(self, microseconds: Any) -> int:
        """Returns a time of an event, µs, as ns since the tables' origin: a minute before the
        first event."""
        ns = int(Decimal(str(microseconds)) * 1000)
        if self.origin_ns is None:
            self.origin_ns = ns - 60 * 10**9
        return ns - self.origin_ns

    def string(self, text: str) -> int:
        """Returns the id of a text."""
        return self._strings.setdefault(text, len(self._strings))

    def thread(self, event: Mapping[str, Any]) -> int:
        """Returns the global id of an event's thread; thread ids that are addresses get numbers."""
        if not self.pid and isinstance(event.get("pid"), int) and event["pid"] > 0:
            self.pid = int(event["pid"]) % (1 << _TID_BITS)
        tid = str(event.get("tid", 0))
        known = self._threads.get(tid)
        if known is None:
            small = tid.isdigit() and len(tid) < 9 and int(tid) < 1 << _TID_BITS
            known = int(tid) if small else (1 << _TID_BITS) - 1 - len(self._threads)
            self._threads[tid] = known
        return self.gpu_process | known

    def next_event(self) -> int:
        """Returns a number for one wait of a stream for an event."""
        self._events += 1
        return self._events

    def add(self, table: str, row: Row) -> None:
        """Adds a row to a table."""
        waiting = self._waiting[table]
        waiting.append(row)
        if len(waiting) >= _BATCH:
            self._write(table)

    def close(self) -> None:
        """Writes what waits, names included, and closes the file."""
        self._waiting["StringIds"] = [(code, text) for text, code in self._strings.items()]
        for table in list(self._waiting):
            self._write(table)
        if self._guessed and self.pid:
            self._name_process()
        self._db.execute("COMMIT")
        self._db.close()

    def threads(self) -> Mapping[str, int]:
        """Returns the number of each thread by its id in the events."""
        return self._threads

    def streams(self) -> list[tuple[int, int]]:
        """Returns the (context, stream) pairs of all operations."""
        found: set[tuple[int, int]] = set()
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            name = f"CUPTI_ACTIVITY_KIND_{table}"
            self._write(name)
            if name in self._made:
                found |= set(
                    self._db.execute(f"SELECT DISTINCT contextId, streamId FROM {name}").fetchall()
                )
        return sorted(found)

    def _name_process(self) -> None:
        """Gives what came before the first event of the host the process of that."""
        for table in self._made:
            if "globalPid" in COLUMNS[table]:
                self._db.execute(
                    f'UPDATE "{table}" SET globalPid = ? WHERE globalPid = ?',
                    (self.gpu_process, _MACHINE),
                )

    def _write(self, table: str) -> None:
        rows = self._waiting.pop(table, [])
        if not rows:
            return
        columns = COLUMNS[table]
        if table not in self._made:
            self._db.execute(f'CREATE TABLE "{table}" ({columns})')
            self._made.add(table)
        marks = ", ".join("?" * len(rows[0]))
        self._db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)
