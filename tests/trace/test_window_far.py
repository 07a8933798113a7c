"""What happened far from a window has no say in its report, however much was read."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from nsysdoctor.errors import UsageError
from nsysdoctor.ingest import survey
from nsysdoctor.render.words import window_text
from nsysdoctor.timeline.timeline import timeline_payload
from nsysdoctor.trace.window import Request, parse_window
from tests.make_scene import trace_of
from tests.window_alone import assert_same, read, report

MS = 1_000_000


class Scene(NamedTuple):
    """A trace, what is done to its tables, and a window."""

    text: str
    sql: str = ""
    window: tuple[int, int] = (1000 * MS, 1300 * MS)


LOOP = """
    repeat 200 every 10ms
      100ms 5us host cudaLaunchKernel -> +9us 5ms s7 kernel gemm
    """
QUEUE = """
    0 5us host cudaLaunchKernel -> +9us 3s gpu1/s9 kernel long
    repeat 250 every 10us
      20us 5us host cudaLaunchKernel -> 3s 5us gpu1/s9 kernel little
    """
SCENES = {
    "a wait for a stream that went quiet": Scene(
        """
        0 5us host cudaLaunchKernel -> +9us 1ms s8 kernel gemm
        repeat 200 every 10ms
          100ms    5us host cudaLaunchKernel -> +9us 9ms s7 kernel gemm
          100100us 6ms host cudaStreamSynchronize s8
        """
    ),
    "a wait for an event that was recorded long ago": Scene(
        """
        0    5us host cudaLaunchKernel -> +9us 5ms s9 kernel other
        10us 5us host cudaEventRecord s9 event=1
        repeat 200 every 10ms
          100ms    5us host cudaLaunchKernel -> +9us 9ms s7 kernel gemm
          100100us 6ms host cudaEventSynchronize event=1
        """
    ),
    "a wait for an early event whose work ends inside": Scene(
        """
        0    5us host cudaLaunchKernel -> +9us 1100ms s9 kernel other
        10us 5us host cudaEventRecord s9 event=1
        repeat 80 every 10ms
          100ms 5us host cudaLaunchKernel -> +9us 5ms gpu1/s7 kernel gemm
        950ms 150025us host cudaEventSynchronize event=1
        repeat 40 every 5ms
          1100100us 2ms host cudaMalloc
          1102110us 5us host cudaLaunchKernel -> +9us 2ms gpu1/s7 kernel gemm
        """
    ),
    "a queue that was filled before and runs after": Scene(
        QUEUE
        + """
    repeat 200 every 10ms
      100ms    5us    host cudaLaunchKernel -> +9us   6ms s7 kernel gemm
      100050us 5970us host cudaLaunchKernel -> 6030us 3ms s7 kernel gemm
        """.replace("-> 6030us", "-> 106030us")
    ),
    "a thread that launched once": Scene(
        """
        0    5us host cudaLaunchKernel -> +9us 5ms s9 kernel other
        50ms 5us host cudaDeviceSynchronize
        repeat 200 every 10ms
          100ms    50us   host2 cudaLaunchKernel -> +9us 5ms s7 kernel gemm
          100020us 5045us host  cudaDeviceSynchronize
        """
    ),
    "streams that ran beside the null stream once": Scene(
        """
        1ms    5us host cudaLaunchKernel -> 2ms    2ms s7 kernel gemm
        1010us 5us host cudaLaunchKernel -> 2500us 2ms s9 kernel little
        repeat 200 every 10ms
          100ms    5us host cudaLaunchKernel -> 100020us 4ms s9 kernel little
          100010us 5us host cudaLaunchKernel -> 104022us 2ms s7 kernel gemm
          100020us 5us host cudaLaunchKernel -> 106024us 2ms s9 kernel little
        """,
        "UPDATE TARGET_INFO_CUDA_STREAM SET flag = 0",
    ),
    "a stream that is captured all the while": Scene(
        LOOP.replace("200 every", "60 every")
        + """
    797ms 5us host cudaStreamBeginCapture
    repeat 80 every 10ms
      800ms    5us host  cudaLaunchKernel
      800020us 5us host2 cudaLaunchKernel -> +9us 5ms s9 kernel gemm
    1700ms 5us host cudaStreamEndCapture
        """
    ),
    "calls that were recorded elsewhere": Scene(
        LOOP, "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE start < 1800000000"
    ),
    "a thread that calls later": Scene(
        LOOP
        + """
    repeat 20 every 100ms
      106ms 3ms host pause "Buffer"
    1100ms 90ms host3 pause "TLS allocation"
    1900ms 5us  host3 cudaMalloc
        """
    ),
    "no call at all since long": Scene(
        "    0 5us host cudaLaunchKernel -> +9us 1ms s7 kernel gemm"
        + LOOP.replace("100ms 5us", "3s 5us"),
        window=(2980 * MS, 3200 * MS),
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_what_lies_far_away_has_no_say(name: str) -> None:
    scene = SCENES[name]
    path = trace_of(scene.text, sql=scene.sql).export.path
    assert_same(path, scene.window)


def test_a_pause_of_which_the_surroundings_show_nothing_is_idle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps are looked for around the window, where nothing may run."""
    monkeypatch.setattr(survey, "_OPERATIONS", 1)
    text = LOOP + "60s 5us host cudaLaunchKernel -> +9us 1ms s7 kernel gemm"
    path = trace_of(text).export.path
    made = report(read(path, (30_000 * MS, 30_001 * MS), whole=False))
    assert (made.devices[0].idle_ns, made.steps, made.phases) == (MS, None, [])
    with pytest.raises(UsageError, match="nothing was captured"):
        report(read(path, (90_000 * MS, 90_001 * MS), whole=False))


