"""What torch's profiler recorded, in the layout of an nsys export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sample_traces import write
from sample_traces.hardware import A100_80GB, Card
from sample_traces.program import SESSION_START_NS
from sample_traces.recording import (
    Call,
    Op,
    ProcessInfo,
    Range,
    Recording,
    StreamInfo,
    ThreadInfo,
)
from sample_traces.work import Copy, Direction, Kernel, Memory, Set, Work

Event = Mapping[str, Any]

_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
_DIRECTIONS = {"HtoD": Direction.HTOD, "DtoH": Direction.DTOH, "DtoD": Direction.DTOD}
_MEMORY = {
    "Pageable": Memory.PAGEABLE, "Pinned": Memory.PINNED, "Device": Memory.DEVICE,
    "Managed": Memory.MANAGED,
}  # fmt: skip
_TYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "int": "int32", "bool": "bool",
    "unsigned char": "uint8", "signed char": "int8",
}  # fmt: skip
_NULL_STREAM, _BLOCKING = 3, 1

# where the parameters stand that shapes do not show
_CONVOLUTION = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
_IN_ORDER = dict(zip(_CONVOLUTION, range(3, 9), strict=True))
_PLACES: Mapping[str, Mapping[str, int]] = {
    "aten::convolution": _IN_ORDER,
    "aten::_convolution": _IN_ORDER,
    "aten::cudnn_convolution": {"padding": 2, "stride": 3, "dilation": 4, "groups": 5},
    "aten::_scaled_dot_product_flash_attention": {"is_causal": 4},
    "aten::_scaled_dot_product_efficient_attention": {"is_causal": 6},
    "aten::_flash_attention_forward": {"is_causal": 8},
}  # fmt: skip


def export_of(trace: Path, target: Path, card: Card) -> None:
    """Writes a Chrome trace of torch's profiler as an export of a machine with one such card."""
    told = json.loads(trace.read_text(encoding="utf-8"))
    write(recording_of(told["traceEvents"], card), target)


def recording_of(events: Iterable[Event], card: Card = A100_80GB) -> Recording:
    """The profiler's events as a recording; times start where a session's do."""
    kept = [event for event in events if event.get("ph") == "X" and event.get("cat") in _READ]
    found = Recording(cards=(card,))
    if not kept:
        return found
    origin = min(_ns(event["ts"]) for event in kept) - SESSION_START_NS
    pid = next((int(e["pid"]) for e in kept if e["cat"] not in _ON_DEVICE), 1)
    for event in sorted(kept, key=lambda e: (e["ts"], -e["dur"])):
        start = _ns(event["ts"]) - origin
        _READ[event["cat"]](found, event, pid, start, start + _ns(event["dur"]))
    found.processes.append(ProcessInfo(pid, "python", (0,)))
    for tid in sorted({row.tid for rows in (found.calls, found.ranges) for row in rows}):
        found.threads.append(ThreadInfo(pid, tid, "python" if tid == pid else "pt_autograd"))
    found.streams.extend(_streams(found, pid))
    return found


def _ns(microseconds: float) -> int:
    return round(float(microseconds) * 1000)


def _streams(found: Recording, pid: int) -> list[StreamInfo]:
    """Every stream that was used; the first of a context is the null stream."""
    used = sorted({(op.device, op.context, op.stream) for op in found.ops})
    null = {(device, context): stream for device, context, stream in reversed(used)}
    return [
        StreamInfo(pid, device, device, context, stream,
                   _NULL_STREAM if null[device, context] == stream else _BLOCKING)
        for device, context, stream in used
    ]  # fmt: skip


def _op(found: Recording, event: Event, pid: int, start: int, end: int, work: Work) -> None:
    told = event["args"]
    device = int(told.get("device", 0))
    found.ops.append(
        Op(work, pid, device, device, int(told.get("context", 1)), int(told.get("stream", 7)),
           int(told.get("correlation", 0)), start, end, int(told.get("graph node id", 0) or 0))
    )  # fmt: skip


def _kernel(found: Recording, event: Event, pid: int, start: int, end: int) -> None:
    told = event["args"]
    kernel = Kernel(
        event["name"],
        end - start,
        _three(told.get("grid")),
        _three(told.get("block")),
        registers=int(told.get("registers per thread", 32)),
        dynamic_shared=int(told.get("shared memory", 0)),
    )
    _op(found, event, pid, start, end, kernel)


def _three(told: Any) -> tuple[int, int, int]:
    x, y, z = [*(int(n) for n in told or ()), 1, 1, 1][:3]
    return x, y, z


def _copy(found: Recording, event: Event, pid: int, start: int, end: int) -> None:
    hit = _COPY.match(event["name"])
    if hit is None or hit[1] not in _DIRECTIONS:
        return
    source, target = (_MEMORY.get(word, Memory.UNKNOWN) for word in hit.group(2, 3))
    size = int(event["args"].get("bytes", 0))
    _op(found, event, pid, start, end, Copy(_DIRECTIONS[hit[1]], size, source, target))


def _set(found: Recording, event: Event, pid: int, start: int, end: int) -> None:
    _op(found, event, pid, start, end, Set(int(event["args"].get("bytes", 0))))


def _call(found: Recording, event: Event, pid: int, start: int, end: int) -> None:
    correlation = int(event.get("args", {}).get("correlation", 0))
    driver = int(event["cat"] == "cuda_driver")
    tid = int(event["tid"])
    found.calls.append(Call(pid, tid, start, end, event["name"], correlation, driver))


def _range(found: Recording, event: Event, pid: int, start: int, end: int) -> None:
    found.ranges.append(Range(pid, int(event["tid"]), start, end, range_text(event)))


def range_text(event: Event) -> str:
    """The text that `emit_nvtx(record_shapes=True)` gives an operator, with types and settings."""
    told, name = event.get("args", {}), str(event["name"])
    if event["cat"] != "cpu_op":
        return name
    number, op_id = told.get("Sequence number"), told.get("External id", 0)
    text = name + (f", seq = {number}" if number is not None else "") + f", op_id = {op_id}"
    dims, types = told.get("Input Dims"), told.get("Input type")
    if not dims:
        return text
    text += f", sizes = {json.dumps(dims)}"
    if isinstance(types, Sequence):
        text += f", dtypes = [{', '.join(_TYPES.get(word, '') for word in types)}]"
    settings = _settings(name, told.get("Concrete Inputs") or ())
    return text + (f", settings = {settings}" if settings else "")


def _settings(name: str, values: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, place in _PLACES.get(name, {}).items():
        if place < len(values) and values[place]:
            try:
                found[key] = json.loads(values[place].lower())
            except ValueError:
                continue
    return found


_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_READ = {
    "kernel": _kernel, "gpu_memcpy": _copy, "gpu_memset": _set, "cuda_runtime": _call,
    "cuda_driver": _call, "cpu_op": _range, "user_annotation": _range,
}  # fmt: skip


def card_of(name: str, figures: Mapping[str, int], bandwidth: float) -> Card:
    """A card with what is known of it; copy rates and chip do not matter to a reader."""
    return replace(
        A100_80GB,
        name=name,
        chip="",
        memory_bytes=figures["memory_bytes"],
        bandwidth=round(bandwidth),
        clock=figures["clock_hz"],
        sm_count=figures["sm_count"],
        compute=(figures["major"], figures["minor"]),
        sm=(figures["major"], figures["minor"]),
    )
