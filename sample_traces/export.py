"""A recording as the SQLite file that an nsys export of it would be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sqlite_utils

from sample_traces import rows, target
from sample_traces.enums import ENUMS
from sample_traces.layouts import LAYOUTS, Column, Layout
from sample_traces.recording import Recording


class Strings:
    """The string table: a number per distinct text, from 0 in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def rows(self) -> list[rows.Row]:
        """Rows of StringIds."""
        return [{"id": number, "value": text} for text, number in self._numbers.items()]


def write(recording: Recording, path: str | Path, *, layout: str = "2025") -> None:
    """Write a recording as an export; an existing file is replaced.

    The layout is one of ``2020``, ``2022``, ``2024`` and ``2025``; a table exists only when it has
    rows. The same recording gives the same bytes.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"no layout {layout!r}; there are {', '.join(LAYOUTS)}")
    Path(path).unlink(missing_ok=True)
    chosen = LAYOUTS[layout]
    database = sqlite_utils.Database(str(path))
    try:
        # A crash would leave a broken file, which the next write replaces; no need to wait.
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = MEMORY")
        for name, content in _tables(recording, chosen):
            _write_table(database, name, chosen.tables[name], content)
    finally:
        database.close()


def _tables(recording: Recording, layout: Layout) -> list[tuple[str, list[rows.Row]]]:
    """The tables that the layout has and the recording fills, strings first."""
    strings = Strings()
    ops = rows.ops_for(recording, layout)
    contents: dict[str, Iterable[rows.Row]] = {
        **_about(recording, layout, strings),
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": rows.event_rows(recording),
        "DIAGNOSTIC_EVENT": target.diagnostic_rows(recording),
        "PROFILER_OVERHEAD": rows.overhead_rows(recording, strings),
        "CUPTI_ACTIVITY_KIND_RUNTIME": rows.call_rows(recording, strings),
        "NVTX_EVENTS": rows.range_rows(recording, strings),
        "CUPTI_ACTIVITY_KIND_MEMCPY": rows.copy_rows(ops),
        "CUPTI_ACTIVITY_KIND_KERNEL": rows.kernel_rows(ops, strings),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": rows.sync_rows(recording, layout),
        "CUPTI_ACTIVITY_KIND_MEMSET": rows.set_rows(ops),
        "CUDA_GRAPH_EVENTS": rows.graph_event_rows(recording, strings),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": rows.graph_rows(ops),
        "OSRT_API": rows.os_rows(recording, strings),
        **{name: _enum(name) for name in ENUMS},
    }
    filled = [(name, list(found)) for name, found in contents.items() if name in layout.tables]
    return [("StringIds", strings.rows()), *((name, found) for name, found in filled if found)]


def _about(recording: Recording, layout: Layout, strings: Strings) -> dict[str, Iterable[rows.Row]]:
    """The tables about the machine and the export."""
    versions = list(target.version_rows(layout)) if layout.schema else []
    return {
        "TARGET_INFO_SYSTEM_ENV": target.environment_rows(),
        "TARGET_INFO_SESSION_START_TIME": target.session_rows(),
        "ANALYSIS_DETAILS": target.analysis_rows(recording),
        "PROCESSES": target.process_rows(recording),
        "ThreadNames": target.thread_rows(recording, strings),
        "TARGET_INFO_GPU": target.gpu_rows(recording.cards, layout),
        "TARGET_INFO_CUDA_GPU": target.old_gpu_rows(recording),
        "TARGET_INFO_CUDA_DEVICE": target.device_rows(recording),
        "TARGET_INFO_CUDA_CONTEXT_INFO": target.context_rows(recording),
        "TARGET_INFO_CUDA_NULL_STREAM": target.context_rows(recording),
        "TARGET_INFO_CUDA_STREAM": target.stream_rows(recording),
        "META_DATA_CAPTURE": target.capture_rows(recording),
        "META_DATA_EXPORT": versions,
        "EXPORT_META_DATA": versions,
    }


def _enum(name: str) -> list[rows.Row]:
    return [{"id": number, "name": text, "label": label} for number, text, label in ENUMS[name]]


def _write_table(
    database: Any, name: str, columns: tuple[Column, ...], content: list[rows.Row]
) -> None:
    """Create a table with the layout's columns and fill it in one statement."""
    key = "id" if name == "StringIds" or name.startswith("ENUM_") else None
    database[name].create(
        {column.name: column.kind for column in columns},
        pk=key,
        not_null={column.name for column in columns if column.required},
    )
    names = [column.name for column in columns]
    marks = ", ".join("?" for _ in names)
    values = [tuple(row.get(column) for column in names) for row in content]
    with database.conn:
        database.conn.executemany(f'INSERT INTO "{name}" VALUES ({marks})', values)
