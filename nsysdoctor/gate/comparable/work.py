"""What runs do in a step, by name, and whether two sets of runs do the same."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from nsysdoctor.gate.fold import stable_name
from nsysdoctor.gate.verdict import Mismatch
from nsysdoctor.report.model import Report
from nsysdoctor.report.work import Work, WorkKind
from nsysdoctor.units import ns_text, quantity_text

MOST = 40
"""Of each kind and device so many names are kept; the rest is one row without a name."""
_NAME_LENGTH = 120
_LIKE_RATIO = 0.05
"""Sizes and counts that differ by less are the same."""
_SHARED_RATIO = 0.05
"""Programs that share less of their kernel time are not the same program."""
_MOST_RATIO = 0.5
_BYTES_RATIO = 0.25

WorkKey = tuple[int, int | None, WorkKind, str]


def work_of_runs(reports: Sequence[Report]) -> list[Work]:
    """Returns what a step does in most of the runs, with medians over the runs, longest first.

    Names lose what a rebuild changes; those beyond the 40 longest of a kind are one row.
    """
    runs = [_folded(report.work) for report in reports]
    keys = {key for run in runs for key in run}
    found = []
    for key in sorted(keys, key=str):
        rows = [run[key] for run in runs if key in run]
        if 2 * len(rows) > len(runs):
            sizes = [row.size for row in rows if row.size is not None]
            found.append(
                Work(
                    *key,
                    count=median(row.count for row in rows),
                    ns=median(row.ns for row in rows),
                    size=median(sizes) if sizes else None,
                )
            )
    return _shortened(found)


def _folded(rows: Iterable[Work]) -> dict[WorkKey, Work]:
    """Rows of one name as one; sizes as the mean of the launches."""
    groups: dict[WorkKey, list[Work]] = defaultdict(list)
    for row in rows:
        groups[row.trace, row.device, row.kind, _short(stable_name(row.name))].append(row)
    return {key: _sum(key, group) for key, group in groups.items()}


def _sum(key: WorkKey, rows: Sequence[Work]) -> Work:
    count = sum(row.count for row in rows)
    sized = [row for row in rows if row.size is not None and row.count]
    weight = sum(row.count for row in sized)
    size = sum((row.size or 0.0) * row.count for row in sized) / weight if weight else None
    return Work(*key, count=count, ns=sum(row.ns for row in rows), size=size)


def _short(name: str) -> str:
    """The name, its far end replaced by a digest where it is long."""
    if len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{name[: _NAME_LENGTH - 7]}…{digest}"


def _shortened(rows: Sequence[Work]) -> list[Work]:
    groups: dict[tuple[int, int | None, WorkKind], list[Work]] = defaultdict(list)
    for row in rows:
        groups[row.trace, row.device, row.kind].append(row)
    found = []
    for place, group in groups.items():
        told = sorted((r for r in group if r.name), key=lambda row: (-row.ns, row.name))
        rest = [row for row in group if not row.name] + told[MOST:]
        found += [_plain(row) for row in told[:MOST]]
        found += [_plain(_sum((*place, ""), rest))] if rest else []
    return sorted(found, key=_order)


def _plain(row: Work) -> Work:
    size = None if row.size is None else round(row.size, 1)
    return replace(row, count=round(row.count, 3), ns=round(row.ns), size=size)


def _order(row: Work) -> tuple[int, int, str, float, str]:
    return row.trace, -1 if row.device is None else row.device, row.kind, -row.ns, row.name


@dataclass(frozen=True)
class SharedWork:
    """One name on both sides."""

    before: Work
    after: Work

    @property
    def like(self) -> bool:
        """Returns whether sizes and counts per step are the same."""
        return self.same_count and self.same_size

    @property
    def same_count(self) -> bool:
        """Returns whether a step launches it as often."""
        return _near(self.before.count, self.after.count)

    @property
    def same_size(self) -> bool:
        """Returns whether the launches have the same number of blocks or bytes."""
        return _near(self.before.size or 0.0, self.after.size or 0.0)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _LIKE_RATIO * max(abs(one), abs(other))


def shared_work(
    before: Sequence[Work], after: Sequence[Work], trace: int, device: int | None, kind: WorkKind
) -> list[SharedWork]:
    """Returns the names of a kind that both sides have on a device, in the order of `before`."""
    place = (trace, device, kind)
    mine, theirs = (
        {row.name: row for row in rows if (row.trace, row.device, row.kind) == place and row.name}
        for rows in (before, after)
    )
    return [SharedWork(row, theirs[name]) for name, row in mine.items() if name in theirs]


_SAVE = "if the change of work is meant: nsysdoctor baseline save TRACE... -o FILE"


def other_work(before: Sequence[Work], after: Sequence[Work]) -> list[Mismatch]:
    """Returns why two sets of runs are not the same work, nothing where they are.

    Another program shares hardly any kernel; another batch or shape launches most of its kernels
    with other grids, or copies other amounts to the device; other steps hold most of the kernels
    twice or half as often, by one factor. Kernels that were replaced, added or dropped are no
    other work: that is what a change of the program does.
    """
    places = sorted({(r.trace, r.device) for r in before if r.device is not None}, key=str)
    found = []
    for trace, device in places:
        assert device is not None
        mine, theirs = (
            [row for row in rows if (row.trace, row.device) == (trace, device)]
            for rows in (before, after)
        )
        found += _other_on_device(mine, theirs, trace, device) if mine and theirs else []
    return found


def _other_on_device(
    before: Sequence[Work], after: Sequence[Work], trace: int, device: int
) -> list[Mismatch]:
    kernels = shared_work(before, after, trace, device, "kernel")
    place = f"GPU {device}"
    if any(row.kind == "graph" for row in (*before, *after)):
        return []  # the kernels of a graph may not be told
    sides = [[row for row in rows if row.kind == "kernel"] for rows in (before, after)]
    if all(sides) and _shared_ratio(kernels, *sides) < _SHARED_RATIO:
        old, new = (f"{len(side)} kernels, most time in {side[0].name}" for side in sides)
        return [Mismatch(f"kernels on {place} (none in common)", old, new, _SAVE)]
    found = [_other_sizes(kernels, place), _other_counts(kernels, place)]
    found.append(_other_bytes(before, after, place))
    return [mismatch for mismatch in found if mismatch]


def _shared_ratio(
    shared: Sequence[SharedWork], before: Sequence[Work], after: Sequence[Work]
) -> float:
    """The larger share of kernel time, of the two sides, that lies in kernels of both."""
    old = sum(pair.before.ns for pair in shared) / max(sum(row.ns for row in before), 1)
    new = sum(pair.after.ns for pair in shared) / max(sum(row.ns for row in after), 1)
    return max(old, new)


def _weight(pairs: Sequence[SharedWork]) -> float:
    return sum(pair.before.ns for pair in pairs)


def _other_sizes(shared: Sequence[SharedWork], place: str) -> Mismatch | None:
    # A kernel launched another number of times has another mean size without another shape.
    other = [pair for pair in shared if pair.same_count and not pair.same_size]
    if not other or _weight(other) <= _MOST_RATIO * _weight(shared):
        return None
    first = max(other, key=lambda pair: pair.before.ns)
    old, new = (f"{side.size or 0:,.0f} blocks of {side.name}"
                for side in (first.before, first.after))  # fmt: skip
    what = f"grids of {len(other)} of {len(shared)} kernels on {place}"
    return Mismatch(what, old, new, f"run the same batch and shapes; {_SAVE}")


def _other_counts(shared: Sequence[SharedWork], place: str) -> Mismatch | None:
    factors = [pair.after.count / pair.before.count for pair in shared if pair.before.count]
    factor = median(factors) if factors else 1.0
    other = [pair for pair in shared if not pair.same_count and _near(
        pair.after.count, factor * pair.before.count)]  # fmt: skip
    if len(other) < 2 or _weight(other) <= _MOST_RATIO * _weight(shared):
        return None
    first = max(other, key=lambda pair: pair.before.ns)
    old, new = (f"{side.count:,.4g} x {side.name} a step" for side in (first.before, first.after))
    what = f"launches of {len(other)} of {len(shared)} kernels on {place}"
    return Mismatch(what, old, new, f"mark the steps with NVTX, or run the same work; {_SAVE}")


def _other_bytes(before: Sequence[Work], after: Sequence[Work], place: str) -> Mismatch | None:
    old, new = _uploaded(before), _uploaded(after)
    if abs(new - old) <= _BYTES_RATIO * max(old, new) or min(old, new) < 65_536:
        return None
    was, now = (f"{quantity_text('bytes', value)} a step" for value in (old, new))
    return Mismatch(f"bytes copied to {place}", was, now, f"run the same batch; {_SAVE}")


def _uploaded(rows: Sequence[Work]) -> float:
    copies = (row for row in rows if row.kind == "copy" and " HtoD " in f"{row.name} ")
    return sum(row.count * (row.size or 0.0) for row in copies)


def work_text(row: Work) -> str:
    """Returns a row of work in words."""
    return f"{row.name}: {row.count:,.4g} a step, {ns_text(row.ns)}"
