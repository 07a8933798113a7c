"""Programs whose host stands in calls that are no work, or whose calls fail."""

from __future__ import annotations

from collections.abc import Callable

from sample_traces import kernels
from sample_traces.cuda import Host
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB
from sample_traces.program import Program
from sample_traces.programs.training import Job, launch_all, network
from sample_traces.sample import Sample

CARD = A100_80GB
INVALID_CONFIGURATION = 9


def _asking(name: str, nominal_ns: int, every: int = 1) -> Callable[[bool], Program]:
    """A forward pass that makes a call into the driver in front of some of its layers."""

    def build(cured: bool) -> Program:
        job = Job(Program(CARD))
        work = network(CARD, 12_000_000, layers=6)

        def step(_: int) -> Routine[None]:
            for number, kernel in enumerate(work.forward):
                if not cured and number % every == 0:
                    yield from job.main.call(name, nominal_ns)
                yield from launch_all(job.main, job.stream, (kernel,))

        return job.run(36, step)

    return build


def stream_per_request(cured: bool) -> Program:
    """Two servers on two devices that make a stream for each request."""
    program = Program(CARD, CARD, nvtx=False)
    work = network(CARD, 9_000_000, layers=2)

    def serve(host: Host, device: int) -> Routine[None]:
        stream = host.process.stream(device)
        for _ in range(60):
            if not cured:
                yield from host.call("cudaStreamCreateWithFlags_v5000", 1_400_000)
            yield from launch_all(host, stream, work.forward)
            yield from host.synchronize_stream(stream)

    for device in range(2):
        job = Job(program, f"server {device}", (device,))
        program.start(job.main, serve(job.main, 0))
    return program


def _reporting(api: str, runs_ns: int, every: int) -> Callable[[bool], Program]:
    """A loop with a host function in its stream behind some of the kernels."""

    def build(cured: bool) -> Program:
        job = Job(Program(CARD))
        work = network(CARD, 14_000_000)
        runner = Host(job.process, "cuda-callbacks")

        def step(_: int) -> Routine[None]:
            for number, kernel in enumerate(work.forward):
                yield from launch_all(job.main, job.stream, (kernel,))
                if number % every == every - 1:
                    if cured:
                        yield from job.main.call(api, 6_000)
                    else:
                        yield from job.main.host_function(job.stream, runner, runs_ns, api)

        return job.run(36, step)

    return build


def refused_launches(cured: bool) -> Program:
    """A loop one of whose kernels asks for more threads than a block may have."""
    job = Job(Program(CARD))
    work = network(CARD, 14_000_000)
    scale = kernels.pointwise(CARD, "scale", 65_536)

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, work.forward)
        if cured:
            yield from job.main.launch(job.stream, scale)
        else:
            yield from job.main.refused("cudaLaunchKernel_v7000", INVALID_CONFIGURATION)
        yield from job.main.synchronize_stream(job.stream)

    return job.run(30, step)


def answers_that_look_like_errors(_: bool) -> Program:
    """A busy loop that polls an event and asks the driver about memory that is not its own."""
    job = Job(Program(CARD))
    work = network(CARD, 30_000_000)

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, work.forward)
        yield from job.main.refused("cudaEventQuery_v3020", 600)
        yield from job.main.refused("cudaPointerGetAttributes_v4000", 1)

    return job.run(36, step)


def monitored(cured: bool) -> Program:
    """A forward pass whose launches wait while another thread asks the driver for free memory."""
    job = Job(Program(CARD))
    work = network(CARD, 12_000_000)

    def watch() -> Routine[None]:
        host = Host(job.process, "monitor")
        yield from host.work(60_000_000)
        for _ in range(0 if cured else 110):
            yield from host.call("cudaMemGetInfo_v3020", 3_000_000, locked=True)
            yield from host.work(2_500_000)

    def step(_: int) -> Routine[None]:
        yield from launch_all(job.main, job.stream, work.forward)
        yield from job.main.synchronize_stream(job.stream)

    job.process.clock.start(watch())
    return job.run(36, step)


