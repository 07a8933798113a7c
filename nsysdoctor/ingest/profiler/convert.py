"""A profiler's trace as an export: read event by event, written into a folder of our own."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from nsysdoctor.errors import UnreadableTraceError
from nsysdoctor.ingest.export_codes import FAR_NS
from nsysdoctor.ingest.profiler.events import DOMAIN, PYTHON_DOMAIN, READERS, Span, whole
from nsysdoctor.ingest.profiler.stream import EventStream
from nsysdoctor.ingest.profiler.tables import Tables
from nsysdoctor.ingest.scratch import Scratch

RECORDER = "torch profiler"
_NULL_STREAM, _NULL, _NON_BLOCKING = 7, 3, 2
"""PyTorch computes on the legacy default stream, which profilers call 7; the streams of its pool
are made non-blocking."""
_THREAD_NAME = re.compile(r"^thread \S+ \((.*)\)$")


def profiler_export(path: Path) -> tuple[Path, Scratch]:
    """Returns a temporary export of a profiler's trace, and the folder to keep while it is read.

    A file that breaks off is read up to there, and a diagnostic row says so. Raises
    UnreadableTraceError for JSON without a single event of a profiler.
    """
    folder = Scratch()
    target = folder.path / "run.sqlite"
    tables, events = Tables(target), EventStream(path)
    lost = _read(events, tables)
    if tables.origin_ns is None:
        tables.close()
        raise _no_profile(path, events)
    _finish(events, tables, lost)
    tables.close()
    return target, folder


def _read(events: EventStream, tables: Tables) -> int:
    """Reads all events; returns how many have times that cannot be."""
    lost = 0
    for event in events:
        phase = event.get("ph")
        if phase == "M":
            _named(event, tables)
            continue
        reader = READERS.get(str(event.get("cat"))) if phase == "X" else None
        if reader is None:
            continue
        try:
            start = tables.time(event["ts"])
            length = int(Decimal(str(event.get("dur", 0))) * 1000)
            if max(abs(start), abs(length)) >= FAR_NS:
                raise OverflowError
        except (KeyError, InvalidOperation, ValueError, OverflowError):
            lost += 1
            continue
        args = event.get("args")
        span = Span(start, start + length)
        reader(event, args if isinstance(args, dict) else {}, span, tables)
    return lost


def _named(event: dict[str, Any], tables: Tables) -> None:
    """Keeps the name of a thread."""
    args = event.get("args")
    if event.get("name") == "thread_name" and isinstance(args, dict):
        text = str(args.get("name", ""))
        found = _THREAD_NAME.match(text)
        tables.thread_names[str(event.get("tid", 0))] = found.group(1) if found else text


def _finish(events: EventStream, tables: Tables, lost: int) -> None:
    """Writes what stands beside the events."""
    process = tables.gpu_process
    tables.add("PROCESSES", (process, "python"))
    for tid, number in tables.threads().items():
        name = tables.thread_names.get(tid)
        if name and not name.startswith(("stream", "thread ")):
            tables.add("ThreadNames", (tables.string(name), 0, process | number))
    python = (0, None, DOMAIN, None, process, PYTHON_DOMAIN, "Python")
    tables.add("NVTX_EVENTS", python)
    for context, stream in tables.streams():
        flag = _NULL if stream == _NULL_STREAM else _NON_BLOCKING
        row = (stream, process >> 24 & 0xFFFFFF, context, 0, flag)
        tables.add("TARGET_INFO_CUDA_STREAM", row)
    _devices(events.beside("deviceProperties"), tables)
    _identity(events, tables)
    tables.add("META_DATA_EXPORT", ("EXPORT_PRODUCT_VERSION", RECORDER))
    if events.broken_at is not None:
        text = f"the file breaks off after {events.broken_at:,} events; lost is all GPU work behind"
        tables.add("DIAGNOSTIC_EVENT", (2, text))
    if lost:
        text = f"{lost:,} events without time or length were dropped; GPU work may be among them"
        tables.add("DIAGNOSTIC_EVENT", (2, text))


def _devices(told: Any, tables: Tables) -> None:
    for card in told if isinstance(told, list) else ():
        if not isinstance(card, dict):
            continue
        number = whole(card.get("id"))
        row = (
            number, number, str(card.get("name") or ""), whole(card.get("totalGlobalMem")),
            whole(card.get("numSms")), 0, 0, whole(card.get("computeMajor")),
            whole(card.get("computeMinor")),
        )  # fmt: skip
        tables.add("TARGET_INFO_GPU", row)


def _identity(events: EventStream, tables: Tables) -> None:
    """The rank, and what the time of the tables is on the wall clock."""
    distributed = events.beside("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
        tables.add("MPI_RANKS", (tables.gpu_process, rank))
    base = whole(events.beside("baseTimeNanoseconds"))
    tables.add("TARGET_INFO_SESSION_START_TIME", (base + (tables.origin_ns or 0),))


def _no_profile(path: Path, events: EventStream) -> UnreadableTraceError:
    if events.broken_at is not None:
        return UnreadableTraceError(
            f"{path} is cut off or no JSON: nothing of a profiler's trace could be read",
            "write it again: prof.export_chrome_trace('trace.json')",
        )
    return UnreadableTraceError(
        f"{path} is JSON but no trace of torch's profiler",
        "give a trace written by prof.export_chrome_trace or tensorboard_trace_handler,"
        " or an export: nsys export --type sqlite run.nsys-rep",
    )
