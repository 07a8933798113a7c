"""Whether runs and a baseline were made under circumstances that allow a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from nsysdoctor.gate.baseline import Baseline, DeviceName, Setup, setup_text
from nsysdoctor.gate.limits import Limits
from nsysdoctor.gate.verdict import Mismatch

_SAVE = "nsysdoctor baseline save TRACE... -o FILE"
_RECORD = "nsys profile --trace=cuda,nvtx,osrt ... (the flags that made the baseline)"
# Work may move between these: graphs hide kernels and copies, and a memset may simply be gone.
_MAY_VANISH = frozenset({"graph", "memset"})
_IN_GRAPHS = frozenset({"kernel", "memcpy", "memset"})


def mismatches_of(
    setups: Sequence[Setup], baseline: Baseline | None, limits: Limits
) -> list[Mismatch]:
    """Returns all that forbids a judgement, each thing once, with both values.

    Runs without GPU activity cannot be judged even without a baseline.
    """
    found = [m for setup in setups for m in _empty(setup)]
    reference = baseline.setup if baseline else setups[0]
    for setup in setups:
        if setup.devices and reference.devices:
            found += _setup_mismatches(reference, setup)
            found += _rule_mismatches(reference, setup, limits) if baseline else []
    if baseline and not reference.devices:
        found.append(Mismatch("GPU activity of the baseline", "none", "present", _SAVE))
    return list(dict.fromkeys(found))


def _empty(setup: Setup) -> list[Mismatch]:
    if setup.devices:
        return []
    hint = "record GPU work: nsys profile --trace=cuda,nvtx,osrt ..."
    return [Mismatch("GPU activity", "", "none in the capture", hint)]


def _setup_mismatches(old: Setup, new: Setup) -> list[Mismatch]:
    pairs = (
        ("GPUs", setup_text(old.devices), setup_text(new.devices), _SAVE),
        ("device numbers", _numbers(old.devices), _numbers(new.devices), _SAVE),
        ("window", old.window, new.window, f"--window {old.window}"),
        ("steps", old.steps, new.steps, f"mark the steps as before, or {_SAVE}"),
    )
    found = [Mismatch(*pair) for pair in pairs if pair[1] != pair[2]]
    if len(found) > 1 and found[0].what == "GPUs" and found[1].what == "device numbers":
        del found[1]
    return found + _lost_tables(old, new)


def _numbers(devices: Sequence[DeviceName]) -> str:
    return ", ".join(f"trace {d.trace} device {d.device}" for d in devices)


def _lost_tables(old: Setup, new: Setup) -> list[Mismatch]:
    lost = set(old.tables) - set(new.tables) - _MAY_VANISH
    if "graph" in new.tables:
        lost -= _IN_GRAPHS
    return [Mismatch(f"table {table}", "recorded", "no rows", _RECORD) for table in sorted(lost)]


def _rule_mismatches(old: Setup, new: Setup, limits: Limits) -> list[Mismatch]:
    """Rules that gave an answer then and give none now; rules that are off do not count."""
    found = []
    for rule, state in sorted(old.rules.items()):
        now = new.rules.get(rule, "did not run")
        ran_then, runs_now = state in ("found", "passed"), now in ("found", "passed")
        if ran_then and not runs_now and limits.rules.get(rule) != "off":
            hint = f"nsysdoctor rules explain {rule}; it names what must be recorded"
            found.append(Mismatch(f"rule {rule}", state, now, hint))
    return found
