"""GPUs and their streams: in-order queues, copy engines, compute shares and collectives."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from sample_traces.engine import Clock, Pool, Signal
from sample_traces.hardware import Card
from sample_traces.recording import Op, Recording
from sample_traces.work import (
    WHOLE_DEVICE,
    Collective,
    Copy,
    Direction,
    Graph,
    Kernel,
    Memory,
    Migration,
    Set,
    Work,
)

STREAM_GAP_NS = 1_000  # between an operation and the next one of its stream
EVENT_LATENCY_NS = 1_500  # between an operation and one of another stream that waits for it
COPY_SETUP_NS = 1_300  # of every copy, whatever its size
SET_SETUP_NS = 1_100
QUEUE_DEPTH = 1024  # launches that a stream takes before the launching call blocks

BLOCKING, NON_BLOCKING, NULL = 1, 2, 3  # stream flags of an export


@dataclass(eq=False, slots=True)
class Task:
    """A piece of work in a stream's queue."""

    work: Work
    stream: Stream
    correlation: int
    arrival_ns: int
    waits: list[Task]
    started: Signal
    done: Signal
    factor: float = 1.0
    start_ns: int = 0
    end_ns: int = 0
    remaining: float = 0.0
    since_ns: int = 0
    rate: float = 1.0
    due: int = 0  # number of the last planned end; earlier plans are void


