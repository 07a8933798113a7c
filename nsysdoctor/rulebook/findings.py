"""From what a rule measured to findings in a reader's words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Cure
from nsysdoctor.replay.replay import Price
from nsysdoctor.report.model import FAILURES, LEVELS, Evidence, Finding, Level, Quantity
from nsysdoctor.rulebook.evidence import EVIDENCE_LIMIT, longest_places
from nsysdoctor.rulebook.rule import Rule
from nsysdoctor.units import quantity_text

CAPTURE = "capture"
"""The category of rules about what a capture lacks."""

_OWN = frozenset({"subject", "trace", "device", "count", "level", "basis", "saving_ns", "variant"})
_SHARES: tuple[tuple[float, Level], ...] = ((0.10, "high"), (0.03, "medium"), (0.01, "low"))


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


def level_of(saving_ratio: float) -> Level:
    """Returns the level of a saving, as a share of the window, on the one scale for all rules."""
    return next((level for least, level in _SHARES if saving_ratio >= least), "info")


def rank_key(finding: Finding) -> tuple[bool, int, bool, int, str, str, int]:
    """Returns what findings are sorted by: level, saving, then names, so that no two tie.

    Failures to act on come before all others, since a program that did not work has no time worth
    pricing. Among those for the record the ones that limit what the capture can show come first.
    """
    return (
        finding.category != FAILURES or finding.level == "info",
        LEVELS.index(finding.level),
        finding.level != "info" or finding.category != CAPTURE,
        -(finding.saving_ns or 0),
        finding.rule,
        finding.subject,
        finding.device if finding.device is not None else -1,
    )


def make_finding(
    measured: Measured, row: int, price: Price | None, window_ns: int, ecosystem: str, trace: int
) -> Finding:
    """Returns the finding for one row of what a rule measured."""
    words = measured.rule.words
    data: dict[str, Any] = measured.rows.iloc[row].to_dict()
    facts = {k: _plain(v) for k, v in data.items() if k not in _OWN and not k.startswith("_")}
    price = price or _stated(data, window_ns)
    ratio = price.saving_ns / window_ns if price is not None and window_ns else None
    shown = {k: quantity_text(k, _plain(v)) for k, v in data.items()}
    fix, spoken = words.cure_for(ecosystem, str(data.get("variant") or ""))
    places = measured.places[row]
    device = int(data.get("device", -1))
    return Finding(
        rule=measured.rule.name,
        level=data.get("level") or level_of(ratio or 0.0),
        subject=str(data["subject"]),
        trace=int(data.get("trace", trace)),
        device=device if device >= 0 else None,
        title=words.title.format(**shown),
        message=words.message.format(**shown).strip(),
        why=words.why.strip(),
        fix=fix,
        ecosystem=spoken,
        example={k: v.strip() for k, v in words.example_for(spoken).items()},
        count=int(data["count"]),
        saving_ns=price.saving_ns if price else None,
        saving_low_ns=price.low_ns if price else None,
        saving_high_ns=price.high_ns if price else None,
        saving_ratio=ratio,
        basis=data.get("basis") or "measured",
        facts=facts,
        evidence=places.shown,
        evidence_total=places.total,
        category=words.category,
    )


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
