"""The order of findings, their levels, and findings of several traces as one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nsysdoctor.report.model import (
    FAILURES,
    LEVELS,
    START_UP,
    Evidence,
    Finding,
    Level,
    Report,
    Subject,
)

CAPTURE = "capture"
"""The category of rules about what a capture lacks."""

EVIDENCE_LIMIT = 20
"""Places shown per finding; there may be one for every kernel."""

_SHARES: tuple[tuple[float, Level], ...] = ((0.10, "high"), (0.03, "medium"), (0.01, "low"))
_NAMED_SUBJECTS = 3


def level_of(saving_ratio: float) -> Level:
    """Returns the level of a saving, as a share of the window, on the one scale for all rules."""
    return next((level for least, level in _SHARES if saving_ratio >= least), "info")


def rank_key(finding: Finding) -> tuple[bool, int, bool, int, int, str, str, int]:
    """Returns what findings are sorted by: level, saving, then names, so that no two tie.

    Failures to act on come before all others, since a program that did not work has no time worth
    pricing. Cures that need each other stand together, at what they save so. What is slow around
    the work comes behind the others of its level. Among those for the record the ones that limit
    what the capture can show come first.
    """
    return (
        finding.category != FAILURES or finding.level == "info",
        LEVELS.index(finding.level),
        finding.category == START_UP if finding.level != "info" else finding.category != CAPTURE,
        -finding.worth_ns,
        -(finding.saving_ns or 0),
        finding.rule,
        finding.subject,
        finding.device if finding.device is not None else -1,
    )


class Ranked(NamedTuple):
    """Findings in order, and the new place of each by its old one."""

    findings: list[Finding]
    place_of: list[int]


def ranked(findings: Sequence[Finding], key: Callable[[Finding], Any] = rank_key) -> Ranked:
    """Returns the findings in order; what each needs is named by its new place."""
    order = sorted(range(len(findings)), key=lambda place: key(findings[place]))
    place_of = [0] * len(order)
    for new, old in enumerate(order):
        place_of[old] = new
    moved = [
        replace(findings[old], needs=sorted(place_of[need] for need in findings[old].needs))
        for old in order
    ]
    return Ranked(moved, place_of)


def together(texts: Iterable[str]) -> str:
    """Returns names of several things as one short text, in natural order, each once."""
    names = sorted(dict.fromkeys(texts), key=_natural)
    if len(names) <= _NAMED_SUBJECTS:
        return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
    shown = ", ".join(names[: _NAMED_SUBJECTS - 1])
    return f"{shown} and {len(names) - _NAMED_SUBJECTS + 1} more"


def told_of_all(message: str, others: Sequence[str]) -> str:
    """Returns a message about one subject that names the others which the same cure covers."""
    if not others:
        return message
    return f"{message.rstrip('.')}. The same cure also covers {together(others)}"


def _natural(text: str) -> list[tuple[int, str]]:
    """A key under which GPU 2 comes before GPU 10."""
    import re

    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", text)]


def longest(places: Iterable[Evidence]) -> list[Evidence]:
    """Returns the places that are shown: the longest few."""
    order = sorted(places, key=lambda e: (e.start_ns - e.end_ns, e.start_ns, e.end_ns, e.what))
    return order[:EVIDENCE_LIMIT]


class United(NamedTuple):
    """The findings of several reports as one list, and for each report the new places of its own
    by the old ones."""

    findings: list[Finding]
    place_of: list[list[int]]


def united(reports: Sequence[Report], window_ns: int) -> United:
    """Returns the findings of all reports in order. A cure is one change of the program, so the
    findings that one rule has for one cause in several traces are one: it saves what the trace
    saves that gains most. `window_ns` is the window that shares refer to."""
    groups: dict[tuple[object, ...], list[tuple[int, Finding]]] = {}
    keys: list[list[tuple[object, ...]]] = []
    for index, report in enumerate(reports):
        mine = [_same_cure(index, place, f) for place, f in enumerate(report.findings)]
        keys.append(mine)
        for key, finding in zip(mine, report.findings, strict=True):
            groups.setdefault(key, []).append((index, finding))
    place_of = {key: place for place, key in enumerate(groups)}
    merged = []
    for held in groups.values():
        index, lead = max(held, key=lambda pair: (pair[1].worth_ns, pair[1].saving_ns or 0))
        needs = [place_of[keys[index][need]] for need in lead.needs]
        whole = _merged([finding for _, finding in held], lead, window_ns)
        merged.append(replace(whole, needs=needs))
    order = ranked(merged)
    places = [[order.place_of[place_of[key]] for key in mine] for mine in keys]
    return United(order.findings, places)


def _same_cure(index: int, place: int, finding: Finding) -> tuple[object, ...]:
    """What is equal for findings of several traces that one cure ends; without a price nothing."""
    if finding.saving_ns is None:
        return index, place
    return finding.rule, finding.cause


def _merged(findings: list[Finding], lead: Finding, window_ns: int) -> Finding:
    if len(findings) == 1:
        return lead
    subjects = [subject for finding in findings for subject in subjects_of(finding)]
    saving_ns = max(finding.saving_ns or 0 for finding in findings)
    with_ns = lead.saving_with_ns
    devices = {(finding.trace, finding.device) for finding in findings}
    first = max(subjects_of(lead), key=lambda subject: subject.saving_ns or 0)
    others = [s.subject for s in subjects if s.subject != first.subject]
    return replace(
        lead,
        message=told_of_all(first.message, others),
        level=min((finding.level for finding in findings), key=LEVELS.index),
        subject=together(subject.subject for subject in subjects),
        device=lead.device if len(devices) == 1 else None,
        count=sum(finding.count for finding in findings),
        saving_ns=saving_ns,
        saving_low_ns=max(finding.saving_low_ns or 0 for finding in findings),
        saving_high_ns=max(finding.saving_high_ns or 0 for finding in findings),
        saving_ratio=saving_ns / window_ns if window_ns else None,
        saving_with_ratio=with_ns / window_ns if with_ns is not None and window_ns else None,
        evidence=lead.evidence,
        evidence_total=sum(finding.evidence_total for finding in findings),
        subjects=subjects,
    )


def subjects_of(finding: Finding) -> list[Subject]:
    """Returns the places where a finding holds: itself where it names no others."""
    if finding.subjects:
        return finding.subjects
    return [
        Subject(
            finding.subject, finding.trace, finding.device, finding.count, finding.saving_ns,
            finding.message, finding.facts,
        )
    ]  # fmt: skip
