"""The account of time on traces small enough to add up by hand.

Each of the first tests is a mistake that trace tools made in public; the traces are text tables,
so the right numbers can be read off them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import Options, diagnose_trace
from nsysdoctor.diagnosis.summary import budgets_of, idle_causes_of, steps_of
from nsysdoctor.report.model import DeviceBudget, Report
from nsysdoctor.rulebook.rule import load_rules, select_rules
from nsysdoctor.tables.activity.ops import COMMUNICATION
from nsysdoctor.trace.trace import Trace
from nsysdoctor.trace.window import Request, parse_window
from tests.make_scene import trace_of

MS, US = 1_000_000, 1_000


def report_of(trace: Trace, *rules: str) -> Report:
    """The report with only the named rules."""
    chosen = select_rules(load_rules(), rules) if rules else []
    return diagnose_trace(trace, Options(trace.request, chosen))


def buckets(trace: Trace) -> list[tuple[int, int, int, int, int]]:
    """Per device its number, compute, exposed communication, exposed copy and idle, ns."""
    made = budgets_of(trace, 0)
    for one in made:
        assert _parts(one) == one.span_ns
    return [
        (d.device, d.compute_ns, d.exposed_communication_ns, d.exposed_copy_ns, d.idle_ns)
        for d in made
    ]


def _parts(one: DeviceBudget) -> int:
    return one.compute_ns + one.exposed_communication_ns + one.exposed_copy_ns + one.idle_ns


def causes(trace: Trace) -> dict[str, int]:
    """Idle time by cause over all devices, ns; it sums to the idle time."""
    found = Counter[str]()
    for row in idle_causes_of(trace, 0):
        found[row.cause] += row.idle_ns
    assert found.total() == sum(idle for *_, idle in buckets(trace))
    return dict(found)


# --- how much


def test_two_streams_at_once_are_one_busy_device() -> None:
    trace = trace_of("""
        0  5us  host  cudaLaunchKernel -> 0 100ms s7 kernel gemm
        0  5us  host  cudaLaunchKernel -> 0 100ms s8 kernel gemm
        """)
    (device,) = budgets_of(trace, 0)
    assert (device.utilization_ratio, device.busy_ratio) == (1.0, 1.0)
    assert (device.span_ns, device.kernel_work_ns) == (100 * MS, 200 * MS)


def test_equal_stream_ids_on_several_devices_are_several_streams() -> None:
    trace = trace_of("""
        repeat 2 every 57ms
          0  5us  host  cudaLaunchKernel -> 0 43ms gpu1/s17 kernel gemm
          0  5us  host  cudaLaunchKernel -> 0 43ms gpu2/s17 kernel gemm
          0  5us  host  cudaLaunchKernel -> 0 43ms gpu3/s17 kernel gemm
        0    5us  host  cudaLaunchKernel -> 0 43ms gpu3/s18 kernel gemm
        """)
    assert [(d.device, d.utilization_ratio) for d in budgets_of(trace, 0)] == [
        (1, 0.86), (2, 0.86), (3, 0.86)
    ]  # fmt: skip
    assert len(trace.table("lanes")) == 4


def test_a_stream_that_rests_while_another_works_is_no_idle_device() -> None:
    trace = trace_of("""
        0     5us  host  cudaLaunchKernel -> 0     1ms  s7 kernel gemm
        0     5us  host  cudaLaunchKernel -> 500us 50ms s8 kernel gemm
        49ms  5us  host  cudaLaunchKernel -> 50ms  1ms  s7 kernel gemm
        """)
    assert buckets(trace) == [(0, 51 * MS, 0, 0, 0)]
    assert not len(trace.table("gaps"))
    assert report_of(trace, "gpu_idle").findings == []


def test_a_copy_between_kernels_is_copying_and_not_idle() -> None:
    trace = trace_of("""
        0     5us  host  cudaLaunchKernel -> 0    5ms  s7 kernel gemm
        10us  5us  host  cudaMemcpyAsync  -> 5ms  10ms s7 copy HtoD 100MB pinned
        20us  5us  host  cudaLaunchKernel -> 15ms 5ms  s7 kernel gemm
        """)
    assert buckets(trace) == [(0, 10 * MS, 0, 10 * MS, 0)]
    (device,) = budgets_of(trace, 0)
    assert (device.utilization_ratio, device.busy_ratio) == (0.5, 1.0)


LONG = """
    repeat 200 every 100ms
      0  5us  host  cudaLaunchKernel -> 0 100ms s7 kernel gemm
    repeat 200 every 200ms from 20s
      0  5us  host  cudaLaunchKernel -> 0 100ms s7 kernel gemm
    """


def test_a_long_trace_is_not_trimmed() -> None:
    report = report_of(trace_of(LONG, Request("all")))
    (device,) = report.devices
    assert device.span_ns == 20_000 * MS + 199 * 200 * MS + 100 * MS
    assert device.idle_ns == 199 * 100 * MS
    assert (report.window.start_ns, report.window.span_ns) == (0, device.span_ns)


@pytest.mark.parametrize(
    ("window", "compute_ms", "idle_ms"),
    [("0:20s", 20_000, 0), ("20s:60s", 20_000, 20_000), ("19950ms:20150ms", 150, 50)],
)
def test_every_figure_is_of_the_window_asked_for(
    window: str, compute_ms: int, idle_ms: int
) -> None:
    trace = trace_of(LONG, parse_window(window))
    report = report_of(trace, "gpu_idle")
    (device,) = report.devices
    assert (device.compute_ns, device.idle_ns) == (compute_ms * MS, idle_ms * MS)
    assert device.span_ns == report.window.span_ns == (compute_ms + idle_ms) * MS
    assert device.kernel_work_ns == compute_ms * MS
    assert device.utilization_ratio == compute_ms / (compute_ms + idle_ms)
    assert sum(c.idle_ns for c in report.idle_causes) == device.idle_ns
    assert [f.facts["span_ns"] for f in report.findings] == ([device.span_ns] if idle_ms else [])


def test_library_ranges_are_no_iterations() -> None:
    trace = trace_of("""
        repeat 4 every 1ms
          0  900us  host  range "cublasSgemm_v2" domain=cuBLAS
          0  5us    host  cudaLaunchKernel -> 10us 800us s7 kernel "gemm{n}"
        """)
    assert steps_of(trace) is None
    assert report_of(trace).steps is None
    assert report_of(trace).window.basis == "all"


def test_a_synchronisation_is_no_work() -> None:
    trace = trace_of("""
        kernel reduce = ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
        0     5us  host  cudaLaunchKernelExC -> 10us 1s s20 kernel reduce
        10us  1s   host  cudaStreamSynchronize s20
        """)
    assert buckets(trace) == [(0, 0, 1000 * MS, 0, 0)]


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
         True),
        ("my_nccl_like_gemm(float*, float*)", False),
        ("void at::native::nccl_shaped_add<float>(float*)", False),
    ],
)  # fmt: skip
def test_collectives_are_told_by_their_name_and_nothing_else_is(
    name: str, communicates: bool
) -> None:
    trace = trace_of(f"""
        kernel it = {name}
        0  5us  host  cudaLaunchKernel -> 10us 1ms s7 kernel it
        """)
    assert [c == COMMUNICATION for c in trace.table("op_category")] == [communicates]
    assert buckets(trace) == [(0, 0, MS, 0, 0) if communicates else (0, MS, 0, 0, 0)]


def test_a_hidden_collective_is_not_exposed() -> None:
    trace = trace_of("""
        kernel reduce = ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
        0  5us  host  cudaLaunchKernel -> 0     500us s7  kernel gemm
        0  5us  host  cudaLaunchKernel -> 100us 400us s20 kernel reduce
        """)
    assert buckets(trace) == [(0, 500 * US, 0, 0, 0)]
    report = diagnose_trace(trace)
    assert [f.rule for f in report.findings if "communication" in f.rule] == []


def test_short_kernels_keep_their_nanoseconds() -> None:
    trace = trace_of("""
        repeat 1000 every 333ns
          0  100ns  host  cudaLaunchKernel -> 57ns 200ns s7 kernel tiny
        """)
    (device,) = budgets_of(trace, 0)
    assert (device.compute_ns, device.idle_ns) == (200_000, 999 * 133)
    (kernel,) = report_of(trace).kernels
    assert (kernel.count, kernel.total_ns, kernel.median_ns) == (1000, 200_000, 200)


def test_all_devices_are_reported_and_one_on_request() -> None:
    text = """
        0  5us  host  cudaLaunchKernel -> 0    10ms gpu0/s7 kernel gemm
        0  5us  host  cudaLaunchKernel -> 10ms 10ms gpu1/s7 kernel gemm
        0  5us  host  cudaLaunchKernel -> 30ms 10ms gpu1/s7 kernel gemm
        """
    assert buckets(trace_of(text)) == [(0, 10 * MS, 0, 0, 0), (1, 20 * MS, 0, 0, 10 * MS)]
    assert buckets(trace_of(text, Request(device=1))) == [(1, 20 * MS, 0, 0, 10 * MS)]


TWO_GPUS = """
kernel product = ampere_sgemm_128x64_tn
repeat 20 every 2ms
  0    1900us host range "step {n}"
  5us  6us host cudaLaunchKernel -> +2us 300us s7 kernel product grid=512 block=256
  +5us 6us host cudaLaunchKernel -> +1us 700us gpu1/s7 kernel product grid=512 block=256
  +1us ..gpu1/s7 host cudaDeviceSynchronize
