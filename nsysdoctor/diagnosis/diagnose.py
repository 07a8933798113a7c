"""Asking every rule about a trace, pricing the cures and ranking what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nsysdoctor import __version__
from nsysdoctor.arrays.memory import trim_memory
from nsysdoctor.diagnosis.capture_faults import capture_faults_of
from nsysdoctor.diagnosis.claims import Addressed
from nsysdoctor.diagnosis.kernel_rows import kernel_summary
from nsysdoctor.diagnosis.lost_time import Ledger, claimed, ledger_of, renumbered
from nsysdoctor.diagnosis.pricing import Priced, price_findings
from nsysdoctor.diagnosis.summary import (
    budgets_of,
    idle_causes_of,
    metrics_of,
    notes_of,
    phases_of,
    steps_of,
    trace_info,
    window_of,
    work_of,
)
from nsysdoctor.errors import UsageError
from nsysdoctor.replay.replay import Replay, finishes_of
from nsysdoctor.replay.work_left import WorkLeft
from nsysdoctor.report.model import LostTime, Report
from nsysdoctor.report.ranking import CAPTURE, rank_key, ranked
from nsysdoctor.rulebook.evaluate import evaluate
from nsysdoctor.rulebook.findings import Cause, Measured, causes_of, make_finding
from nsysdoctor.rulebook.rule import Rule, load_rules
from nsysdoctor.tables.ranks.alignment import Job, RankSummary, bring_together
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import Request


@dataclass(frozen=True)
class Options:
    """What to analyse and with which rules; `params` overrides rules' numbers by rule name."""

    request: Request = field(default_factory=Request)
    rules: Sequence[Rule] | None = None
    params: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    timed: bool = False
    """Whether outcomes tell how long each rule took; then no two reports are the same."""
    brief: bool = False
    """Only what the rules say and the account of time: no kernels, metrics, phases and notes."""


def diagnose(path: str | Path, options: Options | None = None) -> Report:
    """Returns the report on the export at `path`.

    Raises UnreadableTraceError when it cannot be read and EmptyTraceError when it holds no GPU
    activity.
    """
    options = options or Options()
    trace = open_trace(path, options.request)
    return conclude(diagnose_trace(trace, options), [summarise(trace)], options)


_DESCRIBED = (
    "window", "step_marks", "steps", "phases", "devices", "time_budget", "idle_parts",
    "launches", "ops", "submissions", "names", "kernels", "metrics", "overruns", "arrivals",
    "rank_activity", "clock", "ecosystem", "horizon", "step_lengths", "lost_time", "step_work",
)  # fmt: skip
"""The tables that the report reads for itself."""

_FIRST = ("configurations", "engine_turns", "filling_kernels")
"""Made first: they read the rows of kernels, which are the widest of all and then can go. So is
what a job needs of idle time in pieces."""

_ABOUT_THE_TRACE = ("devices", "overruns", "horizon")
"""The tables that tell about the trace itself, once all rows were read that will be."""

_PRICED = (
    "constraint_graph", "api", "submissions", "window", "step_marks", "thread_handoffs",
    "ecosystem", "ops", "window_kernels",
)  # fmt: skip
"""The tables that pricing reads, last of all."""


Progress = Callable[[str, float], None]
"""Hears what is being done, and which share of the work on a trace is behind."""

_ASKED_SHARE, _PRICED_SHARE = 0.6, 0.85
"""What of the time is behind when the rules are asked, and when their cures are priced."""


def diagnose_trace(
    trace: Trace,
    options: Options | None = None,
    index: int = 0,
    later: Sequence[str] = (),
    progress: Progress = lambda _stage, _share: None,
) -> Report:
    """Returns what the rules about one trace say; `index` is its place among those of a job.

    `conclude` adds what the rules about several ranks say. Tables are forgotten once nothing
    needs them any more; `later` names those that the caller still wants. Raises UsageError for a
    window or a device that the trace does not have.
    """
    try:
        return _diagnosed(trace, options or Options(trace.request), index, later, progress)
    except UsageError as error:
        raise UsageError(f"{trace.export.path}: {error.message}", error.hint) from error


def _diagnosed(
    trace: Trace, options: Options, index: int, later: Sequence[str], progress: Progress
) -> Report:
    rules = _rules(options, "trace")
    wanted = (*_DESCRIBED, *_PRICED, *_ABOUT_THE_TRACE, *_SUMMARISED, *later)
    trace.expect([*wanted, *(table for rule in rules for table in rule.uses)])
    progress("reading", 0.0)
    _require_activity(trace)
    for name in (*_FIRST, *_SUMMARISED):
        trace.optional(name)
    described = _described(trace, index, options.brief)
    ledger = None if options.brief else ledger_of(trace, index)
    trace.release(_DESCRIBED)
    asked = []
    for place, rule in enumerate(rules):
        progress(rule.name, _ASKED_SHARE + (_PRICED_SHARE - _ASKED_SHARE) * place / len(rules))
        asked.append(evaluate(rule, trace, options.params.get(rule.name, {}), timed=options.timed))
        trace.release(rule.uses)
    found = [measured for measured, _ in asked if measured is not None]
    progress("pricing cures", _PRICED_SHARE)
    trim_memory()
    priced = _priced(found, trace, index)
    lost = [] if ledger is None else _claimed(ledger, priced, trace)
    trace.release(_PRICED)
    info = trace_info(trace)
    faults = capture_faults_of(trace, index, info.dropped)
    trace.release(_ABOUT_THE_TRACE)
    window_ns = described.window.span_ns
    return replace(
        described,
        traces=[info],
        capture_faults=faults,
        findings=priced.findings,
        lost_time=lost,
        combined_saving_ns=priced.combined_ns,
        combined_saving_ratio=priced.combined_ns / window_ns if window_ns else 0.0,
        outcomes=[outcome for _, outcome in asked],
    )


