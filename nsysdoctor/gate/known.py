"""Findings of several runs as one list, and their match with a baseline's, one for one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import median

from nsysdoctor.gate.fold import folded_name, stable_name
from nsysdoctor.report.model import LEVELS, Finding, Level, Report

_WORSE_RATIO = 0.01
_WORSE_SHARE = 0.10


@dataclass(frozen=True)
class KnownFinding:
    """What must be remembered of a finding to know it again."""

    rule: str
    subject: str
    trace: int
    device: int | None
    level: Level
    saving_ratio: float | None = None
    message: str = ""

    @property
    def order(self) -> tuple[int, float, str, str, int, int]:
        """Returns the rank: severest first, then by saving, rule and subject."""
        device = -1 if self.device is None else self.device
        saving = -(self.saving_ratio or 0.0)
        return LEVELS.index(self.level), saving, self.rule, self.subject, self.trace, device


@dataclass(frozen=True)
class Pair:
    """A finding before and after; one side is None where it is new or gone."""

    before: KnownFinding | None
    after: KnownFinding | None

    @property
    def worse(self) -> bool:
        """Returns whether the finding costs clearly more than before."""
        if self.before is None or self.after is None:
            return False
        old, new = self.before.saving_ratio, self.after.saving_ratio
        if old is None or new is None:
            return LEVELS.index(self.after.level) < LEVELS.index(self.before.level)
        return new - old > max(_WORSE_RATIO, _WORSE_SHARE * old)


def known_finding(finding: Finding) -> KnownFinding:
    """Returns the part of a finding by which it is known again."""
    return KnownFinding(
        finding.rule,
        finding.subject,
        finding.trace,
        finding.device,
        finding.level,
        finding.saving_ratio,
        finding.message,
    )


def findings_of_runs(reports: Sequence[Report]) -> list[KnownFinding]:
    """Returns the findings that most of the runs share, each with its median saving.

    A finding that flickers around its limit in a minority of runs is no news.
    """
    grouped: dict[Hashable, list[KnownFinding]] = defaultdict(list)
    for report in reports:
        seen: dict[Hashable, int] = defaultdict(int)
        for finding in sorted(map(known_finding, report.findings), key=lambda f: f.order):
            key = _exact(finding)
            grouped[key, seen[key]].append(finding)
            seen[key] += 1
    most = [_middle(group) for group in grouped.values() if 2 * len(group) > len(reports)]
    return sorted(most, key=lambda finding: finding.order)


def _middle(group: list[KnownFinding]) -> KnownFinding:
    ranked = sorted(group, key=lambda finding: finding.order)
    middle = ranked[len(ranked) // 2]
    savings = [f.saving_ratio for f in group if f.saving_ratio is not None]
    return KnownFinding(
        middle.rule,
        middle.subject,
        middle.trace,
        middle.device,
        middle.level,
        median(savings) if savings else None,
        middle.message,
    )


def match_findings(before: Sequence[KnownFinding], after: Sequence[KnownFinding]) -> list[Pair]:
    """Returns every finding of either side exactly once, in pairs where they match.

    Equal rule, trace, device and subject match first; then subjects that differ only in what a
    rerun changes, then in numbers. Of several equal ones the severest are paired.
    """
    pairs: list[Pair] = []
    left = sorted(before, key=lambda finding: finding.order)
    right = sorted(after, key=lambda finding: finding.order)
    for key in (_exact, _stable, _folded):
        pairs += _take_pairs(left, right, key)
    pairs += [Pair(None, finding) for finding in right]
    pairs += [Pair(finding, None) for finding in left]
    return pairs


def _take_pairs(
    left: list[KnownFinding], right: list[KnownFinding], key: Callable[[KnownFinding], Hashable]
) -> list[Pair]:
    """Pairs what has the same key and takes it out of both lists."""
    waiting: dict[Hashable, list[KnownFinding]] = defaultdict(list)
    for finding in left:
        waiting[key(finding)].append(finding)
    pairs = []
    for finding in tuple(right):
        if waiting[key(finding)]:
            old = waiting[key(finding)].pop(0)
            left.remove(old)
            right.remove(finding)
            pairs.append(Pair(old, finding))
    return pairs


def _exact(finding: KnownFinding) -> Hashable:
    return finding.rule, finding.trace, finding.device, finding.subject


def _stable(finding: KnownFinding) -> Hashable:
    return finding.rule, finding.trace, finding.device, stable_name(finding.subject)


def _folded(finding: KnownFinding) -> Hashable:
    return finding.rule, finding.trace, finding.device, folded_name(finding.subject)
