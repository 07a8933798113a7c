"""The rows that describe the machine, the session and the export itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from sample_traces.device import NULL
from sample_traces.hardware import Card
from sample_traces.layouts import Layout
from sample_traces.recording import Recording
from sample_traces.rows import VM, Row, Strings, global_pid, global_tid

EPOCH_NS = 1_748_000_000_000_000_000
DAEMON_PID = -144_115_188_075_855_872
GRID = {"maxBlockDimX": 1024, "maxBlockDimY": 1024, "maxBlockDimZ": 64}
GRID |= {"maxGridDimX": 2_147_483_647, "maxGridDimY": 65_535, "maxGridDimZ": 65_535}


def gpu_rows(cards: tuple[Card, ...], layout: Layout) -> Iterator[Row]:
    """Rows of TARGET_INFO_GPU in the form of the layout."""
    for index, card in enumerate(cards):
        base = {"vmId": VM, "name": card.name, "busLocation": card.pci(index), "isDiscrete": 1}
        yield base | ({"deviceId": index} if not layout.schema else _properties(index, card))


def _properties(index: int, card: Card) -> Row:
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{card.name} {index}")
    return GRID | {
        "id": index,
        "l2CacheSize": card.l2_bytes,
        "totalMemory": card.memory_bytes,
        "memoryBandwidth": card.bandwidth,
        "clockRate": card.clock,
        "smCount": card.sm_count,
        "uuid": str(identity),
        "luid": 0,
        "chipName": card.chip,
        "cuDevice": index,
        "revision": 161,
        "nodeMask": 0,
        "constantMemory": 65_536,
        "maxIPC": card.max_ipc,
        "maxRegistersPerBlock": 65_536,
        "maxShmemPerBlock": 49_152,
        "maxShmemPerBlockOptin": card.shared_block,
        "maxShmemPerSm": card.shared_sm,
        "maxRegistersPerSm": 65_536,
        "threadsPerWarp": 32,
        "asyncEngines": card.copy_engines,
        "maxWarpsPerSm": card.warps_sm,
        "maxBlocksPerSm": card.blocks_sm,
        "maxThreadsPerBlock": 1024,
        "computeMajor": card.compute[0],
        "computeMinor": card.compute[1],
        "smMajor": card.sm[0],
        "smMinor": card.sm[1],
    }


def old_gpu_rows(recording: Recording) -> Iterator[Row]:
    """Rows of TARGET_INFO_CUDA_GPU: the CUDA devices in the early form."""
    for process in recording.processes:
        for device, index in enumerate(process.devices):
            card = recording.cards[index]
            yield GRID | {
                "vmId": VM,
                "name": card.name,
                "pciBusId": card.pci(index),
                "globalMemoryBandwidth": card.bandwidth // 1000,
                "globalMemorySize": card.memory_bytes >> 20,
                "constantMemorySize": 65_536,
                "l2CacheSize": card.l2_bytes,
                "numThreadsPerWarp": 32,
                "coreClockRate": card.clock // 1000,
                "numMemcpyEngines": card.copy_engines,
                "numMultiprocessors": card.sm_count,
                "maxIPC": card.max_ipc,
                "maxWarpsPerMultiprocessor": card.warps_sm,
                "maxBlocksPerMultiprocessor": card.blocks_sm,
                "maxRegistersPerBlock": 65_536,
                "maxSharedMemoryPerBlock": 49_152,
                "maxThreadsPerBlock": 1024,
                "computeCapabilityMajor": card.compute[0],
                "computeCapabilityMinor": card.compute[1],
                "deviceId": device,
                "pid": process.pid,
                "maxSharedMemoryPerMultiprocessor": card.shared_sm,
                "maxRegistersPerMultiprocessor": 65_536,
            }


def device_rows(recording: Recording) -> Iterator[Row]:
    """Rows of TARGET_INFO_CUDA_DEVICE: which card a process's device is."""
    for process in recording.processes:
        for device, index in enumerate(process.devices):
            yield {"gpuId": index, "cudaId": device, "pid": process.pid}


def context_rows(recording: Recording) -> Iterator[Row]:
    """Rows of the table of contexts, or of null streams before it existed."""
    for stream in recording.streams:
        if stream.flag == NULL:
            yield {
                "nullStreamId": stream.stream,
                "streamId": stream.stream,
                "hwId": 0,
                "vmId": 1,
                "processId": stream.pid,
                "deviceId": stream.device,
                "contextId": stream.context,
                "parentContextId": 0,
                "isGreenContext": 0,
            }


