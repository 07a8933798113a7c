"""What a gate allows: limits per metric, rule and device type, and waivers. Plain data."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Literal

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.noise import Noise
from nsysdoctor.report.metrics import METRICS, Level, MetricKind


@dataclass(frozen=True)
class MetricLimit:
    """The limit of one metric; what is left out keeps its default.

    `min` and `max` are absolute, in the metric's unit, per steady step where steps are known.
    `max_regression` is a share of the baseline value, `floor` an absolute difference; a change
    must exceed both.
    """

    min: float | None = None
    max: float | None = None
    max_regression: float | None = None
    floor: float | None = None
    level: Level | None = None


@dataclass(frozen=True)
class DeviceLimits:
    """Limits that hold only for GPUs whose name matches."""

    metrics: dict[str, MetricLimit] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiver:
    """A finding or a metric that is accepted for a reason, until a day (inclusive) if one is given.

    Names a `rule`, of whose findings it covers those on `subject`, or a `metric`.
    """

    rule: str = ""
    reason: str = ""
    subject: str = "*"
    expires: date | None = None
    metric: str = ""


Unclear = Literal["pass", "warn", "cannot_judge"]


@dataclass(frozen=True)
class Limits:
    """Everything a gate allows.

    `rules` maps a rule to off, warn or error for its new or worse findings; `devices` maps a GPU
    name or pattern to limits that replace the general ones. `min_steps` and `min_runs` are the
    least that shows a spread. `noise` states how much runs differ where repeats do not show it.
    `unclear` says what becomes of a likely change that noise could have made. `work` is `any`
    where another workload is no obstacle; `normalize_clocks` takes one factor on all kernels for
    the machine's and judges without it.
    """

    metrics: dict[str, MetricLimit] = field(default_factory=dict)
    rules: dict[str, Level] = field(default_factory=dict)
    devices: dict[str, DeviceLimits] = field(default_factory=dict)
    waivers: list[Waiver] = field(default_factory=list)
    min_steps: int = 8
    min_runs: int = 3
    baseline: str | None = None
    noise: Noise = field(default_factory=Noise)
    unclear: Unclear = "cannot_judge"
    work: Literal["same", "any"] = "same"
    normalize_clocks: bool = False


@dataclass(frozen=True)
class Bound:
    """The limit of one metric on one device, with every default filled in.

    `level` is what a broken absolute limit means, `change_level` what a regression does.
    """

    kind: MetricKind
    level: Level
    change_level: Level
    min: float | None
    max: float | None
    ratio: float
    floor: float
    step_share: float
    explicit: bool

    def threshold(self, baseline: float, step_ns: float) -> float:
        """Returns the least difference that counts, for a baseline value and a step time in ns."""
        return max(self.ratio * abs(baseline), self.floor, self.step_share * step_ns)

    def sight(self, threshold: float) -> float:
        """Returns the change for the worse that may not pass unseen where runs are repeated."""
        return 2 * threshold if self.kind.sighted and self.change_level == "error" else math.inf


def bound_of(limits: Limits, metric: str, device_name: str) -> Bound:
    """Returns the limit that holds for a metric on a GPU of that name.

    A limit that is given is an error when it breaks, unless a level is given, too.
    """
    kind = METRICS[metric]
    given = _merged(limits, metric, device_name)
    relative = given.max_regression is not None or given.floor is not None
    own_ratio = given.max_regression is not None
    return Bound(
        kind=kind,
        level=given.level or "error",
        change_level=given.level or ("error" if relative else kind.level),
        min=given.min,
        max=given.max,
        ratio=_first(given.max_regression, kind.ratio),
        floor=_first(given.floor, 0.0 if own_ratio else kind.floor),
        step_share=0.0 if relative else kind.step_share,
        explicit=relative,
    )


def _merged(limits: Limits, metric: str, device_name: str) -> MetricLimit:
    given = limits.metrics.get(metric, MetricLimit())
    for pattern in sorted(limits.devices):
        special = limits.devices[pattern].metrics.get(metric)
        if special is not None and names_device(pattern, device_name):
            given = replace(given, **{k: v for k, v in vars(special).items() if v is not None})
    return given


def _first(value: float | None, default: float) -> float:
    return default if value is None else value


def matches(pattern: str, text: str) -> bool:
    """Returns whether a pattern names the text: equal, part of it, or a glob with * or ?."""
    pattern, text = pattern.casefold(), text.casefold()
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(text, pattern)
    return pattern in text


def names_device(pattern: str, name: str) -> bool:
    """Returns whether a pattern names a GPU: by whole words, or as a glob with * or ?.

    `A10` names the NVIDIA A10, not the A100.
    """
    wanted, text = pattern.casefold(), name.casefold()
    if "*" in wanted or "?" in wanted:
        return fnmatchcase(text, wanted)
    words, asked = _WORD.findall(text), _WORD.findall(wanted)
    places = range(len(words) - len(asked) + 1)
    return bool(asked) and any(words[at : at + len(asked)] == asked for at in places)


_WORD = re.compile(r"[a-z0-9.]+")


def check_devices(limits: Limits, names: Iterable[str]) -> None:
    """Raises UsageError when sections are given for GPUs and none is about a GPU of the runs."""
    known = sorted(set(names))
    if not limits.devices or not known:
        return
    if not any(names_device(pattern, name) for pattern in limits.devices for name in known):
        sections = ", ".join(f'gate.devices."{pattern}"' for pattern in limits.devices)
        raise UsageError(
            f"{sections} is about no GPU of these runs", f"the runs have: {', '.join(known)}"
        )


def with_min_utilization(limits: Limits, ratio: float | None) -> Limits:
    """Returns the limits with an absolute least utilization; None leaves them as they are."""
    if ratio is None:
        return limits
    old = limits.metrics.get("utilization_ratio", MetricLimit())
    new = replace(old, min=ratio)
    return check_limits(replace(limits, metrics={**limits.metrics, "utilization_ratio": new}))


def check_limits(limits: Limits) -> Limits:
    """Returns the limits unchanged; raises UsageError for a name or number that cannot be meant."""
    _check_metrics(limits.metrics, "gate.metrics")
    for pattern, special in limits.devices.items():
        _check_metrics(special.metrics, f'gate.devices."{pattern}".metrics')
    for waiver in limits.waivers:
        _check_waiver(waiver)
    for name in ("device", "host", "least"):
        _check_number(f"gate.noise.{name}", getattr(limits.noise, name), 1.0)
    for name, value in (("min_steps", limits.min_steps), ("min_runs", limits.min_runs)):
        if value < 2:
            raise UsageError(f"gate.{name} is {value}", "a spread needs at least 2")
    return limits


def _check_metrics(metrics: Mapping[str, MetricLimit], place: str) -> None:
    for name, limit in metrics.items():
        known_name(name, METRICS, f"metric in {place}")
        for part in ("min", "max", "max_regression", "floor"):
            _check_number(f"{place}.{name}.{part}", getattr(limit, part), _most(name, part))
        if limit.min is not None and limit.max is not None and limit.min > limit.max:
            raise UsageError(
                f"{place}.{name} has min {limit.min:g} above max {limit.max:g}",
                "no value can hold both; swap or drop one",
            )


def _most(metric: str, part: str) -> float | None:
    """The largest value that makes sense: ratios and shares are 0 to 1."""
    return 1.0 if METRICS[metric].unit == "ratio" or part == "max_regression" else None


def _check_number(place: str, value: float | None, most: float | None) -> None:
    if value is None:
        return
    if not math.isfinite(value):
        raise UsageError(f"{place} is {value}", "give a finite number; NaN would never fail")
    if value < 0:
        raise UsageError(f"{place} is {value:g}", "give a number that is not negative")
    if most is not None and value > most:
        hint = f"a ratio is between 0 and 1; {value:g} % is {value / 100:g}"
        raise UsageError(f"{place} is {value:g}", hint)


def _check_waiver(waiver: Waiver) -> None:
    if bool(waiver.rule) == bool(waiver.metric):
        raise UsageError(
            "a waiver names a rule or a metric", 'write rule = "..." or metric = "...", not both'
        )
    name = waiver.rule or waiver.metric
    if waiver.metric:
        known_name(waiver.metric, METRICS, "metric in gate.waivers")
    if not waiver.reason.strip():
        raise UsageError(
            f"the waiver of {name} gives no reason", "say why it is accepted: reason = ..."
        )


def check_rules(limits: Limits, known: Iterable[str]) -> None:
    """Raises UsageError when a level or a waiver names a rule that does not exist."""
    names = sorted(known)
    for rule in limits.rules:
        known_name(rule, names, "rule in gate.rules")
    for waiver in limits.waivers:
        if waiver.rule:
            known_name(waiver.rule, names, "rule in gate.waivers")


def known_name(name: str, known: Iterable[str], what: str) -> None:
    """Raises UsageError unless the name is known; the hint offers the nearest known name."""
    names = list(known)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none'}"
    raise UsageError(f"there is no {what} called {name}", hint)
