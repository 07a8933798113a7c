"""The report on the command line: forms, files, windows, rules, exit statuses, consoles."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from nsysdoctor import __version__, cli
from tests import ROOT
from tests.make_scene import change, write_text
from tests.run_cli import Ran, listing, run

MS = 1_000_000

SCENE = """
    kernel gemm = ampere_sgemm_128x64_tn
    repeat 12 every 10ms
      0     9.9ms host  range "step {n}"
      0     4ms   host  cudaMemcpyAsync  -> +20us 3.9ms s7 copy HtoD 40MB pageable
      +5us  6us   host  cudaLaunchKernel -> +2us  5ms   s7 kernel gemm
      +5us  6us   host  cudaLaunchKernel -> +2us  1ms   gpu1/s7 kernel gemm
      +1us  ..s7  host  cudaStreamSynchronize s7
    """

MINE = {
    "our_rule.yaml": """
title: Ours
category: accounting
needs: [kernel]
message: "{count} kernels"
why: Because.
fix: {any: Do something.}
""",
    "our_rule.py": '''
"""Counts kernels."""
import pandas as pd

from nsysdoctor import table


@table
def our_rule(ops: pd.DataFrame) -> pd.DataFrame:
    """One row."""
    return pd.DataFrame([{"subject": "all", "device": -1, "count": len(ops), "level": "info"}])
''',
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with one finding worth acting on, on two GPUs."""
    return write_text(SCENE, tmp_path_factory.mktemp("trace") / "my run.sqlite")


def report(path: Path, *words: str | Path, encoding: str = "utf-8") -> Ran:
    """A report with two rules only, for speed."""
    chosen = ("--select", "gpu_idle", "--select", "pageable_copy")
    return run("report", path, *chosen, *words, encoding=encoding)


def complaint(ran: Ran, *words: str) -> None:
    """Holds that a command refused in two lines that contain the words."""
    assert (ran.code, ran.out) == (2, "")
    message, hint = ran.error_lines
    assert message.startswith("nsysdoctor: ")
    assert hint.startswith("  hint: ")
    for word in words:
        assert word in ran.err


# --- forms


def test_without_options_the_terminal_gets_the_answer_and_the_next_command(trace: Path) -> None:
    ran = report(trace)
    assert ran.code == 0
    assert "Asynchronous copies from pageable memory" in ran.out
    assert "pin_memory" in ran.out or "cudaHostAlloc" in ran.out
    assert f"nsysdoctor report '{trace}' -o report.html" in ran.err


def test_quiet_says_nothing_besides(trace: Path) -> None:
    assert report(trace, "--quiet").err == ""


def test_json_is_pure_and_hints_go_elsewhere(trace: Path) -> None:
    ran = report(trace, "--format", "json")
    assert ran.out.startswith("{")
    assert ran.report["format"] == "nsysdoctor-report"
    assert ran.report["tool_version"] == __version__
    assert ran.report["findings"][0]["rule"] == "pageable_copy"


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("markdown", "### nsysdoctor"),
        ("html", "<!doctype html>"),
        ("sarif", "{"),
        ("junit", "<?xml"),
        ("github", "::"),
        ("terminal", "nsysdoctor my run.sqlite"),
    ],
)
def test_every_form_can_be_printed(trace: Path, form: str, begins: str) -> None:
    ran = report(trace, "--format", form, "--quiet")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(begins)


def test_one_analysis_writes_every_form_by_extension(trace: Path, tmp_path: Path) -> None:
    names = ("r.html", "r.md", "r.json", "r.sarif", "r.xml", "r.TXT")
    ran = report(trace, *(word for name in names for word in ("-o", tmp_path / name)))
    assert (ran.code, ran.out) == (0, "")
    assert [line.split()[0] for line in ran.error_lines] == ["wrote"] * 6
    assert sorted(listing(tmp_path)) == sorted(names)
    begins = {name: (tmp_path / name).read_text(encoding="utf-8")[:15] for name in names}
    assert begins["r.html"] == "<!doctype html>"
    assert begins["r.md"].startswith("### nsysdoctor")
    assert begins["r.xml"].startswith("<?xml")
    assert begins["r.TXT"].startswith("nsysdoctor ")
    assert json.loads((tmp_path / "r.json").read_text())["format"] == "nsysdoctor-report"
    assert json.loads((tmp_path / "r.sarif").read_text())["version"] == "2.1.0"
    assert "charset=\"utf-8\"" in (tmp_path / "r.html").read_text(encoding="utf-8")[:400]


def test_two_reports_are_the_same_to_the_byte(trace: Path) -> None:
    assert report(trace, "--format", "json").out == report(trace, "--format", "json").out


