"""From what a rule measured to findings in a reader's words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Cure, frames_of, of_rows
from nsysdoctor.replay.replay import Price
from nsysdoctor.report.model import Basis, Evidence, Finding, Quantity, Subject
from nsysdoctor.report.ranking import level_of, longest, together, told_of_all
from nsysdoctor.rulebook.evidence import EVIDENCE_LIMIT, longest_places
from nsysdoctor.rulebook.rule import Rule, Words
from nsysdoctor.units import quantity_text

_OWN = frozenset(
    {"subject", "trace", "device", "count", "level", "basis", "saving_ns", "variant"}
)
_CAUSES = ("cause", "group", "_cause")
_BASES: tuple[Basis, ...] = ("measured", "geometry", "inferred")


class Places(NamedTuple):
    """The longest places that show one finding, and how many there are in all."""

    shown: list[Evidence]
    total: int


@dataclass(frozen=True)
class Measured:
    """What one rule found: a row per subject, where each shows and the edits that cure them.

    `addressed` are the stretches of time that cures without edits are about: row, start_ns,
    end_ns and, where they are of one device only, device.
    """

    rule: Rule
    rows: pd.DataFrame
    places: list[Places]
    edits: Cure | None
    addressed: pd.DataFrame | None = None


@dataclass(frozen=True)
class Cause:
    """The rows of a rule that one cure ends, wherever they are, and the edits of that cure."""

    measured: Measured
    rows: list[int]
    name: str
    edits: list[pd.DataFrame] | None


def causes_of(measured: Measured) -> list[Cause]:
    """Returns the causes of what a rule measured, in the order of their first rows.

    A fault is in the code, so its cure lands on all devices, threads, directions and kernels at
    once: rows with edits are one cause, unless their rule tells causes apart in a column of texts
    named cause, group or _cause, or a level of their own. Rows without edits stand alone.
    """
    if measured.edits is None:
        return [Cause(measured, [row], "", None) for row in range(len(measured.rows))]
    groups: dict[str, list[int]] = {}
    for row, data in enumerate(measured.rows.to_dict("records")):
        told = (data[name] for name in _CAUSES if isinstance(data.get(name), str))
        groups.setdefault(next(told, "") or str(data.get("level") or ""), []).append(row)
    frames = frames_of(measured.edits)
    return [
        Cause(measured, rows, name, frames if len(groups) == 1 else of_rows(frames, rows))
        for name, rows in groups.items()
    ]


def make_finding(
    cause: Cause,
    price: Price | None,
    alone: Sequence[int | None],
    window_ns: int,
    ecosystem: str,
    trace: int,
) -> Finding:
    """Returns the finding on one cause; `price` is that of its cure everywhere, `alone` what it
    saves at each subject. The words are those of the subject where it saves most."""
    measured, words = cause.measured, cause.measured.rule.words
    subjects = sorted(
        (_Told(measured, row, own) for row, own in zip(cause.rows, alone, strict=True)),
        key=lambda told: -(told.saving_ns or 0),
    )
    lead = subjects[0]
    price = price or _stated(lead.data, window_ns)
    ratio = price.saving_ns / window_ns if price is not None and window_ns else None
    fix, spoken = _cure_text(words, ecosystem, subjects)
    places = [measured.places[row] for row in cause.rows]
    devices = {told.device for told in subjects}
    listed = [told.subject(trace) for told in subjects] if len(subjects) > 1 else []
    return Finding(
        rule=measured.rule.name,
        level=lead.data.get("level") or level_of(ratio or 0.0),
        subject=together(told.name for told in subjects),
        trace=int(lead.data.get("trace", trace)),
        device=lead.device if len(devices) == 1 else None,
        title=words.title.format(**lead.shown),
        message=told_of_all(lead.message, [told.name for told in subjects[1:]]),
        why=words.why.strip(),
        fix=fix,
        ecosystem=spoken,
        example={k: v.strip() for k, v in words.example_for(spoken).items()},
        count=sum(int(told.data["count"]) for told in subjects),
        saving_ns=price.saving_ns if price else None,
        saving_low_ns=price.low_ns if price else None,
        saving_high_ns=price.high_ns if price else None,
        saving_ratio=ratio,
        basis=max((told.basis for told in subjects), key=_BASES.index),
        facts=lead.facts,
        evidence=longest(place for shown, _ in places for place in shown),
        evidence_total=sum(total for _, total in places),
        category=words.category,
        cause=cause.name,
        subjects=listed,
    )


def _cure_text(words: Words, ecosystem: str, subjects: Sequence[_Told]) -> tuple[str, str]:
    """The texts of the cures of all subjects, the first one first, and their ecosystem."""
    told = [words.cure_for(ecosystem, one.variant, one.fixes) for one in subjects]
    return "\n\n".join(dict.fromkeys(text for text, _ in told)), told[0][1]


class _Told:
    """One row of what a rule measured, in words."""

    def __init__(self, measured: Measured, row: int, saving_ns: int | None) -> None:
        words = measured.rule.words
        self.data: dict[str, Any] = measured.rows.iloc[row].to_dict()
        self.saving_ns = saving_ns
        self.name = str(self.data["subject"])
        self.variant = str(self.data.get("variant") or "")
        self.fixes: Mapping[str, str] | None = self.data.get("_fixes")
        self.basis: Basis = self.data.get("basis") or "measured"
        self.shown = {k: quantity_text(k, _plain(v)) for k, v in self.data.items()}
        self.message = words.message.format(**self.shown).strip()
        told = ((k, v) for k, v in self.data.items() if k not in _OWN and not k.startswith("_"))
        self.facts = {k: _plain(v) for k, v in told}
        device = int(self.data.get("device", -1))
        self.device = device if device >= 0 else None

    def subject(self, trace: int) -> Subject:
        """Returns the row as one of the subjects of a finding."""
        return Subject(
            self.name, int(self.data.get("trace", trace)), self.device, int(self.data["count"]),
            self.saving_ns, self.message, self.facts,
        )  # fmt: skip


def _stated(data: dict[str, Any], window_ns: int) -> Price | None:
    stated = data.get("saving_ns")
    if stated is None or pd.isna(stated):
        return None
    saving = max(0, min(int(stated), window_ns))
    return Price(saving, saving, saving)


def _plain(value: Any) -> Quantity:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if isinstance(value, int | float | str) or value is None else str(value)


def places_of(evidence: pd.DataFrame | None, rows: int) -> list[Places]:
    """Returns the places of each of so many rows; of all that a rule collected few are shown."""
    if evidence is None:
        return [Places([], 0)] * rows
    row = evidence["row"].to_numpy()
    return [_places(evidence, np.flatnonzero(row == number)) for number in range(rows)]


def _places(evidence: pd.DataFrame, mine: np.ndarray) -> Places:
    start, end = evidence["start_ns"].to_numpy()[mine], evidence["end_ns"].to_numpy()[mine]
    length = end - start
    long = longest_places(length)
    few = evidence.iloc[mine[long]].assign(length=length[long])
    order = few.sort_values(
        ["length", "start_ns", "end_ns", "what"], ascending=[False, True, True, True]
    )
    shown = [
        Evidence(int(r["start_ns"]), int(r["end_ns"]), str(r["what"]))
        for r in order.head(EVIDENCE_LIMIT).to_dict("records")
    ]
    return Places(shown, len(mine))
