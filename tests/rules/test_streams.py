"""The rule about the default stream, on the sample programs."""

from __future__ import annotations

import pytest

from sample_traces import record
from tests.rules.programs import found_on, misses, report_on

RULE = "default_stream_serialization"


def test_saving_is_what_the_cure_saves() -> None:
    assert misses("default_stream", RULE, ranged=False) == ""
    assert found_on("default_stream", RULE)[0].facts["stream_count"] == 4


def test_cured_program_is_quiet() -> None:
    assert found_on("default_stream", RULE, cured=True) == ()


@pytest.mark.parametrize(
    "program",
    ["single_stream", "four_streams", "healthy_training", "incomplete_capture", "two_processes"],
)
def test_other_programs_are_quiet(program: str) -> None:
    assert found_on(program, RULE) == ()


def test_old_exports_do_not_tell_the_kind_of_streams_so_behaviour_does() -> None:
    recording = record("default_stream")
    recording.streams.clear()
    finding = report_on(recording, RULE).findings[0]
    assert finding.level != "info"
    assert finding.basis == "inferred"
    cured = record("default_stream", cured=True)
    cured.streams.clear()
    assert report_on(cured, RULE).findings == []
