"""What cures save: each everywhere at once, those that need each other together, and all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nsysdoctor.diagnosis.cure_sets import CureSet, find_sets
from nsysdoctor.replay.edits import join, of_subject
from nsysdoctor.replay.replay import Replay
from nsysdoctor.report.model import LEVELS, Finding
from nsysdoctor.report.ranking import level_of, ranked
from nsysdoctor.rulebook.findings import Cause, Measured, causes_of, make_finding

_LEAST_RATIO = 0.01
"""Sets that save less than this share of the window beyond their parts are not told."""

_ASKED, _ASKED_OF_LARGE, _LARGE = 40, 12, 2_000_000
"""How many savings are asked for in search of sets, and of a graph with so many nodes."""

_PRICED_ALONE = 16
"""So many subjects of a finding are priced for themselves."""


class Priced(NamedTuple):
    """The ranked findings with their causes, and what all cures save together, ns."""

    findings: list[Finding]
    causes: list[Cause]
    combined_ns: int


def price_findings(
    found: Sequence[Measured], replay: Replay | None, window_ns: int, ecosystem: str, trace: int
) -> Priced:
    """Returns the findings on what rules measured, ranked, with what their cures save."""
    causes = [cause for measured in found for cause in causes_of(measured)]
    findings = [_priced(cause, replay, window_ns, ecosystem, trace) for cause in causes]
    largest = max((f.saving_ns or 0 for f in findings), default=0)
    cured = [place for place, cause in enumerate(causes) if cause.edits]
    if replay is None or not cured:
        return _ordered(findings, causes, min(largest, window_ns))
    cures = [causes[place].edits or [] for place in cured]
    single = [findings[place].saving_ns or 0 for place in cured]

    def saving_ns(numbers: Iterable[int]) -> int:
        return replay.saving_ns(join(*(cures[number] for number in numbers)))

    whole = saving_ns(range(len(cures))) if len(cures) > 1 else single[0]
    asked = _ASKED if replay.size < _LARGE else _ASKED_OF_LARGE
    sets = find_sets(saving_ns, single, whole, int(_LEAST_RATIO * window_ns) + 1, asked)
    findings = _with_sets(findings, cured, sets, window_ns)
    return _ordered(findings, causes, _combined(findings, cured, sets, whole, window_ns))


def _ordered(findings: Sequence[Finding], causes: Sequence[Cause], combined_ns: int) -> Priced:
    order = ranked(findings)
    moved = sorted(range(len(causes)), key=order.place_of.__getitem__)
    return Priced(order.findings, [causes[place] for place in moved], combined_ns)


def _priced(
    cause: Cause, replay: Replay | None, window_ns: int, ecosystem: str, trace: int
) -> Finding:
    if cause.edits is None or replay is None:
        return make_finding(cause, None, [None] * len(cause.rows), window_ns, ecosystem, trace)
    price = replay.price(cause.edits)
    alone: list[int | None] = [price.saving_ns]
    if len(cause.rows) > 1:
        few = cause.rows[:_PRICED_ALONE]
        alone = [replay.saving_ns(of_subject(cause.edits, row)) for row in few]
        alone += [None] * (len(cause.rows) - len(few))
    return make_finding(cause, price, alone, window_ns, ecosystem, trace)


def _with_sets(
    findings: Sequence[Finding], cured: Sequence[int], sets: Sequence[CureSet], window_ns: int
) -> list[Finding]:
    """The findings with the others that each needs. Those that hide each other have the level of
    their set; one that only follows on others the level of what it adds to them."""
    told = [*findings]
    for found in sets:
        places = [cured[number] for number in found.members]
        needing = _needing(findings, places, found)
        for place, added_ns in zip(places, found.added_ns, strict=True):
            if place not in needing:
                continue
            worth_ns = found.saving_ns if len(needing) == len(places) else added_ns
            level = level_of(worth_ns / max(window_ns, 1))
            told[place] = replace(
                told[place],
                level=min(level, told[place].level, key=LEVELS.index),
                needs=[other for other in places if other != place],
                saving_with_ns=found.saving_ns,
                saving_with_ratio=found.saving_ns / max(window_ns, 1),
                saving_added_ns=worth_ns,
            )
    return told


def _needing(findings: Sequence[Finding], places: Sequence[int], found: CureSet) -> list[int]:
    """The members of a set that save less than half alone of what they add to the others; where
    all do well alone, the one that saves least."""
    own = {place: findings[place].saving_ns or 0 for place in places}
    needing = [p for p, added in zip(places, found.added_ns, strict=True) if 2 * own[p] < added]
    return needing or [min(places, key=own.__getitem__)]


def _combined(
    findings: Sequence[Finding],
    cured: Sequence[int],
    sets: Sequence[CureSet],
    whole_ns: int,
    window_ns: int,
) -> int:
    """What all cures save: no less than the best of them and no more than all of them in sum."""
    best = max([finding.saving_ns or 0 for finding in findings] + [s.saving_ns for s in sets])
    held = {cured[number] for found in sets for number in found.members}
    most = sum(found.saving_ns for found in sets)
    most += sum(f.saving_ns or 0 for place, f in enumerate(findings) if place not in held)
    return min(max(whole_ns, best), max(most, best), window_ns)
