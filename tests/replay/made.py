"""Made traces: random programs of threads, streams and GPUs, and cures of their faults."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints
from nsysdoctor.replay.constraints import constraint_graph
from nsysdoctor.replay.edits import Change, Part, edits, join
from nsysdoctor.replay.replay import Finish, Replay
from nsysdoctor.replay.work_left import WorkLeft
from nsysdoctor.tables.account.window_kernels import WindowKernels
from nsysdoctor.tables.activity.gpu_rows import COPY, KERNEL
from nsysdoctor.tables.dependencies.engine_turns import EngineTurns, previous
from nsysdoctor.tables.dependencies.latent_waits import LatentWaits
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.dependencies.waits import Waiting
from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.trace.window import Request

Cures = list[list[pd.DataFrame]]
_NONE = np.empty(0, dtype=np.int64)
_OWN_NS = 10_000


class Made(NamedTuple):
    """A made trace: its tables, its replay and the call of each operation."""

    ops: pd.DataFrame
    api: pd.DataFrame
    waiting: Waiting
    replay: Replay
    call: Ints


class _Program:
    """Threads that launch, copy, wait and pause, each on one GPU with streams of its own."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.calls: list[dict[str, int]] = []
        self.ops: list[dict[str, int]] = []
        self.waits: list[tuple[int, int]] = []
        self.free_ns: dict[int, tuple[int, int]] = {}
        self.overlap_ratio = float(rng.choice([0.0, 0.01, 0.3]))

    def thread(self, thread: int, device: int, streams: list[int]) -> None:
        """Runs one thread from a time of its own on."""
        rng, now = self.rng, int(self.rng.integers(0, 200_000))
        faults = rng.random(3) < 0.5
        for _ in range(int(rng.integers(3, 12))):
            now += int(rng.integers(1_000, 400_000)) if faults[0] else 2_000
            if faults[1]:
                now = self._submit(now, thread, device, int(rng.choice(streams)), blocking=True)
            for _ in range(int(rng.integers(1, 9))):
                now += int(rng.integers(500, 8_000))
                stream = int(rng.choice(streams))
                now = self._submit(now, thread, device, stream, blocking=False)
            if faults[2]:
                now = self._wait(now + 1_000, thread, streams)

    def _submit(self, now: int, thread: int, device: int, stream: int, *, blocking: bool) -> int:
        rng = self.rng
        last, last_start = self.free_ns.get(stream, (0, 0))
        start = now + int(rng.integers(3_000, 9_000))
        if last > start:
            early = int(rng.integers(0, 400)) if rng.random() < self.overlap_ratio else -800
            start = max(start, last_start, last - early)
        end = start + int(rng.integers(0, 120_000))
        self.free_ns[stream] = max(end, last), start
        verb = Verb.COPY_ASYNC if blocking else Verb.LAUNCH
        returned = end + 2_000 if blocking else now + int(rng.integers(2_000, 7_000))
        self.calls.append({"thread": thread, "start_ns": now, "end_ns": returned, "verb": verb})
        kind = COPY if blocking else KERNEL
        self.ops.append(
            {"start_ns": start, "end_ns": end, "kind": kind, "lane": stream, "device": device,
             "call": len(self.calls) - 1}
        )  # fmt: skip
        if blocking:
            self.waits.append((len(self.calls) - 1, len(self.ops) - 1))
        return returned

    def _wait(self, now: int, thread: int, streams: list[int]) -> int:
        stream = int(self.rng.choice(streams))
        mine = [row for row, op in enumerate(self.ops) if op["lane"] == stream]
        end = max([now + 3_000, *(self.ops[row]["end_ns"] + 2_000 for row in mine)])
        self.calls.append(
            {"thread": thread, "start_ns": now, "end_ns": end, "verb": Verb.STREAM_SYNC}
        )
        if mine:
            self.waits.append((len(self.calls) - 1, max(mine, key=lambda r: self.ops[r]["end_ns"])))
        return end


def made(seed: int) -> Made:
    """Returns the made trace of a seed."""
    rng = np.random.default_rng(seed)
    program = _Program(rng)
    devices, stream = int(rng.integers(1, 3)), 0
    for thread in range(int(rng.integers(1, 4))):
        own = list(range(stream, stream + int(rng.integers(1, 3))))
        stream += len(own)
        program.thread(thread, thread % devices, own)
    calls, ops = pd.DataFrame(program.calls), pd.DataFrame(program.ops)
    of_call, of_op = _by_time(calls), _by_time(ops)
    calls = calls.iloc[of_call].reset_index(drop=True).assign(top=True, process=0, name=0)
    ops = ops.iloc[of_op].reset_index(drop=True)
    new_call, new_op = np.argsort(of_call), np.argsort(of_op)
    pairs = np.array(program.waits, dtype=np.int64).reshape(-1, 2)
    call = new_call[ops.pop("call").to_numpy()]
    waiting = _waiting(calls, ops, new_call[pairs[:, 0]], new_op[pairs[:, 1]])
    return Made(ops, calls, waiting, _replay(calls, ops, waiting, call), call)


