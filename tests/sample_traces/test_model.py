"""The model of CUDA programs: what calls cost, queue, block and order; sanity of every program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

import sample_traces
from sample_traces import PROGRAMS, Recording, by_process, record
from sample_traces.cuda import Host
from sample_traces.device import QUEUE_DEPTH, STREAM_GAP_NS, Stream
from sample_traces.engine import Routine
from sample_traces.hardware import A100_80GB, V100_16GB
from sample_traces.kernels import FLOAT, all_reduce, efficiency, pointwise
from sample_traces.program import Program
from sample_traces.programs.training import Job
from sample_traces.recording import NOTHING, Op
from sample_traces.work import Copy, Graph, Kernel, Migration, Set, download, upload
from tests import swept

MILLISECOND = 1_000_000
MIB = 1 << 20
KERNEL = Kernel("busy(float *)", MILLISECOND)


def run(main: Callable[[Job], Routine[None]], **options: object) -> Recording:
    """The recording of one process whose main thread runs the routine."""
    program = Program(A100_80GB, **options)  # type: ignore[arg-type]
    job = Job(program, "app")
    program.start(job.main, main(job))
    return program.run()


def of(recording: Recording, kind: type) -> list[Op]:
    return [op for op in recording.ops if isinstance(op.work, kind)]


def test_a_launch_returns_before_its_kernel_ends_and_starts_it_after_the_call_began() -> None:
    def main(job: Job) -> Routine[None]:
        yield from job.main.launch(job.stream, KERNEL)

    recording = run(main)
    call, op = recording.calls[0], recording.ops[0]
    assert call.end_ns - call.start_ns == 5_000
    assert op.start_ns - call.start_ns == 4_500
    assert op.end_ns - op.start_ns == MILLISECOND
    assert op.correlation == call.correlation


def test_kernels_of_a_stream_follow_one_another_after_the_gap() -> None:
    def main(job: Job) -> Routine[None]:
        for _ in range(4):
            yield from job.main.launch(job.stream, KERNEL)

    ops = run(main).ops
    assert [b.start_ns - a.end_ns for a, b in pairwise(ops)] == [STREAM_GAP_NS] * 3


@pytest.mark.parametrize("copy", [upload(64 * MIB), download(64 * MIB), download(4)])
def test_a_pageable_copy_waits_for_its_stream_and_blocks_the_host(copy: Copy) -> None:
    def main(job: Job) -> Routine[None]:
        yield from job.main.launch(job.stream, KERNEL)
        yield from job.main.copy(job.stream, copy)

    recording = run(main)
    kernel, moved = recording.ops
    call = recording.calls[1]
    assert moved.start_ns >= kernel.end_ns
    assert call.end_ns >= moved.end_ns
    assert call.end_ns - moved.end_ns < 5_000


def test_a_small_pageable_upload_returns_once_it_is_staged() -> None:
    def main(job: Job) -> Routine[None]:
        yield from job.main.launch(job.stream, KERNEL)
        yield from job.main.copy(job.stream, upload(65_536))

    recording = run(main)
    assert recording.calls[1].end_ns < recording.ops[0].end_ns
    assert recording.ops[1].start_ns >= recording.ops[0].end_ns


@pytest.mark.parametrize("copy", [upload(64 * MIB, pinned=True), download(4, pinned=True)])
def test_a_pinned_copy_does_not_block_and_runs_faster(copy: Copy) -> None:
    def main(job: Job) -> Routine[None]:
        yield from job.main.launch(job.stream, KERNEL)
        yield from job.main.copy(job.stream, copy)
        yield from job.main.launch(job.stream, KERNEL)

    recording = run(main)
    assert recording.calls[2].end_ns < recording.ops[0].end_ns
    first, moved, second = recording.ops
    assert first.end_ns < moved.start_ns < moved.end_ns < second.start_ns


def test_copy_rates_are_those_of_the_card() -> None:
    def main(job: Job) -> Routine[None]:
        for copy in (upload(1 << 28), upload(1 << 28, pinned=True), download(1 << 28)):
            yield from job.main.copy(job.stream, copy)

    rates = [op.work.bytes / (op.end_ns - op.start_ns) for op in of(run(main), Copy)]  # type: ignore[union-attr]
    card = A100_80GB
    wanted = [card.pageable_htod, card.pinned_htod, card.pageable_dtoh]
    assert rates == pytest.approx([rate / 1e9 for rate in wanted], rel=0.001)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_synchronous_copy_blocks_whatever_its_memory(pinned: bool) -> None:
    def main(job: Job) -> Routine[None]:
        yield from job.main.copy_now(0, download(MIB, pinned=pinned))

    recording = run(main)
    assert recording.calls[0].end_ns > recording.ops[0].end_ns


def test_copies_of_one_direction_take_turns_and_the_other_direction_runs_beside_them() -> None:
    def main(job: Job) -> Routine[None]:
        for copy in (upload(24 * MIB, pinned=True), download(24 * MIB, pinned=True)):
            for _ in range(2):
                yield from job.main.copy(job.process.side_stream(), copy)

    ops = of(run(main), Copy)
    up = sorted((op.start_ns, op.end_ns) for op in ops if op.work.direction == 1)  # type: ignore[union-attr]
    down = sorted((op.start_ns, op.end_ns) for op in ops if op.work.direction == 2)  # type: ignore[union-attr]
    assert up[1][0] >= up[0][1]
    assert down[1][0] >= down[0][1]
    assert down[0][0] < up[0][1]


def test_a_full_launch_queue_blocks_the_launching_call() -> None:
    def main(job: Job) -> Routine[None]:
        for _ in range(QUEUE_DEPTH + 3):
            yield from job.main.launch(job.stream, KERNEL.lasting(100 * MILLISECOND))

    calls = run(main).calls
    lengths = [call.end_ns - call.start_ns for call in calls]
    assert lengths[: QUEUE_DEPTH + 1] == [5_000] * (QUEUE_DEPTH + 1)
    assert lengths[QUEUE_DEPTH + 1] > 50 * MILLISECOND


def _two_streams(share: int) -> list[Op]:
    def main(job: Job) -> Routine[None]:
        kernel = Kernel("part(int)", MILLISECOND, share=share)
        for _ in range(2):
            yield from job.main.launch(job.process.side_stream(), kernel)

    return run(main).ops


def test_whole_device_kernels_serialise_and_small_ones_overlap() -> None:
    first, second = _two_streams(1000)
    assert second.start_ns >= first.end_ns
    first, second = _two_streams(400)
    assert second.start_ns < first.end_ns


def test_a_stream_waits_for_an_event_and_the_host_does_not() -> None:
    def main(job: Job) -> Routine[None]:
        side, event = job.process.side_stream(), job.process.event()
        yield from job.main.launch(job.stream, KERNEL)
        yield from job.main.record_event(job.stream, event)
        yield from job.main.wait_event(side, event)
        yield from job.main.copy(side, upload(MIB, pinned=True))

    recording = run(main)
    kernel, copy = recording.ops
    assert copy.start_ns > kernel.end_ns
    assert max(call.end_ns for call in recording.calls) < kernel.end_ns
    (record_row,), (wait,) = recording.events, recording.syncs
    assert (wait.stream, wait.event, wait.event_sync) == (13, record_row.event, 1)


def _synchronize(kind: str) -> tuple[Recording, Stream]:
    streams: list[Stream] = []

    def main(job: Job) -> Routine[None]:
        side, event = job.process.side_stream(), job.process.event()
        streams.append(side)
        yield from job.main.launch(side, KERNEL.lasting(9 * MILLISECOND))
        yield from job.main.record_event(side, event)
        yield from job.main.launch(job.stream, KERNEL.lasting(2 * MILLISECOND))
        if kind == "device":
            yield from job.main.synchronize_device()
        elif kind == "stream":
            yield from job.main.synchronize_stream(side)
        else:
            yield from job.main.synchronize_event(side, event)

    return run(main), streams[0]


@pytest.mark.parametrize(
    ("kind", "row"),
    [("device", (NOTHING, NOTHING)), ("stream", (13, NOTHING)), ("event", (NOTHING, 1))],
)
def test_a_synchronisation_returns_soon_after_the_work_it_waits_for(
    kind: str, row: tuple[int, int]
) -> None:
    recording, side = _synchronize(kind)
    call, sync = recording.calls[-1], recording.syncs[-1]
    awaited = [op for op in recording.ops if kind == "device" or op.stream == side.number]
    assert call.end_ns - max(op.end_ns for op in awaited) == 3_000
    assert (sync.stream, sync.event) == row
    assert call.start_ns <= sync.start_ns <= sync.end_ns <= call.end_ns


@pytest.mark.parametrize(("blocking", "waits"), [(True, True), (False, False)])
def test_the_null_stream_orders_itself_with_blocking_streams_only(
    blocking: bool, waits: bool
) -> None:
    small = Kernel("small(int)", MILLISECOND, share=100)

    def main(job: Job) -> Routine[None]:
        side = job.process.side_stream(blocking=blocking)
        yield from job.main.launch(side, small)
        yield from job.main.launch(job.stream, small)
        yield from job.main.launch(side, small)

    ops = sorted(run(main).ops, key=lambda op: op.correlation)
    assert (ops[1].start_ns > ops[0].end_ns) is waits
    assert (ops[2].start_ns > ops[1].end_ns) is waits


def test_freeing_memory_waits_for_the_device_and_allocating_does_not() -> None:
    def main(job: Job) -> Routine[None]:
        yield from job.main.launch(job.stream, KERNEL)
        yield from job.main.malloc(100_000)
        yield from job.main.free(0, 100_000)

    recording = run(main)
    _, malloc, free = recording.calls
    assert malloc.end_ns < recording.ops[0].end_ns
    assert free.end_ns == recording.ops[0].end_ns + 100_000


def test_page_locking_holds_up_the_launches_of_other_threads() -> None:
    program = Program(A100_80GB)
    job = Job(program, "app")
    other = Host(job.process, "worker")

    def launches() -> Routine[None]:
        yield from other.launch(job.stream, KERNEL)

    program.start(job.main, job.main.host_alloc(5 * MILLISECOND))
    program.start(other, launches(), 1_000_000)
    call = next(call for call in program.run().calls if "Launch" in call.name)
    assert call.end_ns - call.start_ns >= 4 * MILLISECOND


def test_collectives_of_all_ranks_end_together_after_the_last_one_came() -> None:
    program = Program(A100_80GB, V100_16GB)

    def rank(job: Job, late_ns: int) -> Routine[None]:
        yield from job.main.work(late_ns)
        yield from job.main.launch(job.stream, all_reduce("step", 2, 2 * MILLISECOND))

    for number, late_ns in enumerate((0, 7 * MILLISECOND)):
        job = Job(program, "python", (number,))
        program.start(job.main, rank(job, late_ns))
    first, second = sorted(program.run().ops, key=lambda op: op.gpu)
    assert first.end_ns == second.end_ns == second.start_ns + 2 * MILLISECOND
    assert second.start_ns - first.start_ns == 7 * MILLISECOND
    assert (first.device, second.device) == (0, 0)


def test_a_kernel_is_slowed_for_as_long_as_a_collective_runs_beside_it() -> None:
    def main(job: Job) -> Routine[None]:
        sensitive = Kernel("reads(float *)", 10 * MILLISECOND, slowdown=2.0)
        yield from job.main.launch(job.stream, sensitive)
        reduce = all_reduce("alone", 1, 4 * MILLISECOND)
        yield from job.main.launch(job.process.side_stream(), reduce)

    ops = sorted(run(main).ops, key=lambda op: op.correlation)
    assert ops[0].end_ns - ops[0].start_ns == 12 * MILLISECOND


def _replay(mode: str) -> Recording:
    graph = Graph((KERNEL, KERNEL.lasting(500_000), KERNEL))

    def main(job: Job) -> Routine[None]:
        yield from job.main.instantiate(graph)
        for _ in range(2):
            yield from job.main.launch(job.stream, graph)

    return run(main, graph_mode=mode)


def test_a_graph_is_one_row_per_replay_or_one_row_per_node() -> None:
    whole, nodes = _replay("graph"), _replay("node")
    assert [type(op.work) for op in whole.ops] == [Graph, Graph]
    assert [type(op.work) for op in nodes.ops] == [Kernel] * 6
    for number, replay in enumerate(whole.ops):
        part = nodes.ops[3 * number : 3 * number + 3]
        assert (part[0].start_ns, part[-1].end_ns) == (replay.start_ns, replay.end_ns)
        assert {op.correlation for op in part} == {replay.correlation}
    assert [op.node for op in nodes.ops[:3]] == [op.node for op in nodes.ops[3:]]
    assert len({op.node for op in nodes.ops}) == 3
    assert [event.event_class for event in whole.graphs] == [95, 94]


def test_migrations_stretch_their_kernel_and_carry_no_ids() -> None:
    def main(job: Job) -> Routine[None]:
        joined = Kernel("join(int)", MILLISECOND, migration=Migration(20, 65_536, 4 * MILLISECOND))
        yield from job.main.launch(job.stream, joined)

    recording = run(main)
    (kernel,), pages = of(recording, Kernel), of(recording, Copy)
    assert kernel.end_ns - kernel.start_ns == 5 * MILLISECOND
    assert len(pages) == 20
    assert {(op.device, op.context, op.stream, op.correlation) for op in pages} == {(0, 0, 0, 0)}
    assert all(kernel.start_ns <= op.start_ns < op.end_ns <= kernel.end_ns for op in pages)


def test_a_bounded_queue_holds_its_producer_back_and_makes_the_consumer_wait() -> None:
    program = Program(A100_80GB)
    job = Job(program, "app")
    worker, queue, made = Host(job.process, "worker"), program.queue(2), []

    def produce() -> Routine[None]:
        for _ in range(6):
            yield from worker.work(MILLISECOND)
            yield from queue.put()
            made.append(worker.now)

    def consume() -> Routine[None]:
        for _ in range(6):
            yield from job.main.take(queue, "poll")
            yield from job.main.work(3 * MILLISECOND)

    program.start(worker, produce())
    program.start(job.main, consume())
    recording = program.run()
    waits = [(row.end_ns - row.start_ns, row.name) for row in recording.os_calls]
    assert waits == [(MILLISECOND + 6_000, "poll")]
    assert made[-1] - made[0] > 8 * MILLISECOND


def test_a_pointwise_kernel_has_the_geometry_and_time_of_its_bytes() -> None:
    kernel = pointwise(A100_80GB, "add", 1 << 24, FLOAT)
    assert kernel.grid[0] * kernel.block[0] * 4 == 1 << 24
    assert "std::array<char *, (unsigned long)3>" in kernel.name
    rate = 3 * 4 * (1 << 24) / kernel.duration_ns * 1e9 / A100_80GB.bandwidth
    assert rate == pytest.approx(efficiency("add"), rel=0.001)
    assert 0.85 <= rate <= 0.92
    assert kernel.short == "vectorized_elementwise_kernel"


def _serial_keys(op: Op) -> tuple[int, int, int, int]:
    return (op.pid, op.device, op.context, op.stream)


WORK_COMES_BACK = {"failed_calls"}
"""Faults by which work is not done: cured, the program does it and takes longer."""

@pytest.fixture(scope="module", params=swept(sorted(PROGRAMS), 5))
def pair(request: pytest.FixtureRequest) -> tuple[Recording, Recording]:
    name = request.param
    return record(name), record(name, cured=True)


def test_no_two_operations_of_a_stream_overlap(pair: tuple[Recording, Recording]) -> None:
    for recording in pair:
        ends: dict[tuple[int, int, int, int], int] = {}
        for op in sorted(recording.ops, key=lambda row: row.start_ns):
            if op.stream:
                assert op.start_ns >= ends.get(_serial_keys(op), 0)
                ends[_serial_keys(op)] = op.end_ns


def test_every_operation_starts_after_its_call_began(pair: tuple[Recording, Recording]) -> None:
    for recording in pair:
        begun = {(call.pid, call.correlation): call.start_ns for call in recording.calls}
        for op in recording.ops:
            if op.stream:
                assert op.start_ns > begun[op.pid, op.correlation]


def test_correlations_are_unique_within_a_process(pair: tuple[Recording, Recording]) -> None:
    for recording in pair:
        counts = Counter((call.pid, call.correlation) for call in recording.calls)
        assert set(counts.values()) == {1}


def test_calls_of_a_thread_follow_one_another(pair: tuple[Recording, Recording]) -> None:
    for recording in pair:
        ends: dict[tuple[int, int], int] = {}
        for call in sorted(recording.calls, key=lambda row: (row.start_ns, row.end_ns)):
            assert call.start_ns >= ends.get((call.pid, call.tid), 0)
            ends[call.pid, call.tid] = call.end_ns


def test_whole_device_kernels_never_overlap_on_a_card(pair: tuple[Recording, Recording]) -> None:
    for recording in pair:
        last: dict[int, int] = {}
        for op in sorted(recording.ops, key=lambda row: row.start_ns):
            work = op.work
            if isinstance(work, Kernel) and work.share == 1000 and not op.node:
                assert op.start_ns >= last.get(op.gpu, 0)
                last[op.gpu] = op.end_ns


def test_a_cure_never_makes_the_program_slower(
    pair: tuple[Recording, Recording], request: pytest.FixtureRequest
) -> None:
    if PROGRAMS[request.node.callspec.params["pair"]].rule in WORK_COMES_BACK:
        return
    faulty, cured = pair
    assert cured.end_ns <= faulty.end_ns
    assert cured.steady_ns <= faulty.steady_ns


def test_steady_steps_are_bounded_by_an_idle_device(pair: tuple[Recording, Recording]) -> None:
    for recording in pair:
        owned = recording.owned_steps()
        steady = [step for step in owned if step.steady]
        if steady:
            own = steady[0].pid, steady[0].tid
            tids = {(call.pid, call.correlation): call.tid for call in recording.calls}
            mine = [op for op in recording.ops if op.pid == own[0]
                    and tids.get((op.pid, op.correlation), own[1]) == own[1]]  # fmt: skip
            for boundary in (steady[0].start_ns, steady[-1].end_ns):
                assert not [op for op in mine if op.start_ns < boundary < op.end_ns]


UNPRICED = {
    "failed_calls", "graph_kernels_hidden", "incomplete_capture", "underfilled_grid",
    "register_spill",
}  # fmt: skip


@pytest.mark.parametrize("sample", swept(PROGRAMS.values(), 5), ids=PROGRAMS.keys())
def test_the_fault_of_a_program_costs_time_and_a_control_has_none(
    sample: sample_traces.Sample,
) -> None:
    saving = sample_traces.true_saving_ns(sample.name)
    if sample.rule in WORK_COMES_BACK:
        assert saving < 0
    elif sample.rule is None or sample.rule in UNPRICED:
        assert saving == 0
    else:
        assert saving > 0.02 * record(sample.name).steady_ns
        assert sample.cure != "none"
    assert sample.rule not in sample.quiet + sample.also


@pytest.mark.parametrize("name", ["pageable_copy", "exposed_communication", "input_starvation"])
def test_runs_are_repeatable_and_the_spread_follows_the_seed(name: str) -> None:
    assert record(name).ops == record(name).ops
    one, again = (record(name, seed=1, jitter_ratio=0.02) for _ in range(2))
    other = record(name, seed=2, jitter_ratio=0.02)
    assert one.ops == again.ops
    assert one.calls == again.calls
    assert one.ops != other.ops
    assert one.end_ns == pytest.approx(record(name).end_ns, rel=0.03)


def test_the_two_places_of_one_synchronisation_cost_the_same() -> None:
    late, early = (
        sample_traces.steady_saving_ns(f"sync_in_{place}")
        for place in ("progress_bar", "batch_to_device")
    )
    assert late == pytest.approx(early, rel=0.01)


def test_a_recording_of_several_ranks_splits_into_one_per_rank() -> None:
    whole = record("straggler_rank")
    parts = by_process(whole)
    assert len(parts) == 8
    assert sum(len(part.ops) for part in parts) == len(whole.ops)
    meetings = [[op for op in part.ops if "nccl" in getattr(op.work, "name", "")] for part in parts]
    lengths = [op[5].end_ns - op[5].start_ns for op in meetings]
    assert lengths.index(min(lengths)) == 4
    assert max(lengths) == pytest.approx(12 * MILLISECOND, rel=0.01)
    assert min(lengths) == 2 * MILLISECOND
    assert all(part.steps for part in parts)


def test_sets_do_not_block_on_device_memory() -> None:
    def main(job: Job) -> Routine[None]:
        yield from job.main.launch(job.stream, KERNEL)
        yield from job.main.set(job.stream, Set(MIB), api="cudaMemset_v3020")

    recording = run(main)
    assert recording.calls[1].end_ns < recording.ops[0].end_ns
    assert of(recording, Set)[0].start_ns > recording.ops[0].end_ns
