"""Times in words: apart from their neighbours, short on clocks that count from 1970."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsysdoctor.render.account import place_of
from nsysdoctor.render.moments import evidence_text, moment
from nsysdoctor.report.model import Evidence, LostTime
from nsysdoctor.units import moment_text
from tests.make_report import make_report

UTC_NS = 1_728_501_278_000_000_000


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0 ns"), (200_000, "200 µs"), (19_312_499, "19.312 ms"), (37_001_234_567, "37.001235 s"),
     (-5_000_000, "-5 ms")],
)  # fmt: skip
def test_a_moment_is_exact_to_a_microsecond(time_ns: int, text: str) -> None:
    assert moment_text(time_ns) == text


def test_places_a_few_microseconds_apart_read_differently() -> None:
    texts = {moment_text(37_000_000_000 + 2_000 * k) for k in range(20)}
    assert len(texts) == 20


def test_a_clock_that_counts_from_1970_is_told_as_an_offset() -> None:
    made = make_report()
    late = replace(made, devices=[replace(d, start_ns=UTC_NS) for d in made.devices])
    assert moment(late, 0, UTC_NS + 2_500_000) == "2.5 ms"
    assert moment(made, 0, 2_500_000) == "2.5 ms"
    place = Evidence(UTC_NS + 10**9, UTC_NS + 2 * 10**9, "idle")
    assert evidence_text(late, 0, place) == "1 s + 1.00 s  idle"


def test_the_longest_place_is_told_the_same_way() -> None:
    made = make_report()
    late = replace(made, devices=[replace(d, start_ns=UTC_NS) for d in made.devices])
    fields = dict.fromkeys(LostTime.__dataclass_fields__, "")
    row = LostTime(**{**fields, "trace": 0, "longest_ns": 4_000_000,
                      "longest_start_ns": UTC_NS + 7_000_000})  # fmt: skip
    assert "at 7 ms" in place_of(late, row)