def _by_time(rows: pd.DataFrame) -> Ints:
    return np.lexsort((rows["end_ns"], rows["start_ns"]))


def _waiting(calls: pd.DataFrame, ops: pd.DataFrame, call: Ints, op: Ints) -> Waiting:
    length = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    lag = calls["end_ns"].to_numpy()[call] - ops["end_ns"].to_numpy()[op]
    blocks = np.zeros(len(calls), dtype=bool)
    blocks[call] = True
    own = np.minimum(length, _OWN_NS).astype(np.int32)
    return Waiting(call, op, np.clip(lag, 0, 5_000), blocks, own, _NONE, _NONE)


def _replay(calls: pd.DataFrame, ops: pd.DataFrame, waiting: Waiting, call: Ints) -> Replay:
    none = np.full(len(ops), -1, dtype=np.int32)
    lane = ops["lane"].to_numpy()
    links = Links(call.astype(np.int32), previous(lane), EngineTurns(none, none))
    met = pd.DataFrame({"op": _NONE, "meeting": _NONE, "transfer_ns": _NONE})
    graph = constraint_graph(
        ops, calls, links, waiting, LatentWaits(_NONE, _NONE), calls["thread"].to_numpy(), met,
        Request(),
    )  # fmt: skip
    kernel = np.flatnonzero(ops["kind"] == KERNEL).astype(np.int32)
    device = ops.groupby("lane")["device"].first().reindex(range(int(lane.max()) + 1)).fillna(0)
    kernels = WindowKernels(
        kernel, lane[kernel], np.zeros(len(kernel), dtype=bool), np.zeros(len(device), dtype=int),
        device.to_numpy(dtype=int),
    )  # fmt: skip
    window = int(ops["start_ns"].min()), int(ops["end_ns"].max())
    finish = [Finish(-1, 0, graph.nodes.op_end)]
    return Replay(graph, finish, window[1] - window[0], WorkLeft(graph, kernels, window))


def cures_of(trace: Made, seed: int) -> Cures:
    """Returns cures of the faults of a made trace, at some or all of the places of each."""
    rng = np.random.default_rng(seed + 1)
    api, ops = trace.api, trace.ops
    verb, length = api["verb"].to_numpy(), (ops["end_ns"] - ops["start_ns"]).to_numpy()

    def some(rows: Any) -> Ints:
        return np.asarray(rows[rng.random(len(rows)) < rng.choice([0.4, 1.0])], dtype=np.int64)

    syncs = some(np.flatnonzero(verb == Verb.STREAM_SYNC))
    copies = some(np.flatnonzero(ops["kind"] == COPY))
    outside = _outside(api)
    pauses = some(np.flatnonzero(outside > 50_000))
    kernel = np.flatnonzero(ops["kind"] == KERNEL)
    fast, faster, gone = some(kernel), some(kernel), some(kernel)
    return [
        [edits(Change.UNBLOCK, 0, syncs)],
        [
            edits(Change.UNBLOCK, 0, trace.call[copies], 5_000),
            edits(Change.LAUNCH_NS, 0, copies, 5_000),
            edits(Change.OP_NS, 0, copies, length[copies] // 2),
        ],
        [edits(Change.OUTSIDE_NS, 0, pauses, outside[pauses] // 2)],
        [edits(Change.OUTSIDE_NS, 0, pauses, 2 * outside[pauses] // 3, part=Part.INPUT)],
        [edits(Change.OP_NS, 0, fast, length[fast] // 3)],
        [edits(Change.OP_NS, 0, faster, length[faster] // 2)],
        [edits(Change.FREE_OP, 0, copies), edits(Change.RELEASE, 0, copies)],
        join(
            edits(Change.OP_NS, 0, gone, 0),
            edits(Change.RELEASE, 0, gone),
            edits(Change.CALL_NS, 0, np.unique(trace.call[gone])),
            edits(Change.OUTSIDE_NS, 0, np.unique(trace.call[gone])),
        ),
    ]


def _outside(api: pd.DataFrame) -> Ints:
    """The time of each thread between its calls, before each."""
    before = api.groupby("thread")["end_ns"].shift()
    return (api["start_ns"] - before).fillna(0).to_numpy(dtype=np.int64)
