"""What each kind of profiler event becomes: rows of an export's tables.

Sources: the trace format of Kineto's ChromeTraceLogger (names of categories and arguments) and
the Chrome trace event format (phases, microseconds).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from nsysdoctor.ingest.profiler.tables import Tables

Event = Mapping[str, Any]

_COPY = re.compile(r"(?:Memcpy|memcpy) (\w+)(?: \((\w+) -> (\w+)\))?")
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7,
               "DtoD": 8, "HtoH": 9, "PtoP": 10}  # fmt: skip
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4, "Device Static": 5}
_TYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "int": "int32", "bool": "bool",
    "unsigned char": "uint8", "signed char": "int8",
}  # fmt: skip
_NO_ID = 0xFFFFFFFF
PUSH_POP, DOMAIN = 59, 75
PYTHON_DOMAIN = 1
"""The range domain of Python frames; operators and annotations are in domain 0."""

# Where the parameters of an operator stand that shapes do not show.
_CONVOLUTION = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
_PLACES: Mapping[str, Mapping[str, int]] = {
    "aten::convolution": dict(zip(_CONVOLUTION, range(3, 9), strict=True)),
    "aten::_convolution": dict(zip(_CONVOLUTION, range(3, 9), strict=True)),
    "aten::cudnn_convolution": {"padding": 2, "stride": 3, "dilation": 4, "groups": 5},
    "aten::_scaled_dot_product_flash_attention": {"is_causal": 4},
    "aten::_scaled_dot_product_efficient_attention": {"is_causal": 6},
    "aten::_flash_attention_forward": {"is_causal": 8},
}  # fmt: skip


class Span(NamedTuple):
    """When an event was, ns on the clock of the tables."""

    start: int
    end: int


def whole(value: Any, otherwise: int = 0) -> int:
    """Returns a number of an event as an int; what is none, or far too large, is `otherwise`."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return otherwise
    try:
        found = int(value)
    except (ValueError, OverflowError, ArithmeticError):
        return otherwise
    return found if abs(found) < 1 << 62 else otherwise


def kernel(event: Event, args: Event, span: Span, to: Tables) -> None:
    """A kernel with its launch configuration."""
    grid, block = _three(args.get("grid")), _three(args.get("block"))
    name = to.string(str(event.get("name", "")))
    to.add(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        (*span, *_place(event, args), to.gpu_process, name, name, *grid, *block,
         whole(args.get("registers per thread")), 0, whole(args.get("shared memory")), 0,
         whole(args.get("graph node id")) or None),
    )  # fmt: skip


def copy(event: Event, args: Event, span: Span, to: Tables) -> None:
    """A copy with its direction and memory kinds, which its name tells."""
    found = _COPY.match(str(event.get("name", "")))
    kind, source, target = found.groups() if found else ("", None, None)
    to.add(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        (*span, *_place(event, args), to.gpu_process, whole(args.get("bytes")),
         _COPY_KINDS.get(kind, 0), _MEMORY.get(str(source)), _MEMORY.get(str(target)),
         whole(args.get("graph node id")) or None),
    )  # fmt: skip


def memory_set(event: Event, args: Event, span: Span, to: Tables) -> None:
    """A memset."""
    row = (*span, *_place(event, args), to.gpu_process, whole(args.get("bytes")), None)
    to.add("CUPTI_ACTIVITY_KIND_MEMSET", row)


def call(event: Event, args: Event, span: Span, to: Tables) -> None:
    """A call of the runtime or the driver, by its correlation."""
    kind = 1 if event.get("cat") == "cuda_driver" else 0
    to.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        (*span, kind, to.thread(event), whole(args.get("correlation")),
         to.string(str(event.get("name", ""))), 0),
    )  # fmt: skip


def synchronization(event: Event, args: Event, span: Span, to: Tables) -> None:
    """What a synchronising call waited for; an event that a stream waits for with its record."""
    kind = str(args.get("cuda_sync_kind") or event.get("name", ""))
    device, context = whole(args.get("device")), whole(args.get("context"), 1)
    stream = whole(args.get("stream"), _NO_ID) & _NO_ID
    correlation = whole(args.get("correlation"))
    number = 0
    if "Wait Event" in kind:
        record = whole(args.get("wait_on_cuda_event_record_corr_id"), -1)
        if record <= 0:
            return
        number = to.next_event()
        other = whole(args.get("wait_on_stream"), _NO_ID) & _NO_ID
        to.add(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            (device, context, other, record, to.gpu_process, number, number),
        )
    elif "Event" in kind:
        return
    elif "Context" in kind:
        stream = _NO_ID
    to.add(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        (*span, device, context, stream, correlation, to.gpu_process, number or _NO_ID, number),
    )


def spoken_range(event: Event, args: Event, span: Span, to: Tables) -> None:
    """An operator or a user's annotation, as a range of its thread."""
    text = to.string(range_text(event, args))
    to.add("NVTX_EVENTS", (*span, PUSH_POP, text, to.thread(event), 0, None))


def python_frame(event: Event, args: Event, span: Span, to: Tables) -> None:
    """A Python function, as a range in a domain of its own."""
    text = to.string(str(event.get("name", "")))
    to.add("NVTX_EVENTS", (*span, PUSH_POP, text, to.thread(event), PYTHON_DOMAIN, None))


def range_text(event: Event, args: Event) -> str:
    """Returns the text that `emit_nvtx(record_shapes=True)` gives an operator, with types and
    settings; an annotation's own name."""
    name = str(event.get("name", ""))
    if event.get("cat") not in ("cpu_op", "Operator"):
        return name
    number = args.get("Sequence number")
    text = name + (f", seq = {number}" if number is not None else "")
    text += f", op_id = {args.get('External id', 0)}"
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not dims or not isinstance(dims, Sequence):
        return text
    text += f", sizes = {json.dumps(dims, default=str)}"
    if isinstance(types, Sequence) and not isinstance(types, str):
        text += f", dtypes = [{', '.join(_TYPES.get(str(word), '') for word in types)}]"
    settings = _settings(name, args.get("Concrete Inputs"))
    return text + (f", settings = {settings}" if settings else "")


def _settings(name: str, values: Any) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, place in _PLACES.get(name, {}).items():
        if isinstance(values, Sequence) and place < len(values) and values[place]:
            try:
                found[key] = json.loads(str(values[place]).lower())
            except ValueError:
                continue
    return found


def _place(event: Event, args: Event) -> tuple[int, int, int, int]:
    """Device, context, stream and correlation of an operation."""
    device = whole(args.get("device"), whole(event.get("pid")))
    stream = whole(args.get("stream"), whole(event.get("tid")))
    return device, whole(args.get("context"), 1), stream, whole(args.get("correlation"))


def _three(sizes: Any) -> tuple[int, int, int]:
    given = sizes if isinstance(sizes, Sequence) and not isinstance(sizes, str) else ()
    x, y, z = [*(max(whole(size, 1), 1) for size in given), 1, 1, 1][:3]
    return x, y, z


READERS: Mapping[str, Callable[[Event, Event, Span, Tables], None]] = {
    "kernel": kernel, "Kernel": kernel,
    "gpu_memcpy": copy, "Memcpy": copy,
    "gpu_memset": memory_set, "Memset": memory_set,
    "cuda_runtime": call, "cuda_driver": call, "Runtime": call,
    "cuda_sync": synchronization,
    "cpu_op": spoken_range, "Operator": spoken_range, "user_annotation": spoken_range,
    "python_function": python_frame,
}  # fmt: skip
"""Which category becomes what, in the words of torch 1.8 to 2.13."""