@dataclass(eq=False, slots=True)
class Stream:
    """An in-order queue of one context."""

    gpu: Gpu
    pid: int
    device: int
    context: int
    number: int
    flag: int
    priority: int = 0
    queue: deque[Task] = field(default_factory=deque)
    active: Task | None = None
    last: Task | None = None
    free_ns: int = 0
    pending_waits: list[Task] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether a launch into it has to wait."""
        return len(self.queue) >= QUEUE_DEPTH

    def unfinished(self) -> list[Task]:
        """The work that is still to end, if any: its last piece and what it waits for."""
        last = [self.last] if self.last is not None else []
        return [task for task in (*last, *self.pending_waits) if not task.done.fired]


class Gpu:
    """One physical GPU, shared by every process that uses it."""

    def __init__(
        self,
        clock: Clock,
        index: int,
        card: Card,
        rows: Recording,
        meetings: dict[str, list[Task]],
    ) -> None:
        self.clock = clock
        self.index = index
        self.card = card
        self._rows = rows
        self._meetings = meetings
        self._compute = Pool(WHOLE_DEVICE)
        self._engines = {Direction.HTOD: Pool(1), Direction.DTOH: Pool(1)}
        self._sensitive: list[Task] = []  # running kernels that a collective slows down
        self._collectives = 0
        self._grids = 0

    def push(
        self, stream: Stream, work: Work, correlation: int, arrival_ns: int, factor: float
    ) -> Task:
        """Put work at the end of a stream's queue and return it."""
        waits = [task for task in stream.pending_waits if not task.done.fired]
        stream.pending_waits = []
        signals = (Signal(self.clock), Signal(self.clock))
        task = Task(work, stream, correlation, arrival_ns, waits, *signals, factor)
        stream.queue.append(task)
        stream.last = task
        self._advance(stream)
        return task

    def mark(self, stream: Stream) -> Task:
        """A task that the device does not run, behind what a stream holds."""
        signals = (Signal(self.clock), Signal(self.clock))
        return Task(Set(0), stream, 0, self.clock.now, stream.unfinished(), *signals)

    def _advance(self, stream: Stream) -> None:
        """Hand the head of a stream to its resource as soon as nothing else holds it."""
        if stream.active is not None or not stream.queue:
            return
        head = stream.queue[0]
        for other in head.waits:
            if not other.done.fired:
                other.done.then(lambda: self._advance(stream))
                return
        released = [other.end_ns + EVENT_LATENCY_NS for other in head.waits]
        ready = max(head.arrival_ns, stream.free_ns, *released, 0)
        if self.clock.now < ready:
            self.clock.at(ready, lambda: self._advance(stream))
            return
        stream.active = stream.queue.popleft()
        self._admit(head)

    def _admit(self, task: Task) -> None:
        pool, need = self._resource(task.work)
        if pool is None:
            self._begin(task)
        else:
            pool.take(need, lambda: self._begin(task))

    def _resource(self, work: Work) -> tuple[Pool | None, int]:
        if isinstance(work, Kernel):
            # A collective takes few SMs and shares the device with whatever runs.
            return (None, 0) if work.collective else (self._compute, work.share)
        if isinstance(work, Copy):
            return self._engines.get(work.direction), 1
        return (self._compute, WHOLE_DEVICE) if isinstance(work, Graph) else (None, 0)

    def _begin(self, task: Task) -> None:
        task.start_ns = task.since_ns = self.clock.now
        task.started.fire()
        work = task.work
        if isinstance(work, Kernel) and work.collective is not None:
            self._collectives += 1
            self._retime()
            self._meet(task, work.collective)
            return
        task.remaining = max(1.0, self.duration_ns(work) * task.factor)
        if isinstance(work, Kernel) and work.slowdown > 1.0:
            self._sensitive.append(task)
            task.rate = 1.0 / work.slowdown if self._collectives else 1.0
        self._plan(task)

    def _plan(self, task: Task) -> None:
        """Have the task end when its remaining work is done at its present rate."""
        task.due += 1
        due = task.due
        end_ns = self.clock.now + max(1, round(task.remaining / task.rate))
        self.clock.at(end_ns, lambda: self._finish(task) if task.due == due else None)

    def _retime(self) -> None:
        """Give running kernels their new rate after a collective began or ended."""
        for task in self._sensitive:
            assert isinstance(task.work, Kernel)
            task.remaining -= (self.clock.now - task.since_ns) * task.rate
            task.since_ns = self.clock.now
            task.rate = 1.0 / task.work.slowdown if self._collectives else 1.0
            self._plan(task)

    def _meet(self, task: Task, collective: Collective) -> None:
        """End the kernels of all ranks together, once the last one has started."""
        present = self._meetings.setdefault(collective.key, [])
        present.append(task)
        if len(present) < collective.ranks:
            return
        longest = max(member.factor * self.duration_ns(member.work) for member in present)
        for member in self._meetings.pop(collective.key):
            member.remaining = longest
            member.stream.gpu._plan(member)

    def duration_ns(self, work: Work) -> float:
        """How long work takes on this card when nothing is in its way."""
        if isinstance(work, Kernel):
            return work.duration_ns + (work.migration.stall_ns if work.migration else 0)
        if isinstance(work, Graph):
            return work.duration_ns
        if isinstance(work, Set):
            return SET_SETUP_NS + work.bytes / (0.9 * self.card.bandwidth) * 1e9
        return COPY_SETUP_NS + work.bytes / self._copy_rate(work) * 1e9

    def _copy_rate(self, copy: Copy) -> float:
        card = self.card
        if copy.direction is Direction.HTOD:
            return card.pageable_htod if copy.pageable else card.pinned_htod
        if copy.direction is Direction.DTOH:
            return card.pageable_dtoh if copy.pageable else card.pinned_dtoh
        return 0.43 * card.bandwidth  # reads and writes device memory

    def _finish(self, task: Task) -> None:
        task.end_ns = self.clock.now
        self._record(task)
        if task in self._sensitive:
            self._sensitive.remove(task)
        if isinstance(task.work, Kernel) and task.work.collective:
            self._collectives -= 1
            self._retime()
        stream = task.stream
        stream.active = None
        stream.free_ns = self.clock.now + STREAM_GAP_NS
        task.done.fire()
        pool, need = self._resource(task.work)
        if pool is not None:
            # The next in the queue of the resource starts a moment later, as on a stream.
            self.clock.at(stream.free_ns, lambda: pool.give(need))
        self._advance(stream)

    def _record(self, task: Task) -> None:
        row = self._row(task, task.work, task.start_ns, task.end_ns)
        if isinstance(task.work, Graph) and self._rows.graph_mode == "node":
            self._rows.ops.extend(graph_nodes(row))
        else:
            self._rows.ops.append(row)
        if isinstance(task.work, Kernel) and task.work.migration is not None:
            self._record_migration(task, task.work.migration)

    def _row(self, task: Task, work: Work, start_ns: int, end_ns: int) -> Op:
        stream = task.stream
        self._grids += isinstance(work, Kernel)
        where = (stream.pid, stream.device, self.index, stream.context, stream.number)
        return Op(work, *where, task.correlation, start_ns, end_ns, grid_id=self._grids)

    def _record_migration(self, task: Task, migration: Migration) -> None:
        """The pages that came in: rows without device, context, stream or call."""
        span = (task.end_ns - task.start_ns) / migration.count
        copy = Copy(migration.direction, migration.bytes, Memory.UNKNOWN, Memory.UNKNOWN)
        length = min(round(span * 0.8), round(migration.bytes / 11.0) + 900)
        for place in range(migration.count):
            start_ns = task.start_ns + round(span * place)
            row = Op(copy, task.stream.pid, 0, self.index, 0, 0, 0, start_ns, start_ns + length)
            self._rows.ops.append(row)


def graph_nodes(row: Op) -> list[Op]:
    """The kernels of a graph replay, one row each, spread over the replay's time."""
    graph = row.work
    if not isinstance(graph, Graph):
        return [row]
    factor = (row.end_ns - row.start_ns) / graph.duration_ns
    nodes, start_ns = [], float(row.start_ns)
    for place, kernel in enumerate(graph.nodes):
        end_ns = start_ns + kernel.duration_ns * factor
        node = (graph.graph << 32) + place + 1
        span = (round(start_ns), round(end_ns))
        nodes.append(
            replace(
                row, work=kernel, start_ns=span[0], end_ns=span[1], node=node, graph=graph.graph
            )
        )
        start_ns = end_ns + graph.gap_ns * factor
    return nodes
