"""What no price may do, whatever the trace and the cures.

NSYSDOCTOR_FUZZ says on how many made traces.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest

from nsysdoctor.arrays.intervals import Ints, spans, union
from nsysdoctor.diagnosis.cure_sets import find_sets
from nsysdoctor.replay.edits import Change, Part, edits, join
from nsysdoctor.replay.graph import Graph, Kind, source_of
from nsysdoctor.replay.patch import edited
from nsysdoctor.replay.replay import Replay, run
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from tests import swept
from tests.replay.made import Cures, Made, cures_of, made

TRACES = int(os.environ.get("NSYSDOCTOR_FUZZ", "100"))
PART = 50


def removed_ns(graph: Graph) -> int:
    """What the edits take away where they stand: for every node the time by which it would come
    earlier were all else as observed."""
    time, (source, lag, _), first = graph.nodes.time, graph.edges, graph.first
    promised = time[source_of(source)] + lag
    entered = np.flatnonzero(np.diff(first) > 0)
    latest = np.maximum.reduceat(np.where(source >= 0, promised, -(1 << 62)), first[:-1][entered])
    free = np.minimum.reduceat(np.where(source < 0, promised, 1 << 62), first[:-1][entered])
    at = np.where(latest > -(1 << 62), latest, np.minimum(free, time[entered]))
    return int(np.maximum(time[entered] - at, 0).sum())


def kernels_left_ns(trace: Made, length: Ints) -> int:
    """The most that one stream's kernels take, of the given lengths."""
    ops = trace.ops
    kernel = (ops["kind"] == KERNEL).to_numpy()
    left = [0]
    for lane in ops["lane"].unique():
        mine = np.flatnonzero(kernel & (ops["lane"] == lane).to_numpy())
        start, end = (ops[c].to_numpy()[mine] for c in ("start_ns", "end_ns"))
        whole = union(spans(start, end))
        gone = (end - start - length[mine]).clip(min=0).sum()
        left.append(int((whole.end - whole.start).sum() - gone))
    return max(left)


def check(seed: int) -> None:
    """Holds the prices of one made trace's cures against what each can save at most."""
    trace = made(seed)
    graph, replay = trace.replay.graph, trace.replay
    assert (run(graph) == graph.nodes.time).all()
    cures = cures_of(trace, seed)
    for cure in cures:
        saving = replay.saving_ns(cure)
        with edited(graph, cure, "middle") as (changed, _):
            assert saving <= removed_ns(changed)
            edge, index = changed.into(Kind.RUN, np.arange(len(trace.ops)))
            length = np.zeros(len(trace.ops), dtype=np.int64)
            length[index] = changed.edges.lag[edge]
            assert saving <= replay.window_ns - kernels_left_ns(trace, length)
    known = [replay.saving_ns(cure) for cure in cures]
    order = np.random.default_rng(seed).permutation(len(cures)).tolist()
    grown, before = [], 0
    for number in order:
        grown.append(number)
        saving = replay.saving_ns(join(*(cures[n] for n in grown)))
        assert saving >= max(before, known[number]), (seed, grown)
        before = saving
    assert (run(graph) == graph.nodes.time).all()


@pytest.mark.parametrize("first", swept(range(0, TRACES, PART), 4))
def test_no_price_breaks_what_holds_for_all(first: int) -> None:
    for seed in range(first, min(first + PART, TRACES)):
        check(seed)


@pytest.mark.parametrize("first", swept(range(0, TRACES, PART), 4))
def test_sets_of_cures_save_what_they_say_and_more_than_their_parts(first: int) -> None:
    for seed in range(first, min(first + PART, TRACES)):
        trace = made(seed)
        replay, cures = trace.replay, cures_of(trace, seed)
        saving_ns = partial(_together_ns, replay, cures)
        single = [saving_ns([n]) for n in range(len(cures))]
        whole, least = saving_ns(range(len(cures))), replay.window_ns // 100 + 1
        sets = find_sets(saving_ns, single, whole, least)
        members = [n for found in sets for n in found.members]
        assert len(members) == len(set(members))
        for found in sets:
            assert found.saving_ns == saving_ns(found.members) <= whole
            assert found.saving_ns >= sum(single[n] for n in found.members) + least
            assert len(found.members) > 1


def _together_ns(replay: Replay, cures: Cures, numbers: Iterable[int]) -> int:
    return replay.saving_ns(join(*(cures[n] for n in numbers)))


def _parts_ns(worth: dict[frozenset[int], int], numbers: Iterable[int]) -> int:
    """What a set saves: the sum of the named parts that it holds."""
    return sum(ns for part, ns in worth.items() if part <= frozenset(numbers))


@pytest.mark.parametrize(
    ("worth", "sets"),
    [
        ({(0,): 30, (1,): 20}, []),
        ({(0, 1): 30}, [((0, 1), 30)]),
        ({(0,): 20, (0, 1): 30, (2,): 5}, [((0, 1), 50)]),
        ({(0, 1): 30, (2, 3): 20}, [((0, 1), 30), ((2, 3), 20)]),
        ({(0, 1, 2): 30, (3,): 9}, [((0, 1, 2), 30)]),
        ({(0, 1): 10, (0, 1, 2): 30}, [((0, 1, 2), 40)]),
    ],
)
def test_the_smallest_sets_are_found(
    worth: dict[tuple[int, ...], int], sets: list[tuple[tuple[int, ...], int]]
) -> None:
    saving_ns = partial(_parts_ns, {frozenset(part): ns for part, ns in worth.items()})
    single = [saving_ns([n]) for n in range(4)]
    found = find_sets(saving_ns, single, saving_ns(range(4)), 2)
    assert [(one.members, one.saving_ns) for one in found] == sets


def test_cures_of_different_parts_of_one_pause_add_up() -> None:
    trace = made(next(s for s in range(100) if len(cures_of(made(s), s)[2][0])))
    graph = trace.replay.graph
    call = int(cures_of(trace, 0)[2][0]["row"].iloc[0])
    (edge,), _ = graph.into(Kind.OUTSIDE, np.array([call]))
    pause = int(graph.edges.lag[edge])

    def left(*parts: Part) -> int:
        cure = [edits(Change.OUTSIDE_NS, 0, [call], 2 * pause // 3, part=part) for part in parts]
        with edited(graph, cure, "middle") as (changed, _):
            return int(changed.edges.lag[edge])

    once = 2 * pause // 3
    assert left(Part.OWN) == left(Part.OWN, Part.OWN) == once
    assert left(Part.OWN, Part.INPUT) == pause - 2 * (pause - once)
    assert left(Part.OWN, Part.INPUT, Part.PROFILER, Part.SLEEP) == 0
