"""The numbers that a gate holds: over the window, and in each steady step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, ascending, rows_of, spans, split_before
from nsysdoctor.report.metrics import METRICS
from nsysdoctor.report.model import Metric
from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.tables.host.call_kinds import SYNCS, Verb
from nsysdoctor.tables.host.thread_states import CAUSES
from nsysdoctor.trace.recipe import table

Floats = npt.NDArray[np.float64]
_WAITS = tuple(int(verb) for verb in (*SYNCS, Verb.COPY))


class Scope(NamedTuple):
    """Where values are taken: the steady steps, and the stretch that the overall value covers."""

    steps: Spans
    whole: Spans


class Values(NamedTuple):
    """One value per step, and one over the whole stretch."""

    steps: Floats
    whole: Floats


@table
def metrics(
    ops: pd.DataFrame,
    device_pieces: pd.DataFrame,
    horizon: pd.DataFrame,
    steps: pd.DataFrame,
    window: pd.DataFrame,
    gap_causes: pd.DataFrame,
    device_steps: pd.DataFrame,
    launches: pd.DataFrame | None = None,
    copies: pd.DataFrame | None = None,
    api: pd.DataFrame | None = None,
) -> list[Metric]:
    """Returns the metrics of the trace in the order of `METRICS`, of its devices, then its host.

    A device's step reaches from the first kernel that the host launched in a step to the first of
    the next, so that a host that runs ahead does not shift work between steps; host metrics take
    the host's steps. Of a window told by its times each takes the steps that lie in it whole by
    its own clock, so they may be other ones. What was not recorded gives no metric: causes need
    calls, pageable copies need memory kinds.
    """
    found: list[Metric] = []
    for row in horizon.itertuples(index=False):
        device = int(row.device)
        scope = _device_scope(window, device_steps, device, row)
        found += _budget_metrics(device, _of(device_pieces, device), scope)
        if launches is not None:
            found += _cause_metrics(device, _of(gap_causes, device), scope)
        found.append(_metric(device, "kernel_ns", _work(_kernels(ops, device), scope)))
        if copies is not None:
            found += _copy_metrics(device, copies[copies["device"] == device], scope)
    return found + (_host_metrics(api, _host_scope(steps, window)) if api is not None else [])


def _of(pieces: pd.DataFrame, device: int) -> pd.DataFrame:
    """The pieces of one device, which come device by device."""
    return pieces[rows_of(device, pieces["device"].to_numpy())]


def _host_scope(steps: pd.DataFrame, window: pd.DataFrame) -> Scope:
    kept = steps[steps["phase"] == "steady"]
    row = window.iloc[0]
    whole = spans([row["host_start_ns"]], [row["host_end_ns"]])
    return Scope(spans(kept["start_ns"], kept["end_ns"]), whole)


def _device_scope(
    window: pd.DataFrame, device_steps: pd.DataFrame, device: int, horizon: NamedTuple
) -> Scope:
    row = window.iloc[0]
    low, high = (horizon.start_ns, horizon.end_ns)  # type: ignore[attr-defined]
    if row["basis"] != "all":
        low, high = (row["start_ns"], row["end_ns"])
    kept = (device_steps["device"] == device) & (device_steps["phase"] == "steady")
    if row["basis"] == "given":
        kept &= (device_steps["start_ns"] >= low) & (device_steps["end_ns"] <= high)
    mine = device_steps[kept]
    return Scope(spans(mine["start_ns"], mine["end_ns"]), spans([low], [high]))


def _metric(device: int | None, name: str, values: Values) -> Metric:
    unit = METRICS[name].unit
    return Metric(0, device, name, unit, float(values.whole[0]), values.steps.tolist())


def _work(these: Spans, scope: Scope) -> Values:
    """How many ns of the intervals lie in each step and in the whole; overlaps count twice."""
    start, end = _sorted(these.start), _sorted(these.end)
    return Values(*(_inside(start, end, part) for part in scope))


def _sorted(times: Ints) -> Ints:
    return times if ascending(times) else np.sort(times, kind="stable")


def _inside(start: Ints, end: Ints, parts: Spans) -> Floats:
    edges = np.unique(np.concatenate((*parts,)))
    if len(edges) < 2:
        return np.zeros(len(parts.start))
    cells = _begun(start, edges) - _begun(end, edges)
    total = np.concatenate(([0], np.cumsum(cells)))
    at = (np.searchsorted(edges, parts.end), np.searchsorted(edges, parts.start))
    return (total[at[0]] - total[at[1]]).astype(np.float64)


def _begun(times: Ints, edges: Ints) -> Ints:
    """For each cell between edges the sum over `times` of how long each lies behind in the cell.

    The difference of this sum for starts and for ends is the covered time. Sums stay within a
    cell, so that they cannot overflow.
    """
    width = np.diff(edges)
    bounds = np.searchsorted(times, edges, side="right")
    inner = times[bounds[0] : bounds[-1]]
    inside = np.diff(bounds)
    left = np.repeat(edges[1:], inside) - inner
    total = np.concatenate(([0], np.cumsum(left)))[bounds - bounds[0]]
    return np.asarray(bounds[:-1] * width + np.diff(total), dtype=np.int64)


def _split(pieces: pd.DataFrame, code: str, codes: int, scope: Scope) -> list[Values]:
    """How many ns of the pieces of each code lie in each step and in the whole."""
    these = Spans(pieces["start_ns"].to_numpy(), pieces["end_ns"].to_numpy())
    at = np.concatenate([bound for part in scope for bound in part])
    before = split_before(these, pieces[code].to_numpy(), codes, at).astype(np.float64)
    count = len(scope.steps.start)
    return [
        Values(row[count : 2 * count] - row[:count], row[2 * count + 1 :] - row[2 * count : -1])
        for row in before
    ]


def _count(times: Ints, scope: Scope, size: Ints | None = None) -> Values:
    """How many events, or how much of them, begin in each step and in the whole."""
    if size is None:
        return Values(*(_between(None, _sorted(times), part) for part in scope))
    order = np.argsort(times, kind="stable")
    total = np.concatenate(([0], np.cumsum(size[order])))
    return Values(*(_between(total, times[order], part) for part in scope))


def _between(total: Ints | None, at: Ints, part: Spans) -> Floats:
    high, low = np.searchsorted(at, part.end), np.searchsorted(at, part.start)
    return (high - low if total is None else total[high] - total[low]).astype(np.float64)


def _budget_metrics(device: int, pieces: pd.DataFrame, scope: Scope) -> list[Metric]:
    """The buckets of a step sum to its length inside the horizon; ratios refer to the length."""
    spent = dict(zip(BUCKETS, _split(pieces, "bucket", len(BUCKETS), scope), strict=True))
    length = Values(*((part.end - part.start).astype(np.float64) for part in scope))
    used = _sum(spent["compute"], spent["exposed_communication"])
    return [
        _metric(device, "utilization_ratio", _ratio(used, length)),
        _metric(device, "busy_ratio", _ratio(_sum(used, spent["exposed_copy"]), length)),
        _metric(device, "step_ns", length),
        _metric(device, "idle_ns", spent["idle"]),
        _metric(device, "exposed_communication_ns", spent["exposed_communication"]),
        _metric(device, "exposed_copy_ns", spent["exposed_copy"]),
    ]


def _sum(left: Values, right: Values) -> Values:
    return Values(left.steps + right.steps, left.whole + right.whole)


def _ratio(part: Values, whole: Values) -> Values:
    pairs = zip(part, whole, strict=True)
    return Values(*(np.minimum(a / np.maximum(b, 1.0), 1.0) for a, b in pairs))


def _cause_metrics(device: int, pieces: pd.DataFrame, scope: Scope) -> list[Metric]:
    split = _split(pieces, "cause", len(CAUSES), scope)
    return [
        _metric(device, f"idle_{name}_ns", values)
        for name, values in zip(CAUSES, split, strict=True)
    ]


def _kernels(ops: pd.DataFrame, device: int) -> Spans:
    kind = ops["kind"].to_numpy()
    mine = (ops["device"].to_numpy() == device) & ((kind == KERNEL) | (kind == GRAPH))
    return Spans(ops["start_ns"].to_numpy()[mine], ops["end_ns"].to_numpy()[mine])


def _copy_metrics(device: int, copies: pd.DataFrame, scope: Scope) -> list[Metric]:
    """Copies with a pageable end; none where the export does not tell memory kinds."""
    if len(copies) and bool((copies[["src_kind", "dst_kind"]] < 0).all(axis=None)):
        return []
    mine = copies[copies["pageable"]]
    start, size = mine["start_ns"].to_numpy(), mine["bytes"].to_numpy()
    return [
        _metric(device, "pageable_bytes", _count(start, scope, size)),
        _metric(device, "pageable_copy_count", _count(start, scope)),
    ]


def _host_metrics(api: pd.DataFrame, scope: Scope) -> list[Metric]:
    verb, start = api["verb"].to_numpy(), api["start_ns"].to_numpy()
    top = api["top"].to_numpy()
    calls = Spans(start[top], api["end_ns"].to_numpy()[top])
    return [
        _metric(None, "api_ns", _work(calls, scope)),
        *(
            _metric(None, name, _count(start[np.isin(verb, verbs)], scope))
            for name, verbs in (
                ("synchronization_count", _WAITS),
                ("kernel_launch_count", (int(Verb.LAUNCH),)),
                ("graph_launch_count", (int(Verb.GRAPH_LAUNCH),)),
            )
        ),
    ]
