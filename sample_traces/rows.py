"""The rows of each activity table, with every column that any layout has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sample_traces.device import graph_nodes
from sample_traces.host import NCCL
from sample_traces.layouts import Layout
from sample_traces.recording import NOTHING, Op, Recording
from sample_traces.work import Copy, Direction, Graph, Kernel, Set

Row = dict[str, Any]
Strings = Callable[[str], int]

VM = 1 << 48  # hardware id 0, virtual machine 1
MIGRATIONS = (Direction.MIGRATION_HTOD, Direction.MIGRATION_DTOH)


def global_pid(pid: int) -> int:
    """A process id as exports pack it."""
    return VM | pid << 24


def global_tid(pid: int, tid: int) -> int:
    """A thread id as exports pack it."""
    return global_pid(pid) | tid


def ops_for(recording: Recording, layout: Layout) -> list[Op]:
    """The operations by start, with graph replays as single rows only where a layout has them."""
    ops = recording.ops
    if not layout.has_graph_trace:
        ops = [node for op in ops for node in graph_nodes(op)]
    return sorted(ops, key=lambda op: (op.start_ns, op.end_ns, op.pid, op.correlation))


def _where(op: Op) -> Row:
    return {
        "start": op.start_ns,
        "end": op.end_ns,
        "deviceId": op.device,
        "contextId": op.context,
        "greenContextId": 0,
        "streamId": op.stream,
        "correlationId": op.correlation,
        "globalPid": global_pid(op.pid),
        "graphNodeId": op.node or None,
    }


def kernel_rows(ops: list[Op], strings: Strings) -> Iterator[Row]:
    """Rows of CUPTI_ACTIVITY_KIND_KERNEL."""
    for op in ops:
        kernel = op.work
        if not isinstance(kernel, Kernel):
            continue
        grid, block = kernel.grid, kernel.block
        threads = block[0] * block[1] * block[2] * grid[0] * grid[1] * grid[2]
        yield _where(op) | {
            "demangledName": strings(kernel.name),
            "shortName": strings(kernel.short),
            "mangledName": strings(kernel.mangled),
            "launchType": 1,
            "cacheConfig": 1,
            "registersPerThread": kernel.registers,
            **dict(zip(("gridX", "gridY", "gridZ"), grid, strict=True)),
            **dict(zip(("blockX", "blockY", "blockZ"), block, strict=True)),
            "staticSharedMemory": kernel.static_shared,
            "dynamicSharedMemory": kernel.dynamic_shared,
            "localMemoryPerThread": kernel.local_bytes,
            "localMemoryTotal": kernel.local_bytes * threads,
            "gridId": op.grid_id,
            "sharedMemoryExecuted": 32_768 if kernel.static_shared else 16_384,
            "sharedMemoryLimitConfig": 0,
            "graphId": op.graph or None,
            **dict.fromkeys(("clusterX", "clusterY", "clusterZ", "clusterSchedulingPolicy"), 0),
            **dict.fromkeys(("maxPotentialClusterSize", "maxActiveClusters"), 0),
        }


def copy_rows(ops: list[Op]) -> Iterator[Row]:
    """Rows of CUPTI_ACTIVITY_KIND_MEMCPY, page migrations included."""
    pages = 0
    for op in ops:
        copy = op.work
        if not isinstance(copy, Copy):
            continue
        row = _where(op) | {
            "bytes": copy.bytes,
            "copyKind": int(copy.direction),
            "srcKind": int(copy.source),
            "dstKind": int(copy.target),
            "copyCount": 1,
        }
        if copy.direction in MIGRATIONS:
            row |= {"migrationCause": 2, "virtualAddress": 0x7F3A_0000_0000 + pages * copy.bytes}
            pages += 1
        yield row


def set_rows(ops: list[Op]) -> Iterator[Row]:
    """Rows of CUPTI_ACTIVITY_KIND_MEMSET."""
    for op in ops:
        work = op.work
        if isinstance(work, Set):
            yield _where(op) | {
                "value": work.value,
                "bytes": work.bytes,
                "memKind": int(work.kind),
            }


def graph_rows(ops: list[Op]) -> Iterator[Row]:
    """Rows of CUPTI_ACTIVITY_KIND_GRAPH_TRACE: one per replay."""
    for op in ops:
        graph = op.work
        if isinstance(graph, Graph):
            yield _where(op) | {"graphId": graph.graph, "graphExecId": graph.executable}


def call_rows(recording: Recording, strings: Strings) -> Iterator[Row]:
    """Rows of CUPTI_ACTIVITY_KIND_RUNTIME by start: runtime and driver calls."""
    for call in sorted(recording.calls, key=lambda row: (row.start_ns, row.pid, row.tid)):
        yield {
            "start": call.start_ns,
            "end": call.end_ns,
            "eventClass": call.event_class,
            "globalTid": global_tid(call.pid, call.tid),
            "correlationId": call.correlation,
            "nameId": strings(call.name),
            "returnValue": call.returned,
        }


def _sync_type(layout: Layout, stream: int, event: int) -> int:
    if stream == NOTHING:
        return layout.sync_device if event == NOTHING else layout.sync_event
    return layout.sync_stream if event == NOTHING else layout.sync_wait


def sync_rows(recording: Recording, layout: Layout) -> Iterator[Row]:
    """Rows of CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, numbered as the layout's tools did."""
    for sync in sorted(recording.syncs, key=lambda row: (row.start_ns, row.pid, row.correlation)):
        yield {
            "start": sync.start_ns,
            "end": sync.end_ns,
            "deviceId": sync.device,
            "contextId": sync.context,
            "streamId": sync.stream,
            "correlationId": sync.correlation,
            "globalPid": global_pid(sync.pid),
            "syncType": _sync_type(layout, sync.stream, sync.event),
            "eventId": sync.event,
            "eventSyncId": sync.event_sync,
        }


