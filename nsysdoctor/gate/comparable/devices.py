"""GPUs of runs matched with those of a baseline by what they ran, not by their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsysdoctor.gate.comparable.work import work_of_runs
from nsysdoctor.report.model import Report
from nsysdoctor.report.work import Work

Place = tuple[int, int]


def renumbered(report: Report, work: Sequence[Work], places: Sequence[Place]) -> Report:
    """Returns the report with its GPUs numbered as in a baseline of that work and those places.

    Each GPU gets the number of the one that did most of the same work; of equals the one of the
    same number, then the next in order. A report with another number of GPUs stays as it is.
    """
    mine = sorted({(d.trace, d.device) for d in report.devices if d.span_ns > 0})
    if len(mine) != len(places) or {t for t, _ in mine} != {t for t, _ in places}:
        return report
    pairs = _pairs(mine, sorted(places), work_of_runs([report]), work)
    if all(one == other for one, other in pairs.items()):
        return report
    moved: dict[str, Any] = {
        name: [_moved(row, pairs) for row in getattr(report, name)]
        for name in ("devices", "metrics", "work", "findings", "idle_causes", "kernels")
    }
    return replace(report, **moved)


def _moved(row: Any, pairs: Mapping[Place, Place]) -> Any:
    if row.device is None:
        return row
    return replace(row, device=pairs.get((row.trace, row.device), (row.trace, row.device))[1])


def _pairs(
    mine: Sequence[Place], theirs: Sequence[Place], now: Sequence[Work], before: Sequence[Work]
) -> dict[Place, Place]:
    """Each place of `mine` with one of `theirs` of the same trace, the most alike first."""
    rank = {place: number for number, place in enumerate(mine)}
    other = {place: number for number, place in enumerate(theirs)}
    options = sorted(
        (-_alike(_counts(now, a), _counts(before, b)), a != b, abs(rank[a] - other[b]), a, b)
        for a in mine
        for b in theirs
        if a[0] == b[0]
    )
    found: dict[Place, Place] = {}
    for *_, one, two in options:
        if one not in found and two not in found.values():
            found[one] = two
    return found


def _counts(rows: Sequence[Work], place: Place) -> dict[tuple[str, str], float]:
    return {(r.kind, r.name): r.ns for r in rows if (r.trace, r.device) == place}


def _alike(one: Mapping[tuple[str, str], float], two: Mapping[tuple[str, str], float]) -> float:
    """Which share of the work is the same, in tenths: noise must not decide between equals."""
    shared = sum(min(one[key], two[key]) for key in one.keys() & two.keys())
    total = max(sum(one.values()), sum(two.values()), 1.0)
    return round(10 * shared / total) / 10
