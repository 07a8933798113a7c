"""What threads did in some stretches of their time: slept, ran whose code, or had no CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, Spans, covered, innermost, rows_of, sums, union
from nsysdoctor.tables.host_activity.schedule import OFF, off_cpu
from nsysdoctor.tables.host_activity.shares import LEAST_SAMPLES, function_shares, wilson
from nsysdoctor.tables.host_activity.signatures import Signature, load_signatures
from nsysdoctor.tables.host_activity.stacks import Stacks
from nsysdoctor.trace.recipe import table


class Witnesses(NamedTuple):
    """All that tells what threads did outside of CUDA calls, as far as it was recorded."""

    waits: pd.DataFrame | None
    schedule: pd.DataFrame | None
    samples: pd.DataFrame | None
    stacks: Stacks | None


@table
def witnesses(
    threads: pd.DataFrame,
    waits: pd.DataFrame | None = None,
    schedule: pd.DataFrame | None = None,
    samples: pd.DataFrame | None = None,
    sample_stacks: Stacks | None = None,
) -> Witnesses:
    """Returns what was recorded of the host beside its CUDA calls."""
    return Witnesses(waits, schedule, samples, sample_stacks)


@dataclass(frozen=True)
class Doing:
    """What a thread did in stretches of `total_ns`.

    Of them it slept `asleep_ns` in OS calls, mostly in `os_call`, and was off its CPU for another
    `off_ns` that nothing explains. `seen` is the function that most of the `samples` show, or the
    signature that most of them fit, in `n` of them; "" below five. `first_seen` is one of those
    few, "" without any.
    """

    total_ns: int
    asleep_ns: int = 0
    os_call: str = ""
    off_ns: int = 0
    samples: int = 0
    n: int = 0
    seen: str = ""
    first_seen: str = ""
    signature: Signature | None = None

    def evidence(self) -> str:
        """Returns what the samples say, as the end of a sentence; "" when they say nothing."""
        if self.seen:
            low, high = (float(x[0]) for x in wilson(np.array([self.n]), np.array([self.samples])))
            share = f"{self.n} of {self.samples} samples, {low:.0%} to {high:.0%}"
            means = f": it {self.signature.means}" if self.signature is not None else ""
            return f"; {share}, stand in {self.seen}{means}"
        return f"; seen in {self.first_seen}" if self.first_seen else ""


def doing(seen: Witnesses, thread: int, start_ns: Ints, end_ns: Ints) -> Doing:
    """Returns what a thread did in stretches of its time, which may overlap."""
    spent = union(Spans(start_ns, end_ns))
    asleep, os_call = _asleep(seen.waits, thread, spent)
    off = _off(seen, thread, spent)
    found = Doing(spent.total_ns, asleep, os_call, off)
    if seen.samples is None or seen.stacks is None:
        return found
    return _told(found, _shares(seen.samples, seen.stacks, thread, spent))


def _asleep(waits: pd.DataFrame | None, thread: int, spent: Spans) -> tuple[int, str]:
    """How long the thread slept in OS calls, and in which most of that."""
    if waits is None:
        return 0, ""
    rows = rows_of(thread, waits["thread"].to_numpy())
    mine = waits.iloc[rows]
    mine = mine[mine["blocking"].to_numpy()]
    span, owner = innermost(Spans(*(mine[c].to_numpy() for c in ("start_ns", "end_ns"))))
    length = covered(span, spent)
    if not length.any():
        return 0, ""
    names = pd.Categorical(mine["name"])
    by_name = sums(names.codes[owner], length, len(names.categories))
    return int(length.sum()), str(names.categories[int(by_name.argmax())])


def _off(seen: Witnesses, thread: int, spent: Spans) -> int:
    return int(covered(off_cpu(seen.schedule, thread, (OFF,)), spent).sum())


def _shares(samples: pd.DataFrame, stacks: Stacks, thread: int, spent: Spans) -> pd.DataFrame:
    whose = np.full(len(spent.start), thread)
    group = np.zeros(len(spent.start), dtype=np.int64)
    found = function_shares(samples, stacks, whose, spent.start, spent.end, group)
    return found[found["name"] != ""]


def _told(found: Doing, shares: pd.DataFrame) -> Doing:
    """The doing with what the samples say: the function with most, or where together they show
    more, what several functions are signs of."""
    if not len(shares):
        return found
    total, top = int(shares["total"].iloc[0]), shares.iloc[0]
    signs = shares[shares["signature"] >= 0].groupby("signature")["n"].sum()
    number, n = int(top["signature"]), int(top["n"])
    if len(signs) and int(signs.max()) > n:
        number, n = int(signs.idxmax()), int(signs.max())
        top = shares[shares["signature"] == number].iloc[0]
    sign = load_signatures()[number] if number >= 0 else None
    several = sign is not None and n > int(top["n"])
    name = f"{top['name']} and the like" if several else str(top["name"])
    few = n < LEAST_SAMPLES
    return Doing(
        found.total_ns, found.asleep_ns, found.os_call, found.off_ns, total, n,
        "" if few else name, str(top["name"]) if few else "", None if few else sign,
    )  # fmt: skip
