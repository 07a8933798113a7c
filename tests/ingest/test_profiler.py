"""Traces of torch's profiler: read like exports, with the same answers, as far as they go."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.errors import EmptyTraceError, UnreadableTraceError
from nsysdoctor.report.model import Finding, Report
from nsysdoctor.trace.trace import open_trace
from sample_traces import PROGRAMS, record, write
from tests import swept
from tests.ingest.chrome import chrome, write_chrome

PROGRAM_NAMES = (
    "pageable_copy", "sync_in_loop", "launch_bound", "unfused_chain", "healthy_training",
    "fp32_gemm", "host_bound", "many_small_copies", "layout_copies", "unfused_attention",
)  # fmt: skip
NEAR = 0.01
"""Of the window: a profiler's trace is given the prices of an export within one percent."""


def acts(report: Report) -> list[Finding]:
    """The findings to act on, by rule and subject."""
    found = [f for f in report.findings if f.level != "info"]
    return sorted(found, key=lambda f: (f.rule, f.subject))


@pytest.mark.parametrize("name", swept(PROGRAM_NAMES, 5))
def test_both_recorders_give_the_same_findings(name: str, tmp_path: Path) -> None:
    recording = record(name)
    write(recording, tmp_path / "run.sqlite")
    write_chrome(recording, tmp_path / "run.json")
    export, profile = diagnose(tmp_path / "run.sqlite"), diagnose(tmp_path / "run.json")
    assert [d.span_ns for d in profile.devices] == [d.span_ns for d in export.devices]
    assert [d.idle_ns for d in profile.devices] == [d.idle_ns for d in export.devices]
    one, other = acts(export), acts(profile)
    assert [(f.rule, f.subject) for f in other] == [(f.rule, f.subject) for f in one]
    for a, b in zip(one, other, strict=True):
        assert b.saving_ratio == pytest.approx(a.saving_ratio, abs=NEAR), (a.rule, a.subject)


def test_a_packed_trace_is_the_same(tmp_path: Path) -> None:
    recording = record("pageable_copy")
    write_chrome(recording, tmp_path / "run.json")
    write_chrome(recording, tmp_path / "run.json.gz")
    plain, packed = diagnose(tmp_path / "run.json"), diagnose(tmp_path / "run.json.gz")
    assert packed.findings == plain.findings
    assert packed.devices == plain.devices


def test_nothing_is_written_beside_the_trace(tmp_path: Path) -> None:
    write_chrome(record("healthy_training"), tmp_path / "run.json")
    before = (tmp_path / "run.json").read_bytes()
    diagnose(tmp_path / "run.json")
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
    assert (tmp_path / "run.json").read_bytes() == before


def test_the_rank_and_the_card_are_read(tmp_path: Path) -> None:
    write_chrome(record("healthy_training"), tmp_path / "run.json", rank=5)
    trace = open_trace(tmp_path / "run.json")
    assert trace.identity.rank == 5
    card = trace.table("devices").iloc[0]
    assert card["name"] == "NVIDIA A100-SXM4-80GB"
    assert card["sm_count"] == 108
    assert card["memory_bandwidth_bytes_per_s"] == 2039 * 10**9
    assert card["clock_hz"] == 1410 * 10**6


def test_times_are_exact_far_from_zero(tmp_path: Path) -> None:
    """Older torch wrote µs since 1970, which no float holds to the nanosecond."""
    events = [
        kernel(f"{1_732_107_141_551_429 + place}.{79 + place:03d}", "0.049")
        for place in range(3)
    ]
    text = '{"traceEvents": [' + ", ".join(events) + "]}"
    (tmp_path / "run.json").write_text(text)
    ops = open_trace(tmp_path / "run.json").table("ops")
    assert (ops["end_ns"] - ops["start_ns"]).tolist() == [49, 49, 49]
    assert ops["start_ns"].diff().dropna().tolist() == [1001, 1001]


