"""Processes and host threads: their time, NVTX ranges, OS calls, queues and steps."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sample_traces.device import BLOCKING, NON_BLOCKING, NULL, Gpu, Stream, Task
from sample_traces.engine import Clock, Lock, Routine, Signal
from sample_traces.recording import (
    OsCall,
    Overhead,
    Range,
    Recording,
    Step,
    StreamInfo,
    ThreadInfo,
)

NCCL = 1  # number of the NVTX domain of the collectives library
NULL_STREAM = 7
FIRST_STREAM = 13
OS_THRESHOLD_NS = 1_000  # shorter OS calls are not recorded


@dataclass(eq=False, slots=True)
class Event:
    """A CUDA event: what had to end when it was last recorded."""

    number: int
    tasks: list[Task] = field(default_factory=list)
    sync: int = 0


@dataclass(slots=True)
class Run:
    """What a run shares: its clock, its rows, and the spread of every kernel and host cost."""

    clock: Clock
    rows: Recording
    seed: int = 0
    jitter_ratio: float = 0.0


class Process:
    """One process: contexts on some of the machine's GPUs, streams, threads."""

    def __init__(self, run: Run, pid: int, name: str, gpus: tuple[Gpu, ...], *, nvtx: bool) -> None:
        self.run = run
        self.clock = run.clock
        self.rows = run.rows
        self.pid = pid
        self.name = name
        self.gpus = gpus
        self.nvtx = nvtx
        self.lock = Lock(run.clock)
        self.streams: list[Stream] = []
        self._correlation = 100
        self._events = 0
        self._event_syncs = 0
        self._tids = 0
        for device in range(len(gpus)):
            self._add_stream(device, NULL_STREAM, NULL)

    def stream(self, device: int = 0) -> Stream:
        """The null stream of a device."""
        return next(s for s in self.streams if s.device == device and s.flag == NULL)

    def side_stream(self, device: int = 0, *, blocking: bool = False, priority: int = 0) -> Stream:
        """A new stream; unlike a blocking one, a non-blocking one ignores the null stream."""
        number = FIRST_STREAM + len(self.streams) - len(self.gpus)
        return self._add_stream(device, number, BLOCKING if blocking else NON_BLOCKING, priority)

    def _add_stream(self, device: int, number: int, flag: int, priority: int = 0) -> Stream:
        gpu = self.gpus[device]
        stream = Stream(gpu, self.pid, device, device + 1, number, flag, priority)
        self.streams.append(stream)
        info = StreamInfo(self.pid, device, gpu.index, device + 1, number, flag, priority)
        self.rows.streams.append(info)
        return stream

    def next_correlation(self) -> int:
        """A correlation id that this process has not used."""
        self._correlation += 1
        return self._correlation

    def next_tid(self) -> int:
        """A thread id; the first thread has the process's own."""
        tid = self.pid + self._tids
        self._tids += 1
        return tid

    def event(self) -> Event:
        """A new CUDA event."""
        self._events += 1
        return Event(self._events)

    def next_event_sync(self) -> int:
        """A number for one recording of an event."""
        self._event_syncs += 1
        return self._event_syncs


class Queue:
    """A bounded queue between host threads."""

    def __init__(self, clock: Clock, capacity: int) -> None:
        self._clock = clock
        self._capacity = capacity
        self._items = 0
        self._takers: deque[Signal] = deque()
        self._makers: deque[Signal] = deque()

    def put(self) -> Routine[None]:
        """Add an item, waiting while the queue is full."""
        while self._items >= self._capacity:
            room = Signal(self._clock)
            self._makers.append(room)
            yield room
        self._items += 1
        if self._takers:
            self._takers.popleft().fire()

    def get(self) -> Routine[None]:
        """Take an item, waiting while there is none."""
        while self._items == 0:
            item = Signal(self._clock)
            self._takers.append(item)
            yield item
        self._items -= 1
        if self._makers:
            self._makers.popleft().fire()


class Thread:
    """One host thread. Methods that take time are routines: use ``yield from``."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.clock = process.clock
        self.rows = process.rows
        self.tid = process.next_tid()
        self.name = name
        self._random: random.Random | None = None
        self.rows.threads.append(ThreadInfo(process.pid, self.tid, name))

    @property
    def now(self) -> int:
        """Model time in ns."""
        return self.clock.now

    def factor(self) -> float:
        """A draw of the run's spread around 1; exactly 1 when the run has none."""
        run = self.process.run
        ratio = run.jitter_ratio
        if ratio == 0.0:
            return 1.0
        if self._random is None:
            self._random = random.Random(f"{run.seed}:{self.process.pid}:{self.tid}")
        return min(1.0 + 3 * ratio, max(1.0 - 3 * ratio, self._random.gauss(1.0, ratio)))

    def cost(self, nominal_ns: int) -> int:
        """A host cost with the run's spread."""
        return max(0, round(nominal_ns * self.factor()))

    def work(self, nominal_ns: int) -> Routine[None]:
        """Run code of one's own that no trace shows."""
        yield self.cost(nominal_ns)

    def start(self, routine: Routine[None], at_ns: int = 0) -> Signal:
        """Let the thread run a routine; returns the signal of its end."""
        return self.clock.start(routine, at_ns)

    @contextmanager
    def range(self, text: str, domain: int = 0) -> Iterator[None]:
        """Stand in an NVTX push/pop range, if the program was built with NVTX."""
        start_ns = self.now
        yield
        if self.process.nvtx:
            pid = self.process.pid
            self.rows.ranges.append(Range(pid, self.tid, start_ns, self.now, text, domain))

    @contextmanager
    def step(self, index: int, phase: str = "steady", text: str = "step {}") -> Iterator[None]:
        """Run one iteration; the thread owns the steps."""
        start_ns = self.now
        with self.range(text.format(index)):
            yield
        own = (self.process.pid, self.tid)
        self.rows.steps.append(Step(index, start_ns, self.now, phase, *own))

    def os_call(self, name: str, nominal_ns: int, level: int = 0) -> Routine[None]:
        """Spend time in a call of the OS runtime."""
        start_ns = self.now
        yield self.cost(nominal_ns)
        self._os_row(name, start_ns, level)

    def wait(self, name: str, signal: Signal) -> Routine[None]:
        """Wait in an OS call for something that another thread does."""
        start_ns = self.now
        yield signal
        if self.now > start_ns:
            yield self.cost(6_000)  # to be woken up
        self._os_row(name, start_ns)

    def take(self, queue: Queue, name: str = "pthread_cond_timedwait") -> Routine[None]:
        """Take an item from a queue, waiting for it in an OS call."""
        start_ns = self.now
        yield from queue.get()
        if self.now > start_ns:
            yield self.cost(6_000)
        self._os_row(name, start_ns)

    def _os_row(self, name: str, start_ns: int, level: int = 0) -> None:
        if self.now - start_ns >= OS_THRESHOLD_NS:
            pid = self.process.pid
            self.rows.os_calls.append(OsCall(pid, self.tid, start_ns, self.now, name, level))

    def profiler(self, name: str, nominal_ns: int, kind: int = 3) -> Routine[None]:
        """Lose time to the profiler."""
        start_ns = self.now
        yield self.cost(nominal_ns)
        pid = self.process.pid
        self.rows.overheads.append(Overhead(pid, self.tid, start_ns, self.now, name, kind))
