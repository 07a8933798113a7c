"""A recording as torch's profiler would have written it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from sample_traces.recording import NOTHING, Op, Recording
from sample_traces.work import Copy, Direction, Kernel, Memory, Set

BASE_NS = 1_751_410_836_000_000_000
_DIRECTIONS = {Direction.HTOD: "HtoD", Direction.DTOH: "DtoH", Direction.DTOD: "DtoD"}
_MEMORY = {Memory.PAGEABLE: "Pageable", Memory.PINNED: "Pinned", Memory.DEVICE: "Device"}


def write_chrome(recording: Recording, path: Path, *, rank: int | None = None) -> None:
    """Writes the trace; packed where the path ends with .gz."""
    text = json.dumps(chrome(recording, rank)).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def chrome(recording: Recording, rank: int | None = None) -> dict[str, Any]:
    """What the file holds."""
    cards = [
        {"id": number, "name": card.name, "totalGlobalMem": card.memory_bytes,
         "computeMajor": card.compute[0], "computeMinor": card.compute[1],
         "numSms": card.sm_count}
        for number, card in enumerate(recording.cards)
    ]  # fmt: skip
    whole: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": cards}
    if rank is not None:
        whole["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 8}
    whole |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS}
    return whole | {"traceEvents": _events(recording), "traceName": "trace.json"}


def _events(recording: Recording) -> list[dict[str, Any]]:
    events = [_operation(op) for op in recording.ops]
    for call in recording.calls:
        kind = "cuda_driver" if call.event_class else "cuda_runtime"
        args = {"cbid": 211, "correlation": call.correlation}
        events.append(_span(kind, call.name, call.pid, call.tid, call.start_ns, call.end_ns, args))
    for mark in recording.ranges:
        if mark.domain == 0:
            events.append(
                _span("user_annotation", mark.text, mark.pid, mark.tid, mark.start_ns,
                      mark.end_ns, {})
            )  # fmt: skip
    records = {record.event_sync: record for record in recording.events}
    for sync in recording.syncs:
        args = {"device": sync.device, "context": sync.context, "correlation": sync.correlation,
                "stream": sync.stream}  # fmt: skip
        kind = "Stream Sync" if sync.stream != NOTHING else "Context Sync"
        if sync.event != NOTHING:
            record = records.get(sync.event_sync)
            kind = "Stream Wait Event" if sync.stream != NOTHING else "Event Sync"
            if record is not None:
                args |= {"wait_on_stream": record.stream,
                         "wait_on_cuda_event_record_corr_id": record.correlation}  # fmt: skip
        args["cuda_sync_kind"] = kind
        events.append(
            _span("cuda_sync", kind, sync.device, 7, sync.start_ns, sync.end_ns, args)
        )
    for thread in recording.threads:
        args = {"name": f"thread {thread.tid} ({thread.name})"}
        events.append({"ph": "M", "name": "thread_name", "pid": thread.pid, "tid": thread.tid,
                       "ts": 0, "args": args})  # fmt: skip
    return events


def _operation(op: Op) -> dict[str, Any]:
    work = op.work
    args: dict[str, Any] = {"device": op.gpu, "context": op.context, "stream": op.stream,
                            "correlation": op.correlation}  # fmt: skip
    if op.node:
        args["graph node id"] = op.node
    if isinstance(work, Kernel):
        args |= {"grid": list(work.grid), "block": list(work.block),
                 "registers per thread": work.registers, "shared memory": work.dynamic_shared}
        name, kind = work.name, "kernel"
    elif isinstance(work, Copy):
        source, target = (_MEMORY[side] for side in (work.source, work.target))
        name = f"Memcpy {_DIRECTIONS[work.direction]} ({source} -> {target})"
        args["bytes"], kind = work.bytes, "gpu_memcpy"
    else:
        assert isinstance(work, Set)
        name, kind = "Memset (Device)", "gpu_memset"
        args["bytes"] = work.bytes
    return _span(kind, name, op.gpu, op.stream, op.start_ns, op.end_ns, args)


def _span(
    kind: str, name: str, pid: int, tid: int, start_ns: int, end_ns: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid,
            "ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000, "args": args}  # fmt: skip