# --- files that may be written


@pytest.mark.parametrize("name", ["report", "report.pdf", "report.html.bak"])
def test_an_extension_without_a_form_is_refused(trace: Path, tmp_path: Path, name: str) -> None:
    complaint(report(trace, "-o", tmp_path / name), "names no format", ".html")
    assert listing(tmp_path) == {}


def test_a_folder_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "no such" / "r.html"
    complaint(report(tmp_path / "typo.sqlite", "-o", missing), "folder of", "does not exist")


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.json", "r.sarif", "r.xml", "r.txt"])
def test_what_we_wrote_is_overwritten(trace: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    assert report(trace, "-o", target).code == 0
    first = target.read_bytes()
    assert report(trace, "-o", target).code == 0
    assert target.read_bytes() == first


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", "# nsysdoctor\n\nReports on traces, made with nsysdoctor report.\n"),
        ("notes.txt", "run nsysdoctor report tomorrow\n"),
        ("package.json", '{"name": "nsysdoctor", "version": "1"}'),
        ("index.html", "<!doctype html><title>mine</title><p>nsysdoctor is good"),
        ("results.xml", '<testsuites><testsuite name="pytest"/></testsuites>'),
    ],
)
def test_what_others_wrote_is_kept_unless_forced(
    trace: Path, tmp_path: Path, name: str, content: str
) -> None:
    target = tmp_path / name
    target.write_text(content)
    complaint(report(trace, "-o", target), str(target), "--force")
    assert target.read_text() == content
    assert report(trace, "-o", target, "--force").code == 0
    assert target.read_text(encoding="utf-8") != content


def test_an_empty_file_may_be_filled(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.md"
    target.touch()
    assert report(trace, "-o", target).code == 0


@pytest.mark.parametrize("link", ["", "symbolic", "hard"])
def test_the_trace_is_never_overwritten(trace: Path, tmp_path: Path, link: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(trace.read_bytes())
    target = path
    if link:
        target = tmp_path / "other.json"
        target.symlink_to(path) if link == "symbolic" else target.hardlink_to(path)
    complaint(report(path, "-o", target, "--force"), "is the trace itself")
    assert path.read_bytes() == trace.read_bytes()


def test_a_folder_is_no_output_file(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out.html"
    folder.mkdir()
    complaint(report(trace, "-o", folder), "is a folder")


def test_a_disk_that_refuses_is_said_in_two_lines(trace: Path, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "r.md"))

    with patch.object(Path, "write_text", refuse):
        complaint(report(trace, "-o", tmp_path / "r.md"), "No space left", "r.md")


# --- windows, devices, rules


def test_a_window_bounds_every_figure(trace: Path) -> None:
    made = report(trace, "--format", "json", "--window", "20ms:40000us").report
    expected = {"start_ns": 20 * MS, "end_ns": 40 * MS, "basis": "given", "paused_ns": 0}
    assert made["window"] == expected
    assert [d["span_ns"] for d in made["devices"]] == [20 * MS] * 2


@pytest.mark.parametrize("name", ["all", "steady"])
def test_named_windows(trace: Path, name: str) -> None:
    assert report(trace, "--format", "json", "--window", name).report["window"]["basis"] == name


@pytest.mark.parametrize(
    "window", ["", "1", "1:2:3", "2s:1s", "1s:1s", "soon:later", "1h:2h", "nan:inf", "1e3:2e3"]
)
def test_a_window_that_cannot_be_meant_is_refused(trace: Path, window: str) -> None:
    complaint(report(trace, "--window", window), "window")


@pytest.mark.parametrize("window", ["5s:6s", "-2s:-1s", "100s:200s"])
def test_a_window_outside_the_capture_is_refused(trace: Path, window: str) -> None:
    """A device is not idle where nothing was captured; a gate must not judge it either."""
    complaint(report(trace, "--window", window), str(trace), "window", "captured")
    assert run("gate", trace, "--min-utilization", "0", "--window", window).code == 2


def test_the_hint_draws_what_was_asked_for(trace: Path) -> None:
    ran = report(trace, "--window", "5ms:15ms", "--device", "1")
    assert f"report '{trace}' --window 5ms:15ms --device 1 -o report.html" in ran.err


def test_one_device_on_request(trace: Path) -> None:
    made = report(trace, "--format", "json", "--device", "1").report
    assert [d["device"] for d in made["devices"]] == [1]
    assert {f["device"] for f in made["findings"]} <= {1}


def test_a_device_that_ran_nothing_is_refused_with_those_that_did(trace: Path) -> None:
    complaint(report(trace, "--device", "5"), "device 5", "0", "1")


def test_only_selected_rules_are_asked(trace: Path) -> None:
    made = run("report", trace, "--format", "json", "--select", "gpu_idle").report
    assert [o["rule"] for o in made["outcomes"]] == ["gpu_idle"]


def test_ignored_rules_are_not_asked(trace: Path) -> None:
    made = report(trace, "--format", "json", "--ignore", "pageable_copy").report
    assert [o["rule"] for o in made["outcomes"]] == ["gpu_idle"]


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_a_mistyped_rule_gets_the_nearest_name(trace: Path, option: str) -> None:
    complaint(report(trace, option, "pagable_copy"), "pagable_copy", "did you mean pageable_copy?")


def test_rules_of_ones_own_are_asked_too(trace: Path, tmp_path: Path) -> None:
    for name, content in MINE.items():
        (tmp_path / name).write_text(content)
    ran = run("report", trace, "--format", "json", "--rules", tmp_path, "--select", "our_rule")
    (finding,) = ran.report["findings"]
    assert (finding["rule"], finding["message"]) == ("our_rule", "36 kernels")


def test_a_rule_that_crashes_is_a_failed_outcome_and_no_failed_report(
    trace: Path, tmp_path: Path
) -> None:
    for name, content in MINE.items():
        (tmp_path / name).write_text(content.replace("len(ops)", "len(ops) // 0"))
    ran = run("report", trace, "--format", "json", "--rules", tmp_path, "--select", "our_rule")
    assert ran.code == 0
    (outcome,) = ran.report["outcomes"]
    assert (outcome["state"], outcome["reason"][:17]) == ("failed", "ZeroDivisionError")
    assert "our_rule" in run("report", trace, "--rules", tmp_path, "--select", "our_rule").out


# --- words that cannot be meant


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reprot"], "report"),
        (["report"], "TRACE"),
        (["report", "--bogus"], "--bogus"),
        (["report", "x.sqlite", "--format", "pdf"], "markdown"),
        (["report", "x.sqlite", "--top", "0"], "--top"),
        (["report", "x.sqlite", "--device", "one"], "--device"),
        (["rules", "explain", "pagable_copy"], "did you mean pageable_copy?"),
        (["rules", "explain"], "RULE"),
    ],
)
def test_bad_options_get_two_lines(words: list[str], expected: str) -> None:
    complaint(run(*words), expected)


