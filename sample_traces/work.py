"""What a GPU can be asked to do: kernels, copies, sets and graphs, as plain descriptions."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache

WHOLE_DEVICE = 1000  # SM share of a kernel that fills the device, in per mille


class Memory(IntEnum):
    """Kinds of memory in the numbering of an export."""

    PAGEABLE = 0
    PINNED = 1
    DEVICE = 2
    MANAGED = 4
    UNKNOWN = 7


class Direction(IntEnum):
    """Kinds of copies in the numbering of an export."""

    HTOD = 1
    DTOH = 2
    DTOD = 8
    MIGRATION_HTOD = 11
    MIGRATION_DTOH = 12


@dataclass(frozen=True, slots=True)
class Collective:
    """A meeting of ranks: the kernels of all of them end together."""

    key: str
    ranks: int


@dataclass(frozen=True, slots=True)
class Migration:
    """Pages of unified memory that come in while a kernel runs."""

    count: int
    bytes: int
    stall_ns: int  # what the faults add to the kernel
    direction: Direction = Direction.MIGRATION_HTOD


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel launch: its name, geometry and how long it runs alone."""

    name: str
    duration_ns: int
    grid: tuple[int, int, int] = (108, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    static_shared: int = 0
    dynamic_shared: int = 0
    local_bytes: int = 0
    bytes: int = 0  # what it moves through device memory, when known
    share: int = WHOLE_DEVICE
    slowdown: float = 1.0  # how much slower it runs beside a collective
    collective: Collective | None = None
    migration: Migration | None = None

    @property
    def short(self) -> str:
        """The function's own name, without return type, namespaces, template and arguments."""
        return short_name(self.name)

    @property
    def mangled(self) -> str:
        """A linker name: the same as the short one for C functions."""
        if self.short == self.name:
            return self.name
        return f"_Z{len(self.short)}{self.short}I{zlib.crc32(self.name.encode()):08x}EvT_"

    def lasting(self, duration_ns: int) -> Kernel:
        """The same kernel with another duration."""
        return replace(self, duration_ns=duration_ns)


@dataclass(frozen=True, slots=True)
class Copy:
    """One memory copy."""

    direction: Direction
    bytes: int
    source: Memory
    target: Memory

    @property
    def pageable(self) -> bool:
        """Whether an end of it is ordinary host memory."""
        return Memory.PAGEABLE in (self.source, self.target)


@dataclass(frozen=True, slots=True)
class Set:
    """One memory set."""

    bytes: int
    value: int = 0
    kind: Memory = Memory.DEVICE


@dataclass(frozen=True, slots=True)
class Graph:
    """An executable graph: a chain of kernels that one call launches."""

    nodes: tuple[Kernel, ...]
    graph: int = 1
    executable: int = 2
    gap_ns: int = 700
    node_ids: tuple[int, ...] = field(default=())

    @property
    def duration_ns(self) -> int:
        """How long the replay takes when nothing else runs."""
        return sum(node.duration_ns for node in self.nodes) + self.gap_ns * (len(self.nodes) - 1)


Work = Kernel | Copy | Set | Graph


def upload(size_bytes: int, *, pinned: bool = False) -> Copy:
    """A host-to-device copy."""
    source = Memory.PINNED if pinned else Memory.PAGEABLE
    return Copy(Direction.HTOD, size_bytes, source, Memory.DEVICE)


def download(size_bytes: int, *, pinned: bool = False) -> Copy:
    """A device-to-host copy."""
    target = Memory.PINNED if pinned else Memory.PAGEABLE
    return Copy(Direction.DTOH, size_bytes, Memory.DEVICE, target)


def on_device(size_bytes: int) -> Copy:
    """A copy within device memory."""
    return Copy(Direction.DTOD, size_bytes, Memory.DEVICE, Memory.DEVICE)


@cache
def short_name(demangled: str) -> str:
    """The base function name of a demangled signature, as an export's shortName has it."""
    depth, kept = 0, []
    for char in demangled.replace("<unnamed>", "").replace("(anonymous namespace)", ""):
        if char in "<(":
            depth += 1
        if depth == 0:
            kept.append(char)
        if char in ">)":
            depth -= 1
    words = re.findall(r"[\w:]+", "".join(kept))
    return words[-1].rsplit("::", 1)[-1] if words else demangled
