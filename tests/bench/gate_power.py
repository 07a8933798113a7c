"""How often the gate cries wolf, and how often it sees one: measured on made programs.

    python tests/bench/gate_power.py [--pairs 200] [--trials 40] [--jobs 2]

False alarms: pairs of runs of one program that differ only in their seed, with 2 % jitter on every
kernel and every host call; each verdict that is not "pass" counts. Power: the same with a loop that
lost 3 points of utilization. Not part of the test run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from nsysdoctor.diagnosis.diagnose import diagnose  # noqa: E402
from nsysdoctor.gate.baseline import make_baseline  # noqa: E402
from nsysdoctor.gate.judge import judge  # noqa: E402
from nsysdoctor.gate.limits import Limits  # noqa: E402
from nsysdoctor.report.model import Report  # noqa: E402
from sample_traces import PROGRAMS, write  # noqa: E402
from sample_traces.engine import Routine  # noqa: E402
from sample_traces.hardware import A100_80GB  # noqa: E402
from sample_traces.program import Program  # noqa: E402
from sample_traces.programs.training import MIB, Job, network  # noqa: E402
from sample_traces.work import upload  # noqa: E402

JITTER_RATIO = 0.02
RUNS = 5
STEP_NS = 9_000_000
LOOP, SLOW_LOOP = "loop", "slow loop"
OTHERS = (
    "input_starvation",
    "periodic_starvation",
    "pageable_copy",
    "sync_in_loop",
    "graph_inference",
    "two_gpu",
    "healthy_loader",
)


def loop(utilization: float) -> Program:
    """A training loop that reads its loss each step and then does host work for a while."""
    job, work = Job(Program(A100_80GB)), network(A100_80GB, STEP_NS)
    rest_ns = round(work.duration_ns * (1 / utilization - 1))

    def step(_: int) -> Routine[None]:
        yield from job.main.copy(job.stream, upload(MIB, pinned=True))
        yield from job.train(work)
        yield from job.main.synchronize_stream(job.stream)
        yield from job.main.work(rest_ns)

    return job.run(48, step)


def build(name: str) -> Program:
    """Returns the program of that name; the slow loop lost 3 points to host work."""
    made: dict[str, Callable[[], Program]] = {
        LOOP: lambda: loop(0.90),
        SLOW_LOOP: lambda: loop(0.87),
    }
    return made[name]() if name in made else PROGRAMS[name].build(False)


def measure(job: tuple[str, int]) -> Report:
    """Returns the report on one run, made, written, read and diagnosed as any trace."""
    name, seed = job
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        write(build(name).run(seed=seed, jitter_ratio=JITTER_RATIO), path)
        return diagnose(path)


def measured(jobs: Sequence[tuple[str, int]], workers: int) -> list[Report]:
    """Returns the reports in the order of the jobs."""
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(measure, jobs, chunksize=4))


def answer(before: Sequence[Report], after: Sequence[Report]) -> str:
    """Returns the verdict on runs against a baseline of others, with the default limits."""
    return judge(after, make_baseline(before), Limits()).answer


def pair_jobs(pairs: int) -> Iterator[tuple[str, int]]:
    """Two seeds for each pair, the programs in turn."""
    names = (LOOP, *OTHERS)
    for pair in range(pairs):
        for side in (0, 1):
            yield names[pair % len(names)], 2 * pair + side + 1


def groups(found: Sequence[Report]) -> list[Sequence[Report]]:
    """Returns the reports in fives."""
    return [found[i : i + RUNS] for i in range(0, len(found) - RUNS + 1, RUNS)]


def point_loss(before: Sequence[Report], after: Sequence[Report]) -> float:
    """Returns how many points of utilization the second runs lack on average."""

    def mean(found: Sequence[Report]) -> float:
        values = [m.value for r in found for m in r.metrics if m.metric == "utilization_ratio"]
        return sum(values) / len(values)

    return 100 * (mean(before) - mean(after))


def show(title: str, answers: Sequence[str], hit: str) -> None:
    """Prints how many of the answers are the one asked about."""
    counted = Counter(answers)
    rest = ", ".join(f"{count} {name}" for name, count in sorted(counted.items()))
    share = sum(a == hit for a in answers) / max(len(answers), 1)
    print(f"{title}: {100 * share:.1f} % {hit} ({rest})")


def main() -> None:
    """Prints false alarms and power, with one run and with five runs a side."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    found = measured(list(pair_jobs(asked.pairs)), asked.jobs)
    alarms = [answer([a], [b]) for a, b in zip(found[::2], found[1::2], strict=True)]
    show(f"same program, one run a side, {asked.pairs} pairs", alarms, "pass")
    count = asked.trials * RUNS
    seeds = range(10_000, 10_000 + count)
    calm = measured([(LOOP, seed) for seed in seeds], asked.jobs)
    slow = measured([(SLOW_LOOP, seed + count) for seed in seeds], asked.jobs)
    sides = list(zip(groups(calm), groups(slow), strict=True))
    neighbours = list(zip(groups(calm), groups(calm)[1:], strict=False))
    title = f"{RUNS} runs a side"
    show(f"same program, {title}, {len(neighbours)} trials",
         [answer(a, b) for a, b in neighbours], "pass")  # fmt: skip
    print(f"planted loss of utilization: {point_loss(calm, slow):.2f} points")
    show(f"lost points, {title}, {len(sides)} trials", [answer(a, b) for a, b in sides], "fail")
    ones = [answer([a], [b]) for a, b in zip(calm, slow, strict=True)]
    show(f"lost points, one run a side, {len(ones)} trials", ones, "fail")


if __name__ == "__main__":
    main()
