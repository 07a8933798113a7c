"""What programs share: start-up, steps, phases, a small network and a loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sample_traces import kernels
from sample_traces.cuda import Host
from sample_traces.device import Stream
from sample_traces.engine import Routine
from sample_traces.hardware import Card
from sample_traces.host import Process, Queue
from sample_traces.program import Program
from sample_traces.work import Copy, Kernel, upload

MICROSECOND, MILLISECOND = 1_000, 1_000_000
MIB = 1 << 20
WARMUP_STEPS = 3
PYTHON_NS = 6_000  # of a framework between two launches


@dataclass(frozen=True, slots=True)
class Network:
    """The kernels of one training step, by phase."""

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    update: tuple[Kernel, ...]

    @property
    def duration_ns(self) -> int:
        """What the kernels of a step take one after another."""
        return sum(kernel.duration_ns for kernel in self.kernels)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels of a step."""
        return self.forward + self.backward + self.update


WIDTH, HIDDEN = 1024, 4096


def network(card: Card, step_ns: int, layers: int = 4) -> Network:
    """A compiled BF16 transformer whose step takes about the given time.

    Nothing in it can be fused further or made smaller: products on tensor cores, fused attention,
    one generated kernel between them, one fused optimizer pass.
    """
    update = (kernels.fused_adam(card, 6_000_000),)
    trial = _layers(card, 8192, layers)
    rest = step_ns - update[0].duration_ns
    tokens = 8192 * rest / sum(kernel.duration_ns for phase in trial for kernel in phase)
    forward, backward = _layers(card, max(128, round(tokens / 128) * 128), layers)
    return Network(forward, backward, update)


def _layers(card: Card, tokens: int, layers: int) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
    product = kernels.gemm(card, "bf16", tokens, HIDDEN, WIDTH)
    moved = 6 * tokens * WIDTH
    norm = kernels.triton(card, "triton_per_fused_add_native_layer_norm_1", moved)
    back = kernels.triton(card, "triton_per_fused_native_layer_norm_backward_4", moved)
    attention = kernels.flash_forward(round(0.6 * product.duration_ns), tokens // 128)
    gradient = kernels.flash_backward(round(1.3 * product.duration_ns), tokens // 128)
    forward = (product, attention, norm, product) * layers
    backward = (product, back, product, gradient, product) * layers
    return forward, backward


def launch_all(
    host: Host, stream: Stream, work: Sequence[Kernel], python_ns: int = PYTHON_NS
) -> Routine[None]:
    """Launch kernels one after another with a framework's time before each."""
    for kernel in work:
        yield from host.work(python_ns)
        yield from host.launch(stream, kernel)


def start_up(host: Host, device: int = 0, weights: int = 5) -> Routine[None]:
    """Load the libraries, reserve memory and upload the weights once; without weights, briefly."""
    stream = host.process.stream(device)
    yield from host.call("cuInit", 1_200)
    yield from host.free(device, 900_000 if weights else 150_000)
    for _ in range(2):
        yield from host.load_library(2_400_000 if weights else 300_000)
    for number in range(weights):
        yield from host.malloc(210_000)
        yield from host.work(150_000)
        yield from host.copy(stream, upload((1 + number) * MIB))
        yield from host.synchronize_stream(stream)
    yield from host.work(4_000_000 if weights else 300_000)


Body = Callable[[int], Routine[None]]


def iterate(
    host: Host, count: int, body: Body, *, text: str = "step {}", devices: Sequence[int] = (0,)
) -> Routine[None]:
    """Run steps: the first few warm up, the last one is the tail.

    The last warm-up step, the last steady step and the last one end with a device synchronisation,
    as a loop that reads its timer does: so the steady steps begin with an idle device and their
    end includes the work they queued.
    """
    bounds = (WARMUP_STEPS - 1, count - 2, count - 1)
    for index in range(count):
        phase = "warmup" if index < WARMUP_STEPS else "tail" if index == count - 1 else "steady"
        with host.step(index, phase, text):
            if index < WARMUP_STEPS:
                yield from warm_up(host, index)
            yield from body(index)
            if index in bounds:
                for device in devices:
                    yield from host.synchronize_device(device)


def warm_up(host: Host, index: int) -> Routine[None]:
    """What first steps do once: the allocator fills, more device code is loaded."""
    for _ in range(3 if index == 0 else 1):
        yield from host.malloc(320_000)
    if index == 0:
        yield from host.load_library(3_100_000)


class Job:
    """A process that works on GPUs: its main thread, its null stream and its helpers."""

    def __init__(self, program: Program, name: str = "python", gpus: Sequence[int] = (0,)) -> None:
        self.program = program
        self.process: Process = program.process(name, gpus)
        self.main = Host(self.process, name)
        self.stream: Stream = self.process.stream()

    @cached_property
    def autograd(self) -> Host:
        """The second thread, which launches the backward pass."""
        return Host(self.process, "pt_autograd_0")

    def run(self, count: int, body: Body, *, text: str = "step {}", weights: int = 5) -> Program:
        """Have the main thread start up and run the steps; returns the machine."""

        def whole() -> Routine[None]:
            yield from start_up(self.main, weights=weights)
            yield from iterate(self.main, count, body, text=text)

        self.program.start(self.main, whole())
        return self.program

    def backward(self, work: Routine[None]) -> Routine[None]:
        """Have the second thread launch the backward pass while the main thread waits."""
        yield from self.main.wait("pthread_cond_wait", self.autograd.start(work))

    def train(self, network: Network, python_ns: int = PYTHON_NS) -> Routine[None]:
        """Forward, backward and update of one step."""
        main, stream = self.main, self.stream
        with main.range("forward"):
            yield from launch_all(main, stream, network.forward, python_ns)
        with main.range("backward"):
            yield from self.backward(launch_all(self.autograd, stream, network.backward, python_ns))
        with main.range("optimizer"):
            yield from launch_all(main, stream, network.update, python_ns)


def loader(
    job: Job,
    batches: int,
    produce_ns: Callable[[int], int],
    *,
    workers: int = 1,
    ahead: int = 4,
) -> Queue:
    """A queue that worker processes fill with batches, each taking the given time."""
    queue = job.program.queue(ahead)
    for worker in range(workers):
        process = job.program.process("pt_data_worker", ())
        host = Host(process, "pt_data_worker")

        def produce(host: Host = host, worker: int = worker) -> Routine[None]:
            for batch in range(worker, batches, workers):
                yield from host.os_call("read", 40_000)
                yield from host.work(produce_ns(batch))
                yield from queue.put()

        job.program.start(host, produce())
    return queue


def copy_batch(host: Host, stream: Stream, batch: Sequence[Copy]) -> Routine[None]:
    """Copy the tensors of a batch to the device."""
    for copy in batch:
        yield from host.work(12_000)
        yield from host.copy(stream, copy)