def stream_rows(recording: Recording) -> Iterator[Row]:
    """Rows of TARGET_INFO_CUDA_STREAM; negative priorities wrap around as in real exports."""
    for stream in recording.streams:
        yield {
            "streamId": stream.stream,
            "hwId": 0,
            "vmId": 1,
            "processId": stream.pid,
            "contextId": stream.context,
            "priority": stream.priority & 0xFFFFFFFF,
            "flag": stream.flag,
        }


def process_rows(recording: Recording) -> Iterator[Row]:
    """Rows of PROCESSES: those of the run among others of the machine."""
    yield {"globalPid": global_pid(1), "pid": 1, "name": "systemd"}
    for process in recording.processes:
        pid = process.pid
        yield {"globalPid": global_pid(pid), "pid": pid, "name": process.name}


def thread_rows(recording: Recording, strings: Strings) -> Iterator[Row]:
    """Rows of ThreadNames."""
    for thread in recording.threads:
        tid = global_tid(thread.pid, thread.tid)
        yield {"nameId": strings(thread.name), "priority": 20, "globalTid": tid}


def session_rows() -> Iterator[Row]:
    """The row of TARGET_INFO_SESSION_START_TIME."""
    start = datetime.fromtimestamp(EPOCH_NS // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    yield {"utcEpochNs": EPOCH_NS, "utcTime": start, "localTime": start}


def analysis_rows(recording: Recording) -> Iterator[Row]:
    """The row of ANALYSIS_DETAILS; its start and stop are on another clock."""
    duration, start = recording.last_ns + 30_000_000, 267_036_531
    yield {
        "globalVid": VM,
        "duration": duration,
        "startTime": start,
        "stopTime": start + duration,
    }


def environment_rows() -> Iterator[Row]:
    """A few rows of TARGET_INFO_SYSTEM_ENV."""
    facts = (("CpuCores", 1, "64"), ("NvDriverVersion", 205, "575.51.03"))
    for name, number, value in (*facts, ("CudaDriverVersion", 611, "12090")):
        where = {"globalVid": VM, "devStateName": "Local (CLI)"}
        yield where | {"name": name, "nameEnum": number, "value": value}


def diagnostic_rows(recording: Recording) -> Iterator[Row]:
    """Rows of DIAGNOSTIC_EVENT: severity 1 informs, 2 warns, 3 is an error."""
    frame = [(0, 1, "Profiling has started."), *recording.diagnostics]
    for time_ns, severity, text in (*frame, (recording.last_ns, 1, "Profiling has stopped.")):
        row = {"timestamp": time_ns, "timestampType": 1, "source": 3}
        yield row | {"severity": severity, "text": text, "globalPid": DAEMON_PID}


def version_rows(layout: Layout) -> Iterator[Row]:
    """What the export says of itself."""
    major, minor, micro = layout.schema.split(".")
    facts = {
        "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
        "EXPORT_PRODUCT_VERSION": layout.product,
        "EXPORT_PRODUCT_DATE": ".".join(layout.product.split(".")[:2]),
        "EXPORT_SCHEMA_VERSION": layout.schema,
        "EXPORT_SCHEMA_VERSION_MAJOR": major,
        "EXPORT_SCHEMA_VERSION_MINOR": minor,
        "EXPORT_SCHEMA_VERSION_MICRO": micro,
        "EXPORT_PLATFORM": "linux-desktop",
        "EXPORT_ARCH": "x64",
    }
    lazy = "EXPORT_LAZY" if "EXPORT_META_DATA" in layout.tables else "EXPORT_PARAM_LAZY"
    for name, value in (facts | {lazy: "true"}).items():
        yield {"name": name, "value": value}


def capture_rows(recording: Recording) -> Iterator[Row]:
    """What was asked to be captured; names repeat."""
    for kind in recording.captured:
        yield {"name": "CAPTURE_EVENT_TYPE", "value": kind}
    mode = recording.graph_mode.capitalize()
    yield {"name": "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": mode}
    yield {"name": "PROCESS_0:CUDA_SKIP_SOME_API_CALLS", "value": "true"}
    yield {"name": "RUN_DURATION_MS", "value": str(recording.last_ns // 1_000_000 + 30)}
