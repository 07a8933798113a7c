"""The enumerations that newer exports carry, with their numbers and names."""

from __future__ import annotations

from collections.abc import Mapping

Entry = tuple[int, str, str]  # number, symbol, label

_COPY = (
    ("UNKNOWN", "Unknown"),
    ("HTOD", "Host-to-Device"),
    ("DTOH", "Device-to-Host"),
    ("HTOA", "Host-to-Array"),
    ("ATOH", "Array-to-Host"),
    ("ATOA", "Array-to-Array"),
    ("ATOD", "Array-to-Device"),
    ("DTOA", "Device-to-Array"),
    ("DTOD", "Device-to-Device"),
    ("HTOH", "Host-to-Host"),
    ("PTOP", "Peer-to-Peer"),
    ("UVM_HTOD", "Unified Host-to-Device"),
    ("UVM_DTOH", "Unified Device-to-Host"),
    ("UVM_DTOD", "Unified Device-to-Device"),
)
_MEMORY = (
    "Pageable",
    "Pinned",
    "Device",
    "Array",
    "Managed",
    "Device Static",
    "Managed Static",
    "Unknown",
)
_LAUNCH = ("Unknown", "Regular", "Coop Single Device", "Coop Multi Device")
_SYNC = (
    ("UNKNOWN", "Unknown"),
    ("EVENT_SYNCHRONIZE", "Event sync"),
    ("STREAM_WAIT_EVENT", "Stream wait sync"),
    ("STREAM_SYNCHRONIZE", "Stream sync"),
    ("CONTEXT_SYNCHRONIZE", "Context sync"),
)
_STREAM = (
    ("UNKNOWN", "Unknown stream type"),
    ("DEFAULT", "Default stream"),
    ("NON_BLOCKING", "Non-blocking stream"),
    ("NULL", "Null stream"),
)
_MIGRATION = (
    ("UNKNOWN", "Unknown"),
    ("USER", "User prefetch"),
    ("COHERENCE", "Page fault"),
    ("PREFETCH", "Speculative prefetch"),
    ("EVICTION", "Eviction"),
    ("ACCESS_COUNTERS", "Access counters"),
)
_OVERHEAD = (
    ("UNDEFINED", "Undefined"),
    ("UNKNOWN", "Unknown"),
    ("DRIVER_COMPILER", "Driver JIT compiler (CUDA)"),
    ("CUPTI_BUFFER_FLUSH", "Buffer flush (Profiler)"),
    ("CUPTI_INSTRUMENTATION", "Instrumentation (Profiler)"),
    ("CUPTI_RESOURCE", "Resource creation/destruction (Profiler)"),
    ("RUNTIME_TRIGGERED_MODULE_LOADING", "Runtime module loading (CUDA)"),
    ("LAZY_FUNCTION_LOADING", "Lazy function loading (CUDA)"),
    ("COMMAND_BUFFER_FULL", "Command buffer full (CUDA)"),
)


def _numbered(prefix: str, entries: tuple[tuple[str, str], ...]) -> tuple[Entry, ...]:
    return tuple((n, prefix + name, label) for n, (name, label) in enumerate(entries))


def _labelled(prefix: str, labels: tuple[str, ...]) -> tuple[Entry, ...]:
    return _numbered(prefix, tuple((text.upper().replace(" ", "_"), text) for text in labels))


ENUMS: Mapping[str, tuple[Entry, ...]] = {
    "ENUM_CUDA_MEMCPY_OPER": _numbered("CUDA_MEMCPY_KIND_", _COPY),
    "ENUM_CUDA_MEM_KIND": _labelled("CUDA_MEMOPR_MEMORY_KIND_", _MEMORY),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": _labelled("CUDA_KERNEL_LAUNCH_TYPE_", _LAUNCH),
    "ENUM_CUPTI_SYNC_TYPE": _numbered("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_", _SYNC),
    "ENUM_CUPTI_STREAM_TYPE": _numbered("CUPTI_ACTIVITY_STREAM_CREATE_FLAG_", _STREAM),
    "ENUM_CUDA_UNIF_MEM_MIGRATION": _numbered("CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_", _MIGRATION),
    "ENUM_CUPTI_OVERHEAD_TYPE": _numbered("OVERHEAD_", _OVERHEAD),
    "ENUM_NSYS_EVENT_CLASS": (
        (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
        (27, "TRACE_PROCESS_EVENT_OS_RUNTIME", "OSRT runtime"),
        (94, "TRACE_PROCESS_EVENT_CUDA_GRAPHEXEC_CREATION", "CUDA graph exec creation"),
        (95, "TRACE_PROCESS_EVENT_CUDA_GRAPH_CREATION", "CUDA graph creation"),
    ),
    "ENUM_NSYS_EVENT_TYPE": (
        (34, "NvtxMark", "NvtxMark"),
        (59, "NvtxPushPopRange", "NvtxPushPopRange"),
        (60, "NvtxStartEndRange", "NvtxStartEndRange"),
        (75, "NvtxDomainCreate", "NvtxDomainCreate"),
    ),
}
