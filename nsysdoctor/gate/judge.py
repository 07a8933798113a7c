"""The gate: reports held against limits and a baseline. Pure; knows no trace and reads no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.baseline import Baseline
from nsysdoctor.gate.case import Case, make_case
from nsysdoctor.gate.comparable.captures import sound_runs
from nsysdoctor.gate.comparable.clocks import ClockChange, clock_changes, normalized
from nsysdoctor.gate.comparable.devices import renumbered
from nsysdoctor.gate.comparable.drift import SlowEnd, slow_ends
from nsysdoctor.gate.comparable.setup import ended_early, lost_tables, mismatches_of, unjudged_rules
from nsysdoctor.gate.comparable.work import other_work
from nsysdoctor.gate.findings import judge_findings, obsolete_texts, waived_lines
from nsysdoctor.gate.limits import Limits, check_devices, check_limits
from nsysdoctor.gate.lines import baseline_lines, compared, limit_lines, throughput_first
from nsysdoctor.gate.refusal import cannot_judge
from nsysdoctor.gate.series import Series
from nsysdoctor.gate.verdict import Answer, FindingLine, Line, LineState, Mismatch, Verdict
from nsysdoctor.report.identity import distinct_runs
from nsysdoctor.report.metrics import METRIC_ORDER
from nsysdoctor.report.model import Report

_STATE_ORDER: tuple[LineState, ...] = (
    "failed", "unjudged", "unclear", "warned", "waived", "improved", "passed",
)  # fmt: skip


def judge(
    reports: Sequence[Report],
    baseline: Baseline | None,
    limits: Limits,
    today: date | None = None,
    unread: Sequence[Mismatch] = (),
) -> Verdict:
    """Returns the verdict on the runs: every limit, every change, and what was not comparable.

    `reports` are repeats of one program; the same run given twice counts once. Without a baseline
    only absolute limits and findings are judged. `today` decides whether a waiver has expired;
    None lets none expire. `unread` tells of runs that could not be read: they forbid a pass, but
    hide no failure of the others. Raises UsageError for limits that cannot be meant.
    """
    check_limits(limits)
    if not reports and not unread:
        raise UsageError("there is nothing to judge", "give traces or report.json files")
    runs = distinct_runs(reports)
    found = sound_runs(runs, limits)
    barred = [*unread, *found.faults]
    if not found.sound:
        return cannot_judge(barred, _paths(reports))
    sound = _renumbered(found.sound, baseline)
    check_devices(limits, [device.name for report in sound for device in report.devices])
    verdict = _judged(make_case(sound, baseline, limits), barred, today)
    again = len(reports) - len(runs)
    notes = [f"{again} of the runs given tell of the same capture as others: counted once"]
    return replace(verdict, traces=_paths(reports), notes=[*(notes if again else ()),
                                                           *verdict.notes])  # fmt: skip


def _paths(reports: Sequence[Report]) -> list[str]:
    return [trace.path for report in reports for trace in report.traces]


def _renumbered(reports: Sequence[Report], baseline: Baseline | None) -> list[Report]:
    """The runs with their GPUs numbered as in the baseline, else as in the first run."""
    if baseline is None:
        return list(reports)
    places = [(d.trace, d.device) for d in baseline.setup.devices]
    return [renumbered(report, baseline.work, places) for report in reports]


def _judged(case: Case, barred: Sequence[Mismatch], today: date | None) -> Verdict:
    baseline, limits = case.baseline, case.limits
    mismatches = mismatches_of(case.setups, baseline)
    if baseline and limits.work == "same" and not mismatches:
        mismatches += [*ended_early(baseline, case.now), *other_work(baseline.work, case.work)]
    lines = limit_lines(case)
    _check_purpose(lines, baseline, limits)
    silent = unjudged_rules(case.setups, baseline, limits)
    notes = _notes(case, silent)
    if baseline and not mismatches:
        held = _against_baseline(case)
        lines += held.lines
        mismatches += [*held.mismatches, *_nothing_judged(lines)]
        notes += held.notes
        if not _all_faster(lines):
            mismatches += lost_tables(case.setups, baseline)
    mismatches += [m for m in silent if limits.rules.get(_rule(m)) == "error"]
    comparable = baseline if not mismatches or lines else None
    findings = judge_findings(
        case.reports, comparable, limits, today, frozenset(_rule(m) for m in silent)
    )
    lines = waived_lines(lines, limits, today)
    return Verdict(
        answer=_answer(lines, findings, [*barred, *mismatches], limits),
        tool_version=case.reports[0].tool_version,
        runs=len(case.reports),
        baseline_runs=baseline.runs if baseline else None,
        lines=sorted(lines, key=_line_order),
        findings=findings,
        mismatches=[*barred, *mismatches],
        obsolete=obsolete_texts(case.reports, limits, today, lines),
        notes=notes,
    )


def _all_faster(lines: Sequence[Line]) -> bool:
    """Whether the same work takes clearly less time on every GPU."""
    states = {
        line.state for line in lines
        if line.check == "baseline" and line.metric in ("step_ns", "span_ns")
    }  # fmt: skip
    return states == {"improved"}


def _rule(mismatch: Mismatch) -> str:
    return mismatch.what.removeprefix("rule ")


@dataclass(frozen=True)
class _Held:
    lines: list[Line]
    mismatches: list[Mismatch]
    notes: list[str]


def _against_baseline(case: Case) -> _Held:
    """The runs held against the baseline, the clocks of the machine set apart."""
    assert case.baseline is not None
    clocks = clock_changes(case.baseline, case.reports)
    if case.limits.normalize_clocks:
        case = replace(case, now=[_at_clocks(case, one, clocks) for one in case.now])
        notes = [f"{_clock_text(clock)}: judged without that" for clock in clocks]
        return _Held(_with_slow_ends(throughput_first(baseline_lines(case)), case), [], notes)
    lines = throughput_first(baseline_lines(case))
    blamed = [clock for clock in clocks if _explains(clock, case, lines)]
    lines = [_unblamed(line, blamed) for line in lines]
    mismatches = [
        Mismatch(f"clocks of GPU {clock.device}", "", _clock_text(clock), _CLOCK_HINT)
        for clock in blamed
    ]
    notes = [_clock_text(clock) for clock in clocks if clock not in blamed]
    return _Held(_with_slow_ends(lines, case), mismatches, notes)


_CLOCK_HINT = (
    "run on a quiet machine with fixed clocks (nvidia-smi -lgc), or judge with --normalize-clocks"
)


def _clock_text(clock: ClockChange) -> str:
    word = "longer" if clock.factor > 1 else "shorter"
    return (
        f"all {clock.kernels} kernels of GPU {clock.device} take {abs(clock.factor - 1):.1%} "
        f"{word}, as with other clocks, a power cap or another program on the GPU"
    )


def _at_clocks(case: Case, series: Series, clocks: Sequence[ClockChange]) -> Series:
    for clock in clocks:
        if (clock.trace, clock.device) == (series.trace, series.device):
            kernels = case.value("now", series.trace, series.device, "kernel_ns") or 0.0
            whole = case.value("now", series.trace, series.device, "step_ns")
            busy = case.value("now", series.trace, series.device, "utilization_ratio")
            running = min(kernels, whole * busy) if whole and busy else kernels
            return normalized(series, clock, running)
    return series


def _explains(clock: ClockChange, case: Case, lines: Sequence[Line]) -> bool:
    """Whether a device only fails, or seems to, because all its kernels are slower."""
    if clock.factor < 1:
        return False
    mine = [
        line for line in lines
        if (line.trace, line.device) == (clock.trace, clock.device) and line.check == "baseline"
        and line.metric in ("step_ns", "span_ns") and line.state in ("failed", "warned", "unclear")
    ]  # fmt: skip
    if not mine:
        return False
    key = (clock.trace, clock.device, mine[0].metric)
    old = next(one for one in case.before if one.key == key)
    new = next(one for one in case.now if one.key == key)
    return compared(case, old, _at_clocks(case, new, [clock])).change != "worse"


def _unblamed(line: Line, blamed: Sequence[ClockChange]) -> Line:
    """A failure that the clocks explain is none that was proven."""
    for clock in blamed:
        mine = (line.trace, line.device) == (clock.trace, clock.device)
        if mine and line.check == "baseline" and line.state == "failed":
            return replace(line, state="unjudged")
    return line


def _with_slow_ends(lines: Sequence[Line], case: Case) -> list[Line]:
    """A step time that passes as a mean and not at the end of the runs is unclear."""
    ends = {(end.trace, end.device): end for end in slow_ends(case.reports)}
    return [
        _with_slow_end(line, ends.get((line.trace, line.device)), len(case.reports))
        for line in lines
    ]


def _with_slow_end(line: Line, end: SlowEnd | None, runs: int) -> Line:
    if end is None or line.metric != "step_ns" or not line.baseline or line.expected is None:
        return line
    text = f"{end.runs} of {runs} runs get {end.ratio:.1%} slower half-way"
    why = "; ".join(part for part in (text, line.why) if part)
    beyond = end.late_ns > line.baseline + 2 * (line.expected - line.baseline)
    slow = beyond and line.state in ("passed", "improved") and line.method != "identical"
    return replace(line, why=why, state="unclear" if slow else line.state)


def _check_purpose(lines: Sequence[Line], baseline: Baseline | None, limits: Limits) -> None:
    """A gate that nothing can fail would pass without a word."""
    if baseline is None and not lines and "error" not in limits.rules.values():
        raise UsageError(
            "the gate has nothing to hold the runs against",
            "give --baseline FILE, --min-utilization 0.8 or limits in nsysdoctor.toml",
        )


def _nothing_judged(lines: Sequence[Line]) -> list[Mismatch]:
    if lines:
        return []
    hint = "switch a metric on in the limits, or save the baseline anew"
    return [Mismatch("metrics to judge", "at least one", "none", hint)]


def _answer(
    lines: Sequence[Line],
    findings: Sequence[FindingLine],
    mismatches: Sequence[Mismatch],
    limits: Limits,
) -> Answer:
    """A proven failure stands even where other things cannot be judged; never the other way."""
    if any(line.state == "failed" for line in lines) or any(f.failed for f in findings):
        return "fail"
    open_states = {"unjudged", *(("unclear",) if limits.unclear == "cannot_judge" else ())}
    unjudged = any(line.state in open_states and line.level == "error" for line in lines)
    return "cannot_judge" if mismatches or unjudged else "pass"


def _line_order(line: Line) -> tuple[int, int, int, int, int, str, str]:
    device = -1 if line.device is None else line.device
    # What a step takes comes before what share of it the GPU works.
    place = -1 if line.metric in ("step_ns", "span_ns") else METRIC_ORDER[line.metric]
    level = 0 if line.level == "error" else 1
    state = _STATE_ORDER.index(line.state)
    return state, level, line.trace, place, device, line.check, line.relation


def _notes(case: Case, silent: Sequence[Mismatch]) -> list[str]:
    version, baseline = case.reports[0].tool_version, case.baseline
    if baseline is None:
        return ["no baseline: only absolute limits and findings were judged"]
    notes = [
        f"{m.what}: {m.baseline} in the baseline, {m.found} now; its findings are not judged"
        for m in silent
    ]
    schemas = sorted({schema for setup in case.setups for schema in setup.schemas})
    if schemas != baseline.setup.schemas:
        old, new = (", ".join(names) for names in (baseline.setup.schemas, schemas))
        notes.append(f"the baseline was exported with schema {old}, these runs with {new}")
    if baseline.tool_version != version:
        made = f"the baseline was made with nsysdoctor {baseline.tool_version}, this report"
        notes.append(f"{made} with {version}")
    return notes
