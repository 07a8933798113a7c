"""Metrics of a trace: per step and over the window, held against a plain count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.arrays.intervals import Spans, spans
from nsysdoctor.report.metrics import CAUSES, METRICS
from nsysdoctor.report.model import Metric
from nsysdoctor.tables.account.metrics import Scope, _count, _work
from nsysdoctor.tables.host.thread_states import CAUSES as THREAD_CAUSES
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import parse_window
from tests import SAMPLES

SAMPLE_FILES = sorted(SAMPLES.glob("*.sqlite"))
pieces = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)
tiles = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 15)), min_size=1, max_size=6)


def tiled(parts: list[tuple[int, int]]) -> Spans:
    """Sorted disjoint stretches, some touching, some with holes between."""
    start, end, at = [], [], 0
    for hole, length in parts:
        start.append(at + hole)
        at += hole + length
        end.append(at)
    return spans(start, end)


@given(pieces, tiles)
def test_work_in_a_step_is_the_sum_of_the_clipped_intervals(
    raw: list[tuple[int, int]], parts: list[tuple[int, int]]
) -> None:
    steps = tiled(parts)
    these = spans([s for s, _ in raw], [s + length for s, length in raw])
    want = [
        sum(max(0, min(e, high) - max(s, low)) for s, e in zip(*these, strict=True))
        for low, high in zip(*steps, strict=True)
    ]
    assert _work(these, Scope(steps, spans([0], [100]))).steps.tolist() == want


@given(st.lists(st.integers(0, 60), max_size=20), tiles)
def test_events_count_where_they_begin(times: list[int], parts: list[tuple[int, int]]) -> None:
    steps = tiled(parts)
    want = [sum(low <= t < high for t in times) for low, high in zip(*steps, strict=True)]
    at = np.array(times, dtype=np.int64)
    assert _count(at, Scope(steps, spans([0], [100]))).steps.tolist() == want
    sizes = _count(at, Scope(steps, spans([0], [100])), at)
    assert sizes.whole[0] == sum(times)


def test_long_captures_do_not_overflow() -> None:
    """A million operations, 5000 s after the session's start."""
    start = 5 * 10**12 + np.arange(1_000_000) * 1_000
    step = spans([5 * 10**12], [5 * 10**12 + 10**9])
    assert _work(Spans(start, start + 900), Scope(step, step)).whole[0] == 900_000_000


def of(trace: Trace) -> list[Metric]:
    found: list[Metric] = trace.table("metrics")
    return found


@pytest.mark.parametrize("path", SAMPLE_FILES, ids=lambda p: p.stem)
def test_the_parts_of_a_step_sum_to_it(path: Path) -> None:
    values = {(m.device, m.metric): np.array([m.value, *m.steps]) for m in of(open_trace(path))}
    for device in {device for device, _ in values if device is not None}:

        def get(name: str, device: int = device) -> np.ndarray:
            return values[device, name]

        causes = sum(get(f"idle_{cause}_ns") for cause in CAUSES)
        assert np.array_equal(causes, get("idle_ns"))
        compute = get("utilization_ratio") * get("step_ns") - get("exposed_communication_ns")
        total = compute + get("exposed_communication_ns") + get("exposed_copy_ns") + get("idle_ns")
        assert np.all(total <= get("step_ns") + 1)
        assert np.allclose(total[1:], get("step_ns")[1:], atol=1)
        for name in ("utilization_ratio", "busy_ratio"):
            assert np.all((get(name) >= 0) & (get(name) <= 1))
        assert np.all(get("busy_ratio") >= get("utilization_ratio"))


@pytest.mark.parametrize("path", SAMPLE_FILES, ids=lambda p: p.stem)
def test_every_metric_is_known_and_has_one_value_a_step(path: Path) -> None:
    trace = open_trace(path)
    steady = int((trace.table("steps")["phase"] == "steady").sum())
    found = of(trace)
    assert {m.metric for m in found} <= set(METRICS)
    assert {len(m.steps) for m in found} == {steady}
    assert len({(m.device, m.metric) for m in found}) == len(found)
    assert all(m.unit == METRICS[m.metric].unit for m in found)


def sample(name: str) -> dict[str, Metric]:
    path = SAMPLES / f"{name}.sqlite"
    return {m.metric: m for m in of(open_trace(path)) if m.device in (None, 0)}


def test_pageable_copies_are_counted_per_step() -> None:
    found = sample("pageable_copy")
    assert set(found["pageable_copy_count"].steps) == {2.0}
    assert len(set(found["pageable_bytes"].steps)) == 1
    assert sum(sample("pageable_copy_cured")["pageable_copy_count"].steps) == 0


def test_a_host_that_runs_ahead_does_not_shift_work_between_steps() -> None:
    """In the healthy loop the host queues every step long before the device gets to it."""
    found = sample("healthy")
    steps = np.array(found["step_ns"].steps)
    assert steps.std() < 0.02 * steps.mean()
    assert min(found["utilization_ratio"].steps) > 0.98
    assert set(found["kernel_launch_count"].steps) == {37.0}


def test_graph_launches_are_told_from_kernel_launches() -> None:
    found = sample("graph_only")
    assert set(found["graph_launch_count"].steps) == {1.0}
    assert set(found["synchronization_count"].steps[:-1]) == {1.0}


def test_a_window_leaves_out_the_steps_outside() -> None:
    path = next(p for p in SAMPLE_FILES if p.stem == "healthy")
    steps = open_trace(path).table("steps")
    low, high = int(steps["start_ns"].iloc[5]), int(steps["end_ns"].iloc[14])
    found = of(open_trace(path, parse_window(f"{low}:{high}")))
    assert {len(m.steps) for m in found if m.device is None} == {10}


def test_causes_are_the_same_everywhere() -> None:
    assert THREAD_CAUSES == CAUSES
