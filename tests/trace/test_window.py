"""A window told by its times is read alone, and gives the numbers of reading all and cutting."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsysdoctor.diagnosis.summary import budgets_of, idle_causes_of
from nsysdoctor.errors import UsageError
from nsysdoctor.timeline import Payload
from nsysdoctor.timeline.timeline import timeline_payload
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import Request, parse_window, widened
from sample_traces import PROGRAMS, record, write
from tests import SAMPLES, swept
from tests.make_scene import change, trace_of
from tests.window_alone import assert_same, bounds, part_of, read, report

MS = 1_000_000
SAMPLE_FILES = sorted(SAMPLES.glob("*.sqlite"))
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def sample(name: str) -> Path:
    return next(path for path in SAMPLE_FILES if path.stem == name)


@pytest.mark.sweep
@settings(max_examples=12, deadline=None)
@given(st.sampled_from(SAMPLE_FILES), st.floats(-0.1, 1), st.floats(0.5, 4))
@example(next(path for path in SAMPLE_FILES if path.stem == "pageable_copy"), 0.5, 1.0)
def test_a_window_gives_the_same_numbers_as_cutting_afterwards(
    path: Path, place: float, size: float
) -> None:
    (low, high), window = bounds(path), part_of(path, place, 10**-size)
    if low < window[1] and window[0] < high:
        assert_same(path, window)


@pytest.mark.parametrize("name", swept(PROGRAMS, 8))
def test_a_window_of_any_program_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    write(record(name), path, layout="2025")
    assert_same(path, part_of(path, 0.4, 0.2))


@pytest.mark.parametrize("name", ["pageable_copy", "two_gpu", "graph_only"])
def test_a_window_of_everything_gives_the_same_numbers(name: str) -> None:
    path = sample(name)
    low, high = bounds(path)
    assert_same(path, (low - 10, high + 10))


def test_what_lies_outside_is_not_read() -> None:
    path = sample("healthy")
    low, high = bounds(path)
    middle = (low + high) // 2
    part = read(path, (middle, middle + MS), whole=False)
    everything = open_trace(path)
    assert 0 < len(part.table("kernel_rows")) < len(everything.table("kernel_rows")) / 4
    # The host runs ahead of the device here: what it did is read from where it launched on.
    for name in ("api_rows", "nvtx_rows"):
        assert 0 < len(part.table(name)) <= len(everything.table(name)) / 2
    assert len(part.table("steps")) == len(everything.table("steps"))


ODD = {
    "a text as a time": ("'soon'", "{end}"),
    "no end": ("{start}", "NULL"),
    "a fraction": ("{start} + 0.5", "{end}"),
    "both 0": ("0", "0"),
    "an end before the start": ("{end}", "{start}"),
    "a far time": ("{start}", "9223372036854775807"),
    "a very early time": ("-9223372036854775807", "{end}"),
}


@pytest.mark.parametrize("place", ["before", "inside", "after"])
@pytest.mark.parametrize("odd", ODD)
def test_times_that_cannot_be_are_counted_wherever_they_are(
    odd: str, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.sqlite"
    shutil.copyfile(sample("healthy"), path)
    low, high = bounds(path)
    third = (high - low) // 3
    at = {"before": low + third // 2, "inside": low + third * 3 // 2, "after": high - third // 2}
    start, end = (t.format(start=at[place], end=at[place] + 1000) for t in ODD[odd])
    change(
        path,
        f"""ALTER TABLE {KERNEL} RENAME TO strict;
            CREATE TABLE {KERNEL} AS SELECT * FROM strict;
            CREATE TABLE more AS SELECT * FROM strict LIMIT 1;
            UPDATE more SET start = {start}, "end" = {end};
            INSERT INTO {KERNEL} SELECT * FROM more""",
    )
    window = (low + third, low + 2 * third)
    whole, part = (read(path, window, whole=whole) for whole in (True, False))
    assert [len(trace.table("ops")) > 0 for trace in (whole, part)] == [True, True]
    assert part.dropped() == whole.dropped() != []
    assert budgets_of(part, 0) == budgets_of(whole, 0)


def causes(trace: Trace) -> dict[str, int]:
    return {c.cause: c.idle_ns for c in idle_causes_of(trace, 0)}


IDLE = """
    0     5us   host  cudaLaunchKernel -> 0 1ms s7 kernel gemm
    2ms   800ms host  cudaMalloc
    900ms 5us   host  cudaLaunchKernel -> +9us 1ms s7 kernel gemm
    """


def test_a_device_that_idles_all_the_window_waits_for_what_comes_later() -> None:
    trace = trace_of(IDLE, Request((100 * MS, 200 * MS)))
    assert causes(trace) == {"allocation": 100 * MS}
    assert len(trace.table("ops")) == 2


def test_a_device_that_idles_all_the_window_is_told_of() -> None:
    trace = trace_of(
        """
        0     5us host  cudaLaunchKernel -> 0 1ms   gpu0/s7 kernel gemm
        0     5us host  cudaLaunchKernel -> 0 900ms gpu1/s7 kernel gemm
        """,
        Request((400 * MS, 500 * MS)),
    )
    assert [(d.device, d.compute_ns, d.idle_ns) for d in budgets_of(trace, 0)] == [
        (0, 0, 100 * MS), (1, 100 * MS, 0)
    ]  # fmt: skip


@pytest.mark.parametrize(("before", "cause"), [("norm", "module_load"), ("gemm", "launch")])
def test_a_long_launch_loads_code_only_where_none_came_before(before: str, cause: str) -> None:
    trace = trace_of(
        f"""
        0      5us host  cudaLaunchKernel -> 0    1ms s7 kernel {before}
        500ms  5us host  cudaLaunchKernel -> +9us 1ms s7 kernel norm
        505ms  9ms host  cudaLaunchKernel -> +9ms 1ms s7 kernel gemm
        """,
        Request((502 * MS, 516 * MS)),
    )
    assert causes(trace)[cause] > 7 * MS


def test_an_end_that_cannot_be_is_found_out_by_what_the_stream_ran_next() -> None:
    """The kernel that seems to run through the window ended before the next one began."""
    text = """
        0     5us host  cudaLaunchKernel -> +9us 1ms s7 kernel gemm
        2ms   5us host  cudaLaunchKernel -> +9us 2ms s7 kernel gemm
        8s    5us host  cudaLaunchKernel -> +9us 1ms s8 kernel gemm
        """
    sql = f'UPDATE {KERNEL} SET "end" = 9000000000 WHERE start < 1000000'
    trace = trace_of(text, Request((5_000 * MS, 5_100 * MS)), sql=sql)
    assert [(d.compute_ns, d.idle_ns) for d in budgets_of(trace, 0)] == [(0, 100 * MS)]


def test_a_kernel_that_runs_through_the_window_fills_it() -> None:
    text = """
        0     5us host  cudaLaunchKernel -> 0 9s  s7 kernel gemm
        8s    5us host  cudaLaunchKernel -> +2s 1ms s7 kernel gemm
        """
    trace = trace_of(text, Request((5_000 * MS, 5_100 * MS)))
    assert [(d.compute_ns, d.idle_ns) for d in budgets_of(trace, 0)] == [(100 * MS, 0)]
    assert len(trace.table("launches")) == 2


def test_a_window_outside_the_capture_is_refused_whatever_was_read() -> None:
    trace = trace_of(IDLE, Request((2_000 * MS, 3_000 * MS)))
    with pytest.raises(UsageError, match="nothing was captured"):
        trace.table("horizon")


LONE_PAUSE = """
    0     5us   host  cudaLaunchKernel -> +9us 1ms s7 kernel gemm
    30ms  900us host2 pause "TLS allocation"
    90ms  5us   host  cudaLaunchKernel -> +9us 1ms s7 kernel gemm
    200ms 5us   host2 cudaMalloc
    """


def test_a_pause_holds_its_own_thread_even_if_the_window_shows_nothing_else_of_it() -> None:
    trace = trace_of(LONE_PAUSE, Request((20 * MS, 95 * MS)))
    assert "profiler" not in causes(trace)


def test_a_pause_that_names_no_thread_holds_the_process() -> None:
    sql = "UPDATE PROFILER_OVERHEAD SET globalTid = globalTid & ~0xffffff"
    trace = trace_of(LONE_PAUSE, Request((20 * MS, 95 * MS)), sql=sql)
    assert causes(trace)["profiler"] == 900_000


def test_a_thread_is_outside_cuda_since_its_last_call_as_far_as_the_window_sees() -> None:
    trace = trace_of(IDLE, Request((100 * MS, 950 * MS)))
    calls = trace.table("host_calls")
    assert calls["outside_ns"].tolist() == [0, 0, 98 * MS]
    after = trace_of(IDLE, Request((850 * MS, 950 * MS)))
    low, _ = widened(850 * MS, 950 * MS)
    assert after.table("host_calls")["outside_ns"].iloc[-1] == 900 * MS - low


@pytest.mark.parametrize("whole", [True, False])
def test_a_window_that_reaches_out_of_the_capture_is_told_of(whole: bool) -> None:
    path = sample("healthy")
    low, high = bounds(path)
    inside = report(read(path, (low, high), whole=whole)).notes
    (note,) = set(report(read(path, (low, 2 * high - low), whole=whole)).notes) - set(inside)
    assert "the rest of the window, 50.0 %, counts as idle" in note.text


def drawn(payload: Payload) -> list[object]:
    """What a page shows; keys, which join operations to calls, as the start of the call."""
    calls = {
        key: start
        for track in payload.tracks
        if track.kind == "calls"
        for key, start in zip(track.columns["key"], track.columns["start_ns"], strict=True)
    }
    tracks = [
        {
            name: [calls.get(key) for key in values] if name == "key" else values.tolist()
            for name, values in track.columns.items()
        }
        for track in payload.tracks
    ]
    return [*tracks, payload.names, payload.shapes, payload.figures, payload.notes]


@pytest.mark.parametrize("name", ["healthy", "pageable_copy", "two_gpu", "annotated_chain"])
def test_the_page_of_a_window_shows_what_lies_around_it_however_much_was_read(name: str) -> None:
    path = sample(name)
    window = part_of(path, 0.4, 0.05)
    low, high = widened(*window)
    pages = []
    for whole in (True, False):
        trace = read(path, window, whole=whole)
        payload = timeline_payload(trace.table, report(trace))
        assert payload.view_ns is not None
        assert [payload.origin_ns + at for at in payload.view_ns] == [low, high]
        for track in payload.tracks:
            start = track.columns["start_ns"] + payload.origin_ns
            assert (start < high).all()
            assert (start + track.columns["length_ns"] >= low).all()
        pages.append(drawn(payload))
    assert pages[0] == pages[1]


def test_the_kernels_of_a_report_are_those_of_the_window() -> None:
    path = sample("two_gpu")
    low, high = bounds(path)
    window = (low + (high - low) // 3, low + (high - low) // 2)
    made = report(read(path, window, whole=False))
    for device in made.devices:
        mine = [k.total_ns for k in made.kernels if k.device == device.device]
        assert sum(mine) == device.kernel_work_ns


def test_the_kernels_of_a_report_are_those_of_the_device() -> None:
    path = sample("two_gpu")
    trace = open_trace(path, Request(device=1))
    made = report(trace)
    everything = report(open_trace(path))
    assert made.kernels == [k for k in everything.kernels if k.device == 1] != []
    assert {d.device for d in made.devices} == {1}


def test_steps_are_those_of_the_window() -> None:
    path = sample("healthy")
    steps = open_trace(path).table("steps")
    low, high = int(steps["start_ns"].iloc[5]), int(steps["end_ns"].iloc[14])
    made = report(read(path, (low, high), whole=False))
    assert made.steps is not None
    assert (made.steps.count, made.steps.steady_count) == (10, 10)
    assert [(p.phase, p.start_ns, p.end_ns, p.steps) for p in made.phases] == [
        ("steady", low, high, 10)
    ]
    assert {len(m.steps) for m in made.metrics if m.device is None} == {10}


@pytest.mark.parametrize("name", ["healthy", "pageable_copy", "two_gpu", "graph_only"])
def test_a_step_in_a_window_has_the_values_that_it_has_in_the_capture(name: str) -> None:
    """Of a step that reaches out of the window only a part is known: it is left out."""
    path = sample(name)
    low, high = bounds(path)
    everything = report(open_trace(path)).metrics
    some = report(read(path, (low + (high - low) // 3, high - (high - low) // 3), whole=False))
    for part, full in zip(some.metrics, everything, strict=True):
        assert (part.metric, part.device) == (full.metric, full.device)
        count = len(part.steps)
        starts = range(len(full.steps) - count + 1)
        assert any(part.steps == full.steps[at : at + count] for at in starts), part.metric
        assert count > 2 or part.device is None


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("1728501277.418275385s:1728501277.5s", (1728501277418275385, 1728501277500000000)),
        ("0.1us:1.5 ms", (100, 1_500_000)),
        ("-5:7", (-5, 7)),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, window: tuple[int, int]) -> None:
    assert parse_window(text).window == window
