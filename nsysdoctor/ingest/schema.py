"""What an nsys export may hold: tables, columns, their older spellings, and the recording flag.

The layouts of nsys 2020 to 2026 differ in table names, column names and which columns exist;
a stored schema version does not prove that a column is there, so everything is probed.
"""

from __future__ import annotations

from nsysdoctor.ingest.host_sources import HOST_SOURCES
from nsysdoctor.ingest.source import SPAN as _SPAN
from nsysdoctor.ingest.source import THREAD as _THREAD
from nsysdoctor.ingest.source import Column, Source

INVALID_ID = 0xFFFFFFFF
"""The value that stands for "no stream" and "no event" in synchronisation rows."""

OPEN_NS = -(1 << 63)
"""Stands for the NULL end of a range that was never closed."""


_PLACE = (
    Column("ordinal", ("deviceId",), width="int16"),
    Column("context", ("contextId",), width="int16"),
    Column("green", ("greenContextId",), width="int16"),
    Column("stream", ("streamId",), width="int32"),
    Column("correlation", ("correlationId",), width="int32"),
    Column("global_pid", ("globalPid",), kind="id"),
)
_CUDA = "--trace=cuda"

KERNEL = Source(
    "kernel",
    ("CUPTI_ACTIVITY_KIND_KERNEL",),
    _CUDA,
    (
        *_SPAN,
        *_PLACE,
        Column("full_id", ("demangledName", "shortName"), -1, width="int32"),
        Column("short_id", ("shortName", "demangledName"), -1, width="int32"),
        Column("grid_x", ("gridX",), 1, width="int32"),
        Column("grid_y", ("gridY",), 1, width="int32"),
        Column("grid_z", ("gridZ",), 1, width="int32"),
        Column("block_x", ("blockX",), 1, width="int16"),
        Column("block_y", ("blockY",), 1, width="int16"),
        Column("block_z", ("blockZ",), 1, width="int16"),
        Column("registers", ("registersPerThread",), width="int16"),
        Column("static_shared_bytes", ("staticSharedMemory",), width="int32"),
        Column("dynamic_shared_bytes", ("dynamicSharedMemory",), width="int32"),
        Column("local_bytes_per_thread", ("localMemoryPerThread",), width="int32"),
        Column("node", ("graphNodeId",)),
    ),
)

MEMCPY = Source(
    "memcpy",
    ("CUPTI_ACTIVITY_KIND_MEMCPY",),
    _CUDA,
    (
        *_SPAN,
        *_PLACE,
        Column("bytes", ("bytes",)),
        Column("copy_kind", ("copyKind",), 0),
        Column("src_kind", ("srcKind",), -1, width="int32"),
        Column("dst_kind", ("dstKind",), -1, width="int32"),
        Column("src_ordinal", ("srcDeviceId",), -1, width="int32"),
        Column("dst_ordinal", ("dstDeviceId",), -1, width="int32"),
        Column("migration_cause", ("migrationCause",), 0),
        Column("node", ("graphNodeId",)),
    ),
)

MEMSET = Source(
    "memset",
    ("CUPTI_ACTIVITY_KIND_MEMSET",),
    _CUDA,
    (
        *_SPAN,
        *_PLACE,
        Column("bytes", ("bytes",)),
        Column("mem_kind", ("memKind",), -1, width="int32"),
        Column("node", ("graphNodeId",)),
    ),
)

GRAPH = Source(
    "graph",
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",),
    "--trace=cuda --cuda-graph-trace=graph",
    (
        *_SPAN,
        *_PLACE,
        Column("graph", ("graphId",)),
        Column("graph_exec", ("graphExecId",)),
    ),
)

API = Source(
    "api",
    ("CUPTI_ACTIVITY_KIND_RUNTIME",),
    _CUDA,
    (
        *_SPAN,
        _THREAD,
        Column("correlation", ("correlationId",), width="int32"),
        Column("name_id", ("nameId",), -1, width="int32"),
        Column("return_value", ("returnValue",), width="int32"),
    ),
    # Class 67 repeats calls that carry a back-trace; only runtime and driver calls are calls.
    where=("eventClass", "eventClass IN (0, 1, 13, 26)"),
)

SYNC = Source(
    "sync",
    ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",),
    _CUDA,
    (
        *_SPAN,
        *_PLACE,
        Column("event", ("eventId",), INVALID_ID),
        Column("event_sync", ("eventSyncId",), 0),
    ),
)

EVENT = Source(
    "event",
    ("CUPTI_ACTIVITY_KIND_CUDA_EVENT",),
    _CUDA,
    (
        *_PLACE,
        Column("event", ("eventId",), INVALID_ID),
        Column("event_sync", ("eventSyncId",), 0),
    ),
)

NVTX = Source(
    "nvtx",
    ("NVTX_EVENTS",),
    "--trace=nvtx",
    (
        Column("start_ns", ("start",), None, "time"),
        Column("end_ns", ("end",), OPEN_NS),
        Column("event_type", ("eventType",), None, width="int8"),
        Column("text_id", ("textId",), -1, kind="id"),
        _THREAD,
        Column("domain", ("domainId",), width="int32"),
        Column("text", ("text",), None, "text"),
    ),
    where=("eventType", "eventType IN (34, 59, 60, 70, 71, 75)"),
)

