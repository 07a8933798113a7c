"""(baseline, current, limits) -> (verdict, exit code), and what the lines say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.baseline import make_baseline
from nsysdoctor.gate.baseline_file import read_baseline
from nsysdoctor.gate.judge import judge
from nsysdoctor.gate.limits import DeviceLimits, Limits, MetricLimit, Waiver, with_min_utilization
from nsysdoctor.gate.noise import Noise
from nsysdoctor.gate.verdict import Line, Verdict
from nsysdoctor.report.metrics import METRICS
from nsysdoctor.report.model import Report
from nsysdoctor.report.work import Work
from tests.gate_runs import ROWS, RULES, Loop, empty, finding, run, runs, without_steps

PASS, FAIL, CANNOT = ("pass", 0), ("fail", 1), ("cannot_judge", 2)


@dataclass(frozen=True)
class Row:
    name: str
    before: Callable[[], Sequence[Report]] | None
    now: Callable[[], Sequence[Report]]
    limits: Limits
    want: tuple[str, int]


def metric_limit(name: str, **parts: object) -> Limits:
    return Limits(metrics={name: MetricLimit(**parts)})  # type: ignore[arg-type]


def one(seed: int = 0, **changes: object) -> Callable[[], list[Report]]:
    return lambda: [run(seed, **changes)]


def five(seed: int = 0, **changes: object) -> Callable[[], list[Report]]:
    return lambda: runs(5, seed, **changes)


NONE = Limits()
THREE_POINTS = {"kernel_ns": 8_700_000, "idle_ns": 1_300_000}
TEN_POINTS = {"kernel_ns": 8_000_000, "idle_ns": 2_000_000}
H100 = "NVIDIA H100 80GB HBM3"
OTHER_PROGRAM = {"rules": {**RULES, "input_starvation": "skipped"}}

STRICT_H100 = Limits(
    metrics={"utilization_ratio": MetricLimit(min=0.5)},
    devices={"H100": DeviceLimits({"utilization_ratio": MetricLimit(min=0.95)})},
)

STRICT_BOTH = Limits(
    metrics={"utilization_ratio": MetricLimit(min=0.5)},
    devices={
        "H100": DeviceLimits({"utilization_ratio": MetricLimit(min=0.95)}),
        "A100": DeviceLimits({"utilization_ratio": MetricLimit(min=0.6)}),
    },
)
QUIET = Limits(noise=Noise(device=0.002, host=0.01))
WATCHED = Limits(rules={"input_starvation": "error"})


def uneven(shift: int) -> Callable[[], list[Report]]:
    """Three runs whose step differs by 4 % from run to run."""
    return lambda: [
        run(seed + 30 * shift, kernel_ns=9_000_000 * factor)
        for seed, factor in enumerate((0.96, 1.0, 1.04 + shift / 100))
    ]


def with_outlier() -> list[Report]:
    """Four runs alike and one three times as slow."""
    return [*runs(2, 41), run(43, kernel_ns=27_000_000), *runs(2, 44)]


TABLE = [
    # no change
    Row("same file twice", one(), one(), NONE, PASS),
    Row("same five files twice", five(), five(), NONE, PASS),
    Row("1 % jitter, single runs", one(1), one(2), NONE, PASS),
    Row("1 % jitter, five runs", five(1), five(11), NONE, PASS),
    Row("improvement", one(1, **TEN_POINTS), one(2), NONE, PASS),
    # regression
    Row("3 points, single runs: runs may differ by as much", one(1), one(2, **THREE_POINTS), NONE,
        CANNOT),
    Row("10 points, single runs", one(1), one(2, **TEN_POINTS), NONE, FAIL),
    Row("3 points, single runs that are said to differ little", one(1), one(2, **THREE_POINTS),
        QUIET, FAIL),
    Row("3 points, five runs", five(1), five(11, **THREE_POINTS), NONE, FAIL),
    Row("3 points, five runs against one", five(1), one(11, **THREE_POINTS), NONE, FAIL),
    Row("3 points, one run against five", one(1), five(11, **THREE_POINTS), NONE, FAIL),
    Row("3 points, three runs", lambda: runs(3, 1), lambda: runs(3, 11, **THREE_POINTS),
        NONE, FAIL),
    Row("3 points, two runs", lambda: runs(2, 1), lambda: runs(2, 11, **THREE_POINTS), QUIET,
        FAIL),
    # throughput
    Row("kernels 25 % slower, step longer, utilization higher", five(1),
        five(11, kernel_ns=11_250_000), NONE, FAIL),
    Row("kernels 40 % faster, step shorter, utilization lower", five(1),
        five(11, kernel_ns=5_400_000), NONE, PASS),
    Row("idle time grew, kernels got faster, the step is shorter", five(1),
        five(11, kernel_ns=7_000_000, idle_ns=1_300_000), NONE, PASS),
    Row("step 5 % longer by kernels", five(1), five(11, kernel_ns=9_500_000), NONE, FAIL),
    Row("step 2 % longer", five(1), five(11, kernel_ns=9_200_000), NONE, PASS),
    Row("step 10 % longer, single runs", one(1), one(2, kernel_ns=10_000_000), NONE, CANNOT),
    Row("step 20 % longer, single runs", one(1), one(2, kernel_ns=11_000_000), NONE, FAIL),
    Row("the same without steps", lambda: [without_steps(r) for r in runs(3, 1)],
        lambda: [without_steps(r) for r in runs(3, 11, kernel_ns=9_800_000)], NONE, FAIL),
    Row("1 point stays below the floor", one(1),
        one(2, kernel_ns=8_900_000, idle_ns=1_100_000), NONE, PASS),
    Row("1 point with a tighter limit, step unchanged", five(1, jitter=0.001),
        five(11, jitter=0.001, kernel_ns=8_900_000, idle_ns=1_100_000),
        metric_limit("utilization_ratio", max_regression=0.005), FAIL),
    Row("3 points allowed by the limit", one(1), one(2, **THREE_POINTS),
        metric_limit("utilization_ratio", floor=0.05), PASS),
    Row("3 points as a warning", one(1), one(2, **THREE_POINTS),
        metric_limit("utilization_ratio", level="warn"), PASS),
    Row("beyond the floor, within the noise", one(1, jitter=0.2),
        one(4, jitter=0.2, kernel_ns=10_000_000), NONE, CANNOT),
    Row("the same, and unclear is said to pass", one(1, jitter=0.2),
        one(4, jitter=0.2, kernel_ns=10_000_000), Limits(unclear="pass"), PASS),
    Row("runs that differ so much that 5 % could hide", uneven(0), uneven(1), NONE, CANNOT),
    Row("one outlier among five baseline runs hides no loss", with_outlier, five(11, **TEN_POINTS),
        NONE, FAIL),
    Row("one outlier among five runs is no loss", five(1), with_outlier, NONE, PASS),
    # absolute limits need no baseline
    Row("F4 utilization target held", None, one(), with_min_utilization(NONE, 0.8), PASS),
    Row("F4 utilization target missed", None, one(**TEN_POINTS),
        with_min_utilization(NONE, 0.85), FAIL),
    Row("F4 target without steps", None, lambda: [without_steps(run())],
        with_min_utilization(NONE, 0.8), PASS),
    Row("F25 synchronizations per step", None, one(synchronizations=3),
        metric_limit("synchronization_count", max=2), FAIL),
    Row("F25 within", None, one(synchronizations=2),
        metric_limit("synchronization_count", max=2), PASS),
    Row("max as a warning", None, one(synchronizations=3),
        metric_limit("synchronization_count", max=2, level="warn"), PASS),
    Row("limit on what was not measured", None, one(),
        metric_limit("pageable_copy_count", max=0), CANNOT),
    Row("limit on a cause that was not measured, as a warning", None, one(),
        metric_limit("pageable_copy_count", max=0, level="warn"), PASS),
    Row("device type override tightens", None, one(gpu=H100), STRICT_H100, FAIL),
    Row("device type override beside one of another type", None, one(), STRICT_BOTH, PASS),
    # a metric other than utilization
    Row("one more sync a step is told, not failed", one(), one(synchronizations=2), NONE, PASS),
    Row("F25 one more sync a step at level error", one(), one(synchronizations=2),
        metric_limit("synchronization_count", level="error"), FAIL),
    Row("new pageable bytes at level error", one(), one(pageable_bytes=4_000_000),
        metric_limit("pageable_bytes", max_regression=0.0), FAIL),
    # cannot judge
    Row("B39 empty capture now", one(), lambda: [empty(run())], NONE, CANNOT),
    Row("B39 empty capture, absolute limit only", None, lambda: [empty(run())],
        with_min_utilization(NONE, 0.1), CANNOT),
    Row("B39 one of three runs is empty", five(), lambda: [*runs(2), empty(run(2))], NONE, CANNOT),
    Row("too few steps", one(1, steps=4), one(2, steps=4), NONE, CANNOT),
    Row("no steps, one run a side", lambda: [without_steps(run(1))],
        lambda: [without_steps(run(2))], NONE, CANNOT),
    Row("no steps, two runs a side cannot reach significance",
        lambda: [without_steps(r) for r in runs(2, 1)],
        lambda: [without_steps(r) for r in runs(2, 11, **TEN_POINTS)], NONE, CANNOT),
    Row("no steps, three runs a side", lambda: [without_steps(r) for r in runs(3, 1)],
        lambda: [without_steps(r) for r in runs(3, 11, **TEN_POINTS)], NONE, FAIL),
    Row("no steps, one run now", lambda: [without_steps(r) for r in runs(5, 1)],
        lambda: [without_steps(r) for r in runs(1, 11, **TEN_POINTS)], NONE, CANNOT),
    Row("other GPU type", one(), one(gpu=H100), NONE, CANNOT),
    Row("other GPU count", one(), one(devices=2), NONE, CANNOT),
    Row("other window", one(), one(window="all"), NONE, CANNOT),
    Row("other step marks", one(), one(label="epoch #"), NONE, CANNOT),
    Row("steps are gone", one(), lambda: [without_steps(run())], NONE, CANNOT),
    Row("lost table", one(), one(rows={**ROWS, "osrt": 0}), NONE, CANNOT),
    Row("lost table hides no failure", five(1), five(11, rows={**ROWS, "osrt": 0},
        kernel_ns=11_000_000), NONE, FAIL),
    Row("copies may be gone", one(), one(rows={**ROWS, "memcpy": 0}), NONE, PASS),
    Row("lost table, name and all", one(),
        one(rows={k: v for k, v in ROWS.items() if k != "nvtx"}), NONE, CANNOT),
    Row("memsets may vanish", one(), one(rows={**ROWS, "memset": 0}), NONE, PASS),
    Row("kernels may move into graphs", one(), one(rows={**ROWS, "kernel": 0, "graph": 40}),
        NONE, PASS),
    Row("rule skipped now: its findings are not judged, the metrics are", one(),
        one(**OTHER_PROGRAM), NONE, PASS),
    Row("rule at level error skipped now", one(), one(**OTHER_PROGRAM), WATCHED, CANNOT),
    Row("rule at level error failed now", one(),
        one(rules={**RULES, "input_starvation": "failed"}), WATCHED, CANNOT),
    Row("rule at level error gone now", one(),
        one(rules={"pageable_copy": "passed", "sync_in_loop": "passed"}), WATCHED, CANNOT),
    Row("rule skipped now hides no failure", five(1), five(11, kernel_ns=11_000_000,
        **OTHER_PROGRAM), WATCHED, FAIL),
    Row("rule skipped now, but off", one(), one(**OTHER_PROGRAM),
        Limits(rules={"input_starvation": "off"}), PASS),
    Row("rule skipped then, runs now", one(**OTHER_PROGRAM), one(), NONE, PASS),
    Row("regression on another GPU proves nothing", one(), one(gpu=H100, **TEN_POINTS), NONE,
        CANNOT),
    Row("a broken absolute limit fails on any GPU", one(), one(gpu=H100, **TEN_POINTS),
        with_min_utilization(NONE, 0.9), FAIL),
    # findings
    Row("new finding is told", one(), one(findings=(finding(),)), NONE, PASS),
    Row("new finding, rule at error", one(), one(findings=(finding(),)),
        Limits(rules={"pageable_copy": "error"}), FAIL),
    Row("known finding, rule at error", one(findings=(finding(),)), one(findings=(finding(),)),
        Limits(rules={"pageable_copy": "error"}), PASS),
    Row("worse finding, rule at error", one(findings=(finding(saving=0.05),)),
        one(findings=(finding(saving=0.09),)), Limits(rules={"pageable_copy": "error"}), FAIL),
    Row("info finding, rule at error", one(), one(findings=(finding(level="info", saving=0.001),)),
        Limits(rules={"pageable_copy": "error"}), PASS),
    Row("finding without baseline, rule at error", None, one(findings=(finding(),)),
        Limits(rules={"pageable_copy": "error"}), FAIL),
    Row("finding in one run of three is a flicker", five(),
        lambda: [run(11, findings=(finding(),)), *runs(2, 12)],
        Limits(rules={"pageable_copy": "error"}), PASS),
    # phases
    Row("D27 one-off slow start outside the steady steps", one(1, steps=40),
        lambda: [slow_start(run(2))], NONE, PASS),
    Row("one hiccup in the middle", one(1), one(2, hiccups=((20, 40_000_000.0),)), NONE, CANNOT),
    Row("one hiccup in one of three runs", lambda: runs(3, 1),
        lambda: [run(11, hiccups=((20, 40_000_000.0),)), *runs(2, 12)], NONE, CANNOT),
    Row("D17 every fourth step waits", five(1),
        five(12, hiccups=tuple((step, 9_000_000.0) for step in range(0, 40, 4))), NONE, FAIL),
]  # fmt: skip


def slow_start(report: Report) -> Report:
    """The first collective took 5 s: it is in the capture, not in the steady steps."""
    devices = [
        replace(d, span_ns=d.span_ns + 5 * 10**9, idle_ns=d.idle_ns + 5 * 10**9)
        for d in report.devices
    ]
    return replace(report, devices=devices)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_table(row: Row) -> None:
    baseline = make_baseline(row.before()) if row.before else None
    verdict = judge(row.now(), baseline, row.limits)
    assert (verdict.answer, verdict.exit_code) == row.want, verdict.to_json()


def held(before: Sequence[Report], now: Sequence[Report], limits: Limits = NONE) -> Verdict:
    return judge(now, make_baseline(before), limits)


def line(verdict: Verdict, metric: str) -> Line:
    return next(line for line in verdict.lines if line.metric == metric)


def test_a_regression_names_expected_found_and_all_values() -> None:
    verdict = held(runs(5, 1), runs(5, 11, **THREE_POINTS))
    first = verdict.lines[0]
    assert (first.metric, first.state, first.device) == ("utilization_ratio", "failed", 0)
    assert first.device_name == "NVIDIA A100-SXM4-80GB"
    assert first.relation == ">="
    assert first.baseline == pytest.approx(0.90, abs=0.005)
    assert first.expected == pytest.approx((first.baseline or 0) - 0.02)
    assert first.found == pytest.approx(0.87, abs=0.005)
    assert len(first.values) == len(first.baseline_values) == 5
    assert first.method == "runs"
    assert first.p is not None and first.p <= 0.005
    assert "nsysdoctor report run.sqlite" in first.next


def test_d24_graph_launches_got_slower_while_kernels_did_not() -> None:
    graph = Loop(cause="launch", graphs=40, kernel_ns=5_000_000, api_ns=2_000_000, idle_ns=800_000)
    slow = run(2, graph, api_ns=14_000_000, idle_ns=5_000_000)
    verdict = held([run(1, graph)], [slow])
    assert verdict.answer == "fail"
    assert verdict.lines[0].metric == "step_ns"
    why = verdict.lines[0].why
    assert "cause launch +4.2" in why
    assert line(verdict, "api_ns").state == "warned"
    assert "kernel time unchanged" in why
    assert "rules explain launch_bound" in verdict.lines[0].next
    kernels = line(verdict, "kernel_ns")
    assert kernels.state == "passed"


def test_kernel_time_is_not_called_unchanged_when_it_grew() -> None:
    slower = {"kernel_ns": 10_500_000, "idle_ns": 2_500_000}
    works = [Work(0, 0, "kernel", "gemm", 4, ns, 64) for ns in (9_000_000, 10_500_000)]
    before, now = (replace(r, work=[w]) for r, w in
                   zip((run(1), run(2, **slower)), works, strict=True))  # fmt: skip
    why = held([before], [now]).lines[0].why
    assert "kernel gemm +1.5" in why
    assert "unchanged" not in why


def test_the_cause_that_grew_leads_to_its_rule() -> None:
    verdict = held([run(1)], [run(2, **TEN_POINTS)])
    assert "rules explain input_starvation" in verdict.lines[0].next


def test_regressions_come_first_and_passes_last() -> None:
    verdict = held([run(1)], [run(2, synchronizations=2, **TEN_POINTS)])
    states = [line.state for line in verdict.lines]
    ranks = [
        ("failed", "unjudged", "warned", "unclear", "improved", "passed").index(s) for s in states
    ]
    assert ranks == sorted(ranks)
    assert states[0] == "failed"
    assert "passed" in states


@pytest.mark.parametrize(
    ("change", "what", "before", "found"),
    [
        ({"gpu": H100}, "GPUs", "1 x NVIDIA A100-SXM4-80GB", f"1 x {H100}"),
        ({"devices": 2}, "GPUs", "1 x NVIDIA A100-SXM4-80GB", "2 x NVIDIA A100-SXM4-80GB"),
        ({"window": "all"}, "window", "steady", "all"),
        ({"basis": "period"}, "steps", "nvtx step #", "period"),
        ({"rows": {**ROWS, "osrt": 0}}, "table osrt", "recorded", "no rows"),
    ],
)
def test_what_cannot_be_compared_is_named_with_both_values(
    change: dict[str, object], what: str, before: str, found: str
) -> None:
    verdict = held([run()], [run(**change)])
    assert [(m.what, m.baseline, m.found) for m in verdict.mismatches] == [(what, before, found)]
    assert verdict.mismatches[0].next
    held_lines = [line for line in verdict.lines if line.check == "baseline"]
    assert bool(held_lines) == what.startswith("table")


def test_too_few_says_what_to_do() -> None:
    verdict = held([run(1, steps=4)], [run(2, steps=4)])
    assert (verdict.mismatches[0].what, verdict.lines) == ("steps", [])
    assert verdict.mismatches[0].found == "4 steady, needed are 8 (gate.min_steps)"
    bare = [[without_steps(run(1))], [without_steps(run(2))]]
    first = held(*bare).lines[0]
    assert (first.metric, first.state) == ("span_ns", "unjudged")
    assert "1 run without steps" in first.why
    assert "3 runs a side" in first.next


def test_an_unclear_change_says_how_to_settle_it() -> None:
    first = held([run(1, jitter=0.2)], [run(4, jitter=0.2, kernel_ns=10_000_000)]).lines[0]
    assert (first.metric, first.state) == ("step_ns", "unclear")
    assert (
        first.margin is not None and abs((first.found or 0) - (first.baseline or 0)) < first.margin
    )
    assert "to settle it" in first.next


def test_a_period_label_may_be_another_kernel() -> None:
    before = run(basis="period", label="ampere_sgemm_128x64")
    now = run(basis="period", label="ampere_sgemm_64x64")
    assert held([before], [now]).answer == "pass"


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_neighbouring_steps_that_are_alike_are_not_taken_for_proof(correlation: float) -> None:
    """Drifting clocks make steps alike; plain standard errors would then see changes in noise."""
    drift = {"jitter": 0.25, "correlation": correlation, "steps": 64}
    answers = [held([run(s, **drift)], [run(s + 500, **drift)]).answer for s in range(60)]
    assert answers.count("fail") <= 2


def test_a_bimodal_baseline_does_not_alarm() -> None:
    """Base runs at 0.90 or 0.86 by chance: a run at 0.86 is nothing new."""
    slow = {"kernel_ns": 8_600_000, "idle_ns": 1_400_000}
    before = [run(1), run(2, **slow), run(3), run(4, **slow), run(5)]
    now = [run(11, **slow), run(12), run(13, **slow)]
    assert held(before, now).answer != "fail"
    assert held(before, [run(14, **slow)]).answer != "fail"


def test_more_runs_do_not_hide_a_device() -> None:
    """Two GPUs, of which the second lost 10 points."""
    before, now = run(1, devices=2), run(2, devices=2)
    slow = run(2, devices=2, **TEN_POINTS)
    mixed = [m for m in slow.metrics if m.device == 1] + [m for m in now.metrics if m.device != 1]
    verdict = held([before], [replace(now, metrics=mixed)])
    assert verdict.answer == "fail"
    assert [line.device for line in verdict.lines if line.state == "failed"] == [1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1, 80.0])
def test_b41_a_limit_that_cannot_be_meant_is_refused(bad: float) -> None:
    with pytest.raises(UsageError):
        with_min_utilization(NONE, bad)
    with pytest.raises(UsageError):
        judge([run()], None, metric_limit("utilization_ratio", min=bad))


@pytest.mark.parametrize("part", ["max", "max_regression", "floor"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), -1.0])
def test_b41_every_number_of_a_limit_is_checked(part: str, bad: float) -> None:
    with pytest.raises(UsageError):
        judge([run()], make_baseline([run()]), metric_limit("step_ns", **{part: bad}))


def test_a_percentage_is_explained() -> None:
    with pytest.raises(UsageError) as caught:
        with_min_utilization(NONE, 80.0)
    assert "0.8" in caught.value.hint


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        judge([run()], None, metric_limit("utilisation_ratio", min=0.5))
    assert caught.value.hint == "did you mean utilization_ratio?"
    with pytest.raises(UsageError) as caught:
        judge([run()], make_baseline([run()]), Limits(rules={"pagable_copy": "error"}))
    assert caught.value.hint == "did you mean pageable_copy?"


def test_a_gate_that_nothing_can_fail_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        judge([run()], None, NONE)
    assert "--baseline" in caught.value.hint


def test_all_metrics_switched_off_is_no_pass() -> None:
    off = Limits(metrics={name: MetricLimit(level="off") for name in METRICS})
    verdict = held([run()], [run()], off)
    assert verdict.answer == "cannot_judge"
    assert verdict.mismatches[0].what == "metrics to judge"


def test_a_watched_metric_that_nobody_measured_is_no_pass() -> None:
    def bare(report: Report) -> Report:
        return replace(report, metrics=[m for m in report.metrics if m.metric == "step_ns"])

    verdict = held([bare(run())], [bare(run())])
    assert verdict.answer == "cannot_judge"
    assert (verdict.lines[0].metric, verdict.lines[0].state) == ("utilization_ratio", "unjudged")


def test_findings_are_matched_one_for_one() -> None:
    before = (finding(subject="HtoD on GPU 0"), finding(subject="DtoH on GPU 0", saving=0.03))
    now = (
        finding(subject="HtoD on GPU 0", saving=0.05),
        finding(subject="HtoD on GPU 0", saving=0.02),
        finding(rule="sync_in_loop", subject="loss read-back"),
    )
    verdict = held([run(findings=before)], [run(findings=now)])
    states = sorted((line.rule, line.subject, line.state) for line in verdict.findings)
    assert states == [
        ("pageable_copy", "DtoH on GPU 0", "fixed"),
        ("pageable_copy", "HtoD on GPU 0", "known"),
        ("pageable_copy", "HtoD on GPU 0", "new"),
        ("sync_in_loop", "loss read-back", "new"),
    ]


def test_a_subject_that_moved_by_an_id_is_the_same_finding() -> None:
    before = finding(rule="sync_in_loop", subject="cudaMemcpy at 0x7f3a10, thread 41223")
    now = finding(rule="sync_in_loop", subject="cudaMemcpy at 0x7f9b77, thread 52001")
    verdict = held([run(findings=(before,))], [run(findings=(now,))])
    assert [line.state for line in verdict.findings] == ["known"]


def waived(expires: date | None, today: date, **changes: object) -> Verdict:
    waiver = Waiver("pageable_copy", "labels are tiny", "HtoD*", expires)
    limits = Limits(rules={"pageable_copy": "error"}, waivers=[waiver])
    return judge([run(**changes)], make_baseline([run()]), limits, today)


def test_a_waiver_holds_until_its_last_day() -> None:
    last = date(2030, 6, 30)
    good = waived(last, date(2030, 6, 30), findings=(finding(),))
    assert (good.answer, good.findings[0].state) == ("pass", "waived")
    assert good.findings[0].reason == "labels are tiny (until 2030-06-30)"
    late = waived(last, date(2030, 7, 1), findings=(finding(),))
    assert (late.answer, late.findings[0].state) == ("fail", "new")
    assert late.obsolete == [
        "waiver of pageable_copy (HtoD*) expired on 2030-06-30; the finding counts again"
    ]


def test_a_waiver_covers_only_its_subject() -> None:
    other = waived(None, date(2030, 1, 1), findings=(finding(subject="DtoH on GPU 0"),))
    assert other.answer == "fail"


def test_a_limit_no_longer_needed_is_told() -> None:
    clean = waived(None, date(2030, 1, 1))
    assert clean.obsolete == [
        "waiver of pageable_copy (HtoD*) is no longer needed: nothing is found"
    ]
    off = held([run()], [run()], Limits(rules={"sync_in_loop": "off"}))
    assert off.obsolete == ['rules.sync_in_loop = "off" is no longer needed: the rule passes']


def test_a_waiver_of_a_rule_that_did_not_run_is_not_called_needless() -> None:
    skipped = {"rules": {**RULES, "pageable_copy": "skipped"}}
    verdict = judge(
        [run(**skipped)],
        make_baseline([run(**skipped)]),
        Limits(waivers=[Waiver("pageable_copy", "labels are tiny")]),
    )
    assert verdict.obsolete == []


def test_a_waiver_needs_a_reason() -> None:
    with pytest.raises(UsageError):
        held([run()], [run()], Limits(waivers=[Waiver("pageable_copy", "  ")]))


def test_the_verdict_is_stored_whole() -> None:
    verdict = held([run(1)], [run(2, **TEN_POINTS)])
    data = json.loads(verdict.to_json())
    assert data["format"] == "nsysdoctor-verdict"
    assert (data["answer"], data["exit_code"]) == ("fail", 1)
    first = data["lines"][0]
    assert {"expected", "found", "baseline", "values", "why", "next"} <= set(first)
    assert verdict.to_json() == held([run(1)], [run(2, **TEN_POINTS)]).to_json()


def test_another_tool_version_is_noted() -> None:
    verdict = held([run()], [run(version="0.2.0")])
    assert verdict.notes == ["the baseline was made with nsysdoctor 0.1.0, this report with 0.2.0"]


def test_nothing_to_judge() -> None:
    with pytest.raises(UsageError):
        judge([], None, with_min_utilization(NONE, 0.5))


loops = st.builds(
    Loop,
    steps=st.integers(8, 40),
    kernel_ns=st.floats(1_000, 1e9),
    idle_ns=st.floats(0, 1e9),
    jitter=st.floats(0, 0.2),
    correlation=st.floats(0, 0.9),
    synchronizations=st.integers(0, 50),
    devices=st.integers(1, 3),
)


@settings(max_examples=20, deadline=None)
@given(loops, st.integers(1, 4))
def test_the_same_runs_always_pass(loop: Loop, count: int) -> None:
    reports = [run(seed, loop) for seed in range(count)]
    verdict = judge(reports, read_baseline(make_baseline(reports).to_json()), NONE)
    assert verdict.answer == "pass"
    assert {line.state for line in verdict.lines} == {"passed"}


@settings(max_examples=20, deadline=None)
@given(loops, loops)
def test_no_metric_fails_both_ways(one: Loop, other: Loop) -> None:
    """What lost utilization one way gained it the other way round. A step within noise that idles
    more for less work may fail by utilization one way and by its time the other way."""
    before, now = runs(3, 0, **vars(one)), runs(3, 9, **{**vars(other), "devices": one.devices})
    there = held(before, now)
    back = held(now, before)
    failed = [
        {(line.metric, line.device) for line in verdict.lines if line.state == "failed"}
        for verdict in (there, back)
    ]
    assert not failed[0] & failed[1]
