"""Many traces in one call: map over them, reduce over small summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsysdoctor.diagnosis.diagnose import Options, Progress, conclude, diagnose_trace, summarise
from nsysdoctor.diagnosis.lost_time import renumbered
from nsysdoctor.jobs.answers import Lost, attempt, in_workers
from nsysdoctor.report.model import Note, Outcome, Report
from nsysdoctor.report.ranking import united
from nsysdoctor.rulebook.rule import Rule, load_rules, select_rules
from nsysdoctor.tables.ranks.alignment import RankSummary, bring_together
from nsysdoctor.trace.trace import open_trace
from nsysdoctor.trace.window import Request

if TYPE_CHECKING:
    from nsysdoctor.timeline import Payload


DRAWN = (
    "names", "ops", "api", "api_names", "threads", "processes", "waits", "ranges", "range_names",
    "range_depth", "steps", "devices", "device_pieces", "gaps", "gap_causes", "copies", "kernels",
    "configurations", "launches", "lanes", "phases", "step_times",
)  # fmt: skip
"""The tables that a dashboard's timeline reads; kept until it is packed."""

Seen = Callable[[Path, str, float], None]
"""Hears of a trace, what is done with it, and which share of the work on it is behind."""

DONE = "done"
_ROWS_OF_TRACES = (
    "devices", "idle_causes", "findings", "phases", "metrics", "kernels", "notes",
    "capture_faults", "lost_time",
)  # fmt: skip
_DRAWN_SHARE = 0.95


