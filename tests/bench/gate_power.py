"""How often the gate cries wolf, and how often it sees one: measured on made runs.

    python tests/bench/gate_power.py [--trials 200] [--jobs 2] [--markdown]

Each trial makes runs of a loop of 40 steady steps, judges them against a baseline of others with
the default limits and counts the answers. Runs are made as what the gate reads, reports with step
values and kernels by name, so that thousands can be judged. Not part of the test run.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from nsysdoctor.gate.baseline import make_baseline  # noqa: E402
from nsysdoctor.gate.judge import judge  # noqa: E402
from nsysdoctor.gate.limits import Limits  # noqa: E402
from nsysdoctor.report.model import Report  # noqa: E402
from nsysdoctor.report.work import Work  # noqa: E402
from tests.gate_runs import Loop, budget, metric, run  # noqa: E402

STEP_NS = 10_000_000.0
STEPS = 40
SHARES = (0.35, 0.2, 0.15, 0.12, 0.1, 0.08)
"""What part of the kernel time each of six kernels has."""


@dataclass(frozen=True)
class Noise:
    """What differs between runs and steps: standard deviations as shares of the whole."""

    jitter: float = 0.01
    drift: float = 0.0
    host: float = 0.0
    slow: float = 0.0
    wander: float = 0.0
    hiccups: float = 0.0


NOISES = {
    "jitter 1 %": Noise(0.01),
    "jitter 2 %": Noise(0.02),
    "jitter 5 %": Noise(0.05),
    "drift 1 %": Noise(drift=0.01),
    "drift 3 %": Noise(drift=0.03),
    "host 10 %": Noise(host=0.10),
    "slow runs 10 %": Noise(slow=0.10),
    "wander": Noise(wander=0.03),
    "hiccups": Noise(hiccups=0.02),
}
"""Jitter of every kernel and host cost in every step; drift of the clocks and the host's speed from
run to run; one run in ten 10 % slower as a whole; clocks that wander by 3 % within a run, slowly;
one step in fifty half a step longer."""

SIDES = {"1v1": (1, 1), "1v3": (1, 3), "3v3": (3, 3), "5v5": (5, 5)}
UTILIZATIONS = (0.6, 0.9)


@dataclass(frozen=True)
class Change:
    """What happened to the program: points of utilization lost to the host, the step longer by one
    kernel, all kernels slower by a factor."""

    points: float = 0.0
    kernel: float = 0.0
    factor: float = 1.0


CHANGES = {
    "none": Change(),
    "1 pt": Change(points=1), "2 pt": Change(points=2), "3 pt": Change(points=3),
    "5 pt": Change(points=5), "10 pt": Change(points=10),
    "kernel +2 %": Change(kernel=0.02), "kernel +5 %": Change(kernel=0.05),
    "kernel +20 %": Change(kernel=0.20),
    "all x 1.2": Change(factor=1.2),
}  # fmt: skip

_TEMPLATE = run(0, Loop(steps=STEPS, jitter=0.0))


def made(rng: np.random.Generator, noise: Noise, utilization: float, change: Change) -> Report:
    """Returns the report of one run."""
    kernels = np.array(SHARES) * STEP_NS * utilization * change.factor
    idle_ns = STEP_NS * (1 - utilization)
    if change.points:
        wanted = utilization - change.points / 100
        idle_ns = STEP_NS * utilization * (1 / wanted - 1)
    kernels[1] += change.kernel * STEP_NS
    whole = 1.10 if noise.slow and rng.random() < noise.slow else 1.0
    clock = whole * (1 + noise.drift * rng.standard_normal()) * _wander(rng, noise.wander)
    host = whole * max(1 + noise.host * rng.standard_normal(), 0.1)
    times = kernels[:, None] * clock * _jitter(rng, noise, (len(SHARES), STEPS))
    idle = idle_ns * host * _jitter(rng, noise, STEPS)
    if noise.hiccups:
        idle = idle + (rng.random(STEPS) < noise.hiccups) * STEP_NS / 2
    return _report(times, idle)


def _jitter(rng: np.random.Generator, noise: Noise, size: int | tuple[int, int]) -> np.ndarray:
    return np.maximum(1 + noise.jitter * rng.standard_normal(size), 0.1)


def _wander(rng: np.random.Generator, spread: float) -> np.ndarray:
    """A slow process of first order that stays within a few times its spread."""
    state, values = rng.standard_normal(), []
    for _ in range(STEPS):
        state = 0.95 * state + np.sqrt(1 - 0.95**2) * rng.standard_normal()
        values.append(1 + spread * state)
    return np.array(values)


def _report(times: np.ndarray, idle: np.ndarray) -> Report:
    kernel = times.sum(axis=0)
    step = kernel + idle
    values = {
        "utilization_ratio": kernel / step, "step_ns": step, "idle_ns": idle,
        "idle_host_code_ns": idle, "kernel_ns": kernel,
    }  # fmt: skip
    work = [
        Work(0, 0, "kernel", f"kernel_{place}", 1.0, float(mean), 512.0)
        for place, mean in enumerate(times.mean(axis=1))
    ]
    return replace(
        _TEMPLATE,
        metrics=[metric(0, name, steps) for name, steps in values.items()],
        devices=[budget(0, kernel, idle, Loop())],
        work=work,
    )


def answers(job: tuple[str, str, float, str, int]) -> Counter[str]:
    """Returns how many trials ended how, for one cell of the table."""
    noise, sides, utilization, change, trials = job
    rng = np.random.default_rng(abs(hash_of(job)))
    before, now = SIDES[sides]
    counted: Counter[str] = Counter()
    for _ in range(trials):
        old = [made(rng, NOISES[noise], utilization, Change()) for _ in range(before)]
        new = [made(rng, NOISES[noise], utilization, CHANGES[change]) for _ in range(now)]
        counted[judge(new, make_baseline(old), Limits()).answer] += 1
    return counted


def hash_of(job: tuple[str, str, float, str, int]) -> int:
    """Returns a number that is the same in every process."""
    import zlib

    return zlib.crc32(repr(job[:4]).encode())


def table(trials: int, workers: int, chosen: Sequence[str]) -> dict[tuple[str, ...], Counter[str]]:
    """Returns the answers by noise, runs, utilization and change."""
    jobs = [
        (noise, sides, utilization, change, trials * (5 if change == "none" else 1))
        for noise in chosen for sides in SIDES for utilization in UTILIZATIONS
        for change in CHANGES
    ]  # fmt: skip
    with ProcessPoolExecutor(workers) as pool:
        found = pool.map(answers, jobs, chunksize=2)
    return {(j[0], j[1], str(j[2]), j[3]): c for j, c in zip(jobs, found, strict=True)}


def cell(counted: Counter[str], change: str) -> str:
    """Returns a cell: fails and what cannot be judged, in percent."""
    total = sum(counted.values())
    fail, unsure = (100 * counted[name] / total for name in ("fail", "cannot_judge"))
    digits = 1 if change == "none" else 0
    return f"{fail:.{digits}f} / {unsure:.0f}"


def broken(found: dict[tuple[str, ...], Counter[str]]) -> list[str]:
    """Returns the cells that do not keep what is promised."""
    texts = []
    for (noise, sides, utilization, change), counted in found.items():
        total = sum(counted.values())
        place = f"{noise}, {sides}, {utilization}"
        if change == "none":
            most = 0.03 if sides == "1v1" else 0.01
            if counted["fail"] > most * total and sides != "1v3":
                texts.append(f"{place}: {100 * counted['fail'] / total:.1f} % false alarms")
        if sides == "3v3" and change in ("5 pt", "kernel +5 %") and counted["pass"] > 0.05 * total:
            texts.append(f"{place}: {change} passes in {100 * counted['pass'] / total:.0f} %")
    return texts


def main() -> None:
    """Prints fails and what cannot be judged for every noise, runs, utilization and change."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--noise", action="append", choices=list(NOISES))
    asked = parser.parse_args()
    found = table(asked.trials, asked.jobs, asked.noise or list(NOISES))
    print(f"{asked.trials} trials a cell, {5 * asked.trials} without a change; "
          "percent that fail / that cannot be judged\n")  # fmt: skip
    print(f"| noise | runs | utilization | {' | '.join(CHANGES)} |")
    print(f"|---|---|---|{'--:|' * len(CHANGES)}")
    for noise, sides, utilization in dict.fromkeys(key[:3] for key in found):
        cells = (cell(found[noise, sides, utilization, c], c) for c in CHANGES)
        print(f"| {noise} | {sides} | {utilization} | {' | '.join(cells)} |")
    wrong = broken(found)
    print("\n" + ("\n".join(wrong) or "everything as promised"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
