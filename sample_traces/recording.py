"""What a run of a program leaves: plain rows, before any file format."""

from __future__ import annotations

from dataclasses import dataclass, field

from sample_traces.hardware import Card
from sample_traces.work import Work

NOTHING = 0xFFFFFFFF  # an export's "no stream" and "no event"


@dataclass(frozen=True, slots=True)
class Op:
    """One GPU operation that ran."""

    work: Work
    pid: int
    device: int  # ordinal inside the process
    gpu: int  # number of the card in the machine
    context: int
    stream: int
    correlation: int
    start_ns: int
    end_ns: int
    node: int = 0
    graph: int = 0
    grid_id: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One CUDA call of a host thread; runtime (0) or driver (1)."""

    pid: int
    tid: int
    start_ns: int
    end_ns: int
    name: str
    correlation: int
    event_class: int = 0
    returned: int = 0


@dataclass(frozen=True, slots=True)
class Sync:
    """One synchronisation: of a device, a stream, an event, or a stream waiting for an event."""

    pid: int
    device: int
    context: int
    start_ns: int
    end_ns: int
    correlation: int
    stream: int = NOTHING
    event: int = NOTHING
    event_sync: int = NOTHING


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event put into a stream."""

    pid: int
    device: int
    context: int
    stream: int
    correlation: int
    event: int
    event_sync: int


@dataclass(frozen=True, slots=True)
class Range:
    """One NVTX push/pop range of a thread."""

    pid: int
    tid: int
    start_ns: int
    end_ns: int
    text: str
    domain: int = 0


@dataclass(frozen=True, slots=True)
class OsCall:
    """One call into the OS runtime."""

    pid: int
    tid: int
    start_ns: int
    end_ns: int
    name: str
    level: int = 0


@dataclass(frozen=True, slots=True)
class Overhead:
    """Time that the profiler took from a thread."""

    pid: int
    tid: int
    start_ns: int
    end_ns: int
    name: str
    kind: int = 1


@dataclass(frozen=True, slots=True)
class GraphEvent:
    """The making of a graph (class 95) or of an executable one (class 94)."""

    pid: int
    tid: int
    at_ns: int
    event_class: int
    name: str
    graph: int
    executable: int | None = None


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream that exists in a context; flag 1 blocking, 2 non-blocking, 3 null stream."""

    pid: int
    device: int
    gpu: int
    context: int
    stream: int
    flag: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """A host thread and its name."""

    pid: int
    tid: int
    name: str


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process and its name; whether it uses CUDA."""

    pid: int
    name: str
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration on the thread that owns the steps, in host time."""

    index: int
    start_ns: int
    end_ns: int
    phase: str = "steady"
    pid: int = 0
    tid: int = 0

    @property
    def steady(self) -> bool:
        """Whether it counts for steady-state numbers."""
        return self.phase == "steady"


@dataclass(slots=True)
class Recording:
    """Everything that one run left, in the order in which it ended."""

    cards: tuple[Card, ...] = ()
    graph_mode: str = "graph"
    captured: tuple[str, ...] = ("Cuda", "NvtxEvents", "OSRuntime")
    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    os_calls: list[OsCall] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    graphs: list[GraphEvent] = field(default_factory=list)
    streams: list[StreamInfo] = field(default_factory=list)
    threads: list[ThreadInfo] = field(default_factory=list)
    processes: list[ProcessInfo] = field(default_factory=list)
    diagnostics: list[tuple[int, int, str]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def end_ns(self) -> int:
        """When the last steady step ended on its thread; without steps, when the last op did."""
        steady = [step.end_ns for step in self.owned_steps() if step.steady]
        return max(steady) if steady else max(op.end_ns for op in self.ops)

    @property
    def steady_ns(self) -> int:
        """From the start of the first steady step to the end of the last; without steps, the end.

        The device is idle at both ends, so this is what the steady steps alone take.
        """
        starts = [step.start_ns for step in self.owned_steps() if step.steady]
        return self.end_ns - min(starts, default=0)

    def owned_steps(self) -> list[Step]:
        """The steps of the thread that made the first one; other ranks have their own."""
        first = self.steps[:1]
        return [
            row for row in self.steps for own in first if (row.pid, row.tid) == (own.pid, own.tid)
        ]

    @property
    def last_ns(self) -> int:
        """The last time stamp of all rows."""
        groups = (self.ops, self.calls, self.ranges, self.os_calls, self.overheads)
        return max((row.end_ns for group in groups for row in group), default=0)


def by_process(recording: Recording) -> list[Recording]:
    """One recording per process that uses a GPU: what each rank's own profiler would have left."""
    parts = []
    for process in recording.processes:
        if process.devices:
            parts.append(_of_process(recording, process.pid))
    return parts


def _of_process(recording: Recording, pid: int) -> Recording:
    part = Recording(recording.cards, recording.graph_mode, recording.captured)
    for name in part.__dataclass_fields__:
        rows = getattr(recording, name)
        if isinstance(rows, list) and name != "diagnostics":
            setattr(part, name, [row for row in rows if row.pid == pid])
    return part
