"""How host threads are chained and held up, on traces that can be followed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from nsysdoctor.cases.scene_export import write_scene
from nsysdoctor.cases.scene_text import read_scene
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.replay.graph import Kind
from nsysdoctor.replay.patch import edited
from nsysdoctor.replay.replay import run
from nsysdoctor.replay.shortened_calls import shorten_calls
from nsysdoctor.trace.trace import Trace, open_trace

MAIN_STARTS_WORKERS = """
    kernel gemm = ampere_sgemm_128x64_tn
    repeat 10 every 20us
      0     6us  host  cudaLaunchKernel -> +5us 5us s7 kernel gemm
    repeat 10 every 50us from 1ms
      0     30us host2 cudaLaunchKernel -> 35us 5us s13 kernel gemm
      10us  30us host3 cudaLaunchKernel -> 35us 5us s14 kernel gemm
"""
TURNS = """
    kernel gemm = ampere_sgemm_128x64_tn
    repeat 4 every 1ms
      repeat 10 every 20us
        0   6us  host  cudaLaunchKernel -> +5us 5us s7 kernel gemm
      repeat 10 every 20us from 500us
        0   6us  host2 cudaLaunchKernel -> +5us 5us s7 kernel gemm
"""
HELD_UP = """
    kernel gemm = ampere_sgemm_128x64_tn
    repeat 20 every 1ms
      0     6us   host cudaLaunchKernel -> +5us 100us s7 kernel gemm
    20ms    6us   host cudaLaunchKernel -> +5us 100us s7 kernel gemm
    +1us    900us host cudaLaunchKernel -> 20905us 100us s7 kernel gemm
"""
ONCE_THEN_AGAIN = """
    kernel gemm = ampere_sgemm_128x64_tn
    0     5ms host cudaMalloc
    10ms  6us host cudaLaunchKernel -> +5us 1ms s7 kernel gemm
    20ms  5ms host cudaMalloc
    30ms  6us host cudaLaunchKernel -> +5us 1ms s7 kernel gemm
    40ms  5ms host cudaMalloc
"""


def _opened(text: str, folder: Path) -> Trace:
    path = folder / "case.sqlite"
    write_scene(read_scene(text), path, ())
    return open_trace(path)


def _chains(trace: Trace) -> pd.Series:
    api = trace.table("api")
    return pd.Series(trace.table("thread_handoffs")).groupby(api["thread"].to_numpy()).first()


def test_threads_that_one_starts_are_chains_of_their_own(tmp_path: Path) -> None:
    assert _chains(_opened(MAIN_STARTS_WORKERS, tmp_path)).nunique() == 3


def test_threads_that_go_back_and_forth_are_one_chain(tmp_path: Path) -> None:
    assert _chains(_opened(TURNS, tmp_path)).nunique() == 1


def test_every_call_but_the_first_of_a_chain_follows_another(tmp_path: Path) -> None:
    trace = _opened(MAIN_STARTS_WORKERS, tmp_path)
    graph = trace.table("constraint_graph")
    start = graph.nodes.call_start
    followed = graph.first[start + 1] > graph.first[start]
    assert (~followed).sum() == 3


def test_a_kernel_waits_for_a_launch_that_was_held_up(tmp_path: Path) -> None:
    trace = _opened(HELD_UP, tmp_path)
    graph, api = trace.table("constraint_graph"), trace.table("api")
    late = int(api["end_ns"].to_numpy().argmax())
    before = int(graph.nodes.op_end.max())
    cut = shorten_calls(0, np.array([late]), 6_000, api, trace.table("launches"))
    with edited(graph, cut, "middle") as (changed, _):
        # The launch no longer holds the kernel up, so it follows the one before on its stream.
        assert graph.nodes.time[before] - run(changed)[before] > 700_000
    assert (run(graph) == graph.nodes.time).all()


def test_an_edit_of_the_stream_brings_the_next_operation_no_closer_than_asked(
    tmp_path: Path,
) -> None:
    text = """
        kernel gemm = ampere_sgemm_128x64_tn
        repeat 30 every 5us
          0 2us host cudaLaunchKernel -> +3us 20us s7 kernel gemm
    """
    trace = _opened(text, tmp_path)
    graph = trace.table("constraint_graph")
    rows = np.arange(1, 30)
    for ns in (0, 1_000, 5_000):
        with edited(graph, edits(Change.STREAM_NS, 0, rows, ns), "middle") as (changed, _):
            stream = changed.edges.lag[graph.edges.kind == Kind.STREAM]
            assert stream.max() == min(ns, 3_000)


def test_without_steps_only_what_leads_to_a_repeated_launch_is_loop(tmp_path: Path) -> None:
    trace = _opened(ONCE_THEN_AGAIN, tmp_path)
    assert trace.table("loop_calls").tolist() == [False, False, True, True, False]
