"""One line of a verdict per metric, device and limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nsysdoctor.gate.case import Case
from nsysdoctor.gate.limits import Bound, bound_of
from nsysdoctor.gate.noise import least_spread, run_spread
from nsysdoctor.gate.reasons.explain import Explanation, next_command, unmeasured, why_changed
from nsysdoctor.gate.series import Key, Series, middle, value_of
from nsysdoctor.gate.statistics import Change, Comparison, Sizes, compare
from nsysdoctor.gate.verdict import Line, LineState, Relation
from nsysdoctor.report.metrics import METRICS

_STATE_OF_CHANGE: dict[Change, LineState] = {
    "worse": "failed",
    "too_few": "unjudged",
    "unclear": "unclear",
    "better": "improved",
    "unchanged": "passed",
    "identical": "passed",
}
_INSTEAD = {"step_ns": "span_ns", "span_ns": "step_ns"}
"""Where no steps are known the whole span is held, and only then."""


@dataclass(frozen=True)
class Compared:
    """A metric of the baseline held against the runs: its line and what the line rests on."""

    line: Line
    change: Comparison | None
    explicit: bool = False


def _line(
    state: LineState,
    series: Series,
    bound: Bound,
    case: Case,
    *,
    relation: Relation,
    expected: float | None,
    told: Explanation,
    old: Series | None = None,
    change: Comparison | None = None,
) -> Line:
    return Line(
        state="warned" if state == "failed" and bound.level == "warn" else state,
        level=bound.level,
        check="baseline" if old else "limit",
        metric=series.metric,
        unit=series.unit,
        title=bound.kind.title,
        trace=series.trace,
        device=series.device,
        device_name=case.device_name(series.trace, series.device),
        relation=relation,
        expected=expected,
        found=middle(series) if series.runs else None,
        baseline=middle(old) if old else None,
        values=series.values,
        baseline_values=old.values if old else [],
        per_step=any(run.steps for run in (*series.runs, *(old.runs if old else ()))),
        method=change.method if change else "none",
        p=change.p if change else None,
        margin=change.margin if change else None,
        why=told.why,
        next=told.next,
        culprits=told.culprits,
    )


def _bound(case: Case, series: Series) -> Bound:
    name = case.device_name(series.trace, series.device)
    return bound_of(case.limits, series.metric, name)


def _change_bound(bound: Bound) -> Bound:
    """The bound with the level that a regression has."""
    return replace(bound, level=bound.change_level)


def _absolute(bound: Bound) -> list[tuple[Relation, float]]:
    """The absolute limits that are set and on."""
    pairs: tuple[tuple[Relation, float | None], ...] = ((">=", bound.min), ("<=", bound.max))
    return [(r, limit) for r, limit in pairs if limit is not None and bound.level != "off"]


def limit_lines(case: Case) -> list[Line]:
    """Returns a line for every absolute limit, also for those on what was not measured: those
    can never pass."""
    held = [
        _limit_line(case, series, bound, relation, limit)
        for series in case.now
        for bound in (_bound(case, series),)
        for relation, limit in _absolute(bound)
    ]
    return held + _missing_lines(case)


def _limit_line(case: Case, series: Series, bound: Bound, relation: Relation, limit: float) -> Line:
    found = middle(series)
    held = found >= limit if relation == ">=" else found <= limit
    runs = f"median of {len(series.runs)} runs" if len(series.runs) > 1 else ""
    told = Explanation("", "") if held else Explanation(runs, next_command(bound.kind.rule, case))
    state: LineState = "passed" if held else "failed"
    return _line(state, series, bound, case, relation=relation, expected=limit, told=told)


def _missing_lines(case: Case) -> list[Line]:
    measured = {series.metric for series in case.now}
    names = sorted({device.name for setup in case.setups for device in setup.devices})
    lines = []
    for metric in (name for name in METRICS if name not in measured):
        bounds = [bound_of(case.limits, metric, name) for name in names or [""]]
        found = [(bound, *pair) for bound in bounds for pair in _absolute(bound)]
        for bound, relation, limit in dict.fromkeys(found):
            empty = Series(0, None, metric, METRICS[metric].unit, [])
            told = unmeasured(metric)
            lines.append(
                _line("unjudged", empty, bound, case, relation=relation, expected=limit, told=told)
            )
    return lines


def baseline_lines(case: Case) -> list[Compared]:
    """Returns a line for every metric of the baseline that its limits watch, and one for each at
    error level that the baseline lacks: its regression would go unseen."""
    current = {series.key: series for series in case.now}
    devices = Counter(old.metric for old in case.before)
    lines = []
    for old in case.before:
        bound = _change_bound(_bound(case, old))
        if bound.level == "off" or bound.kind.better == "neither":
            continue
        new = current.get(old.key)
        if new is None:
            lines.append(Compared(_lost_line(case, old, bound), None))
            continue
        change = compared(case, old, new, devices[old.metric])
        # One value a run shows no spread: it is told only to those who asked for it to be held.
        if change.change == "too_few" and not (bound.kind.per_step or bound.explicit):
            continue
        line = _change_line(case, old, new, bound, change)
        lines.append(Compared(line, change, bound.explicit))
    return lines + [Compared(line, None) for line in _absent_lines(case)]


def compared(case: Case, old: Series, new: Series, tests: int = 1) -> Comparison:
    """Returns how a metric changed, by its limit and the noise that runs show or are said to."""
    bound = _change_bound(_bound(case, old))
    value, noise = middle(old), case.limits.noise
    step_ns = value_of(case.before, old.trace, old.device, "step_ns") or 0.0
    threshold = bound.threshold(value, step_ns)
    busy = case.busy_ratio(old.trace, old.device)
    sizes = Sizes(
        threshold=threshold,
        sight=bound.sight(threshold),
        spread=run_spread(noise, old.metric, value, busy),
        least=least_spread(noise, old.metric, value),
        tests=max(tests, 1),
    )
    return compare(
        old.runs, new.runs, better=bound.kind.better, sizes=sizes, min_runs=case.limits.min_runs
    )


def _absent_lines(case: Case) -> list[Line]:
    known = {series.metric for series in case.before}
    names = sorted({device.name for device in case.setups[0].devices})
    lines = []
    for metric in (name for name in METRICS if name not in known):
        if _INSTEAD.get(metric) in known or metric == "span_ns":
            continue
        bounds = (_change_bound(bound_of(case.limits, metric, name)) for name in names)
        for bound in dict.fromkeys(bounds):
            watched = bound.level == "error" and bound.kind.better != "neither"
            if watched and not _absolute(bound):
                told = Explanation("not measured in the baseline", unmeasured(metric).next)
                empty = Series(0, None, metric, bound.kind.unit, [])
                lines.append(_unjudged(case, empty, bound, told))
    return lines


def _lost_line(case: Case, old: Series, bound: Bound) -> Line:
    told = unmeasured(old.metric)
    told = Explanation(f"measured in the baseline, {told.why}", told.next)
    return _unjudged(case, Series(*old.key, old.unit, []), bound, told, old)


def _unjudged(
    case: Case, series: Series, bound: Bound, told: Explanation, old: Series | None = None
) -> Line:
    relation = _relation(bound)
    return _line(
        "unjudged", series, bound, case, relation=relation, expected=None, told=told, old=old
    )


def _relation(bound: Bound) -> Relation:
    return ">=" if bound.kind.better == "higher" else "<="


def _change_line(
    case: Case, old: Series, new: Series, bound: Bound, change: Comparison
) -> Line:
    worse = -change.threshold if bound.kind.better == "higher" else change.threshold
    return _line(
        _STATE_OF_CHANGE[change.change],
        new,
        bound,
        case,
        relation=_relation(bound),
        expected=middle(old) + worse,
        told=why_changed(change, new, case),
        old=old,
        change=change,
    )


def throughput_first(found: Sequence[Compared]) -> list[Line]:
    """Returns the lines, those on utilization judged by what became of the work.

    Utilization that fell fails only where the step got longer, or idle time did while the step
    did not get shorter: with faster kernels the same idle time is a larger share. A limit on it
    that was given holds as it is.
    """
    changes: dict[Key, Change] = {
        (one.line.trace, one.line.device, one.line.metric): one.change.change
        for one in found
        if one.change
    }
    return [one.line if one.explicit else _by_throughput(one.line, changes) for one in found]


def _by_throughput(line: Line, changes: dict[Key, Change]) -> Line:
    if line.metric not in ("utilization_ratio", "busy_ratio"):
        return line
    if line.state not in ("failed", "warned", "unclear"):
        return line

    def state(metric: str) -> Change:
        return changes.get((line.trace, line.device, metric), "unchanged")

    work = {state("step_ns"), state("span_ns")}
    idle = state("idle_ns")
    if "worse" in work or (idle == "worse" and "better" not in work):
        return line
    if line.state == "unclear":
        open_ = "unclear" in work or (idle == "unclear" and "better" not in work)
        return line if open_ else replace(line, level="warn")
    faster = state("kernel_ns") == "better"
    reason = "kernels got faster" if faster else "neither the step nor idle time got worse"
    accept = f"accept with: nsysdoctor baseline save {_REPORTS} -o FILE"
    return replace(line, state="warned", why=f"{reason}: no loss of throughput", next=accept)


_REPORTS = "TRACE..."