"""


def test_a_device_on_request_has_the_price_that_it_has_among_all() -> None:
    rules = select_rules(load_rules(), select=["fp32_gemm"])
    all_devices, alone = (
        diagnose_trace(trace_of(TWO_GPUS, Request(device=device)), Options(rules=rules))
        for device in (None, 1)
    )
    (together,), (own,) = all_devices.findings, alone.findings
    one, other = sorted(together.subjects, key=lambda subject: subject.device or 0)
    assert one.saving_ns != other.saving_ns
    assert (own.device, own.saving_ns) == (other.device, other.saving_ns)
    assert alone.combined_saving_ns == other.saving_ns


def test_categories_are_the_same_in_every_layout(tmp_path_factory: pytest.TempPathFactory) -> None:
    from nsysdoctor.trace.trace import open_trace
    from sample_traces import record, write
    from sample_traces.layouts import LAYOUTS

    run, seen = record("pageable_copy"), set()
    for layout in LAYOUTS:
        path = tmp_path_factory.mktemp(layout) / "run.sqlite"
        write(run, path, layout=layout)
        trace = open_trace(path)
        counted = Counter(trace.table("op_category").astype(str))
        seen.add((tuple(sorted(counted.items())), *buckets(trace)))
    assert len(seen) == 1
    ((categories, (_, compute, _, copying, _)),) = seen
    assert dict(categories)["memcpy"] > 0
    assert compute > 0
    assert copying > 0


# --- processes, graphs, unified memory


def test_two_processes_that_share_a_gpu_are_united() -> None:
    trace = trace_of("""
        repeat 10 every 10ms
          0  5us  p1/host  cudaLaunchKernel -> 0   5ms s7 kernel gemm
          0  5us  p2/host  cudaLaunchKernel -> 5ms 5ms s7 kernel gemm
        """)
    (device,) = budgets_of(trace, 0)
    assert (device.utilization_ratio, device.idle_ns, device.processes) == (1.0, 0, 2)


def test_ordinals_are_mapped_to_the_gpus_that_a_process_sees() -> None:
    text = """
        process p1 "rank 0" gpus=0
        process p2 "rank 1" gpus=1
        0  5us  p1/host  cudaLaunchKernel -> 0   5ms gpu0/s7 kernel gemm
        0  5us  p2/host  cudaLaunchKernel -> 1ms 8ms gpu1/s7 kernel gemm
        """
    assert buckets(trace_of(text)) == [(0, 5 * MS, 0, 0, 0), (1, 8 * MS, 0, 0, 0)]


def test_processes_stay_apart_when_the_export_does_not_map_their_ordinals() -> None:
    trace = trace_of(
        """
        process p1 "rank 0" gpus=0
        process p2 "rank 1" gpus=1
        0  5us  p1/host  cudaLaunchKernel -> 0   5ms gpu0/s7 kernel gemm
        0  5us  p2/host  cudaLaunchKernel -> 1ms 8ms gpu1/s7 kernel gemm
        """,
        without=["cuda_device"],
    )
    assert sorted(b[1] for b in buckets(trace)) == [5 * MS, 8 * MS]
    assert any("kept apart" in note.text for note in report_of(trace).notes)


def test_correlation_ids_that_repeat_between_processes_are_not_mixed() -> None:
    trace = trace_of("""
        0     5us  p1/host  cudaLaunchKernel -> 20us 1ms s7 kernel gemm
        10us  5us  p2/host  cudaMemcpyAsync  -> 60us 1ms s7 copy HtoD 10MB pinned
        """)
    launches, ops, api = (trace.table(n) for n in ("launches", "ops", "api"))
    assert set(ops["correlation"]) == {1}
    assert launches["latency_ns"].tolist() == [20 * US, 50 * US]
    pairs = zip(launches["op"], launches["api"], strict=True)
    assert all(ops["process"][op] == api["process"][call] for op, call in pairs)


def test_operations_without_a_recorded_call_are_counted_not_invented() -> None:
    trace = trace_of("""
        0     5us  host  cudaLaunchKernel -> 20us 1ms s7 kernel gemm
        2ms   1ms  s7    kernel gemm
        4ms   1ms  s8    copy DtoH 1MB pinned
        """)
    assert len(trace.table("launches")) == 1
    assert any("2 of 3" in note.text for note in report_of(trace).notes)


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC_ptsz_v11060",
        "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchCooperativeKernel_v9000",
        "cudaGraphLaunch_v10000", "cuGraphLaunch_ptsz", "cudaLaunchKernel_ptsz_v7000",
    ],
)  # fmt: skip
def test_every_launching_call_is_one_whatever_its_suffix(call: str) -> None:
    trace = trace_of(f"""
        0    5us  host  {call} -> 10us 1ms s7 kernel gemm
        3ms  5us  host  {call} -> 3010us 1ms s7 kernel gemm
        """)
    assert len(trace.table("launches")) == 2
    # From the gap's start the host ran its own code until the call, then launched.
    assert causes(trace) == {"host_code": 3 * MS - 1010 * US, "launch": 10 * US}


def test_a_graph_launch_is_one_call_however_many_kernels_it_has() -> None:
    kernels = "\n".join(f"          -> +1us 1us s7 kernel k node={n + 1}" for n in range(500))
    trace = trace_of(f"""
        0     5us   host  cudaLaunchKernel -> 1us 2us s7 kernel first
        20us  10us  host  cudaGraphLaunch_v10000
{kernels}
        """)
    api = trace.table("api")
    graph = api[api["verb"] == api["verb"].max()].index
    assert len(api) == 2
    assert int((api["end_ns"] - api["start_ns"]).sum()) == 15 * US
    assert (trace.table("launches")["api"].isin(graph)).sum() == 500
    assert causes(trace)["launch"] <= 15 * US


def test_a_graph_replay_without_its_kernels_is_busy_time() -> None:
    trace = trace_of("""
        repeat 5 every 10ms
          0  10us  host  cudaGraphLaunch_v10000 -> 20us 9ms s7 graph 1
        """)
    assert buckets(trace) == [(0, 45 * MS, 0, 0, 4 * MS)]


def test_page_migrations_are_no_copies_and_occupy_no_stream() -> None:
    trace = trace_of("""
        0    5us   host  cudaLaunchKernel -> 0 10ms gpu1/s7 kernel gemm
        1ms  20us  s0    migration HtoD 64KiB
        2ms  20us  s0    migration DtoH 64KiB cause=4
        """)
    assert buckets(trace) == [(1, 10 * MS, 0, 0, 0)]
    assert trace.optional("copies") is None or not len(trace.table("copies"))
    moved = trace.table("migrations")
    assert moved["bytes"].tolist() == [65_536, 65_536]
    assert moved["cause"].tolist() == [2, 4]


# --- why


FIRST = "0 5us host cudaLaunchKernel -> 10us 1ms s7 kernel gemm"
"""A kernel that ends at 1.01 ms."""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            """2ms    5us    host  cudaLaunchKernel -> 2010us 1ms s7 kernel gemm""",
            {"host_code": 990, "launch": 10},
        ),
        (
            """20us   1ms    host  cudaStreamSynchronize s7
               1030us 5us    host  cudaLaunchKernel -> 1040us 1ms s7 kernel gemm""",
            {"synchronization": 10, "host_code": 10, "launch": 10},
        ),
        (
            """20us   1ms    host  cudaDeviceSynchronize
               1030us 5us    host  cudaLaunchKernel -> 1040us 1ms s7 kernel gemm""",
            {"synchronization": 10, "host_code": 10, "launch": 10},
        ),
        (
            """500us  2500us host  cudaMalloc_v3020
               3ms    5us    host  cudaLaunchKernel -> 3010us 1ms s7 kernel gemm""",
            {"allocation": 1990, "launch": 10},
        ),
        (
            """500us  2500us host  cuModuleLoadData
               3ms    5us    host  cudaLaunchKernel -> 3010us 1ms s7 kernel gemm""",
            {"module_load": 1990, "launch": 10},
        ),
        (
            """500us  2500us host  cudaMemcpy -> 2010us 500us s7 copy DtoH 4MB pageable""",
            {"blocking_copy": 1000},
        ),
        (
            """500us  2500us host  cudaMemcpyAsync -> 2010us 500us s7 copy HtoD 4MB pageable""",
            {"blocking_copy": 1000},
        ),
        (
            """500us  2500us host  os poll
               3ms    5us    host  cudaLaunchKernel -> 3010us 1ms s7 kernel gemm""",
            {"os_wait": 1990, "launch": 10},
        ),
        (
            """500us  2500us host  os pthread_cond_timedwait
               3ms    5us    host  cudaMemcpyAsync -> 3010us 1ms s7 copy HtoD 4MB pinned""",
            {"input_wait": 1990, "launch": 10},
        ),
        (
            """500us  2500us host  range "DataLoader.__next__"
               500us  2500us host  os pthread_cond_timedwait
               3ms    5us    host  cudaLaunchKernel -> 3010us 1ms s7 kernel gemm""",
            {"input_wait": 1990, "launch": 10},
        ),
        (
            """500us  2500us host  pause "CUPTI buffer flush"
               3ms    5us    host  cudaLaunchKernel -> 3010us 1ms s7 kernel gemm""",
            {"profiler": 1990, "launch": 10},
        ),
        (
            """500us  2500us host9 pause "TLS allocation"
               3ms    5us    host  cudaLaunchKernel -> 3010us 1ms s7 kernel gemm""",
            {"host_code": 1990, "launch": 10},
        ),
        (
            """20us   5us    host  cudaLaunchKernel -> 1015us 1ms s7 kernel gemm""",
            {"dependency": 5},
        ),
        (
            """20us   5us    host  cudaLaunchKernel -> 5ms 1ms s8 kernel gemm""",
            {"unknown": 3990},
        ),
        (
            """5ms    1ms    s7    kernel gemm""",
            {"unknown": 3990},
        ),
        (
            """20us   5us    host  cudaLaunchKernel -> 5ms 1ms s20 kernel ncclDevKernel_X""",
            {"communication": 3990},
        ),
        (
            """500us  400us  host  cudaFree_v3020
               900us  2ms    host  os write
               3ms    5us    host  cudaLaunchKernel -> 3010us 1ms s7 kernel gemm""",
            {"host_code": 1990, "launch": 10},
        ),
        (
            """900us  700us  host  cudaEventSynchronize event=1
               1700us 5us    host  cudaLaunchKernel -> 1710us 1ms s7 kernel gemm""",
            {"synchronization": 590, "host_code": 100, "launch": 10},
        ),
        (
            """2ms    600us  host  cudaLaunchKernel -> 2650us 1ms s7 kernel first_seen""",
            {"host_code": 990, "module_load": 600, "launch": 50},
        ),
    ],
)  # fmt: skip
def test_a_gap_has_the_causes_that_the_host_shows(lines: str, expected: dict[str, int]) -> None:
    trace = trace_of("\n".join([FIRST, *(line.strip() for line in lines.splitlines())]))
    assert causes(trace) == {cause: us * US for cause, us in expected.items()}


def test_another_device_that_was_waited_for_is_a_dependency() -> None:
    trace = trace_of("""
        0     5us  host  cudaLaunchKernel -> 10us 1ms gpu0/s7 kernel gemm
        20us  5us  host  cudaLaunchKernel -> 30us 4ms gpu1/s7 kernel gemm
        40us  5us  host  cudaLaunchKernel -> 4035us 1ms gpu0/s7 kernel gemm
        """)
    assert causes(trace) == {"dependency": 3025 * US}


def test_a_thread_that_waits_for_another_shows_what_that_one_did() -> None:
    trace = trace_of("""
        0      5us    host   cudaLaunchKernel -> 10us 1ms s7 kernel gemm
        500us  2500us host   os pthread_cond_wait
        1500us 1ms    host2  cudaMalloc_v3020
        3ms    5us    host   cudaLaunchKernel -> 3010us 1ms s7 kernel gemm
        """)
    assert causes(trace) == {"os_wait": 990 * US, "allocation": 1000 * US, "launch": 10 * US}


def test_only_the_thread_that_launches_next_is_asked() -> None:
    trace = trace_of("""
        0      5us    host   cudaLaunchKernel -> 10us 1ms s7 kernel gemm
        500us  2500us host2  cudaDeviceSynchronize
        3ms    5us    host   cudaLaunchKernel -> 3010us 1ms s7 kernel gemm
        """)
    assert causes(trace) == {"host_code": 1990 * US, "launch": 10 * US}


def test_a_long_synchronisation_beside_a_busy_device_is_no_idle_time() -> None:
    trace = trace_of("""
        repeat 10 every 10ms
          0     5us    host  cudaLaunchKernel -> 0 10ms s7 kernel gemm
          10us  9980us host  cudaStreamSynchronize s7
        """)
    assert buckets(trace) == [(0, 100 * MS, 0, 0, 0)]
    assert causes(trace) == {}


def test_a_call_with_a_back_trace_is_counted_once() -> None:
    trace = trace_of(
        "0 5us host cudaLaunchKernel -> 10us 1ms s7 kernel gemm",
        sql='INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT start, "end", globalTid, '
        "correlationId, nameId, returnValue, 67 FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    )
    assert len(trace.table("api")) == 1
    assert len(trace.table("launches")) == 1


def test_without_calls_every_gap_is_of_unknown_cause_and_the_report_says_so() -> None:
    trace = trace_of(f"{FIRST}\n5ms 5us host cudaLaunchKernel -> 5010us 1ms s7 kernel gemm",
                     without=["api"])  # fmt: skip
    assert causes(trace) == {"unknown": 4 * MS}
    assert any("no CUDA calls" in note.text for note in report_of(trace).notes)


def test_step_times_are_the_devices_where_the_host_runs_ahead(tmp_path: Path) -> None:
    from nsysdoctor.diagnosis.diagnose import diagnose
    from sample_traces import record, write

    path = tmp_path / "run.sqlite"
    write(record("healthy_training"), path)
    report = diagnose(path)
    assert report.steps is not None
    mean = report.window.span_ns / report.steps.steady_count
    assert 0.9 * mean <= report.steps.median_ns <= 1.1 * mean