def test_no_words_get_the_help() -> None:
    ran = run()
    assert ran.code == 2
    assert "report" in ran.out + ran.err


def test_the_version() -> None:
    assert run("--version").out == f"nsysdoctor {__version__}\n"


def test_an_error_shows_a_traceback_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYSDOCTOR_DEBUG", "1")
    ran = run("report", tmp_path / "typo.sqlite")
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert "does not exist" in ran.error_lines[-2]


# --- consoles


def test_colours_only_on_a_terminal_and_never_against_the_users_wish(trace: Path) -> None:
    assert "\x1b[" not in report(trace).out


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_is_obeyed(
    trace: Path, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    raw = io.BytesIO()
    words = ["nsysdoctor", "report", str(trace), "--select", "pageable_copy"]
    with (
        patch.object(sys, "argv", words),
        redirect_stdout(Terminal(raw, encoding="utf-8")) as out,
        redirect_stderr(io.StringIO()),
        pytest.raises(SystemExit),
    ):
        cli.main()
    out.flush()
    assert (b"\x1b[3" in raw.getvalue() or b"\x1b[1;3" in raw.getvalue()) == coloured


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp437"])
@pytest.mark.parametrize("words", [[], ["--format", "json"], ["--format", "markdown"]])
def test_a_console_that_cannot_show_everything_does_not_break(
    tmp_path: Path, encoding: str, words: list[str]
) -> None:
    path = write_text(SCENE, tmp_path / "lauf → 東京.sqlite")
    change(path, "UPDATE StringIds SET value = 'kernel → 東京' WHERE value LIKE 'ampere%'")
    ran = report(path, "--verbose", *words, encoding=encoding)
    assert ran.code == 0
    if words == ["--format", "json"]:
        assert ran.report["traces"][0]["path"] == str(path)
    complaint(report(tmp_path / "fehlt → 東京.sqlite", encoding=encoding), "does not exist")


def test_the_installed_command_answers_like_the_function(trace: Path) -> None:
    words = ["report", str(trace), "--select", "pageable_copy", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "nsysdoctor", *words], cwd=ROOT, capture_output=True, check=False,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("utf-8") == run(*words).out
