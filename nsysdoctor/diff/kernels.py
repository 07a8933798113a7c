"""Kernels of two reports, matched by name, and how each changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from nsysdoctor.gate.fold import folded_name, stable_name
from nsysdoctor.report.model import KernelRow, Report

_MEDIAN_SHARE = 0.05
_STEP_SHARE = 0.01

KernelState = Literal["slower", "faster", "more", "fewer", "new", "gone"]


@dataclass(frozen=True)
class KernelSide:
    """Launches of one kernel name, per step where steps are known."""

    names: list[str]
    count: float
    total_ns: float
    median_ns: float


@dataclass(frozen=True)
class KernelChange:
    """A kernel that runs slower, faster, more or less often, or only on one side."""

    state: KernelState
    name: str
    trace: int
    device: int
    before: KernelSide | None
    after: KernelSide | None

    @property
    def growth_ns(self) -> float:
        """Returns how much more time the kernel takes, per step where steps are known."""
        old = self.before.total_ns if self.before else 0.0
        return (self.after.total_ns if self.after else 0.0) - old


@dataclass(frozen=True)
class _Group:
    """Kernel rows that carry one name after folding."""

    rows: list[KernelRow]

    def side(self, steps: float) -> KernelSide:
        longest = max(self.rows, key=lambda row: (row.total_ns, row.name))
        names = sorted({row.name for row in self.rows})
        count = sum(row.count for row in self.rows)
        total = sum(row.total_ns for row in self.rows)
        each = longest.median_ns if len(self.rows) == 1 else total / max(count, 1)
        return KernelSide(names, count / steps, total / steps, each)


def kernel_changes(before: Report, after: Report) -> tuple[list[KernelChange], int]:
    """Returns the changed kernels, largest difference first, and how many did not change."""
    old_steps, new_steps = _steps(before, after), _steps(after, before)
    floor = _STEP_SHARE * _span_ns(before) / old_steps
    cut = _cut_ratio(before, old_steps) + _cut_ratio(after, new_steps)
    changes, calm = [], 0
    for trace, device, old, new in _matched(before.kernels, after.kernels):
        left = old.side(old_steps) if old else None
        right = new.side(new_steps) if new else None
        state = _kernel_state(left, right, floor, cut)
        shown = (new or old or _Group([])).rows[0].short
        if state:
            changes.append(KernelChange(state, shown, trace, device, left, right))
        else:
            calm += 1
    return sorted(changes, key=_kernel_order), calm


def _kernel_order(change: KernelChange) -> tuple[float, int, int, str]:
    return -abs(change.growth_ns), change.trace, change.device, change.name


def _steps(report: Report, other: Report) -> float:
    """What to divide by: steps where both sides know them, else nothing. A window told by its
    times holds parts of steps."""
    if not report.steps or not other.steps:
        return 1.0
    if report.window.basis == "given" and report.steps.median_ns:
        return max(report.window.span_ns / report.steps.median_ns, 1.0)
    return float(max(report.steps.count, 1))


def _cut_ratio(report: Report, steps: float) -> float:
    """How much of what runs in a step may be missing or too much: the edges of a window told by
    its times lie anywhere in a step."""
    return 1 / steps if report.steps and report.window.basis == "given" else 0.0


def _span_ns(report: Report) -> float:
    return float(max((device.span_ns for device in report.devices), default=0))


def _kernel_state(
    old: KernelSide | None, new: KernelSide | None, floor_ns: float, cut_ratio: float
) -> KernelState | None:
    if old is None or new is None:
        total = (old or new or KernelSide([], 0, 0, 0)).total_ns
        return None if total <= floor_ns else "new" if old is None else "gone"
    growth = new.total_ns - old.total_ns
    if abs(growth) <= max(floor_ns, cut_ratio * max(old.total_ns, new.total_ns)):
        return None
    each = new.median_ns - old.median_ns
    if abs(each) > _MEDIAN_SHARE * old.median_ns and each * growth > 0:
        return "slower" if each > 0 else "faster"
    if abs(new.count - old.count) > _MEDIAN_SHARE * old.count:
        return "more" if growth > 0 else "fewer"
    return None


_Match = tuple[int, int, _Group | None, _Group | None]


def _matched(before: Sequence[KernelRow], after: Sequence[KernelRow]) -> list[_Match]:
    """Every row once: by stable name, the rest by name with all numbers folded."""
    left, right = list(before), list(after)
    matches: list[_Match] = []
    for fold in (stable_name, folded_name):
        old, new = _grouped(left, fold), _grouped(right, fold)
        for key in sorted(old.keys() & new.keys(), key=str):
            trace, device = old[key][0].trace, old[key][0].device
            matches.append((trace, device, _Group(old[key]), _Group(new[key])))
        left = [row for key in old.keys() - new.keys() for row in old[key]]
        right = [row for key in new.keys() - old.keys() for row in new[key]]
    for rows, place in ((left, 0), (right, 1)):
        for group in _grouped(rows, stable_name).values():
            pair = (_Group(group), None) if place == 0 else (None, _Group(group))
            matches.append((group[0].trace, group[0].device, *pair))
    return matches


def _grouped(
    rows: Sequence[KernelRow], fold: Callable[[str], str]
) -> dict[Hashable, list[KernelRow]]:
    groups: dict[Hashable, list[KernelRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.trace, row.device, row.name)):
        groups[row.trace, row.device, fold(row.name)].append(row)
    return dict(groups)
