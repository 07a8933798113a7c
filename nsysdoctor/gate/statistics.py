"""Whether two sets of runs differ: effect against noise that is measured, not assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import Literal

from nsysdoctor.report.metrics import Better

MIN_BLOCKS = 4
RANK_ALPHA = 0.05
STEP_ALPHA = 0.01

Change = Literal["identical", "unchanged", "worse", "better", "unclear", "too_few"]
Method = Literal["identical", "rank", "spread", "none"]


@dataclass(frozen=True)
class RunValue:
    """One run's value of a metric, and how well its own steps pin it down.

    `error` is the standard error of `value`, taken over blocks of consecutive steps because
    neighbouring steps are not independent; None when there are too few steps to tell.
    """

    value: float
    error: float | None
    blocks: int
    steps: int


@dataclass(frozen=True)
class Comparison:
    """How a metric changed: `effect` is now minus baseline, `threshold` what it had to exceed.

    `margin` is the part of the effect that noise alone could make; `p` the chance of so large
    an effect from noise. `reason` says it in words where nothing can be said.
    """

    change: Change
    method: Method
    effect: float
    threshold: float
    margin: float | None = None
    p: float | None = None
    reason: str = ""


def run_value(
    steps: Sequence[float], weights: Sequence[float] | None, overall: float, min_steps: int
) -> RunValue:
    """Returns the mean over the steady steps with its block-wise standard error.

    Ratios are weighted with the length of their step, so that their mean is the ratio of the
    whole stretch. Without steps the value of the whole window stands, with no error.
    """
    if not steps:
        return RunValue(overall, None, 0, 0)
    weighted = list(weights) if weights and len(weights) == len(steps) else [1.0] * len(steps)
    value = _mean(steps, weighted)
    if len(steps) < min_steps:
        return RunValue(value, None, 0, len(steps))
    error, blocks = _block_error(steps, weighted)
    return RunValue(value, error, blocks, len(steps))


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(weights)
    if total <= 0:
        return fmean(values)
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total


def _block_error(values: Sequence[float], weights: Sequence[float]) -> tuple[float, int]:
    """The largest standard error over block lengths 1, 2, 4, ... (batch means, blocking)."""
    best, best_blocks, length = 0.0, len(values), 1
    while len(values) // length >= MIN_BLOCKS:
        blocks = len(values) // length
        ends = range(length, blocks * length + 1, length)
        means = [_mean(values[e - length : e], weights[e - length : e]) for e in ends]
        error = math.sqrt(variance(means) / blocks)
        if error > best:
            best, best_blocks = error, blocks
        length *= 2
    return best, best_blocks


def compare(
    baseline: Sequence[RunValue],
    now: Sequence[RunValue],
    *,
    better: Better,
    threshold: float,
    min_runs: int,
) -> Comparison:
    """Returns how a metric changed between two sets of runs.

    With at least `min_runs` runs on both sides a rank test decides, else the spread of steps and
    runs; either way the effect must exceed `threshold` too. The same runs on both sides are no
    change whatever their number.
    """
    effect = median(r.value for r in now) - median(r.value for r in baseline)
    if list(baseline) == list(now):
        return Comparison("identical", "identical", effect, threshold)
    if _rank_can_tell(len(baseline), len(now), min_runs):
        method: Method = "rank"
        margin, p = None, _rank_p([r.value for r in baseline], [r.value for r in now], effect)
        sure = p <= RANK_ALPHA
    else:
        spread = _spread(baseline, now, min_runs)
        if spread is None:
            reason = _too_few(baseline, now, min_runs)
            return Comparison("too_few", "none", effect, threshold, reason=reason)
        method = "spread"
        margin, p = _margin_and_p(spread, abs(effect))
        sure = abs(effect) > margin
    change = _change(effect, better, threshold, sure)
    return Comparison(change, method, effect, threshold, margin, p)


def _change(effect: float, better: Better, threshold: float, sure: bool) -> Change:
    # A threshold of 2 points must not be exceeded by the last bit of a sum.
    if abs(effect) <= threshold * (1 + 1e-9) + 1e-12 or better == "neither":
        return "unchanged"
    if not sure:
        return "unclear"
    return "worse" if (effect < 0) == (better == "higher") else "better"


def rank_reach(baseline_runs: int, now_runs: int) -> float:
    """Returns the smallest p that a rank test of so many runs can give: 1 of all orders."""
    return 1 / math.comb(baseline_runs + now_runs, now_runs)


def _rank_can_tell(baseline_runs: int, now_runs: int, min_runs: int) -> bool:
    enough = min(baseline_runs, now_runs) >= min_runs
    return enough and rank_reach(baseline_runs, now_runs) <= RANK_ALPHA


def _rank_p(baseline: Sequence[float], now: Sequence[float], effect: float) -> float:
    """One-sided exact p in the direction of the effect."""
    from scipy.stats import mannwhitneyu

    side: Literal["greater", "less"] = "greater" if effect > 0 else "less"
    return float(mannwhitneyu(now, baseline, alternative=side, method="exact").pvalue)


@dataclass(frozen=True)
class _Spread:
    error: float
    freedom: float


def _spread(baseline: Sequence[RunValue], now: Sequence[RunValue], min_runs: int) -> _Spread | None:
    """The standard error of the effect, from steps within runs and, where known, between runs."""
    parts: list[tuple[float, float]] = []
    for side, other in ((baseline, now), (now, baseline)):
        spread = _run_variance(side, other, min_runs)
        if spread is None:
            return None
        parts.append((spread[0] / len(side), spread[1]))
    total = math.fsum(part for part, _ in parts)
    if total == 0:
        return _Spread(0.0, math.inf)
    # Welch-Satterthwaite: the degrees of freedom of a sum of two estimated variances.
    return _Spread(math.sqrt(total), total**2 / sum(part**2 / free for part, free in parts))


def _run_variance(
    side: Sequence[RunValue], other: Sequence[RunValue], min_runs: int
) -> tuple[float, float] | None:
    """Variance of one run's value and its degrees of freedom: the largest that the data show.

    A single run says nothing of the spread between runs; it is borrowed from the other side when
    that has enough runs.
    """
    within = _within(side)
    options = [] if within is None else [within]
    if len(side) >= min_runs:
        options.append(_between(side))
    elif len(other) >= min_runs:
        options.append(_between(other))
    if len(side) >= 2 and within is not None:
        options.append((_between(side)[0], within[1]))
    return max(options, default=None)


def _between(side: Sequence[RunValue]) -> tuple[float, float]:
    """Variance of one run's value seen between runs, and its degrees of freedom."""
    return variance([run.value for run in side]), len(side) - 1