def event_rows(recording: Recording) -> Iterator[Row]:
    """Rows of CUPTI_ACTIVITY_KIND_CUDA_EVENT; their time stamps were not collected."""
    for record in recording.events:
        yield {
            "timestamp": 0,
            "deviceId": record.device,
            "contextId": record.context,
            "greenContextId": 0,
            "streamId": record.stream,
            "correlationId": record.correlation,
            "globalPid": global_pid(record.pid),
            "eventId": record.event,
            "eventSyncId": record.event_sync,
        }


def range_rows(recording: Recording, strings: Strings) -> Iterator[Row]:
    """Rows of NVTX_EVENTS: ranges, and the creation of the domains that they are in."""
    for pid in sorted({row.pid for row in recording.ranges if row.domain}):
        tid = global_tid(pid, pid)
        base = {"start": 0, "eventType": 75, "text": "NCCL", "globalTid": tid}
        yield base | {"domainId": NCCL}
    for row in sorted(recording.ranges, key=lambda row: (row.start_ns, -row.end_ns, row.tid)):
        yield {
            "start": row.start_ns,
            "end": row.end_ns,
            "eventType": 59,
            "text": None if row.domain else row.text,
            "textId": strings(row.text) if row.domain else None,
            "globalTid": global_tid(row.pid, row.tid),
            "domainId": row.domain,
        }


def os_rows(recording: Recording, strings: Strings) -> Iterator[Row]:
    """Rows of OSRT_API in the order in which the calls ended."""
    for call in recording.os_calls:
        yield {
            "start": call.start_ns,
            "end": call.end_ns,
            "eventClass": 27,
            "globalTid": global_tid(call.pid, call.tid),
            "correlationId": 0,
            "nameId": strings(call.name),
            "returnValue": 0,
            "nestingLevel": call.level,
            "callchainId": 0,
            "argumentsId": 0,
        }


def overhead_rows(recording: Recording, strings: Strings) -> Iterator[Row]:
    """Rows of PROFILER_OVERHEAD."""
    for row in sorted(recording.overheads, key=lambda row: (row.start_ns, row.tid)):
        yield {
            "start": row.start_ns,
            "end": row.end_ns,
            "globalTid": global_tid(row.pid, row.tid),
            "correlationId": 0,
            "nameId": strings(row.name),
            "returnValue": 0,
            "overheadType": row.kind,
        }


def graph_event_rows(recording: Recording, strings: Strings) -> Iterator[Row]:
    """Rows of CUDA_GRAPH_EVENTS: the making of graphs."""
    for row in recording.graphs:
        yield {
            "start": row.at_ns,
            "end": row.at_ns,
            "eventClass": row.event_class,
            "globalTid": global_tid(row.pid, row.tid),
            "nameId": strings(row.name),
            "graphId": row.graph,
            "graphExecId": row.executable,
        }
