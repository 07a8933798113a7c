"""Predicted against true savings for every sample program; `python -m tests.accuracy` prints it.

The truth is the same program run with its cure in the model; the prediction is what the report
on the uncured trace says.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nsysdoctor.diagnosis.diagnose import Options, diagnose
from nsysdoctor.report.model import Finding, Report
from nsysdoctor.rulebook.rule import Rule, load_rules
from sample_traces import PROGRAMS, record, steady_saving_ns, write


@dataclass(frozen=True)
class Row:
    """One program: what it must show, what the report shows, and both savings in ns."""

    program: str
    rule: str
    first: str
    window_ns: int
    true_ns: int
    low_ns: int
    saving_ns: int
    high_ns: int
    ranged: bool

    @property
    def error_ratio(self) -> float:
        """The distance from the truth, as a share of the window; 0 inside low … high where the
        cure is uncertain by nature."""
        if self.ranged and self.low_ns <= self.true_ns <= self.high_ns:
            return 0.0
        return abs(self.saving_ns - self.true_ns) / max(self.window_ns, 1)

    @property
    def holds(self) -> bool:
        """Whether the error is within 2 points of the window or 15 % of the true saving."""
        allowed = max(0.02 * self.window_ns, 0.15 * self.true_ns)
        return self.error_ratio * self.window_ns <= allowed


@cache
def reported(name: str, *, cured: bool = False, layout: str = "2025") -> Report:
    """Returns the report on a sample program, made once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.sqlite"
        write(record(name, cured=cured), path, layout=layout)
        return diagnose(path, Options(rules=_rules()))


@cache
def _rules() -> list[Rule]:
    return load_rules()


def judged(name: str) -> Row:
    """Returns one program's row."""
    sample, report = PROGRAMS[name], reported(name)
    mine = [f for f in report.findings if f.rule == sample.rule]
    chosen = mine[0] if mine else None
    found = [f for f in report.findings if f.category != "start_up"]
    first = found[0].rule if found else "-"
    if sample.needs:
        # What hides each other is promised together.
        savings = [_ns(chosen, "saving_with_ns")] * 3
    else:
        savings = [_ns(chosen, f"saving_{bound}ns") for bound in ("low_", "", "high_")]
    return Row(
        name, sample.rule or "-", first, report.window.span_ns, steady_saving_ns(name), *savings,
        sample.low_high,
    )


def _ns(finding: Finding | None, name: str) -> int:
    return int(getattr(finding, name) or 0) if finding is not None else 0


def table(rows: Iterable[Row]) -> str:
    """Returns the rows as text; percentages are of the window."""
    lines = [f"{'program':40} {'rule':30} {'first finding':30} {'true':>7} {'says':>7} "
             f"{'low':>7} {'high':>7} {'error':>6}"]  # fmt: skip
    for row in rows:
        share = [f"{100 * ns / max(row.window_ns, 1):7.1f}" for ns in
                 (row.true_ns, row.saving_ns, row.low_ns, row.high_ns)]  # fmt: skip
        mark = "" if row.holds and row.first == row.rule else "  <--"
        lines.append(
            f"{row.program:40} {row.rule:30} {row.first:30} {' '.join(share)} "
            f"{100 * row.error_ratio:6.1f}{mark}"
        )
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Prints the table of the named programs, of all by default."""
    chosen = names or [n for n, sample in PROGRAMS.items() if sample.rule]
    sys.stdout.write(table(judged(name) for name in chosen))


if __name__ == "__main__":
    main(sys.argv[1:])