def _described(trace: Trace, index: int, brief: bool) -> Report:
    """The report before any rule is asked."""
    short = Report(
        tool_version=__version__,
        window=window_of(trace),
        steps=steps_of(trace),
        devices=budgets_of(trace, index),
        idle_causes=idle_causes_of(trace, index),
        findings=[],
        combined_saving_ns=0,
        combined_saving_ratio=0.0,
        outcomes=[],
        traces=[],
    )
    if brief:
        return short
    return replace(
        short,
        phases=phases_of(trace, index),
        metrics=metrics_of(trace, index),
        kernels=kernel_summary(trace, index),
        notes=notes_of(trace, index),
        work=work_of(trace, index),
    )


def _rules(options: Options, scope: str) -> list[Rule]:
    every = options.rules if options.rules is not None else load_rules()
    return [rule for rule in every if rule.words.scope == scope]


_SUMMARISED = ("window", "arrivals", "rank_activity", "clock")


def summarise(trace: Trace) -> RankSummary:
    """Returns the little that a job needs to know of one trace beside its report."""
    window = window_of(trace)
    identity = trace.identity
    return RankSummary(
        arrivals=trace.table("arrivals"),
        activity=trace.table("rank_activity"),
        clock_ns=trace.table("clock"),
        label="" if identity.rank is None else f"rank {identity.rank}, ",
        host=identity.host,
        window_ns=window.span_ns,
    )


class _JobTables:
    """The stacked tables of a job, as rules ask for them."""

    def __init__(self, job: Job) -> None:
        self._tables = job._asdict()

    def table(self, name: str) -> object:
        if name not in self._tables:
            raise LookupError(f"a job has no table {name}; it has: {', '.join(self._tables)}")
        return self._tables[name]

    def optional(self, name: str) -> object | None:
        return self._tables.get(name)

    def require(self, source: str) -> None:
        self.table(f"{source}_rows")


def conclude(
    report: Report, summaries: Sequence[RankSummary], options: Options
) -> Report:
    """Returns the report with what the rules about several ranks say, ranked anew."""
    tables = _JobTables(bring_together(summaries))
    asked = [
        evaluate(rule, tables, options.params.get(rule.name, {}), timed=options.timed)
        for rule in _rules(options, "job")
    ]
    window_ns = report.window.span_ns
    spoken = report.findings[0].ecosystem if report.findings else "any"
    more = [
        make_finding(cause, None, [None] * len(cause.rows), window_ns, spoken, 0)
        for measured, _ in asked
        if measured is not None
        for cause in causes_of(measured)
    ]
    combined = max([report.combined_saving_ns, *(f.saving_ns or 0 for f in more)])
    # Of equal savings the one about the whole job says more than the one about its rank.
    order = ranked([*report.findings, *more], lambda f: (*rank_key(f)[:5], f not in more))
    return replace(
        report,
        findings=order.findings,
        lost_time=renumbered(report.lost_time, order.place_of),
        outcomes=sorted([*report.outcomes, *(o for _, o in asked)], key=lambda o: o.rule),
        combined_saving_ns=combined,
        combined_saving_ratio=combined / window_ns if window_ns else 0.0,
    )


def _require_activity(trace: Trace) -> None:
    """Raises EmptyTraceError when no device ran anything."""
    from nsysdoctor.errors import EmptyTraceError

    ops = trace.optional("ops")
    if ops is None or not len(ops):
        raise EmptyTraceError(
            f"{trace.export.path} holds no GPU activity (no kernel, copy or graph rows)",
            trace.export.recorder.record_gpu,
        )


def _priced(found: list[Measured], trace: Trace, index: int) -> Priced:
    """Returns the ranked findings and what all cures save together."""
    replay = _replay(trace) if any(m.edits is not None for m in found) else None
    span_ns = window_of(trace).span_ns
    return price_findings(found, replay, span_ns, trace.table("ecosystem"), index)


def _claimed(ledger: Ledger, priced: Priced, trace: Trace) -> list[LostTime]:
    """The rows of the ledger with the findings that claim them."""
    addressed = Addressed(ledger.pieces, trace.optional("api"), len(trace.table("ops")))
    claims = [_addressed(addressed, cause) for cause in priced.causes]
    acted_on = [f.level != "info" and f.category != CAPTURE for f in priced.findings]
    return claimed(ledger, claims, acted_on)


def _addressed(addressed: Addressed, cause: Cause) -> np.ndarray:
    mine = addressed.none()
    if cause.edits is not None:
        mine |= addressed.by(cause.edits)
    places = cause.measured.addressed
    if places is not None:
        mine |= addressed.within(places[places["row"].isin(cause.rows).to_numpy()])
    return mine


def _replay(trace: Trace) -> Replay | None:
    """Returns the replay of the trace, None when no calls were recorded."""
    graph = trace.optional("constraint_graph")
    if graph is None:
        return None
    window = trace.table("window").iloc[0]
    finishes = finishes_of(
        graph,
        trace.table("api"),
        trace.table("submissions"),
        window,
        trace.table("step_marks"),
        trace.table("thread_handoffs"),
    )
    span = int(window["start_ns"]), int(window["end_ns"])
    work_left = WorkLeft(graph, trace.table("window_kernels"), span)
    return Replay(graph, finishes, window_of(trace).span_ns, work_left)
