"""What a diff claims, and what it does not."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from nsysdoctor.diff.runs import Diff, diff_reports
from nsysdoctor.errors import UsageError
from nsysdoctor.render.verdicts.diff import diff_markdown, headline, render_diff
from nsysdoctor.report.model import KernelRow, Report
from tests.gate_runs import empty, finding, kernel, run, without_steps
from tests.make_report import NASTY

GEMM = "ampere_sgemm_128x64_tn"
FUSED = "triton_poi_fused_add_mul_{}"


def with_kernels(*rows: KernelRow, **changes: object) -> Report:
    return run(kernels=rows, **changes)


def states(diff: Diff) -> dict[str, str]:
    return {change.metric: change.state for change in diff.metrics}


def kernels(diff: Diff) -> list[tuple[str, str]]:
    return [(change.name, change.state) for change in diff.kernels]


def on_terminal(diff: Diff) -> str:
    console = Console(file=io.StringIO(), width=80)
    render_diff(diff, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_same_file_twice_changes_nothing() -> None:
    report = with_kernels(kernel(GEMM, 400, 70_000), findings=(finding(),))
    diff = diff_reports(report, report)
    assert diff.neutral
    assert (diff.unchanged_kernels, diff.unchanged_findings) == (1, 1)
    assert headline(diff) == "run.sqlite to run.sqlite: nothing changed beyond the noise"


def test_jitter_is_no_change() -> None:
    assert diff_reports(run(1), run(2)).neutral


def test_d7_a_sync_that_only_moved_is_neutral() -> None:
    """The wait shows in another call: same synchronizations, same idle time, same step."""
    before = run(1, findings=(finding("sync_in_loop", "loss read-back", saving=0.05),))
    after = run(2, findings=(finding("sync_in_loop", "loss read-back", saving=0.051),))
    diff = diff_reports(before, after)
    assert diff.neutral
    assert diff.unchanged_findings == 1


def test_a_slower_loop_is_told_per_device_and_step() -> None:
    diff = diff_reports(run(1), run(2, kernel_ns=8_000_000, idle_ns=2_000_000))
    assert states(diff) == {
        "utilization_ratio": "worse",
        "busy_ratio": "worse",
        "idle_ns": "worse",
        "idle_input_wait_ns": "worse",
        "kernel_ns": "better",
    }
    assert {change.device for change in diff.metrics} == {0}
    assert "GPU utilization on GPU 0 90.0 % -> 80.0 %" in headline(diff)


def test_the_same_gpu_work_with_fewer_launches() -> None:
    before = run(1, launches=1700, idle_ns=2_000_000, cause="launch")
    after = run(2, launches=20, graphs=2, idle_ns=300_000, cause="launch")
    diff = diff_reports(before, after)
    assert diff.statements[0] == (
        "the same GPU work, fewer launches: 1,700 launches became 20 and 2 graph launches"
    )
    assert states(diff)["graph_launch_count"] == "more"
    assert states(diff)["kernel_launch_count"] == "better"


@pytest.mark.parametrize(
    "after",
    [
        {"launches": 20, "graphs": 0},
        {"launches": 1700, "graphs": 2},
        {"launches": 20, "graphs": 2, "kernel_ns": 4_000_000},
    ],
    ids=["no graphs", "no fewer launches", "less work"],
)
def test_other_changes_are_not_called_the_same_work(after: dict[str, object]) -> None:
    diff = diff_reports(run(1, launches=1700), run(2, **after))
    assert not [text for text in diff.statements if "same GPU work" in text]


def test_d24_the_difference_lies_between_the_kernels() -> None:
    before = run(1, cause="launch", graphs=40)
    after = run(2, cause="launch", graphs=40, idle_ns=4_000_000, api_ns=9_000_000)
    diff = diff_reports(before, after)
    assert diff.statements == [
        "kernel time did not change; the difference lies between the kernels"
    ]
    assert "kernel_ns" not in states(diff)
    assert states(diff)["idle_launch_ns"] == states(diff)["api_ns"] == "worse"


def test_kernels_match_by_name_without_generated_numbers() -> None:
    before = with_kernels(kernel(GEMM, 400, 70_000), kernel(FUSED.format(3), 400, 20_000))
    after = with_kernels(kernel(GEMM, 400, 70_000), kernel(FUSED.format(11), 400, 20_500))
    diff = diff_reports(before, after)
    assert diff.kernels == []
    assert diff.unchanged_kernels == 2


def test_a_kernel_that_got_slower_is_named_with_both_times() -> None:
    before = with_kernels(kernel(GEMM, 4400, 70_000), kernel("softmax", 4400, 9_000))
    after = with_kernels(kernel(GEMM, 4400, 84_000), kernel("softmax", 4400, 9_050))
    diff = diff_reports(before, after)
    assert kernels(diff) == [(GEMM, "slower")]
    assert diff.kernels[0].before is not None and diff.kernels[0].after is not None
    assert (diff.kernels[0].before.count, diff.kernels[0].before.median_ns) == (100, 70_000)
    assert diff.kernels[0].growth_ns == pytest.approx(1_400_000)
    assert "70.0 µs" in on_terminal(diff) and "84.0 µs" in on_terminal(diff)


def test_more_fewer_new_and_gone() -> None:
    before = with_kernels(
        kernel("norm", 4400, 10_000), kernel("add", 8800, 10_000), kernel("old", 4400, 10_000)
    )
    after = with_kernels(
        kernel("norm", 8800, 10_000), kernel("add", 4400, 10_000), kernel("young", 4400, 10_000)
    )
    diff = diff_reports(before, after)
    assert dict(kernels(diff)) == {"norm": "more", "add": "fewer", "old": "gone", "young": "new"}


def test_another_tile_size_is_the_same_kernel() -> None:
    before = with_kernels(kernel("ampere_sgemm_128x64_tn", 4400, 70_000))
    after = with_kernels(kernel("ampere_sgemm_64x64_tn", 4400, 90_000))
    diff = diff_reports(before, after)
    assert [change.state for change in diff.kernels] == ["slower"]
    assert diff.kernels[0].after is not None
    assert diff.kernels[0].after.names == ["ampere_sgemm_64x64_tn"]


def test_a_longer_run_of_the_same_loop_is_no_change() -> None:
    """44 steps against 84: counts and times are held per step."""
    before = with_kernels(kernel(GEMM, 4400, 70_000), steps=40)
    after = with_kernels(kernel(GEMM, 8400, 70_000), steps=80)
    assert diff_reports(before, after).neutral


def test_tiny_kernels_do_not_show() -> None:
    before = with_kernels(kernel("fill", 44, 1_000))
    after = with_kernels(kernel("fill", 44, 3_000), kernel("other", 4, 900))
    assert diff_reports(before, after).kernels == []


def test_every_kernel_is_matched_once() -> None:
    rows = [kernel(f"{name}_{n}x64", 4400, 20_000) for name in ("gemm", "conv") for n in (1, 2, 3)]
    diff = diff_reports(with_kernels(*rows), with_kernels(*rows[:-1], kernel("conv_9x64", 4400, 1)))
    counted = diff.unchanged_kernels + len(diff.kernels)
    assert counted == 6


def test_devices_do_not_mix() -> None:
    before = with_kernels(kernel(GEMM, 4400, 70_000, 0), kernel(GEMM, 4400, 70_000, 1), devices=2)
    after = with_kernels(kernel(GEMM, 4400, 70_000, 0), kernel(GEMM, 4400, 99_000, 1), devices=2)
    assert [change.device for change in diff_reports(before, after).kernels] == [1]


def test_findings_are_new_worse_better_or_fixed() -> None:
    before = (
        finding(subject="a", saving=0.05),
        finding(subject="b", saving=0.05),
        finding(subject="c", saving=0.05),
        finding(subject="d", saving=0.05),
    )
    after = (
        finding(subject="a", saving=0.09),
        finding(subject="b", saving=0.02),
        finding(subject="c", saving=0.052),
        finding(subject="e", saving=0.05),
    )
    diff = diff_reports(run(findings=before), run(findings=after))
    assert {(f.subject, f.state) for f in diff.findings} == {
        ("a", "worse"), ("b", "better"), ("d", "fixed"), ("e", "new"),
    }  # fmt: skip


def test_another_gpu_is_a_caution_not_a_refusal() -> None:
    diff = diff_reports(run(1), run(2, gpu="NVIDIA T4"))
    assert diff.cautions == ["other GPUs: 1 x NVIDIA A100-SXM4-80GB before, 1 x NVIDIA T4 after"]


def test_without_steps_the_spread_is_not_known() -> None:
    slower = run(2, kernel_ns=8_000_000, idle_ns=2_000_000)
    diff = diff_reports(without_steps(run(1)), without_steps(slower))
    assert states(diff)["utilization_ratio"] == "unclear"
    assert headline(diff).endswith("whether utilization and step time changed is unclear")
    assert "the spread is not known" in on_terminal(diff).replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_b39_an_empty_capture_is_no_win(order: tuple[int, int]) -> None:
    pair = [run(), empty(run())]
    with pytest.raises(UsageError):
        diff_reports(pair[order[0]], pair[order[1]])


def test_names_are_data() -> None:
    rows = [kernel(name, 4400, 10_000) for name in NASTY]
    diff = diff_reports(run(), with_kernels(*rows, findings=(finding(subject=NASTY[1]),)))
    text = on_terminal(diff)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", text)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "<img" not in diff_markdown(diff)


def test_json_is_stable_and_says_neutral() -> None:
    diff = diff_reports(run(1), run(2))
    data = json.loads(diff.to_json())
    assert (data["format"], data["neutral"]) == ("nsysdoctor-diff", True)
    other = replace(run(2), findings=[finding()])
    assert json.loads(diff_reports(run(1), other).to_json())["neutral"] is False
    assert diff.to_json() == diff_reports(run(1), run(2)).to_json()
