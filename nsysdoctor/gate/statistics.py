"""Whether two sets of runs differ: effect against noise that is measured, not assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median
from typing import Literal

from nsysdoctor.report.metrics import Better

MIN_BLOCKS = 4
ALPHA = 0.005
"""How often noise alone may look like a change for the worse, over all devices of a metric."""
SIGHT_ALPHA = 0.03
"""How often a change as large as the gate must see may be called none."""
MEDIAN_COST = 1.2
"""How much wider the spread of a median is than that of a mean, at most, for few runs."""
PRIOR_FREEDOM = 4
"""With fewer degrees of freedom from repeats than this the stated spread fills up the rest."""
OUTLIER = 4.0
MOST_OUTLIERS = 0.25

Change = Literal["identical", "unchanged", "worse", "better", "unclear", "too_few"]
Method = Literal["identical", "runs", "prior", "none"]


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
    an effect from noise; `most` how much worse it may be at most, with 97 % confidence. `reason`
    says it in words where nothing can be said. `outliers` are runs that stand apart, as places
    before and now. Method `runs` took the spread between the runs alone, `prior` the stated one.
    """

    change: Change
    method: Method
    effect: float
    threshold: float
    margin: float | None = None
    p: float | None = None
    most: float | None = None
    reason: str = ""
    outliers: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


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
        centre = math.fsum(means) / blocks
        squares = math.fsum((mean - centre) ** 2 for mean in means)
        error = math.sqrt(squares / (blocks - 1) / blocks)
        if error > best:
            best, best_blocks = error, blocks
        length *= 2
    return best, best_blocks


@dataclass(frozen=True)
class Sizes:
    """What a change is held against, all in the metric's unit.

    `threshold` is the least that counts; `sight` the change for the worse that must not pass
    unseen where runs are repeated; `spread` the stated standard deviation between runs, `least`
    the smallest that is believed. `tests` is how many devices are asked the same.
    """

    threshold: float
    sight: float = math.inf
    spread: float = 0.0
    least: float = 0.0
    tests: int = 1


def compare(
    baseline: Sequence[RunValue],
    now: Sequence[RunValue],
    *,
    better: Better,
    sizes: Sizes,
    min_runs: int,
) -> Comparison:
    """Returns how a metric changed between two sets of runs.

    The difference of the medians must exceed the threshold and what noise could make: Student's t
    on the spread between runs, which comes from repeats and, for want of those, from the stated
    spread and the errors of the runs' own steps. The same runs on both sides are no change
    whatever their number.
    """
    effect = median(r.value for r in now) - median(r.value for r in baseline)
    if list(baseline) == list(now):
        return Comparison("identical", "identical", effect, sizes.threshold)
    if _unmeasured(baseline, now, min_runs):
        reason = _too_few(baseline, now, min_runs)
        return Comparison("too_few", "none", effect, sizes.threshold, reason=reason)
    odd = (outliers_of(baseline, sizes.least), outliers_of(now, sizes.least))
    spread = _spread(_without(baseline, odd[0]), _without(now, odd[1]), sizes)
    margin = _quantile(spread, ALPHA / sizes.tests) * spread.error
    worsening = -effect if better == "higher" else effect
    most = worsening + _quantile(spread, SIGHT_ALPHA) * spread.error
    change = _change(effect, better, sizes.threshold, abs(effect) > margin)
    repeated = min(len(baseline), len(now)) >= min_runs
    if change == "unchanged" and repeated and most > max(sizes.sight, sizes.threshold):
        change = "unclear"
    method: Method = "runs" if spread.measured else "prior"
    p = _p(spread, abs(effect))
    return Comparison(change, method, effect, sizes.threshold, margin, p, most, outliers=odd)


def _change(effect: float, better: Better, threshold: float, sure: bool) -> Change:
    # A threshold of 2 points must not be exceeded by the last bit of a sum.
    if abs(effect) <= threshold * (1 + 1e-9) + 1e-12 or better == "neither":
        return "unchanged"
    worse = (effect < 0) == (better == "higher")
    if not sure:
        return "unclear" if worse else "unchanged"
    return "worse" if worse else "better"


def _unmeasured(
    baseline: Sequence[RunValue], now: Sequence[RunValue], min_runs: int
) -> bool:
    """Whether steps are too few in a run, or runs without steps too few."""
    every = (*baseline, *now)
    if any(run.steps and run.error is None for run in every):
        return True
    return min(len(baseline), len(now)) < min_runs and any(not run.steps for run in every)


