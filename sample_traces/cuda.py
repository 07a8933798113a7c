"""The CUDA calls of a host thread: what they cost, queue, wait for and leave in the trace."""

from __future__ import annotations

from collections.abc import Iterable

from sample_traces.device import BLOCKING, NON_BLOCKING, NULL, Stream, Task
from sample_traces.engine import Routine
from sample_traces.host import Event, Thread
from sample_traces.recording import NOTHING, Call, EventRecord, GraphEvent, Sync
from sample_traces.work import Copy, Direction, Graph, Kernel, Memory, Set, Work

LAUNCH_COST_NS = 5_000
LAUNCH_LATENCY_NS = 4_500  # from the start of the call to the start of the kernel
COPY_COST_NS = 5_500
SYNC_COST_NS = 3_000
STAGED_BYTES = 65_536  # pageable uploads up to this size return once they are staged
STAGING_RATE = 9.0  # bytes per ns of the host's copy into the staging buffer
STAGING_START_NS = 9_000  # before the first piece of a larger pageable copy moves
RETURN_NS = 2_500  # from the end of the awaited work to the end of the call

LAUNCH = "cudaLaunchKernel_v7000"
SET = "cudaMemsetAsync_v3020"
DRIVER_CALLS = "cu"


class Host(Thread):
    """A host thread that calls CUDA. Every call is a routine: use ``yield from``."""

    def call(self, name: str, nominal_ns: int, *, locked: bool = False) -> Routine[int]:
        """A call that only costs time; returns its correlation id."""
        start_ns, correlation = self.now, self.process.next_correlation()
        yield from self._driver(nominal_ns, locked)
        self._call_row(name, start_ns, correlation)
        return correlation

    def refused(self, name: str, error: int) -> Routine[None]:
        """A call that does nothing and returns an error."""
        start_ns, correlation = self.now, self.process.next_correlation()
        yield from self._driver(LAUNCH_COST_NS)
        self._call_row(name, start_ns, correlation, error)

    def host_function(
        self, stream: Stream, runner: Thread, nominal_ns: int, api: str
    ) -> Routine[None]:
        """Put a function into a stream: what is behind it waits until `runner` has run it."""
        task = stream.gpu.mark(stream)

        def run() -> Routine[None]:
            for earlier in task.waits:
                yield earlier.done
            yield from runner.os_call("write", nominal_ns)
            task.end_ns = runner.now
            task.done.fire()

        runner.start(run())
        stream.pending_waits.append(task)
        yield from self.call(api, COPY_COST_NS)

    def _driver(self, nominal_ns: int, locked: bool = False) -> Routine[None]:
        """Spend time in the driver, behind whoever holds its lock."""
        lock = self.process.lock
        if not locked and not lock.held:
            yield self.cost(nominal_ns)
            return
        yield from lock.acquire()
        yield self.cost(nominal_ns)
        lock.release()

    def _call_row(self, name: str, start_ns: int, correlation: int, error: int = 0) -> None:
        driver = name.startswith(DRIVER_CALLS) and not name.startswith("cuda")
        pid = self.process.pid
        row = Call(pid, self.tid, start_ns, self.now, name, correlation, int(driver), error)
        self.rows.calls.append(row)

    def _push(self, stream: Stream, work: Work, correlation: int, arrival_ns: int) -> Task:
        """Queue work, with the order that the legacy default stream imposes."""
        for other in self._ordered_with(stream):
            stream.pending_waits.extend(other.unfinished())
        return stream.gpu.push(stream, work, correlation, arrival_ns, self.factor())

    def _ordered_with(self, stream: Stream) -> Iterable[Stream]:
        wanted = {NULL: BLOCKING, BLOCKING: NULL, NON_BLOCKING: None}[stream.flag]
        for other in self.process.streams:
            if other.context == stream.context and other.flag == wanted:
                yield other

    def _room(self, stream: Stream) -> Routine[None]:
        """Wait until the stream's queue takes another launch."""
        while stream.full:
            yield stream.queue[0].started

    def launch(
        self,
        stream: Stream,
        work: Kernel | Graph,
        *,
        api: str = "",
        cost_ns: int = LAUNCH_COST_NS,
    ) -> Routine[Task]:
        """Launch a kernel or a graph and return the queued task."""
        name = api or (LAUNCH if isinstance(work, Kernel) else "cudaGraphLaunch_v10000")
        start_ns, correlation = self.now, self.process.next_correlation()
        latency_ns = self.cost(LAUNCH_LATENCY_NS)
        if isinstance(work, Graph):
            latency_ns += max(0, cost_ns - LAUNCH_COST_NS)
        if self.process.lock.held:
            yield from self._driver(0)
        yield from self._room(stream)
        task = self._push(stream, work, correlation, max(start_ns, self.now) + latency_ns)
        yield self.cost(cost_ns)
        self._call_row(name, start_ns, correlation)
        return task

    def stalled_launch(self, stream: Stream, kernel: Kernel, name: str, ns: int) -> Routine[Task]:
        """Launch a kernel through a call in which the profiler takes its time first."""
        start_ns, correlation = self.now, self.process.next_correlation()
        yield from self.profiler(name, ns)
        task = self._push(stream, kernel, correlation, self.now + LAUNCH_LATENCY_NS)
        yield self.cost(LAUNCH_COST_NS)
        self._call_row(LAUNCH, start_ns, correlation)
        return task

    def held_launch(
        self, stream: Stream, kernel: Kernel, os_name: str, nominal_ns: int
    ) -> Routine[Task]:
        """Launch a kernel through a call that first stands in a call of the OS."""
        start_ns, correlation = self.now, self.process.next_correlation()
        yield 2_000
        yield from self.os_call(os_name, nominal_ns)
        task = self._push(stream, kernel, correlation, self.now + LAUNCH_LATENCY_NS)
        yield self.cost(LAUNCH_COST_NS)
        self._call_row(LAUNCH, start_ns, correlation)
        return task

    def copy(self, stream: Stream, copy: Copy, *, api: str = "") -> Routine[Task]:
        """An asynchronous copy; one with a pageable end blocks the host all the same."""
        name = api or "cudaMemcpyAsync_v3020"
        start_ns, correlation = self.now, self.process.next_correlation()
        if self.process.lock.held:
            yield from self._driver(0)
        yield from self._room(stream)
        if not copy.pageable:
            task = self._push(stream, copy, correlation, self.now + self.cost(LAUNCH_LATENCY_NS))
            yield self.cost(COPY_COST_NS)
        else:
            task = yield from self._staged(stream, copy, correlation)
        self._call_row(name, start_ns, correlation)
        return task

    def _staged(self, stream: Stream, copy: Copy, correlation: int) -> Routine[Task]:
        """Move a pageable copy through the driver's staging buffer."""
        if copy.direction is Direction.HTOD and copy.bytes <= STAGED_BYTES:
            yield self.cost(COPY_COST_NS + round(copy.bytes / STAGING_RATE))
            return self._push(stream, copy, correlation, self.now)
        for earlier in stream.unfinished():
            yield earlier.done
        start_ns = self.cost(STAGING_START_NS if copy.bytes > STAGED_BYTES else COPY_COST_NS)
        task = self._push(stream, copy, correlation, self.now + start_ns)
        yield task.done
        yield self.cost(RETURN_NS)
        return task

    def copy_now(self, device: int, copy: Copy, *, api: str = "cudaMemcpy_v3020") -> Routine[Task]:
        """A synchronous copy on the null stream: it returns when the copy is done."""
        stream = self.process.stream(device)
        start_ns, correlation = self.now, self.process.next_correlation()
        if copy.pageable:
            task = yield from self._staged(stream, copy, correlation)
        else:
            task = self._push(stream, copy, correlation, self.now + self.cost(COPY_COST_NS))
            yield task.done
            yield self.cost(RETURN_NS)
        self._call_row(api, start_ns, correlation)
        return task

    def set(self, stream: Stream, work: Set, *, api: str = SET) -> Routine[Task]:
        """A memory set; the synchronous call blocks for host-visible memory only."""
        start_ns, correlation = self.now, self.process.next_correlation()
        task = self._push(stream, work, correlation, self.now + self.cost(LAUNCH_LATENCY_NS))
        yield self.cost(LAUNCH_COST_NS)
        if "Async" not in api and work.kind is not Memory.DEVICE:
            yield task.done
        self._call_row(api, start_ns, correlation)
        return task

    def synchronize_stream(self, stream: Stream) -> Routine[None]:
        """Wait until everything queued in a stream has ended."""
        yield from self._wait_for(
            "cudaStreamSynchronize_v3020", stream, stream.unfinished(), stream.number
        )

    def synchronize_device(self, device: int = 0) -> Routine[None]:
        """Wait until everything this process queued on a device has ended."""
        stream = self.process.stream(device)
        yield from self._wait_for("cudaDeviceSynchronize_v3020", stream, self._unfinished(device))

    def synchronize_event(self, stream: Stream, event: Event) -> Routine[None]:
        """Wait until an event has happened; the stream says in which context it lives."""
        name = "cudaEventSynchronize_v3020"
        yield from self._wait_for(name, stream, event.tasks, NOTHING, event)

    def _unfinished(self, device: int) -> list[Task]:
        return [
            task
            for stream in self.process.streams
            if stream.device == device
            for task in stream.unfinished()
        ]

    def _wait_for(
        self,
        name: str,
        stream: Stream,
        tasks: list[Task],
        number: int = NOTHING,
        event: Event | None = None,
    ) -> Routine[None]:
        start_ns, correlation = self.now, self.process.next_correlation()
        for task in tasks:
            yield task.done
        yield self.cost(SYNC_COST_NS)
        self._call_row(name, start_ns, correlation)
        self._sync_row(stream, start_ns, correlation, number, event)

    def _sync_row(
        self, stream: Stream, start_ns: int, correlation: int, number: int, event: Event | None
    ) -> None:
        margin = min(400, (self.now - start_ns) // 3)
        self.rows.syncs.append(
            Sync(
                self.process.pid,
                stream.device,
                stream.context,
                start_ns + margin,
                self.now - margin,
                correlation,
                number,
                event.number if event else NOTHING,
                event.sync if event else NOTHING,
            )
        )

    def record_event(self, stream: Stream, event: Event) -> Routine[None]:
        """Put an event into a stream."""
        event.tasks, event.sync = stream.unfinished(), self.process.next_event_sync()
        correlation = yield from self.call("cudaEventRecord_v3020", 1_200)
        pid = self.process.pid
        where = (pid, stream.device, stream.context, stream.number)
        self.rows.events.append(EventRecord(*where, correlation, event.number, event.sync))

    def wait_event(self, stream: Stream, event: Event) -> Routine[None]:
        """Have later work of a stream wait for an event; the host goes on."""
        start_ns = self.now
        stream.pending_waits.extend(task for task in event.tasks if not task.done.fired)
        correlation = yield from self.call("cudaStreamWaitEvent_v3020", 1_300)
        self._sync_row(stream, start_ns, correlation, stream.number, event)

    def malloc(self, nominal_ns: int = 180_000) -> Routine[None]:
        """Allocate device memory."""
        yield from self.call("cudaMalloc_v3020", nominal_ns, locked=True)

    def free(self, device: int = 0, nominal_ns: int = 120_000) -> Routine[None]:
        """Free device memory: waits for the device, as the runtime does."""
        start_ns, correlation = self.now, self.process.next_correlation()
        for task in self._unfinished(device):
            yield task.done
        yield self.cost(nominal_ns)
        self._call_row("cudaFree_v3020", start_ns, correlation)

    def host_alloc(self, nominal_ns: int) -> Routine[None]:
        """Page-lock host memory under the driver's lock."""
        yield from self.call("cudaHostAlloc_v3020", nominal_ns, locked=True)

    def host_free(self, nominal_ns: int = 300_000) -> Routine[None]:
        """Unlock host memory under the driver's lock."""
        yield from self.call("cudaFreeHost_v3020", nominal_ns, locked=True)

    def load_library(self, nominal_ns: int, name: str = "cuLibraryLoadData") -> Routine[None]:
        """Load device code."""
        yield from self.call(name, nominal_ns, locked=True)

    def instantiate(self, graph: Graph) -> Routine[None]:
        """Turn a captured graph into an executable one."""
        pid = self.process.pid
        self.rows.graphs.append(
            GraphEvent(pid, self.tid, self.now, 95, "cudaStreamEndCapture_v10000", graph.graph)
        )
        yield from self.call("cudaGraphInstantiate_v12000", 250_000)
        name = "cudaGraphInstantiate_v12000"
        self.rows.graphs.append(
            GraphEvent(pid, self.tid, self.now, 94, name, graph.graph, graph.executable)
        )
