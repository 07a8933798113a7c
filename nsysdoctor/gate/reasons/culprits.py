"""Which parts of a step grew or shrank, by name, adding up to the change of the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from nsysdoctor.gate.series import Series, value_of
from nsysdoctor.gate.verdict import Culprit, CulpritKind
from nsysdoctor.report.metrics import CAUSES
from nsysdoctor.report.work import Work
from nsysdoctor.units import ns_text

MOST = 8
_LEAST_SHARE = 0.01
"""Parts that changed by less than this share of all change are told together."""

Parts = dict[tuple[CulpritKind, str], float]

_CALLS_OF_CAUSE: Mapping[str, tuple[str, ...]] = {
    "synchronization": ("Synchronize",),
    "blocking_copy": ("Memcpy", "Memset"),
    "allocation": ("Malloc", "Free", "HostAlloc", "HostRegister", "MemAlloc"),
    "module_load": ("Module", "Library", "FuncGet", "KernelGet"),
    "launch": ("Launch",),
}


def culprits_of(
    before: Sequence[Series],
    old_work: Sequence[Work],
    after: Sequence[Series],
    new_work: Sequence[Work],
    trace: int,
    device: int | None,
) -> list[Culprit]:
    """Returns the parts of a step that changed, largest growth first; they add up to its change.

    Kernels and graph replays share the time in which any of them runs by their own times, copies
    the time in which nothing else runs; idle time goes by cause, with the calls that grew beside
    it. What is too small to be told, or to no name, is one last part. Nothing where the step was
    not measured on both sides.
    """
    old_step, new_step = (_step(side, trace, device) for side in (before, after))
    if old_step is None or new_step is None:
        return []
    old = _parts(before, old_work, trace, device, old_step)
    new = _parts(after, new_work, trace, device, new_step)
    rows = [
        Culprit(*key, old.get(key, 0.0), new.get(key, 0.0), _beside(key, old_work, new_work, trace))
        for key in sorted(old.keys() | new.keys())
    ]
    return _told(rows, old_step, new_step)


def _step(side: Sequence[Series], trace: int, device: int | None) -> float | None:
    step = value_of(side, trace, device, "step_ns")
    return value_of(side, trace, device, "span_ns") if step is None else step


def _told(rows: Sequence[Culprit], old_step: float, new_step: float) -> list[Culprit]:
    """The parts that matter, and one for the rest."""
    least = _LEAST_SHARE * sum(abs(row.growth_ns) for row in rows)
    changed = sorted(rows, key=lambda row: (-abs(row.growth_ns), row.kind, row.name))
    told = [row for row in changed[:MOST] if abs(row.growth_ns) > max(least, 1.0)]
    old = old_step - sum(row.before_ns for row in told)
    new = new_step - sum(row.after_ns for row in told)
    if abs(new - old) >= 1.0:
        told.append(Culprit("rest", "everything else", old, new))
    ordered = sorted(told, key=lambda row: (row.kind == "rest", -row.growth_ns, row.name))
    return ordered if new_step >= old_step else ordered[::-1]


def _parts(
    side: Sequence[Series], work: Sequence[Work], trace: int, device: int | None, step: float
) -> Parts:
    """What each part of a step takes; together the step, up to rounding."""

    def value(metric: str) -> float:
        return value_of(side, trace, device, metric) or 0.0

    idle, copying = value("idle_ns"), value("exposed_copy_ns")
    found: Parts = {}
    causes: Parts = {
        ("idle", cause): ns for cause in CAUSES if (ns := value(f"idle_{cause}_ns")) > 0
    }
    found |= causes or {("idle", "any cause"): idle}
    mine = [row for row in work if (row.trace, row.device) == (trace, device)]
    found |= _shared(max(step - idle - copying, 0.0), mine, ("kernel", "graph"))
    found |= _shared(copying, mine, ("copy", "set"))
    return found


def _shared(total: float, rows: Iterable[Work], kinds: tuple[str, str]) -> Parts:
    """A stretch of time, shared among what ran in it by how long each ran in all."""
    mine: dict[tuple[CulpritKind, str], float] = defaultdict(float)
    for row in rows:
        if row.kind in kinds:
            kind: CulpritKind = "graph" if row.kind == "graph" else "kernel"
            kind = "copy" if row.kind in ("copy", "set") else kind
            mine[kind, row.name or f"other {kinds[0]}s"] += row.ns
    work = sum(mine.values())
    return {key: total * ns / work for key, ns in mine.items()} if work else {}


def _beside(
    key: tuple[CulpritKind, str], old: Sequence[Work], new: Sequence[Work], trace: int
) -> str:
    """The call whose time grew most among those that make idle time of that cause."""
    words = _CALLS_OF_CAUSE.get(key[1], ()) if key[0] == "idle" else ()
    if not words:
        return ""
    before, after = (
        {r.name: r for r in side if (r.trace, r.kind) == (trace, "call") and r.name}
        for side in (old, new)
    )
    growth = {
        name: (after[name].ns if name in after else 0.0)
        - (before[name].ns if name in before else 0.0)
        for name in before.keys() | after.keys()
        if any(word in name for word in words)
    }
    if not growth:
        return ""
    name = max(growth, key=lambda one: (abs(growth[one]), one))
    if abs(growth[name]) < 1_000:
        return ""
    sides = [side[name].count if name in side else 0.0 for side in (before, after)]
    counts = f", {sides[0]:.3g} -> {sides[1]:.3g} a step" if sides[0] != sides[1] else ""
    return f"{name} {signed(growth[name])}{counts}"


def signed(growth_ns: float) -> str:
    """Returns a growth with its sign."""
    return f"{'+' if growth_ns > 0 else '-'}{ns_text(abs(growth_ns))}"


def culprit_text(part: Culprit) -> str:
    """Returns a part and its growth in words."""
    name = f"GPU idle, cause {part.name.replace('_', ' ')}" if part.kind == "idle" else part.name
    if part.kind == "kernel":
        name = f"kernel {name}"
    if part.kind not in ("rest", "idle") and not (part.before_ns and part.after_ns):
        name += " (gone)" if part.before_ns else " (new)"
    beside = f" ({part.beside})" if part.beside else ""
    return f"{name} {signed(part.growth_ns)}{beside}"
