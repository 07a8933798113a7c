"""The sentences that open a report: how much of the loss has a cure, and where the rest went."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsysdoctor.render import words
from nsysdoctor.render.account import verdict
from nsysdoctor.render.markdown import render_markdown
from nsysdoctor.report.model import LostTime, Report
from tests.make_report import MS, make_device, make_finding, make_report, make_trace


def row(culprit: str = "cudaMemGetInfo", **changes: object) -> LostTime:
    """A row of 30 ms of a CUDA call in the steady phase."""
    base = LostTime(
        trace=0, device=0, phase="steady", bucket="idle", cause="host_code", culprit=culprit,
        culprit_kind="call" if culprit else "none", thread="thread python", range="forward",
        ns=30 * MS, ratio=0.3, count=3, longest_start_ns=12_300 * MS, longest_ns=11 * MS,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def busy(ratio: float, *rows: LostTime, **changes: object) -> Report:
    """A report on a device that computes for so much of 100 ms, without findings."""
    compute = round(ratio * 100) * MS
    device = make_device(
        compute_ns=compute, exposed_communication_ns=0, exposed_copy_ns=0,
        idle_ns=100 * MS - compute, utilization_ratio=ratio, busy_ratio=ratio,
    )  # fmt: skip
    return make_report(
        devices=[device], **({"findings": [], "lost_time": list(rows)} | changes)
    )


def said(report: Report) -> str:
    return " ".join(verdict(report))


def test_nothing_found_is_said_of_busy_devices_only() -> None:
    assert said(busy(0.95, row(ns=5 * MS))) == "Nothing found that is worth curing."
    for ratio in (0.0, 0.5, 0.89):
        text = said(busy(ratio, row(ns=round(100 - 100 * ratio) * MS)))
        assert "othing found" not in text
        assert text.startswith("No cure known for the ")


def test_nothing_found_is_not_said_where_rules_could_not_look() -> None:
    rows = {"kernel": 10, "memcpy": 0, "memset": 0, "graph": 0, "api": 0, "nvtx": 0}
    report = busy(1.0, traces=[make_trace(rows=rows)])
    assert said(report).startswith("No time is lost; the capture holds no CUDA calls")


def test_what_has_no_cure_is_named_with_its_longest_place() -> None:
    text = said(busy(0.5, row(), row("ioctl in cudaMalloc", culprit_kind="os_call", ns=20 * MS)))
    assert text == (
        "No cure known for the 50.0 ms (50.0 %) of: cudaMemGetInfo 30.0 ms (longest 11.0 ms at "
        "12.3 s, thread python, in range forward), cudaMalloc 20.0 ms."
    )


def test_claimed_time_is_told_from_the_rest() -> None:
    rows = (row(claimed_ns=30 * MS, findings=[0]), row("cudaFree", ns=20 * MS))
    text = said(busy(0.5, *rows, findings=[make_finding()]))
    assert "Of the 50.0 ms lost (50.0 %) cures address 30.0 ms; no cure known for the" in text
    assert "other 20.0 ms (20.0 %): cudaFree 20.0 ms (longest" in text


@pytest.mark.parametrize("phase", ["before", "after"])
def test_what_lies_around_the_span_is_no_part_of_the_loss(phase: str) -> None:
    text = said(busy(0.5, row(ns=50 * MS), row("cudaHostAlloc", phase=phase, ns=900 * MS)))
    assert "cudaHostAlloc" not in text


def recorded(**rows: int) -> list[object]:
    base = {"kernel": 10, "memcpy": 0, "memset": 0, "graph": 0, "api": 10, "nvtx": 5, "osrt": 5}
    return [make_trace(rows=base | {"sample": 0, "sched": 0} | rows)]


def test_flags_are_given_where_they_would_name_something() -> None:
    unnamed = row("", ns=50 * MS)
    text = said(busy(0.5, unnamed, traces=recorded()))
    assert "record with --sample=process-tree" in text
    assert "--python-sampling=true" in text
    assert "--trace" not in text
    assert "--trace=cuda,nvtx,osrt" in said(busy(0.5, unnamed, traces=recorded(nvtx=0)))
    assert "record with" not in said(busy(0.5, unnamed, traces=recorded(sample=9)))
    assert "record with" not in said(busy(0.5, row(ns=50 * MS), traces=recorded()))


def test_no_utilization_is_told_of_a_capture_without_kernels() -> None:
    report = busy(0.0, row(ns=100 * MS), traces=recorded(kernel=0))
    assert words.utilization_text(report) == (
        "GPU utilization unknown, as the capture holds no kernels"
    )
    assert "0.0 %." not in render_markdown(report).splitlines()[2]
