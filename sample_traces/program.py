"""A machine with its GPUs and processes, ready to run once and be recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sample_traces.cuda import Host
from sample_traces.device import Gpu, Task
from sample_traces.engine import Clock, Routine, Signal
from sample_traces.hardware import Card
from sample_traces.host import Process, Queue, Run
from sample_traces.recording import ProcessInfo, Recording

FIRST_PID = 41_300
SESSION_START_NS = 60_000_000  # what the process did before anything of it was recorded


class Program:
    """The machine. Build processes and threads on it, then run it once."""

    def __init__(
        self, *cards: Card, graph_mode: str = "graph", nvtx: bool = True, osrt: bool = True
    ) -> None:
        self.clock = Clock()
        captured = ("Cuda", *(("NvtxEvents",) if nvtx else ()), *(("OSRuntime",) if osrt else ()))
        self.rows = Recording(cards=tuple(cards), graph_mode=graph_mode, captured=captured)
        self._meetings: dict[str, list[Task]] = {}
        self.gpus = [
            Gpu(self.clock, index, card, self.rows, self._meetings)
            for index, card in enumerate(cards)
        ]
        self._run = Run(self.clock, self.rows)
        self._nvtx = nvtx
        self._osrt = osrt
        self._processes = 0
        self._after: list[Callable[[Recording], None]] = []

    def process(self, name: str = "python", gpus: Sequence[int] = (0,)) -> Process:
        """A process that sees the given cards as its devices 0, 1, …"""
        pid = FIRST_PID + 211 * self._processes
        self._processes += 1
        cards = tuple(self.gpus[index] for index in gpus)
        self.rows.processes.append(ProcessInfo(pid, name, tuple(gpus)))
        return Process(self._run, pid, name, cards, nvtx=self._nvtx)

    def start(self, host: Host, routine: Routine[None], at_ns: int = 0) -> Signal:
        """Have a thread run a routine from a time of the session on."""
        return host.start(routine, SESSION_START_NS + at_ns)

    def queue(self, capacity: int) -> Queue:
        """A bounded queue between threads."""
        return Queue(self.clock, capacity)

    def after(self, edit: Callable[[Recording], None]) -> None:
        """Have the recording edited at the end: what the capture lost, for instance."""
        self._after.append(edit)

    def run(self, *, seed: int | None = None, jitter_ratio: float = 0.0) -> Recording:
        """Run the program to its end and return what was recorded."""
        self._run.seed = seed or 0
        self._run.jitter_ratio = jitter_ratio
        self.clock.run()
        if not self._osrt:
            self.rows.os_calls.clear()
        for edit in self._after:
            edit(self.rows)
        return self.rows
