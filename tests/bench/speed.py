"""How long and how large a report is: `python -m tests.bench.speed [100_000 1_000_000 …]`.

Makes each export anew in a temporary folder, then prints wall time, CPU time and peak memory of
reading the needed columns with ADBC alone and of the JSON and HTML reports, each as a process of
its own (the better of two runs), the ratios, and the share of each table in a report. Sizes after
the first are also set against it: time per kernel, where 1.0 is linear.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.bench.generate import generate


class Cost(NamedTuple):
    """What a process took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int

    def text(self) -> str:
        """Returns the figures in one line."""
        return f"{self.wall_s:8.2f} s wall {self.cpu_s:8.2f} s cpu {self.peak_bytes / 1e6:8.0f} MB"


def cost_of(*arguments: str) -> Cost:
    """Returns what `python -m ARGUMENTS` takes; a child measures so that peaks do not mix."""
    code = (
        "import resource, subprocess, sys, time; b = time.perf_counter(); "
        "subprocess.run([sys.executable, '-m', *sys.argv[1:]], check=True, "
        "stdout=subprocess.DEVNULL); "
        "u = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(time.perf_counter() - b, u.ru_utime + u.ru_stime, u.ru_maxrss * 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    )
    wall, cpu, peak = done.stdout.split()
    return Cost(float(wall), float(cpu), int(peak))


def better_of(*arguments: str) -> Cost:
    """Returns what the faster of two runs takes: the first may find cold files."""
    return min(cost_of(*arguments), cost_of(*arguments))


def stages(path: Path) -> Counter[str]:
    """Returns the CPU seconds that each table takes by itself, and the rest of a report."""
    from nsysdoctor.diagnosis.diagnose import Options, diagnose_trace
    from nsysdoctor.rulebook.rule import load_rules
    from nsysdoctor.trace.trace import Trace, open_trace

    spent: Counter[str] = Counter()
    inner = [0.0]
    made = Trace._make

    def timed(trace: Trace, name: str) -> object:
        began = time.process_time()
        inner.append(0.0)
        try:
            return made(trace, name)
        finally:
            took = time.process_time() - began
            spent[name] += took - inner.pop()
            inner[-1] += took

    Trace._make = timed  # type: ignore[method-assign]
    began = time.process_time()
    diagnose_trace(open_trace(path), Options(rules=load_rules()))
    spent["rules, pricing, rest"] = time.process_time() - began - sum(spent.values())
    Trace._make = made  # type: ignore[method-assign]
    return spent


def measure(kernels: int, path: Path) -> Cost:
    """Prints the figures for one export; returns what its JSON report takes."""
    print(f"\n{kernels:,} kernels, {path.stat().st_size / 1e6:,.0f} MB", flush=True)
    plain = better_of("tests.bench.reading", str(path))
    report = better_of("nsysdoctor", "report", str(path), "--format", "json", "-q")
    page = better_of("nsysdoctor", "report", str(path), "--format", "html", "-q")
    print(f"  ADBC alone {plain.text()}")
    print(f"  JSON       {report.text()}   {report.wall_s / plain.wall_s:.1f} × the wall time")
    print(f"  HTML       {page.text()}   {page.wall_s - report.wall_s:+.1f} s", flush=True)
    spent = stages(path)
    whole = sum(spent.values())
    for name, seconds in spent.most_common(12):
        print(f"    {name:24} {seconds:7.2f} s  {100 * seconds / whole:5.1f} %")
    return report


def main() -> None:
    """Parses the command line and measures every size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    number = lambda text: int(text.replace("_", ""))  # noqa: E731
    parser.add_argument("kernels", type=number, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--ranges-per-kernel", type=float, default=5.0)
    arguments = parser.parse_args()
    first: tuple[int, Cost] | None = None
    for kernels in arguments.kernels:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kernels}.sqlite"
            generate(kernels, path, arguments.ranges_per_kernel)
            cost = measure(kernels, path)
        if first is not None:
            linear_s = first[1].wall_s * kernels / first[0]
            print(f"  {cost.wall_s / linear_s:.2f} × linear of {first[0]:,} kernels")
        first = first or (kernels, cost)


if __name__ == "__main__":
    main()