def outliers_of(side: Sequence[RunValue], least: float) -> tuple[int, ...]:
    """Returns the places of runs that stand apart from the others: at most a quarter of them.

    A run stands apart by more than four robust standard deviations (1.48 times the median
    distance from the median), of which the steps' own errors and `least` are the smallest.
    """
    values = [run.value for run in side]
    most = int(len(values) * MOST_OUTLIERS)
    if not most:
        return ()
    centre = median(values)
    far = [abs(value - centre) for value in values]
    errors = [run.error for run in side if run.error is not None]
    scale = max(1.4826 * median(far), median(errors) if errors else 0.0, least)
    found = sorted((place for place in range(len(far)) if far[place] > OUTLIER * scale),
                   key=lambda place: -far[place])  # fmt: skip
    return tuple(sorted(found[:most]))


def _without(side: Sequence[RunValue], places: Sequence[int]) -> list[RunValue]:
    return [run for place, run in enumerate(side) if place not in places]


@dataclass(frozen=True)
class _Spread:
    error: float
    freedom: float
    measured: bool


def _spread(baseline: Sequence[RunValue], now: Sequence[RunValue], sizes: Sizes) -> _Spread:
    """The standard error of the difference of the medians."""
    freedom = len(baseline) + len(now) - 2
    squares = math.fsum(_squares(side) for side in (baseline, now))
    stated = max(PRIOR_FREEDOM - freedom, 0)
    if stated == 0:
        # What steps do to the mean of a run shows between the runs already.
        one = squares / freedom
    else:
        inside = max(_within(baseline), _within(now))
        one = max((squares + stated * (sizes.spread**2 + inside)) / PRIOR_FREEDOM, inside)
    one = max(one, sizes.least**2)
    pairs = 1 / len(baseline) + 1 / len(now)
    # One run is its own median; of more the median varies more than the mean.
    cost = MEDIAN_COST if min(len(baseline), len(now)) > 1 else 1.0
    return _Spread(cost * math.sqrt(one * pairs), _freedom(freedom), stated == 0)


def _freedom(measured: int) -> float:
    """What is stated is taken as known: without repeats the normal distribution holds."""
    return measured if measured >= PRIOR_FREEDOM else math.inf


def _squares(side: Sequence[RunValue]) -> float:
    mean = fmean(run.value for run in side)
    return math.fsum((run.value - mean) ** 2 for run in side)


def _within(side: Sequence[RunValue]) -> float:
    """Variance of one run's value as its own steps tell it."""
    return fmean((run.error or 0.0) ** 2 for run in side)


def _quantile(spread: _Spread, alpha: float) -> float:
    if math.isinf(spread.freedom):
        return NormalDist().inv_cdf(1 - alpha)
    # Student's t by way of scipy.special: scipy.stats takes a second to import.
    from scipy.special import stdtrit

    return float(stdtrit(spread.freedom, 1 - alpha))


def _p(spread: _Spread, effect: float) -> float:
    if spread.error == 0:
        return 0.0 if effect else 1.0
    if math.isinf(spread.freedom):
        return 1 - NormalDist().cdf(effect / spread.error)
    from scipy.special import stdtr

    return float(stdtr(spread.freedom, -effect / spread.error))


def visible_change(
    runs: Sequence[RunValue], now_runs: int, sizes: Sizes
) -> float:
    """Returns the smallest change that so many runs would be failed for, in the metric's unit."""
    like = [RunValue(median(run.value for run in runs), 0.0, 0, 0)] * now_runs
    freedom = len(runs) + now_runs - 2
    spread = _spread(runs, like, sizes)
    if spread.measured and len(runs) > 1:
        # The runs to come are expected to vary as these do.
        one = max(_squares(runs) / (len(runs) - 1), sizes.least**2)
        pairs = 1 / len(runs) + 1 / now_runs
        spread = _Spread(MEDIAN_COST * math.sqrt(one * pairs), freedom, True)
    return max(sizes.threshold, _quantile(spread, ALPHA / sizes.tests) * spread.error)


def _too_few(baseline: Sequence[RunValue], now: Sequence[RunValue], min_runs: int) -> str:
    sides = f"baseline: {_runs_text(baseline)}; now: {_runs_text(now)}"
    return f"too few to tell noise from change ({sides}; needed are {min_runs} runs a side)"


def _runs_text(side: Sequence[RunValue]) -> str:
    runs = f"{len(side)} run{'s' if len(side) != 1 else ''}"
    steps = min(run.steps for run in side)
    return f"{runs} of {steps} steady steps" if steps else f"{runs} without steps"
