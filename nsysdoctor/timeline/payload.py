"""The data from which the page draws the timeline: columns of integers, packed small."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from nsysdoctor.arrays.intervals import Ints

TrackKind = Literal["device", "stream", "calls", "waits", "ranges"]
Coding = Literal["plain", "rising", "near"]

PAINTS: tuple[str, ...] = (
    "compute",
    "memory",
    "communication",
    "copy",
    "set",
    "graph",
    "launch",
    "sync",
    "allocation",
    "call",
    "wait",
    "range",
    "idle-input_wait",
    "idle-blocking_copy",
    "idle-synchronization",
    "idle-launch",
    "idle-host_code",
    "idle-os_wait",
    "idle-allocation",
    "idle-module_load",
    "idle-copy_queue",
    "idle-dependency",
    "idle-communication",
    "idle-profiler",
    "idle-unknown",
)
"""Names of the colours; a paint code is a row number of this tuple."""

_RISING = ("start_ns",)
_NEAR = ("key",)
MIXED = 255
"""Paint code of a piece of a device row that holds several states; its parts say which."""


@dataclass(frozen=True)
class Track:
    """One row of the timeline: its place on the page and its items as equally long int64 columns.

    Columns: start_ns (offset from the payload's origin, rising), length_ns, name (code into
    `Payload.names`), paint (code into PAINTS), count (1, or how many operations were merged into
    this item). Merged items carry busy_ns, the sum of their operations. Optional: key (row of the
    CUDA call + 1, 0 without: what links a call with its operations), bytes, shape (code into
    `Payload.shapes` + 1). A device row has part_count per item and the parts, flat, in
    `part_paint` and `part_ns`.
    """

    kind: TrackKind
    group: str
    label: str
    device: int = -1
    thread: int = -1
    depth: int = 0
    columns: dict[str, Ints] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Returns how many items the row holds."""
        return len(self.columns["start_ns"]) if self.columns else 0


@dataclass(frozen=True)
class StepMark:
    """An iteration on the page, as offsets from the origin."""

    step: int
    start_ns: int
    end_ns: int
    phase: str


@dataclass(frozen=True)
class CopyPoint:
    """Copies of one kind and size."""

    direction: str
    memory: str
    bytes: int
    rate_bytes_per_s: float
    count: int
    total_ns: int


@dataclass(frozen=True)
class RoofPoint:
    """One kernel on the roofline; intensity in FLOP per byte."""

    name: str
    category: str
    dtype: str
    bound: str
    device: int
    share_ratio: float
    intensity: float
    rate_flops_per_s: float


@dataclass(frozen=True)
class Roof:
    """A ceiling: memory bandwidth in bytes/s or arithmetic in FLOP/s."""

    device: int
    name: str
    kind: Literal["memory", "compute"]
    peak: float


@dataclass(frozen=True)
class Figures:
    """Numbers behind the charts that a report does not hold."""

    steps: list[StepMark] = field(default_factory=list)
    copies: list[CopyPoint] = field(default_factory=list)
    latency_edges_ns: list[int] = field(default_factory=list)
    latency_counts: list[int] = field(default_factory=list)
    roof_points: list[RoofPoint] = field(default_factory=list)
    roofs: list[Roof] = field(default_factory=list)
    data_types: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Payload:
    """The timeline of one trace; times are ns after `origin_ns` on the export's clock.

    `view_ns` is the part that the page shows when it opens, None for all.
    """

    trace: int
    label: str
    origin_ns: int
    span_ns: int
    names: list[str]
    shorts: list[str]
    shapes: list[str]
    tracks: list[Track]
    figures: Figures
    notes: list[str]
    view_ns: tuple[int, int] | None = None

    def pack(self) -> str:
        """Returns the payload as base64 text of a zlib stream; equal payloads give equal text.

        The stream holds a little-endian uint32, a JSON header of that many bytes, then the
        columns one after another. A column is stored in planes: all lowest bytes, then all second
        bytes and so on, as many as its largest value needs. `rising` columns hold differences,
        `near` ones differences folded to 2d or -2d-1. The browser sums planes in doubles, exact
        below 2^53 ns, which is 104 days.
        """
        body: list[bytes] = []
        header = {
            "origin_ns": str(self.origin_ns),
            "span_ns": self.span_ns,
            "view": self.view_ns,
            "trace": self.trace,
            "label": self.label,
            "paints": PAINTS,
            "names": self.names,
            "shorts": [
                None if short == name else short
                for short, name in zip(self.shorts, self.names, strict=True)
            ],
            "shapes": self.shapes,
            "steps": [[s.step, s.start_ns, s.end_ns, s.phase] for s in self.figures.steps],
            "notes": self.notes,
            "tracks": [_track(track, body) for track in self.tracks],
        }
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        head = text.encode("utf-8", "replace")
        raw = len(head).to_bytes(4, "little") + head + b"".join(body)
        return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


def _track(track: Track, body: list[bytes]) -> dict[str, object]:
    columns = [_column(name, values, body) for name, values in track.columns.items()]
    return {
        "kind": track.kind,
        "group": track.group,
        "label": track.label,
        "device": track.device,
        "thread": track.thread,
        "depth": track.depth,
        "columns": columns,
    }


def _column(name: str, values: Ints, body: list[bytes]) -> tuple[str, str, int, int]:
    coding: Coding = "rising" if name in _RISING else "near" if name in _NEAR else "plain"
    planes = _planes(_coded(values, coding))
    body.extend(planes)
    return name, coding, len(values), len(planes)


def _coded(values: Ints, coding: Coding) -> Ints:
    if coding == "plain":
        return values
    steps = np.diff(values, prepend=np.int64(0))
    return steps if coding == "rising" else np.where(steps < 0, -2 * steps - 1, 2 * steps)


def _planes(values: Ints) -> list[bytes]:
    if len(values) and int(values.min()) < 0:
        raise ValueError("columns of a payload hold no negative numbers")
    top = int(values.max()) if len(values) else 0
    planes = max(1, (top.bit_length() + 7) // 8)
    raw = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8)
    return [raw[:, plane].tobytes() for plane in range(planes)]


def unpack(text: str) -> tuple[dict[str, object], list[dict[str, npt.NDArray[np.int64]]]]:
    """Returns the header of a packed payload and the columns of each of its tracks."""
    raw = zlib.decompress(base64.b64decode(text))
    size = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + size])
    at = 4 + size
    tracks = []
    for track in header["tracks"]:
        columns = {}
        for name, coding, length, planes in track["columns"]:
            values = np.zeros(length, dtype=np.int64)
            for plane in range(planes):
                part = np.frombuffer(raw, dtype=np.uint8, count=length, offset=at)
                values |= part.astype(np.int64) << (8 * plane)
                at += length
            columns[name] = _uncoded(values, coding)
        tracks.append(columns)
    return header, tracks


def _uncoded(values: Ints, coding: str) -> Ints:
    if coding == "near":
        values = np.where(values & 1, -((values + 1) >> 1), values >> 1)
    return values if coding == "plain" else np.cumsum(values, dtype=np.int64)