@dataclass(frozen=True)
class JobOptions:
    """What to analyse, in a form that can be sent to another process or machine."""

    request: Request = field(default_factory=Request)
    folders: tuple[Path, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    params: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    timed: bool = False
    payloads: bool = False
    """Whether workers also prepare what a dashboard draws."""


@dataclass(frozen=True)
class Result:
    """The result for one trace: its report, its summary, and the data of its dashboard."""

    report: Report
    summary: RankSummary
    payload: Payload | None


@dataclass(frozen=True)
class Answer:
    """The report on a whole job, and the dashboard data of each trace."""

    report: Report
    payloads: list[Payload]
    lost: list[Lost] = field(default_factory=list)
    """The traces that could not be analysed."""


def diagnose_job(
    paths: Sequence[Path],
    options: JobOptions | None = None,
    executor: Executor | None = None,
    seen: Seen = lambda _path, _stage, _share: None,
) -> Answer:
    """Returns the answer on the traces, in their order.

    `executor` is any concurrent.futures executor (process pool, dask's client.get_executor());
    without one the traces are read one after the other. The answer is the same. `seen` is called
    for each finished trace, and for each stage of a trace that is read in this process. Of several
    traces one that cannot be analysed loses only itself; raises the error of the first one where
    none can be.
    """
    options = options or JobOptions()
    if executor is None:
        found: list[Result | Lost] = []
        for path in paths:
            reading = partial(work, path, 0, options, partial(seen, path))
            found.append(reading() if len(paths) == 1 else attempt(path, reading))
            seen(path, DONE, 1.0)
    else:
        asked = [(path, (0, options)) for path in paths]
        found = in_workers(executor, work, asked, lambda path: seen(path, DONE, 1.0))
    lost = [one for one in found if isinstance(one, Lost)]
    results = [one for one in found if not isinstance(one, Lost)]
    if not results:
        raise lost[0].error
    answer = _reduced([_placed(result, place) for place, result in enumerate(results)], options)
    return _without(answer, lost)


def _placed(result: Result, place: int) -> Result:
    """The result of a trace as that of the trace at a place in the job."""
    if place == 0:
        return result
    report, payload = result.report, result.payload
    changed: dict[str, Any] = {
        name: [replace(row, trace=place) for row in getattr(report, name)]
        for name in _ROWS_OF_TRACES
    }
    changed["findings"] = [
        replace(f, subjects=[replace(s, trace=place) for s in f.subjects])
        for f in changed["findings"]
    ]
    drawn = None if payload is None else replace(payload, trace=place)
    return Result(replace(report, **changed), result.summary, drawn)


def _without(answer: Answer, lost: Sequence[Lost]) -> Answer:
    """The answer with what is missing in it."""
    if not lost:
        return answer
    notes = [Note(0, f"not in this report: {one.error.message}") for one in lost]
    report = replace(answer.report, notes=[*answer.report.notes, *notes])
    return Answer(report, answer.payloads, list(lost))


def work(
    path: Path,
    index: int,
    options: JobOptions,
    progress: Progress = lambda _stage, _share: None,
) -> Result:
    """Returns one trace's result. Runs where the file is, and sends back no table of events."""
    trace = open_trace(path, options.request)
    later = DRAWN if options.payloads else ()
    report = diagnose_trace(trace, _options(options), index, later, progress)
    payload = None
    if options.payloads:
        from nsysdoctor.timeline.timeline import timeline_payload

        progress("drawing", _DRAWN_SHARE)
        payload = timeline_payload(trace.table, report, trace=index)
    return Result(report, summarise(trace), payload)


def chosen_rules(options: JobOptions) -> list[Rule]:
    """Returns the rules that the options choose; raises RuleError for unknown names."""
    return select_rules(known_rules(options.folders), options.select, options.ignore)


def _options(options: JobOptions) -> Options:
    return Options(options.request, chosen_rules(options), options.params, options.timed)


@cache
def known_rules(folders: tuple[Path, ...]) -> list[Rule]:
    """Returns the built-in rules and those of the folders, loaded once in a process."""
    return load_rules(folders)


def _reduced(results: Sequence[Result], options: JobOptions) -> Answer:
    known = Counter(r.summary.label for r in results)
    summaries = [_labelled(r.summary, i, known) for i, r in enumerate(results)]
    merged = _merged([r.report for r in results], summaries)
    report = conclude(merged, summaries, _options(options))
    return Answer(report, [r.payload for r in results if r.payload is not None])


def _labelled(summary: RankSummary, index: int, known: Counter[str]) -> RankSummary:
    """The summary under a label of its own, also where two traces call themselves the same."""
    if known.total() == 1 or (summary.label and known[summary.label] == 1):
        return summary
    return summary._replace(label=f"{summary.label}trace {index + 1}, ")


def _merged(reports: Sequence[Report], summaries: Sequence[RankSummary]) -> Report:
    """Returns one report on all traces; the window and steps are the longest window's."""
    if len(reports) == 1:
        return reports[0]
    longest = max(reports, key=lambda r: r.window.span_ns)
    combined = max(r.combined_saving_ns for r in reports)
    union = united(reports, longest.window.span_ns)
    return replace(
        longest,
        traces=[t for r in reports for t in r.traces],
        devices=[d for r in reports for d in r.devices],
        idle_causes=[c for r in reports for c in r.idle_causes],
        findings=union.findings,
        combined_saving_ns=combined,
        combined_saving_ratio=combined / max(longest.window.span_ns, 1),
        outcomes=_outcomes(reports),
        phases=[p for r in reports for p in r.phases],
        metrics=[m for r in reports for m in r.metrics],
        kernels=[k for r in reports for k in r.kernels],
        capture_faults=[f for r in reports for f in r.capture_faults],
        lost_time=[
            row
            for r, place_of in zip(reports, union.place_of, strict=True)
            for row in renumbered(r.lost_time, place_of)
        ],
        work=[w for r in reports for w in r.work],
        notes=[*(n for r in reports for n in r.notes), *_job_notes(reports, summaries)],
    )


_WORST = {"failed": 0, "found": 1, "passed": 2, "skipped": 3}


def _outcomes(reports: Sequence[Report]) -> list[Outcome]:
    """One outcome per rule: of all traces' outcomes the one that says most."""
    by_rule: dict[str, list[Outcome]] = {}
    for outcome in (o for r in reports for o in r.outcomes):
        by_rule.setdefault(outcome.rule, []).append(outcome)
    found = []
    for rule in sorted(by_rule):
        first = min(by_rule[rule], key=lambda o: _WORST[o.state])
        found.append(replace(first, seconds=round(sum(o.seconds for o in by_rule[rule]), 4)))
    return found


def _job_notes(reports: Sequence[Report], summaries: Sequence[RankSummary]) -> list[Note]:
    notes = []
    seen: dict[int, int] = {}
    for index, report in enumerate(reports):
        info = report.traces[0]
        if info.rank is None:
            continue
        if info.rank in seen:
            twin = seen[info.rank] + 1
            notes.append(Note(index, f"traces {twin} and {index + 1} both say rank {info.rank}"))
        seen.setdefault(info.rank, index)
    residual_ns = bring_together(summaries).residual_ns
    if residual_ns is not None:
        from nsysdoctor.units import ns_text

        text = f"clocks aligned on the ends of collectives; {ns_text(residual_ns)} remain"
        notes.append(Note(0, text))
    return notes