def test_a_collective_that_reaches_over_the_edge_names_no_straggler() -> None:
    text = """
        repeat 40 every 10ms
          0    5us host  cudaLaunchKernel -> +9us 8ms gpu0/s7 kernel ncclDevKernel_AllReduce
          0    5us host2 cudaLaunchKernel -> +5ms 3ms gpu1/s7 kernel ncclDevKernel_AllReduce
        """
    path = trace_of(text).export.path
    window = (102 * MS, 109 * MS)
    arrivals = read(path, window, whole=False).table("arrivals")
    assert (arrivals["meeting"] < 0).all()
    assert len(arrivals) == 1
    assert_same(path, window)


def test_what_begins_in_a_window_counts_whole_and_is_said_to() -> None:
    text = """
        repeat 20 every 50ms
          0 40ms host cudaMemcpyAsync -> +20us 39ms s7 copy HtoD 40MB pageable
        """
    made = report(trace_of(text, Request((190 * MS, 220 * MS))))
    copies = next(f for f in made.findings if f.rule == "pageable_copy")
    assert (copies.count, copies.facts["blocked_ns"]) == (1, 40 * MS)
    assert copies.saving_ns <= 30 * MS
    assert "what begins in it counts whole" in window_text(made)


def test_a_window_beyond_any_clock_is_refused() -> None:
    with pytest.raises(UsageError, match="beyond"):
        parse_window("0s:99999999999s")
    assert parse_window("0:4000000000") == Request((0, 4_000_000_000))


def test_streams_and_threads_that_were_busy_elsewhere_crowd_nobody_out() -> None:
    crowd = "".join(
        f"\n    {n}ms 5us host{n + 2} cudaLaunchKernel -> +9us 90ms s{n + 20} kernel other"
        for n in range(30)
    )
    path = trace_of(LOOP.rstrip() + crowd).export.path
    pages = []
    for whole in (True, False):
        trace = read(path, (1000 * MS, 1100 * MS), whole=whole)
        payload = timeline_payload(trace.table, report(trace))
        pages.append([(track.kind, track.group, track.label) for track in payload.tracks])
        assert payload.notes == []
    assert pages[0] == pages[1]
    assert {kind for kind, _, _ in pages[0]} == {"device", "stream", "calls"}


def test_what_runs_in_a_window_is_judged_even_if_the_host_runs_ahead() -> None:
    """The products of the window were launched long before; what is launched then runs later."""
    text = """
        kernel sgemm = ampere_sgemm_128x64_tn
        repeat 400 every 100us
          0 5us host cudaLaunchKernel -> +9us 5ms s7 kernel sgemm grid=1024 block=256
        """
    trace = trace_of(text, Request((20 * MS, 520 * MS)))
    made = report(trace)
    products = next(f for f in made.findings if f.rule == "fp32_gemm")
    low, high = trace.request.window
    assert all(low <= e.start_ns < high for e in products.evidence)
    assert 90 < products.count < 110