def _within(side: Sequence[RunValue]) -> tuple[float, float] | None:
    """Variance of one run's value as its own steps tell it, and its degrees of freedom."""
    errors = [run.error for run in side if run.error is not None]
    if len(errors) < len(side):
        return None
    return fmean(error**2 for error in errors), sum(run.blocks - 1 for run in side)


def _margin_and_p(spread: _Spread, effect: float) -> tuple[float, float]:
    if spread.error == 0:
        return 0.0, 0.0 if effect else 1.0
    # Student's t by way of scipy.special: scipy.stats takes a second to import.
    from scipy.special import stdtr, stdtrit

    margin = float(stdtrit(spread.freedom, 1 - STEP_ALPHA)) * spread.error
    return margin, float(stdtr(spread.freedom, -effect / spread.error))


def _too_few(baseline: Sequence[RunValue], now: Sequence[RunValue], min_runs: int) -> str:
    sides = f"baseline: {_runs_text(baseline)}; now: {_runs_text(now)}"
    return f"too few to tell noise from change ({sides}; needed are {min_runs} runs a side)"


def _runs_text(side: Sequence[RunValue]) -> str:
    runs = f"{len(side)} run{'s' if len(side) != 1 else ''}"
    steps = min(run.steps for run in side)
    return f"{runs} of {steps} steady steps" if steps else f"{runs} without steps"