def _locked(name: str, nominal_ns: int, every: int) -> Callable[[bool], Program]:
    """A forward pass some of whose launches stand in a call of the OS."""

    def build(cured: bool) -> Program:
        job = Job(Program(CARD))
        work = network(CARD, 12_000_000, layers=6)

        def step(_: int) -> Routine[None]:
            for number, kernel in enumerate(work.forward):
                if number % every == every - 1 and not cured:
                    yield from job.main.held_launch(job.stream, kernel, name, nominal_ns)
                else:
                    yield from launch_all(job.main, job.stream, (kernel,))

        return job.run(36, step)

    return build


GONE = "the calls are made once, before the loop"
ELSEWHERE = "the functions are in a stream of their own"

SAMPLES = (
    Sample(
        "memory_info_per_layer",
        "Free memory asked for in front of every layer",
        "costly_call",
        _asking("cudaMemGetInfo_v3020", 900_000),
        cure=GONE,
        quiet=("host_bound", "launch_bound", "sync_in_loop"),
    ),
    Sample(
        "graph_built_per_step",
        "A graph instantiated anew several times in every step",
        "costly_call",
        _asking("cudaGraphInstantiateWithFlags_v11040", 2_400_000, every=8),
        cure=GONE,
        quiet=("host_bound", "launch_bound", "sync_in_loop"),
    ),
    Sample(
        "properties_per_launch",
        "Device properties asked for in front of every other launch, faster than the device",
        None,
        lambda _: _asking("cudaGetDeviceProperties_v2_v12000", 60_000, every=2)(False),
        quiet=("costly_call",),
    ),
    Sample(
        "stream_per_request",
        "A stream made for each request, on two devices",
        "costly_call",
        stream_per_request,
        cure=GONE,
        also=("sync_in_loop", "launch_bound", "host_bound"),
    ),
    Sample(
        "host_function_writes",
        "A host function that writes a log between two kernels",
        "host_function_in_stream",
        _reporting("cudaLaunchHostFunc_v10000", 1_300_000, 4),
        cure=ELSEWHERE,
        quiet=("host_bound", "launch_bound", "sync_in_loop"),
    ),
    Sample(
        "stream_callback",
        "A short callback of the driver behind every kernel",
        "host_function_in_stream",
        _reporting("cuStreamAddCallback", 120_000, 1),
        cure=ELSEWHERE,
        quiet=("host_bound", "launch_bound", "sync_in_loop"),
    ),
    Sample(
        "launches_behind_a_monitor",
        "Launches wait while another thread asks for free memory",
        "launch_held_up",
        monitored,
        cure="the other thread does not ask",
        also=("sync_in_loop", "launch_bound", "host_bound", "costly_call"),
    ),
    Sample(
        "launches_behind_a_lock",
        "Every sixth launch waits for a lock",
        "launch_held_up",
        _locked("pthread_mutex_lock", 4_200_000, 6),
        cure="the lock is free",
        quiet=("launch_bound", "sync_in_loop", "costly_call"),
    ),
    Sample(
        "launches_in_ioctl",
        "Every eighth launch goes into the kernel of the OS",
        "launch_held_up",
        _locked("ioctl", 6_000_000, 8),
        cure="the launches stay in user space",
        quiet=("launch_bound", "sync_in_loop", "costly_call"),
    ),
    Sample(
        "refused_launches",
        "A kernel that asks for too many threads never runs",
        "failed_calls",
        refused_launches,
        cure="the block has as many threads as the device allows",
        also=("sync_in_loop", "launch_bound", "host_bound"),
        quiet=("incomplete_capture",),
    ),
    Sample(
        "answers_that_look_like_errors",
        "Queries that say not yet, and attributes of memory that is not CUDA's",
        None,
        answers_that_look_like_errors,
        quiet=("failed_calls",),
    ),
)