def kernel(ts: str, dur: str, cat: str = "kernel") -> str:
    """A kernel event as text, so that its numbers are written as given."""
    return (
        f'{{"ph": "X", "cat": "{cat}", "name": "k", "pid": 0, "tid": 7, "ts": {ts}, "dur": {dur},'
        ' "args": {"device": 0, "context": 1, "stream": 7, "correlation": 1}}'
    )


def test_the_categories_of_old_releases_are_known(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(f"[{kernel('10', '5', 'Kernel')}]")
    assert len(open_trace(tmp_path / "run.json").table("ops")) == 1


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_trace_that_breaks_off_is_read_up_to_there(
    share: float, suffix: str, tmp_path: Path
) -> None:
    whole = chrome(record("pageable_copy"))
    path = tmp_path / f"run{suffix}"
    text = json.dumps(whole).encode()
    data = gzip.compress(text) if suffix.endswith("gz") else text
    path.write_bytes(data[: int(share * len(data))])
    trace = open_trace(path)
    some = sum(1 for e in whole["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy"))
    assert 0 < len(trace.table("ops")) <= some
    assert any("breaks off" in text for text in trace.export.warnings())
    assert any("breaks off" in note.text for note in diagnose(path).notes)


def odd(**change: Any) -> dict[str, Any]:
    """A kernel event with something changed."""
    event = json.loads(kernel("10", "5"))
    args = change.pop("args", {})
    event["args"] = event["args"] | args if isinstance(args, dict) else args
    return event | change


@pytest.mark.parametrize(
    "event",
    [
        odd(ts="soon"), odd(dur=None), odd(args=None), odd(name=None), odd(cat=["kernel"]),
        odd(ts=1e300), odd(args={"grid": "big", "block": [1]}), odd(tid="stream 7"),
        odd(args={"correlation": "x", "stream": None, "device": 1e99}), odd(ph=3), {}, {"ph": "M"},
        {"ph": "M", "name": "thread_name", "args": {"name": 3}, "tid": []},
        odd(cat="cpu_op", args={"Input Dims": 3}), odd(cat="cpu_op", tid=139_637_976_727_296),
        odd(cat="gpu_memcpy", name="Memcpy"), odd(cat="cuda_sync", args={"stream": -1}),
    ],
    ids=str,
)  # fmt: skip
def test_odd_events_are_no_crash(event: dict[str, Any], tmp_path: Path) -> None:
    whole = {"traceEvents": [json.loads(kernel("20", "5")), event]}
    (tmp_path / "run.json").write_text(json.dumps(whole))
    assert diagnose(tmp_path / "run.json").devices[0].compute_ns >= 5000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "no trace of torch's profiler"), ("[]", "no trace of torch's profiler"),
        ('{"format": "nsysdoctor-report"}', "no trace of torch's profiler"),
        ("{", "cut off or no JSON"), ("[1, 2", "cut off or no JSON"),
    ],
)  # fmt: skip
def test_other_json_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UnreadableTraceError, match=says):
        open_trace(tmp_path / "run.json")


def test_a_trace_of_the_cpu_alone_says_what_to_record(tmp_path: Path) -> None:
    event = odd(cat="cpu_op", name="aten::add")
    (tmp_path / "run.json").write_text(json.dumps({"traceEvents": [event]}))
    with pytest.raises(EmptyTraceError) as caught:
        diagnose(tmp_path / "run.json")
    assert "ProfilerActivity.CUDA" in caught.value.hint


def test_hints_do_not_send_a_user_of_the_profiler_to_its_flags(tmp_path: Path) -> None:
    write_chrome(record("healthy_training"), tmp_path / "run.json")
    for outcome in diagnose(tmp_path / "run.json").outcomes:
        assert "record with --trace" not in outcome.reason, outcome


def test_every_program_here_exists() -> None:
    assert set(PROGRAM_NAMES) <= set(PROGRAMS)
