"""The tables and columns that exports of four generations of nsys have.

Notation: ``name`` an INTEGER column, ``name!`` one that is NOT NULL, ``name:T`` TEXT, ``name:R``
REAL. A layout lists what an export may hold; a table is written only when it has rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TYPES = {"T": str, "R": float}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    kind: type
    required: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """One generation of exports: its version, its tables and how it numbers synchronisations."""

    name: str
    schema: str  # empty before versions were stored
    product: str
    tables: Mapping[str, tuple[Column, ...]]
    sync_device: int
    sync_event: int
    sync_stream: int
    sync_wait: int

    @property
    def has_graph_trace(self) -> bool:
        """Whether graph replays can be one row each."""
        return "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in self.tables


def columns(text: str) -> tuple[Column, ...]:
    """The columns that a line of the notation names."""
    found = []
    for word in text.split():
        name, _, kind = word.rstrip("!").partition(":")
        found.append(Column(name, TYPES.get(kind, int), word.endswith("!")))
    return tuple(found)


def after(text: str, anchor: str, addition: str) -> str:
    """The notation with more columns behind the named one."""
    words = text.split()
    place = next(n for n, word in enumerate(words) if word.rstrip("!").split(":")[0] == anchor)
    return " ".join([*words[: place + 1], addition, *words[place + 1 :]])


_WHERE = "start! end! deviceId! contextId! streamId! correlationId globalPid"
_GREEN = "greenContextId"
_ENUM = "id! name:T label:T"

_OLD = {
    "StringIds": "id! value:T!",
    "PROFILER_OVERHEAD": "start! end! globalTid correlationId nameId! returnValue!",
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:T globalTid endGlobalTid textId"
        " domainId uint64Value int64Value doubleValue:R uint32Value int32Value floatValue:R"
        " jsonTextId jsonText:T"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue!"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _WHERE
    + (
        " bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId"
        " dstContextId graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": _WHERE + " value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_KERNEL": _WHERE
    + (
        " demangledName! shortName! launchType cacheConfig registersPerThread! gridX! gridY! gridZ!"
        " blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory! localMemoryPerThread!"
        " localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _WHERE + " syncType! eventId!",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "deviceId! contextId! streamId! correlationId globalPid eventId!"
    ),
    "OSRT_API": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue! nestingLevel"
        " callchainId!"
    ),
    "ThreadNames": "nameId! priority globalTid",
    "TARGET_INFO_GPU": "vmId! deviceId! name:T busLocation:T isDiscrete",
    "TARGET_INFO_CUDA_GPU": (
        "vmId! name:T! pciBusId:T globalMemoryBandwidth! globalMemorySize! constantMemorySize!"
        " l2CacheSize! numThreadsPerWarp! coreClockRate! numMemcpyEngines! numMultiprocessors!"
        " maxIPC! maxWarpsPerMultiprocessor! maxBlocksPerMultiprocessor! maxRegistersPerBlock!"
        " maxSharedMemoryPerBlock! maxThreadsPerBlock! maxBlockDimX! maxBlockDimY! maxBlockDimZ!"
        " maxGridDimX! maxGridDimY! maxGridDimZ! computeCapabilityMajor! computeCapabilityMinor!"
        " deviceId! pid maxSharedMemoryPerMultiprocessor maxRegistersPerMultiprocessor"
    ),
    "TARGET_INFO_CUDA_NULL_STREAM": "streamId! hwId! vmId! processId! deviceId! contextId!",
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
}

_GPU = (
    "vmId! id! name:T busLocation:T isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate"
    " smCount pwGpuId uuid:T luid chipName:T cuDevice ctxswDevPath:T ctrlDevPath:T revision"
    " nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin"
    " maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm"
    " maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY"
    " maxGridDimZ computeMajor computeMinor smMajor smMinor"
)


def _for_2022() -> dict[str, str]:
    tables = {name: text for name, text in _OLD.items() if name != "TARGET_INFO_CUDA_GPU"}
    kernel = after(tables["CUPTI_ACTIVITY_KIND_KERNEL"], "shortName", "mangledName")
    copies = after(tables["CUPTI_ACTIVITY_KIND_MEMCPY"], "dstContextId", "migrationCause")
    tables |= {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernel + " sharedMemoryLimitConfig",
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies + " virtualAddress",
        "CUPTI_ACTIVITY_KIND_RUNTIME": tables["CUPTI_ACTIVITY_KIND_RUNTIME"] + " callchainId",
        "OSRT_API": tables["OSRT_API"].replace("correlationId ", ""),
        "PROFILER_OVERHEAD": tables["PROFILER_OVERHEAD"].replace("correlationId ", ""),
        "TARGET_INFO_GPU": _GPU,
        "TARGET_INFO_SYSTEM_ENV": "globalVid! devStateName:T! name:T! nameEnum! value:T!",
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:T localTime:T",
        "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
        "PROCESSES": "globalPid pid name:T",
        "EXPORT_META_DATA": "name:T! value:T",
    }
    return tables


def _for_2024() -> dict[str, str]:
    tables = _for_2022()
    del tables["EXPORT_META_DATA"], tables["TARGET_INFO_CUDA_NULL_STREAM"]
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "CUDA_EVENT"):
        name = f"CUPTI_ACTIVITY_KIND_{kind}"
        tables[name] = after(tables[name], "contextId", _GREEN)
    tables["NVTX_EVENTS"] += " binaryData:T"
    tables |= {
        "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName:T! name:T! nameEnum! value:T!",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
            after(_WHERE, "contextId", _GREEN) + " graphId! graphExecId!"
        ),
        "CUDA_GRAPH_EVENTS": (
            "start! end! eventClass! globalTid nameId! graphId originalGraphId graphExecId"
        ),
        "TARGET_INFO_CUDA_CONTEXT_INFO": (
            "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId"
            " isGreenContext"
        ),
        "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text:T! globalPid",
        "META_DATA_CAPTURE": "name:T! value:T",
        "META_DATA_EXPORT": "name:T! value:T",
    }
    enums = ("CUDA_MEMCPY_OPER", "CUDA_MEM_KIND", "CUDA_KERNEL_LAUNCH_TYPE", "CUPTI_SYNC_TYPE")
    more = ("CUPTI_STREAM_TYPE", "NSYS_EVENT_CLASS", "NSYS_EVENT_TYPE", "CUDA_UNIF_MEM_MIGRATION")
    tables |= {f"ENUM_{name}": _ENUM for name in (*enums, *more)}
    return tables


def _for_2025() -> dict[str, str]:
    tables = _for_2024()
    sync = after(tables["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"], "globalPid", "deprecatedSyncType")
    overhead = tables["PROFILER_OVERHEAD"].replace("returnValue", "overheadType")
    tables |= {
        "CUPTI_ACTIVITY_KIND_KERNEL": tables["CUPTI_ACTIVITY_KIND_KERNEL"]
        + (
            " qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ"
            " clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters"
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": tables["CUPTI_ACTIVITY_KIND_MEMCPY"] + " copyCount",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": sync + " eventSyncId",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
            "timestamp " + tables["CUPTI_ACTIVITY_KIND_CUDA_EVENT"] + " eventSyncId"
        ),
        "OSRT_API": tables["OSRT_API"] + " argumentsId!",
        "PROFILER_OVERHEAD": overhead,
        "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid!",
        "ENUM_CUPTI_OVERHEAD_TYPE": _ENUM,
    }
    return tables


def _layout(name: str, schema: str, product: str, tables: dict[str, str], *sync: int) -> Layout:
    parsed = {table: columns(text) for table, text in tables.items()}
    device, event, stream, wait = sync
    return Layout(name, schema, product, parsed, device, event, stream, wait)


LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        _layout("2020", "", "2020.3.2", dict(_OLD), 1, 2, 3, 3),
        _layout("2022", "2.9.1", "2022.1.3.3", _for_2022(), 1, 2, 3, 3),
        _layout("2024", "3.16.1", "2024.6.2.225", _for_2024(), 0, 1, 2, 2),
        _layout("2025", "3.24.0", "2025.5.2.266", _for_2025(), 4, 1, 2, 2),
    )
}
