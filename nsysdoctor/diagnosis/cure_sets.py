"""Cures that need each other: the smallest sets whose saving is more than that of their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

Saving = Callable[[Iterable[int]], int]
"""Returns what some cures save together, told by their numbers, ns."""


class CureSet(NamedTuple):
    """Cures that save more together than each for itself, what they save, and what each adds to
    the others, ns."""

    members: tuple[int, ...]
    saving_ns: int
    added_ns: tuple[int, ...]


def find_sets(
    saving: Saving, single: Sequence[int], whole_ns: int, least_ns: int, most_asked: int = 40
) -> list[CureSet]:
    """Returns sets without common members, each worth at least `least_ns` more than its parts.

    `single` is what each cure saves alone, `whole_ns` all of them. Of all cures those are left
    out, one after the other, without which the rest saves as much. Of what remains pairs are
    tried, and a pair grows by what adds more to it than it saves alone. `saving` is asked at most
    `most_asked` times.
    """
    if whole_ns < max(single, default=0) + least_ns:
        return []
    search = _Search(saving, single, least_ns, most_asked)
    core, suspects = search.core(whole_ns)
    found: list[CureSet] = []
    while (best := search.pair(core, suspects)) is not None:
        grown = search.grown(best, [s for s in suspects if s in core])
        found.append(grown)
        core = [number for number in core if number not in grown.members]
    left = [number for number in suspects if number in core]
    if len(left) > 2 and search.gain(left) >= least_ns:
        found.append(search.told(left))
    return found


class _Search:
    """Asks for savings, each once, until so many were asked for."""

    def __init__(
        self, saving: Saving, single: Sequence[int], least_ns: int, most_asked: int
    ) -> None:
        self._saving, self._single, self._least_ns = saving, single, least_ns
        self._most_asked = most_asked
        self._known = {frozenset((number,)): ns for number, ns in enumerate(single)}

    def saving_ns(self, cures: Sequence[int]) -> int:
        """Returns what the cures save together; once too much was asked, the most that is known
        of any of them."""
        key = frozenset(cures)
        if key not in self._known:
            if self._most_asked <= 0:
                return max((ns for known, ns in self._known.items() if known <= key), default=0)
            self._most_asked -= 1
            self._known[key] = self._saving(sorted(key))
        return self._known[key]

    def gain(self, cures: Sequence[int]) -> int:
        """Returns how much more the cures save together than each for itself."""
        return self.saving_ns(cures) - sum(self._single[number] for number in cures)

    def core(self, whole_ns: int) -> tuple[list[int], list[int]]:
        """Returns the cures that save all together, without those that change nothing, and of
        them those that are worth more among the others than alone."""
        core = sorted(range(len(self._single)), key=lambda number: self._single[number])
        share: dict[int, int] = {}
        for number in [*core]:
            rest = [other for other in core if other != number]
            left = self.saving_ns(rest)
            if rest and left >= whole_ns - self._least_ns // 4:
                core = rest
            else:
                share[number] = whole_ns - left
        suspects = [n for n in core if share[n] >= self._single[n] + self._least_ns // 2]
        return core, suspects

    def pair(self, core: Sequence[int], suspects: Sequence[int]) -> list[int] | None:
        """Returns the pair that gains most, None where none gains enough."""
        pairs = {
            tuple(sorted(pair))
            for pair in product([s for s in suspects if s in core], core)
            if pair[0] != pair[1]
        }
        best = max(sorted(pairs), key=self.gain, default=None)
        return [*best] if best is not None and self.gain(best) >= self._least_ns else None

    def grown(self, members: list[int], others: Sequence[int]) -> CureSet:
        """Returns the set with all that adds more to it than it saves alone."""
        for number in others:
            if number in members:
                continue
            added = self.saving_ns([*members, number]) - self.saving_ns(members)
            if added >= self._single[number] + self._least_ns:
                members = [*members, number]
        return self.told(members)

    def told(self, members: Sequence[int]) -> CureSet:
        """Returns the set of the members."""
        whole = self.saving_ns(members)
        rest = ([other for other in members if other != number] for number in sorted(members))
        added = tuple(max(whole - self.saving_ns(others), 0) for others in rest)
        return CureSet(tuple(sorted(members)), whole, added)
