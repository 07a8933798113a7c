"""Whether runs and a baseline were made under circumstances that allow a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from nsysdoctor.gate.baseline import Baseline, DeviceName, Setup, setup_text
from nsysdoctor.gate.limits import Limits
from nsysdoctor.gate.series import Series
from nsysdoctor.gate.verdict import Mismatch
from nsysdoctor.units import quantity_text

_SAVE = "nsysdoctor baseline save TRACE... -o FILE"
_RECORD = "nsys profile --trace=cuda,nvtx,osrt ... (the flags that made the baseline)"
# Work may move between these: graphs hide kernels and copies, and a memset may simply be gone.
_MAY_VANISH = frozenset({"graph", "memset"})
_IN_GRAPHS = frozenset({"kernel", "memcpy", "memset"})


def mismatches_of(setups: Sequence[Setup], baseline: Baseline | None) -> list[Mismatch]:
    """Returns all differences of set-up that forbid a comparison, each thing once, with both
    values."""
    found: list[Mismatch] = []
    reference = baseline.setup if baseline else setups[0]
    for setup in setups:
        if setup.devices and reference.devices:
            found += _setup_mismatches(reference, setup)
    if baseline and not reference.devices:
        found.append(Mismatch("GPU activity of the baseline", "none", "present", _SAVE))
    return list(dict.fromkeys(found))


def _setup_mismatches(old: Setup, new: Setup) -> list[Mismatch]:
    pairs = (
        ("GPUs", setup_text(old.devices), setup_text(new.devices), _SAVE),
        ("device numbers", _numbers(old.devices), _numbers(new.devices), _SAVE),
        ("window", old.window, new.window, f"--window {old.window}"),
        ("steps", old.steps, new.steps, f"mark the steps as before, or {_SAVE}"),
    )
    found = [Mismatch(*pair) for pair in pairs if pair[1] != pair[2]]
    if not found or found[0].what != "GPUs":
        found += _variants(old, new)
    elif len(found) > 1 and found[1].what == "device numbers":
        del found[1]
    return found


def _numbers(devices: Sequence[DeviceName]) -> str:
    return ", ".join(f"trace {d.trace} device {d.device}" for d in devices)


_LIKE_RATIO = 0.05
"""Of equal GPUs the memory that the driver leaves differs by less."""
_TRAITS: dict[str, Callable[[int], str]] = {
    "memory_bytes": lambda value: quantity_text("bytes", value),
    "bandwidth_bytes_per_s": lambda value: f"{quantity_text('bytes', value)}/s",
    "sm_count": lambda value: f"{value} SMs",
}


def _variants(old: Setup, new: Setup) -> list[Mismatch]:
    """GPUs of one name that are not the same: slices of one, other memory, other boards."""
    found = []
    theirs = {(d.trace, d.device): d for d in new.devices}
    for device in old.devices:
        other = theirs.get((device.trace, device.device), device)
        for name, text in _TRAITS.items():
            was, now = getattr(device, name), getattr(other, name)
            if was and now and abs(was - now) > _LIKE_RATIO * max(was, now):
                sides = [f"{device.name} with {text(value)}" for value in (was, now)]
                found.append(Mismatch(f"GPU {device.device}", sides[0], sides[1], _SAVE))
    return found


def lost_tables(setups: Sequence[Setup], baseline: Baseline) -> list[Mismatch]:
    """Returns what was recorded for the baseline and was not now.

    The runs may be held against it all the same, but what is not recorded costs no time: they
    cannot pass by it. A program without copies has no table of them.
    """
    kept = set(setups[0].tables).intersection(*(setup.tables for setup in setups))
    lost = set(baseline.setup.tables) - kept - _MAY_VANISH
    if kept & {"graph", "kernel"}:
        lost.discard("memcpy")
    if "graph" in kept:
        lost -= _IN_GRAPHS
    return [Mismatch(f"table {table}", "recorded", "no rows", _RECORD) for table in sorted(lost)]


def unjudged_rules(
    setups: Sequence[Setup], baseline: Baseline | None, limits: Limits
) -> list[Mismatch]:
    """Returns the rules that gave an answer in the baseline and give none now, unless they are
    off: what they found can be called neither fixed nor new."""
    found = []
    for rule, state in sorted(baseline.setup.rules.items()) if baseline else ():
        states = [setup.rules.get(rule, "did not run") for setup in setups]
        silent = [now for now in states if now not in ("found", "passed")]
        if state in ("found", "passed") and silent and limits.rules.get(rule) != "off":
            hint = f"nsysdoctor rules explain {rule}; it names what must be recorded"
            found.append(Mismatch(f"rule {rule}", state, silent[0], hint))
    return found


def ended_early(baseline: Baseline, now: Sequence[Series]) -> list[Mismatch]:
    """Returns that the runs have less than half of the baseline's steps, nothing otherwise."""
    for old in baseline.series:
        new = next((one for one in now if one.key == old.key), None)
        if old.metric != "step_ns" or new is None:
            continue
        before, after = (median(run.steps for run in side.runs) for side in (old, new))
        if after < before / 2:
            hint = f"check that the program ran to its end; if shorter runs are meant: {_SAVE}"
            return [Mismatch("steady steps", f"{before:g}", f"{after:g}", hint)]
    return []
