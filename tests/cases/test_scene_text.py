"""Traces as text tables: what each form of a line means, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsysdoctor.cases.rule_cases import Case, faults_of, load_cases, run_case, within
from nsysdoctor.cases.scene_text import SIZES_BYTES as SIZES
from nsysdoctor.cases.scene_text import TIMES_NS as TIMES
from nsysdoctor.cases.scene_text import Event, quantity, read_scene
from nsysdoctor.errors import RuleError
from nsysdoctor.rulebook.rule import Rule
from tests.make_report import make_report
from tests.make_scene import trace_of


def spans(text: str) -> list[tuple[str, int, int]]:
    """What happened from when to when, ns, in the order written."""
    return [(e.what, e.start_ns, e.end_ns) for e in read_scene(text).events]


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("4ms", TIMES, 4_000_000), ("1.5us", TIMES, 1500), ("2µs", TIMES, 2000), ("0", TIMES, 0),
        ("7ns", TIMES, 7), ("-3s", TIMES, -3_000_000_000), ("40MB", SIZES, 40_000_000),
        ("64KiB", SIZES, 65_536), ("2.5kB", SIZES, 2500), ("4B", SIZES, 4),
    ],
)  # fmt: skip
def test_quantities(text: str, units: dict[str, int], value: int) -> None:
    assert quantity(text, units) == value


@pytest.mark.parametrize("text", ["", "ms", "5", "5 ms", "1e3us", "5MB", "nan"])
def test_quantities_without_a_unit_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        quantity(text, TIMES)


def test_an_arrow_leads_from_a_call_to_its_operations() -> None:
    events = read_scene("""
        0 5us host cudaLaunchKernel -> 10us 1ms s7 kernel gemm
        20us 9us p2/host2 cudaGraphLaunch
          -> 40us 1us gpu1/s9 kernel a node=1
          -> +1us 2us gpu1/s9 kernel b node=2
        """).events
    assert [e.parent for e in events] == [-1, 0, -1, 2, 2]
    assert [(e.place.process, e.place.thread, e.place.device, e.place.stream) for e in events] == [
        (1, 1, 0, 0), (1, 0, 0, 7), (2, 2, 0, 0), (2, 0, 1, 9), (2, 0, 1, 9)
    ]  # fmt: skip
    assert (events[4].start_ns, events[4].end_ns) == (42_000, 44_000)


def test_plus_follows_what_came_before_at_the_place() -> None:
    assert spans("""
        1us  2us  host  cudaLaunchKernel -> +5us 9us s7 kernel a
        +1us 2us  host  cudaLaunchKernel -> +1us 9us s7 kernel b
        +50us 2us host  cudaLaunchKernel -> +3us 9us s7 kernel c
        """) == [
        ("cudaLaunchKernel", 1000, 3000), ("kernel", 6000, 15_000),
        ("cudaLaunchKernel", 4000, 6000), ("kernel", 16_000, 25_000),
        ("cudaLaunchKernel", 56_000, 58_000), ("kernel", 59_000, 68_000),
    ]  # fmt: skip


def test_dots_reach_to_a_time_or_until_a_place_is_done() -> None:
    assert spans("""
        0    5us       host  cudaLaunchKernel -> 10us 1ms s7 kernel gemm
        20us ..1500us  host  os poll
        30us ..s7+4us  host  cudaStreamSynchronize s7
        5ms  ..s7      host  cudaStreamSynchronize s7
        """)[2:] == [
        ("os", 20_000, 1_500_000), ("cudaStreamSynchronize", 30_000, 1_014_000),
        ("cudaStreamSynchronize", 5_000_000, 5_000_000),
    ]  # fmt: skip


def test_repeats_nest_and_count() -> None:
    scene = read_scene("""
        repeat 2 every 10ms from 1ms:
          0 9ms host range "step {n}"
          repeat 3 every 1ms
            100us 5us host cudaLaunchKernel -> +1us 1us s7 kernel "k{n}"
        """)
    ranges = [e.words[0] for e in scene.events if e.what == "range"]
    kernels = [(e.start_ns // 1_000_000, e.words[0]) for e in scene.events if e.what == "kernel"]
    assert ranges == ["step 0", "step 1"]
    assert kernels == [(1, "k0"), (2, "k1"), (3, "k2"), (11, "k0"), (12, "k1"), (13, "k2")]


def test_comments_and_blank_lines_say_nothing() -> None:
    assert spans("""
        # the first kernel

        0 5us host cudaLaunchKernel -> 10us 1ms s7 kernel gemm  # queued
        """) == spans("0 5us host cudaLaunchKernel -> 10us 1ms s7 kernel gemm")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 5us", "START DURATION PLACE WHAT"),
        ("0 5us nowhere cudaFree", "no place"),
        ("0 5us s cudaFree", "no place"),
        ("0 5us host sleep", "neither a CUDA call"),
        ("0 5us host kernel gemm", "cannot be at host"),
        ("0 5us s7 cudaFree", "cannot be at s7"),
        ("0 5 host cudaFree", "5 is no number"),
        ("0 5us s7 kernel a -> 0 5us s7 kernel b", "needs a call"),
        ("0 5us host os poll -> 0 5us s7 kernel b", "needs a call"),
        ("repeat 3", "say: repeat"),
        ("repeat x every 1ms", "invalid literal"),
        ("repeat 3 each 1ms", "say: repeat"),
        ('0 5us host range "open', "quotation"),
    ],
)
def test_a_line_that_cannot_be_meant_is_named(line: str, words: str) -> None:
    with pytest.raises(RuleError, match=words) as caught:
        read_scene(f"0 5us host cudaMalloc\n{line}\n")
    assert "line 2 of the trace" in caught.value.message


def test_a_trace_cannot_begin_with_an_arrow() -> None:
    with pytest.raises(RuleError, match=r"line 1 of the trace.*needs a call"):
        read_scene("-> 0 5us s7 kernel a")


@pytest.mark.parametrize(
    "line",
    [
        "0 5us s7 copy UpToD 4MB", "0 5us s7 copy HtoD 4 pinned", "0 5us s7 copy HtoD 4MB floppy",
        "0 5us s7 copy HtoD", "0 5us s7 kernel", "0 5us s7 kernel a grid=many",
        "0 5us s7 set", "0 5us s0 migration HtoH 4kB", "0 5us p3/gpu0/s7 kernel a",
    ],
)  # fmt: skip
def test_an_event_that_no_export_could_hold_is_named(line: str) -> None:
    with pytest.raises(RuleError, match="line 2 of the trace cannot be written"):
        trace_of(f'process p3 "x" gpus=1\n{line}')


def test_an_unknown_table_or_column_cannot_be_left_out() -> None:
    for name in ("kernels", "memcpy.sourceKind"):
        with pytest.raises(RuleError, match="without names nothing"):
            trace_of("0 5us s7 kernel a", without=[name])


def test_what_is_written_is_what_the_reader_reads() -> None:
    trace = trace_of("""
        gpu 0 "NVIDIA H100 80GB HBM3" cc=9.0 sms=132 clock_mhz=1980 bandwidth=3350GB memory=80GB
        process p1 "trainer"
        thread host2 "loader"
        stream s13 blocking
        row diagnostic severity=2 text="Not all events"
        kernel add = void at::add<float>(int, float*)
        0    5us  host   cudaLaunchKernel_v7000 -> 10us 1ms s13 kernel add grid=8x4x2 block=64x2
        10us 5us  host2  os sem_wait
        20us 5us  host   cudaMemcpyAsync -> 2ms 1ms s13 copy DtoH 4kB pageable
        30us 5us  host   range "ncclX" domain=NCCL
        """)
    (device,) = trace.table("devices").to_dict("records")
    assert (device["name"], device["sm_count"], device["clock_hz"]) == (
        "NVIDIA H100 80GB HBM3", 132, 1_980_000_000
    )  # fmt: skip
    assert device["memory_bandwidth_bytes_per_s"] == 3_350_000_000_000
    assert trace.table("processes")["name"].tolist() == ["trainer"]
    assert set(trace.table("threads")["name"]) == {"", "loader"}
    kernel = trace.table("kernel_rows").iloc[0]
    assert kernel[["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]].tolist() == [
        8, 4, 2, 64, 2, 1
    ]  # fmt: skip
    (copy,) = trace.table("copies").to_dict("records")
    assert (copy["direction"], copy["bytes"], copy["src_kind"], copy["dst_kind"]) == (
        "DtoH", 4000, 2, 0
    )  # fmt: skip
    assert set(trace.table("stream_rows")["flag"]) == {1}
    assert trace.table("diagnostic_rows")["text"].astype(str).tolist() == ["Not all events"]
    assert trace.table("ranges")["domain"].astype(str).tolist() == ["NCCL"]


@pytest.mark.parametrize(
    ("value", "bounds", "holds"),
    [
        (40, 40, True), (40, "40", True), (40, "41", False), (3_000_000, "3ms", True),
        (3_000_001, "3ms", False), (5_000_000, ">= 3ms", True), (2_000_000, ">= 3ms", False),
        (10, "<= 1%", True), (11, "<= 1%", False), (250, "20% .. 30%", True),
        (310, "20% .. 30%", False), (4_000_000, "3MB .. 5MB", True),
        ("host code", "host code", True),
        ("host code", "launch", False), (None, "0", False), (0.5, 0.5, True), (1, ">= 2", False),
    ],
)  # fmt: skip
def test_bounds(value: object, bounds: int | float | str, holds: bool) -> None:
    assert within(value, bounds, 1000) is holds


def test_bounds_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(RuleError, match="no number"):
        within(3, ">= many")


def case(**given: object) -> Case:
    """A case that expects a finding, with more expectations."""
    return Case.model_validate({"name": "x", "trace": "", "expect": "found", **given})


def test_every_expectation_is_held() -> None:
    report = make_report()
    finding = report.findings[0]
    assert finding.saving_ns is not None
    right = {
        "subject": finding.subject, "level": finding.level, "count": finding.count,
        "saving": f"{finding.saving_ns}ns", "findings": len(report.findings),
    }  # fmt: skip
    wrong = {
        "subject": "nobody", "level": "info", "count": finding.count + 1,
        "saving": f"<= {finding.saving_ns - 1}ns", "findings": 0,
    }  # fmt: skip
    states = {o.rule: o.state for o in report.outcomes}
    assert states[report.outcomes[0].rule] == "found"
    assert faults_of(case(**right), report) == []
    for name, value in wrong.items():
        (fault,) = faults_of(case(**{name: value}), report)
        assert fault.startswith(f"{name}: expected {value}")
    assert faults_of(case(facts={"no_such_fact": 1}), report)
    assert faults_of(case(reason="no such reason"), report)
    assert faults_of(case(expect="quiet"), report)
    assert faults_of(case(expect="skipped"), report)


def test_a_trace_that_cannot_be_analysed_is_a_fault_and_no_crash(all_rules: list[Rule]) -> None:
    result = run_case(case(trace="0 5us host cudaMalloc"), all_rules[0])
    assert "no GPU activity" in result.faults[0]


def test_cases_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("- {name: a, trace: t, expect: found}\n- {name: b, trace: t, expect: quiet}\n")
    assert [c.name for c in load_cases(path)] == ["a", "b"]


def test_events_are_plain_data() -> None:
    assert isinstance(read_scene("0 5us host cudaMalloc").events[0], Event)