OSRT = Source(
    "osrt",
    ("OSRT_API",),
    "--trace=osrt",
    (
        *_SPAN,
        _THREAD,
        Column("name_id", ("nameId",), -1, width="int32"),
        Column("nesting", ("nestingLevel",), width="int32"),
    ),
)

OVERHEAD = Source(
    "overhead",
    ("PROFILER_OVERHEAD",),
    _CUDA,
    (
        *_SPAN,
        _THREAD,
        Column("name_id", ("nameId",), -1, width="int32"),
    ),
)

CUDA_OVERHEAD = Source(
    "cuda_overhead",
    ("CUPTI_ACTIVITY_KIND_OVERHEAD",),
    _CUDA,
    (
        *_SPAN,
        _THREAD,
        Column("overhead_type", ("overheadType",)),
    ),
)

GPU = Source(
    "gpu",
    ("TARGET_INFO_GPU",),
    "",
    (
        Column("id", ("id", "deviceId"), None),
        Column("cuda_ordinal", ("cuDevice", "deviceId"), -1),
        Column("memory_bandwidth_bytes_per_s", ("memoryBandwidth",)),
        Column("clock_hz", ("clockRate",)),
        Column("sm_count", ("smCount",)),
        Column("compute_major", ("computeMajor",)),
        Column("compute_minor", ("computeMinor",)),
        Column("total_memory_bytes", ("totalMemory",)),
        Column("bus", ("busLocation",), None, "text"),
        Column("name", ("name",), None, "text"),
    ),
)

OLD_GPU = Source(
    "old_gpu",
    ("TARGET_INFO_CUDA_GPU",),
    "",
    (
        Column("id", ("deviceId",), None),
        Column("bandwidth_kilobytes_per_s", ("globalMemoryBandwidth",)),
        Column("clock_khz", ("coreClockRate",)),
        Column("sm_count", ("numMultiprocessors",)),
        Column("compute_major", ("computeCapabilityMajor",)),
        Column("compute_minor", ("computeCapabilityMinor",)),
        Column("total_memory_bytes", ("globalMemorySize",)),
        Column("name", ("name",), None, "text"),
    ),
)

CUDA_DEVICE = Source(
    "cuda_device",
    ("TARGET_INFO_CUDA_DEVICE",),
    "",
    (
        Column("gpu_id", ("gpuId",), -1),
        Column("cuda_id", ("cudaId",), -1),
        Column("pid", ("pid",), -1),
    ),
)

CONTEXT = Source(
    "context",
    ("TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_NULL_STREAM"),
    "",
    (
        Column("null_stream", ("nullStreamId", "streamId"), -1),
        Column("pid", ("processId",)),
        Column("ordinal", ("deviceId",)),
        Column("context", ("contextId",)),
    ),
)

STREAM = Source(
    "stream",
    ("TARGET_INFO_CUDA_STREAM",),
    "",
    (
        Column("stream", ("streamId",)),
        Column("pid", ("processId",)),
        Column("context", ("contextId",)),
        Column("priority", ("priority",)),
        Column("flag", ("flag",)),
    ),
)

THREAD_NAME = Source(
    "thread_name",
    ("ThreadNames",),
    "",
    (
        Column("name_id", ("nameId",), -1, width="int32"),
        Column("priority", ("priority",)),
        Column("global_tid", ("globalTid",)),
    ),
)

PROCESS_NAME = Source(
    "process_name",
    ("PROCESSES",),
    "",
    (
        Column("global_pid", ("globalPid",)),
        Column("name", ("name",), None, "text"),
    ),
)

DIAGNOSTIC = Source(
    "diagnostic",
    ("DIAGNOSTIC_EVENT",),
    "",
    (
        Column("severity", ("severity",)),
        Column("text", ("text",), None, "text"),
    ),
)

SESSION = Source(
    "session",
    ("TARGET_INFO_SESSION_START_TIME",),
    "",
    (Column("utc_ns", ("utcEpochNs",)),),
)

STRINGS = Source(
    "string",
    ("StringIds",),
    "",
    (Column("id", ("id",), -1), Column("value", ("value",), None, "text")),
)

SOURCES: tuple[Source, ...] = (
    KERNEL, MEMCPY, MEMSET, GRAPH, API, SYNC, EVENT, NVTX, OSRT, OVERHEAD, CUDA_OVERHEAD,
    GPU, OLD_GPU, CUDA_DEVICE, CONTEXT, STREAM, THREAD_NAME, PROCESS_NAME, DIAGNOSTIC, SESSION,
    *HOST_SOURCES,
)  # fmt: skip

MARKS: frozenset[str] = frozenset(
    ("StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_DETAILS")
).union(*(source.tables for source in SOURCES))
"""A file that holds none of these tables is no nsys export."""

EXPORT_VERSION = "EXPORT_PRODUCT_VERSION"
EXPORT_SCHEMA = "EXPORT_SCHEMA_VERSION"
