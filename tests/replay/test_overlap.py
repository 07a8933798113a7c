"""Operations of one stream that begin before the one before them has ended."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nsysdoctor.replay.edits import Change, edits, join
from nsysdoctor.replay.graph import Graph, Kind, Wish, number_nodes, settle
from nsysdoctor.replay.patch import edited
from nsysdoctor.replay.replay import run


def _graph(start: list[int], end: list[int], launched: list[int]) -> Graph:
    """Operations of one stream, each launched by a call of its own at the time told."""
    ops = pd.DataFrame({"start_ns": start, "end_ns": end})
    called = np.array(launched)
    api = pd.DataFrame({"top": True, "start_ns": called, "end_ns": called + 1})
    nodes = number_nodes(api, ops)
    begin, done = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    beside = np.flatnonzero(begin[1:] < done[:-1])
    behind = np.flatnonzero(begin[1:] >= done[:-1])
    return settle(
        nodes,
        [
            Wish(nodes.call_start, nodes.op_start, 2, Kind.LAUNCH),
            Wish(nodes.op_end[behind], nodes.op_start[behind + 1], 1, Kind.STREAM),
            Wish(
                nodes.op_start[beside], nodes.op_start[beside + 1], begin[beside + 1]
                - begin[beside], Kind.OVERLAP,
            ),
            Wish(nodes.op_start, nodes.op_end, done - begin, Kind.RUN),
        ],
    )  # fmt: skip


def _starts(graph: Graph, *cures: pd.DataFrame) -> list[int]:
    with edited(graph, join(*cures), "middle") as (changed, begin):
        return run(changed, begin)[graph.nodes.op_start].tolist()


CHAIN = _graph([10, 105, 206, 300], [110, 205, 304, 400], [0, 1, 2, 3])
"""The second begins 5 before the end of the first, the fourth 4 before the end of the third."""


def test_without_edits_every_time_comes_back() -> None:
    assert _starts(CHAIN) == [10, 105, 206, 300]


def test_an_overlapping_operation_does_not_run_free() -> None:
    earlier = edits(Change.LAUNCH_NS, 0, [0, 1, 2, 3], 1)
    assert _starts(CHAIN, earlier) == [1, 96, 197, 291]


def test_a_shorter_operation_keeps_its_overlap() -> None:
    assert _starts(CHAIN, edits(Change.OP_NS, 0, [0], 40)) == [10, 45, 146, 240]


@pytest.mark.parametrize("gone", [[1], [1, 2]])
def test_what_follows_a_released_operation_goes_on_from_what_came_before(gone: list[int]) -> None:
    cure = join(edits(Change.OP_NS, 0, gone, 0), edits(Change.RELEASE, 0, gone))
    # The first still runs to 110; what followed it did so 5 before its end.
    expected = {(1,): [10, 105, 106, 200], (1, 2): [10, 105, 106, 105]}[tuple(gone)]
    assert _starts(CHAIN, *cure) == expected


def test_two_cures_of_one_operation_scale_each_other() -> None:
    half, third = edits(Change.OP_NS, 0, [0], 50), edits(Change.OP_NS, 0, [0], 33)
    with edited(CHAIN, [half, third], "middle") as (changed, _):
        (edge,), _ = changed.into(Kind.RUN, np.array([0]))
        assert int(changed.edges.lag[edge]) == round(100 * 0.5 * 0.33)
