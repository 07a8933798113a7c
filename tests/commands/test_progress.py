"""What a user sees while a report is made: stages on a terminal, nothing when piped."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nsysdoctor.commands.progress import progress
from nsysdoctor.jobs.job import DONE, JobOptions, diagnose_job
from nsysdoctor.rulebook.rule import load_rules
from tests import SAMPLES

TRACES = [SAMPLES / f"{name}.sqlite"
          for name in ("healthy", "two_gpu")]  # fmt: skip


class Heard:
    """What a job told, in order."""

    def __init__(self) -> None:
        self.words: list[tuple[Path, str, float]] = []

    def __call__(self, path: Path, stage: str, share: float) -> None:
        self.words.append((path, stage, share))


def test_each_trace_tells_its_stages_in_order() -> None:
    heard = Heard()
    diagnose_job(TRACES, JobOptions(payloads=True), seen=heard)
    asked = [rule.name for rule in load_rules() if rule.words.scope == "trace"]
    for trace in TRACES:
        mine = [(stage, share) for path, stage, share in heard.words if path == trace]
        assert [s for s, _ in mine] == ["reading", *asked, "pricing cures", "drawing", DONE]
        shares = [share for _, share in mine]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_traces_read_elsewhere_tell_when_they_are_done() -> None:
    heard = Heard()
    with ThreadPoolExecutor(2) as pool:
        diagnose_job(TRACES, executor=pool, seen=heard)
    assert heard.words == [(trace, DONE, 1.0) for trace in TRACES]


def test_a_terminal_shows_the_file_and_the_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress(TRACES, quiet=False) as seen:
        seen(TRACES[0], "pricing cures", 0.85)
    shown = capsys.readouterr()
    assert "healthy.sqlite: pricing cures" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("quiet", [False, True])
def test_nothing_is_shown_when_piped(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(TRACES, quiet) as seen:
        seen(TRACES[0], "reading", 0.0)
    assert capsys.readouterr() == ("", "")
