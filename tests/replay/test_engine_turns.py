"""What takes turns on a device, which collectives meet, and edits that pass waits on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nsysdoctor.replay.edits import Change, edits, join, parted
from nsysdoctor.replay.graph import Kind, Wish, number_nodes, settle
from nsysdoctor.replay.patch import edited
from nsysdoctor.replay.replay import Finish, Replay, run
from nsysdoctor.tables.dependencies.engine_turns import engine_turns, filling_kernels
from nsysdoctor.tables.ranks.collectives import collectives, gpus_text, rank_groups
from nsysdoctor.trace.window import Request

COPY, KERNEL = 1, 0
HTOD, DTOH = 1 << 16, 2 << 16


def ops_of(*rows: tuple[int, int, int, int, int, int]) -> pd.DataFrame:
    """Operations from (kind, device, lane, name, start_ns, end_ns)."""
    names = ["kind", "device", "lane", "name", "start_ns", "end_ns"]
    frame = pd.DataFrame(rows, columns=names)
    return frame.assign(row=np.arange(len(frame)))


def kernel_rows(*blocks: int) -> pd.DataFrame:
    return pd.DataFrame({"grid_x": blocks, "grid_y": 1, "grid_z": 1})


def categories(ops: pd.DataFrame, *communicating: int) -> pd.Series[str]:
    found = np.where(ops["name"].isin(communicating), "communication", "gemm")
    return pd.Series(found)


ONE_GPU = pd.DataFrame({"device": [0], "sm_count": [108]})


def test_copies_of_one_direction_share_an_engine_whatever_their_memory() -> None:
    names = pd.DataFrame({"key": [HTOD + 1, HTOD + 2, DTOH]})
    ops = ops_of(
        (COPY, 0, 0, 0, 0, 10), (COPY, 0, 1, 1, 10, 20), (COPY, 0, 2, 2, 12, 22),
        (COPY, 1, 3, 0, 15, 25), (COPY, 0, 1, 0, 30, 40),
    )  # fmt: skip
    devices = pd.DataFrame({"device": [0, 1], "sm_count": [108, 108]})
    found = engine_turns(
        ops, names, categories(ops), filling_kernels(ops, devices)
    )
    assert found.engine.tolist() == [-1, 0, -1, -1, 1]


def test_only_kernels_that_fill_the_device_take_turns() -> None:
    names = pd.DataFrame({"key": [1, 2]})
    ops = ops_of(
        (KERNEL, 0, 0, 0, 0, 10), (KERNEL, 0, 1, 0, 11, 20), (KERNEL, 0, 2, 0, 12, 22),
        (KERNEL, 0, 0, 0, 25, 30), (KERNEL, 0, 1, 1, 31, 40),
    )  # fmt: skip
    rows = kernel_rows(108, 400, 107, 200, 400)
    found = engine_turns(
        ops, names, categories(ops, 1), filling_kernels(ops, ONE_GPU, rows)
    )
    # The third has too few blocks, the last is a collective.
    assert found.device.tolist() == [-1, 0, -1, 1, -1]


def test_a_kernel_does_not_wait_for_one_it_ran_beside_or_its_own_stream() -> None:
    names = pd.DataFrame({"key": [1]})
    ops = ops_of((KERNEL, 0, 0, 0, 0, 10), (KERNEL, 0, 1, 0, 5, 20), (KERNEL, 0, 1, 0, 21, 30))
    filling = filling_kernels(ops, ONE_GPU, kernel_rows(500, 500, 500))
    found = engine_turns(ops, names, categories(ops), filling)
    assert found.device.tolist() == [-1, -1, -1]


def test_kernels_of_one_name_that_end_together_on_distinct_devices_meet() -> None:
    ops = ops_of(
        (KERNEL, 0, 0, 0, 0, 10_000), (KERNEL, 1, 1, 0, 8_000, 10_500),
        (KERNEL, 0, 0, 0, 200_000, 210_000), (KERNEL, 1, 1, 1, 200_000, 210_000),
        (KERNEL, 0, 0, 0, 400_000, 410_000), (KERNEL, 0, 2, 0, 400_000, 410_000),
    )  # fmt: skip
    found = collectives(ops, categories(ops, 0, 1))
    assert found["ranks"].tolist() == [2, 2, 1, 1, 1, 1]
    assert found["transfer_ns"].tolist() == [2_500, 2_500, 10_000, 10_000, 10_000, 10_000]
    assert (found["meeting"][2:] == -1).all()


def test_devices_that_meet_are_one_group_even_by_way_of_a_third() -> None:
    met = pd.DataFrame({"meeting": [0, 0, 1, 1, -1], "device": [0, 2, 2, 3, 1]})
    devices = pd.DataFrame({"device": [0, 1, 2, 3]})
    found = rank_groups(devices, met, Request())
    assert found["label"].tolist() == ["GPUs 0, 2, 3", "GPU 1", "GPUs 0, 2, 3", "GPUs 0, 2, 3"]


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ([3], "GPU 3"),
        ([0, 1], "GPUs 0, 1"),
        ([0, 1, 2], "GPUs 0 to 2"),
        ([0, 2, 3], "GPUs 0, 2, 3"),
    ],
)
def test_devices_in_words(devices: list[int], text: str) -> None:
    assert gpus_text(devices) == text


def chain(count: int, kind: Kind, length: int = 10) -> Replay:
    """A replay of operations of 10 ns that follow one another 1 ns apart by edges of one kind."""
    start = np.arange(count, dtype=np.int64) * (length + 1)
    ops = pd.DataFrame({"start_ns": start, "end_ns": start + length})
    api = pd.DataFrame({"top": np.empty(0, dtype=bool), "start_ns": start[:0], "end_ns": start[:0]})
    nodes = number_nodes(api, ops)
    graph = settle(
        nodes,
        [
            Wish(nodes.op_end[:-1], nodes.op_start[1:], 1, kind),
            Wish(nodes.op_start, nodes.op_end, length, Kind.RUN),
        ],
    )
    return Replay(graph, [Finish(-1, 0, nodes.op_end[-1:])], int(ops["end_ns"].iloc[-1]))


@pytest.mark.parametrize("count", [3, 70, 1000])
def test_what_follows_released_operations_goes_on_from_what_came_before_them(count: int) -> None:
    replay = chain(count, Kind.STREAM)
    gone = np.arange(1, count - 1)
    with edited(replay.graph, edits(Change.RELEASE, 0, gone), "middle") as (graph, begin):
        time = run(graph, begin)
    last = replay.graph.nodes.op_start[-1]
    assert int(time[last]) == 11


@pytest.mark.parametrize("count", [3, 70, 1000])
def test_copies_freed_of_their_engine_let_the_next_wait_for_those_before(count: int) -> None:
    replay = chain(count, Kind.ENGINE)
    freed = np.arange(1, count - 1)
    with edited(replay.graph, edits(Change.FREE_ENGINE, 0, freed), "middle") as (graph, begin):
        time = run(graph, begin)
    assert int(time[replay.graph.nodes.op_start[-1]]) == 11


@pytest.mark.parametrize("length", [10, 3_000_000_000])
def test_lags_of_any_length_are_exact_and_a_graph_is_restored(length: int) -> None:
    graph = chain(4, Kind.STREAM, length).graph
    assert run(graph).tolist() == graph.nodes.time.tolist()
    before = [column.copy() for column in graph.edges]
    longer = edits(Change.OP_NS, 0, [1, 2], [5_000_000_000, 0])
    gone = edits(Change.RELEASE, 0, [1])
    with (
        edited(graph, join(longer, gone), "middle") as (changed, begin),
        edited(changed, edits(Change.STREAM_NS, 0, [3], 0), "middle") as (more, _),
    ):
        ends = run(more, begin)[more.nodes.op_end].tolist()
    # The third follows the first, the last follows the third at once.
    assert ends == [length, length + 1 + 5_000_000_000, length + 1, 2 * length + 1]
    for column, was in zip(graph.edges, before, strict=True):
        assert column.tolist() == was.tolist()


def test_of_two_cures_of_one_call_the_one_that_spares_more_counts() -> None:
    replay = chain(3, Kind.STREAM)
    cures = [edits(Change.STREAM_NS, 0, [1, 2], 0), edits(Change.STREAM_NS, 0, [2, 1], 1)]
    saved = replay.saving_ns(cures[0])
    assert saved > 0
    assert replay.saving_ns(cures) == replay.saving_ns(cures[::-1]) == saved


def test_certain_edits_are_told_from_those_of_a_kind_that_is_uncertain() -> None:
    sure, other = edits(Change.CALL_NS, 0, [1, 2]), edits(Change.OP_NS, 0, [1])
    ranged = edits(Change.OP_NS, 0, [2], 5, fast_ns=3)
    hoped = edits(Change.FREE_OP, 0, [1], only_fast=True)
    certain, uncertain = parted([sure, other, ranged, hoped])
    assert [c.iloc[0]["change"] for c in certain] == [Change.CALL_NS]
    assert [c.iloc[0]["change"] for c in uncertain] == [Change.OP_NS, Change.OP_NS, Change.FREE_OP]


def test_unseen_drops_only_what_was_merely_seen() -> None:
    for kind, saved in ((Kind.SEEN, True), (Kind.EVENT, False), (Kind.STREAM, False)):
        replay = chain(3, kind)
        with edited(replay.graph, edits(Change.UNSEEN, 0, np.array([2])), "middle") as (_, begin):
            assert (begin < len(replay.graph.nodes.time)) is saved


def test_a_faster_collective_ends_earlier_on_all_ranks_only_if_all_are_faster() -> None:
    ops = pd.DataFrame({"start_ns": [0, 40], "end_ns": [100, 100]})
    none = np.empty(0, dtype=np.int64)
    api = pd.DataFrame({"top": none.astype(bool), "start_ns": none, "end_ns": none})
    nodes = number_nodes(api, ops)
    graph = settle(
        nodes,
        [
            Wish(nodes.op_start, nodes.op_end, 60, Kind.RUN),
            Wish(nodes.op_start[::-1], nodes.op_end, 60, Kind.MEET),
        ],
    )
    assert run(graph).tolist() == graph.nodes.time.tolist()
    replay = Replay(graph, [Finish(-1, 0, nodes.op_end[:1])], 100)
    assert replay.saving_ns(edits(Change.OP_NS, 0, np.array([0, 1]), 10), "middle") == 50
    assert replay.saving_ns(edits(Change.OP_NS, 0, np.array([1]), 10), "middle") == 0
