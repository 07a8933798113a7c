"""Asking every rule about a trace, pricing the cures and ranking what was found."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from nsysdoctor import __version__
from nsysdoctor.errors import MissingTableError
from nsysdoctor.findings import Measured, make_finding, rank_key
from nsysdoctor.ingest.schema import SOURCES
from nsysdoctor.kernel_rows import kernel_summary
from nsysdoctor.replay import Price, Replay, finish_of
from nsysdoctor.report import Finding, Outcome, Report
from nsysdoctor.rule import Rule, load_rules
from nsysdoctor.summary import (
    budgets_of,
    idle_causes_of,
    metrics_of,
    notes_of,
    phases_of,
    steps_of,
    trace_info,
    window_of,
)
from nsysdoctor.recipe import Recipe
from nsysdoctor.trace import Trace, open_trace
from nsysdoctor.window import Request

_SOURCE = {source.name: source for source in SOURCES}


@dataclass(frozen=True)
class Options:
    """What to analyse and with which rules; `params` overrides rules' numbers by rule name."""

    request: Request = field(default_factory=Request)
    rules: Sequence[Rule] | None = None
    params: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)


def diagnose(path: str | Path, options: Options | None = None) -> Report:
    """Returns the report on the export at `path`.

    Raises UnreadableTraceError when it cannot be read and EmptyTraceError when it holds no GPU
    activity.
    """
    options = options or Options()
    return diagnose_trace(open_trace(path, options.request), options)


def diagnose_trace(trace: Trace, options: Options | None = None, index: int = 0) -> Report:
    """Returns the report on an open trace; `index` is its place among the traces of a job."""
    options = options or Options(trace.request)
    rules = list(options.rules) if options.rules is not None else load_rules()
    _require_activity(trace)
    window = window_of(trace)
    asked = [_ask(rule, trace, options.params.get(rule.name, {})) for rule in rules]
    findings, combined = _priced([m for m, _ in asked if m is not None], trace, index)
    return Report(
        tool_version=__version__,
        traces=[trace_info(trace)],
        window=window,
        steps=steps_of(trace),
        devices=budgets_of(trace, index),
        idle_causes=idle_causes_of(trace, index),
        findings=findings,
        combined_saving_ns=combined,
        combined_saving_ratio=combined / window.span_ns if window.span_ns else 0.0,
        outcomes=[outcome for _, outcome in asked],
        phases=phases_of(trace, index),
        metrics=metrics_of(trace, index),
        kernels=kernel_summary(trace, index),
        notes=notes_of(trace, index),
    )


def _require_activity(trace: Trace) -> None:
    """Raises EmptyTraceError when no device ran anything."""
    from nsysdoctor.errors import EmptyTraceError

    ops = trace.optional("ops")
    if ops is None or not len(ops):
        raise EmptyTraceError(
            f"{trace.export.path} holds no GPU activity (no kernel, copy or graph rows)",
            "record with: nsys profile --trace=cuda,nvtx,osrt -o run python train.py",
        )


def _ask(
    rule: Rule, trace: Trace, params: Mapping[str, int | float]
) -> tuple[Measured | None, Outcome]:
    """Returns what one rule found and how it ended; a crash of its code ends it as failed."""
    began = time.perf_counter()

    def ended(state: str, reason: str) -> Outcome:
        return Outcome(rule.name, state, reason, round(time.perf_counter() - began, 4))  # type: ignore[arg-type]

    lacking = [n for n in rule.words.needs if trace.export.table_of(_SOURCE[n]) is None]
    if lacking:
        source = _SOURCE[lacking[0]]
        return None, ended(
            "skipped", f"the trace holds no {source.tables[0]} table; record with {source.flag}"
        )
    try:
        measured = _measure(rule, trace, rule.params | dict(params))
    except MissingTableError as error:
        return None, ended("skipped", f"{error.message}; {error.hint}")
    except Exception as error:
        return None, ended("failed", f"{type(error).__name__}: {error}")
    if not len(measured.rows):
        return None, ended("passed", "")
    count = len(measured.rows)
    return measured, ended("found", f"{count} finding{'s' if count > 1 else ''}")


def _measure(rule: Rule, trace: Trace, params: Mapping[str, int | float]) -> Measured:
    made: dict[str, Any] = {}

    def value(name: str, optional: bool) -> Any:
        if name in made:
            return made[name]
        if name in rule.tables:
            made[name] = run(rule.tables[name])
            return made[name]
        return trace.optional(name) if optional else trace.table(name)

    def run(part: Recipe) -> Any:
        inputs = [value(name, name in part.optional) for name in part.needs]
        return part.function(*inputs, **{name: params[name] for name in part.params})

    rows = run(rule.measure).reset_index(drop=True)
    made[rule.name] = rows
    if not len(rows):
        return Measured(rule, rows, None, None)
    return Measured(
        rule,
        rows,
        run(rule.evidence) if rule.evidence else None,
        run(rule.cure) if rule.cure else None,
    )


def _priced(found: list[Measured], trace: Trace, index: int) -> tuple[list[Finding], int]:
    """Returns the ranked findings and what all cures save together."""
    window = window_of(trace)
    replay = _replay(trace) if any(m.edits is not None for m in found) else None
    findings: list[Finding] = []
    ecosystem = trace.table("ecosystem")
    for measured in found:
        for row in range(len(measured.rows)):
            price = _price(measured, row, replay)
            findings.append(
                make_finding(measured, row, price, window.span_ns, ecosystem, index)
            )
    largest = max((f.saving_ns or 0 for f in findings), default=0)
    combined = 0
    every = [m.edits for m in found if m.edits is not None and len(m.edits)]
    if replay is not None and every:
        combined = replay.saving_ns(pd.concat(every, ignore_index=True), "middle")
    combined = min(max(combined, largest), window.span_ns)
    return sorted(findings, key=rank_key), combined


def _price(measured: Measured, row: int, replay: Replay | None) -> Price | None:
    if measured.edits is None or replay is None:
        return None
    return replay.price(measured.edits[measured.edits["subject"] == row])


def _replay(trace: Trace) -> Replay | None:
    """Returns the replay of the trace, None when no calls were recorded."""
    graph = trace.optional("constraint_graph")
    if graph is None:
        return None
    window = trace.table("window").iloc[0]
    finish = finish_of(
        graph, trace.table("api"), trace.table("submissions"), window, trace.table("step_marks")
    )
    return Replay(graph, finish, int(window["end_ns"] - window["start_ns"]))


def with_path(report: Report, path: str) -> Report:
    """Returns the report with its only trace named by another path."""
    return replace(report, traces=[replace(report.traces[0], path=path)])
