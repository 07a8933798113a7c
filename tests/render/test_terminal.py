"""The terminal and the Markdown report, on the same edge inputs."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from nsysdoctor.render import savings, words
from nsysdoctor.render.markdown import render_markdown
from nsysdoctor.render.terminal import encodable, render_terminal
from nsysdoctor.report.model import Report
from tests.make_report import (
    EDGES,
    MS,
    NASTY,
    make_causes,
    make_device,
    make_finding,
    make_report,
    make_trace,
)


def on_terminal(report: Report, **options: object) -> str:
    """Returns what an 80-column console without colours shows."""
    console = Console(file=io.StringIO(), width=80)
    render_terminal(report, console, **options)  # type: ignore[arg-type]
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def flat(text: str) -> str:
    """Returns text with every run of white space as one blank."""
    return " ".join(text.split())


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("verbose", [False, True])
def test_terminal_fits_80_columns_and_holds_no_control_characters(edge: str, verbose: bool) -> None:
    text = on_terminal(EDGES[edge](), verbose=verbose, top=20)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", text)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii", "latin-1", "utf-8"])
def test_any_console_encoding_prints(edge: str, encoding: str) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    render_terminal(EDGES[edge](), Console(file=file, width=80), verbose=True, top=20)
    file.flush()
    assert "GPU" in raw.getvalue().decode(encoding)


def test_ascii_bar_tells_the_buckets_apart() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    render_terminal(make_report(), Console(file=file, width=80))
    file.flush()
    bar = next(line for line in raw.getvalue().decode().splitlines() if "####" in line).strip()
    assert re.fullmatch(r"#+=+\++\.+", bar)
    assert len(bar) == 75
    assert abs(bar.count("#") / 75 - 0.55) < 0.02


def test_colours_only_on_a_terminal_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in on_terminal(make_report())
    shown = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    render_terminal(make_report(), shown)
    assert "\x1b[1;31m" in shown.file.getvalue()  # type: ignore[attr-defined]
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    render_terminal(make_report(), plain)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain.file.getvalue())  # type: ignore[attr-defined]


def test_terminal_tells_the_whole_story() -> None:
    text = flat(on_terminal(make_report()))
    for part in (
        "GPU utilization 60.0 %.",
        "the cure saves up to 18.0 ms (18.0 %). All cures together save up to 19.0 ms (19.0 %).",
        "36 of 40 steps steady, median 2.70 ms",
        "compute 55.0 %",
        "communication 5.0 %",
        "copy 10.0 %",
        "idle 30.0 %",
        "idle 30.0 ms: blocking copy 18.0 ms, host code 7.00 ms",
        "Cure: Pin the batches and copy them ahead of their use: DataLoader(..., pin_memory=True)"
        " x.to(device, non_blocking=True)",
        "Not judged: input_starvation, unified_memory_migration;"
        " record with --trace=cuda,osrt --cuda-um-gpu-page-faults=true",
        "Left out: 3 kernel rows (end before start)",
        "Note: GPU metrics were not sampled",
    ):
        assert part in text
    assert text.index("HIGH") < text.index("LOW")


def test_steps_in_a_window_are_said_to_be_the_hosts() -> None:
    made = make_report()
    given = replace(made, window=replace(made.window, basis="given"))
    assert "the host takes 40 whole steps in it, median 2.70 ms" in flat(on_terminal(given))
    assert "takes no whole step in it" in flat(on_terminal(replace(given, steps=None)))
    nothing = replace(given, steps=None, phases=[])
    assert "no iterations recognised" in flat(on_terminal(nothing))


def test_verbose_adds_kernels_and_evidence() -> None:
    text = flat(on_terminal(make_report(), verbose=True))
    assert "memory bound (geometry)" in text
    assert "1.73 TB/s, 85.0 % of peak bandwidth" in text
    assert "at 200 µs + 1.00 ms 4.19 MB HtoD, step 0" in text
    assert "and 25 more places" in text
    assert "between 15.0 ms and 21.0 ms" in text


def test_info_is_for_the_record() -> None:
    report = make_report(findings=[make_finding(level="info", title="Registers spill")])
    quiet, loud = flat(on_terminal(report)), flat(on_terminal(report, verbose=True))
    assert "No cure known for the 45.0 ms (45.0 %) of: blocking copy 18.0 ms" in quiet
    assert "1 for the record" in quiet
    assert "Registers spill" not in quiet
    assert "Registers spill" in loud
    assert "Registers spill" not in render_markdown(report)


def test_top_limits_the_findings_and_says_so() -> None:
    text = on_terminal(EDGES["thousands of findings"](), top=2)
    assert "subject 1" in text
    assert "subject 2" not in text
    assert "2,998 more findings" in text


def test_many_devices_get_a_line_each() -> None:
    devices = [make_device(device=i, idle_ns=30 * MS) for i in range(8)]
    causes = [cause for i in range(8) for cause in make_causes(device=i)]
    text = on_terminal(make_report(devices=devices, idle_causes=causes, findings=[]))
    assert len([line for line in text.splitlines() if line.startswith("GPU ")]) == 9
    assert "idle on all devices: blocking copy 144 ms" in text


def test_a_number_keeps_its_unit_on_its_line() -> None:
    for width in range(40, 100):
        console = Console(file=io.StringIO(), width=width)
        render_terminal(make_report(), console)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert not [line for line in lines if re.match(r"\s*(ms|%|GB/s)\b", line)]


def test_encodable_keeps_the_length() -> None:
    for name in NASTY:
        for encoding in ("cp1252", "ascii", "utf-8"):
            safe = encodable(name, encoding)
            assert len(safe) == len(name)
            safe.encode(encoding)


def test_shares_add_up_and_lose_nothing() -> None:
    assert words.shares([55, 5, 10, 30], 20) == [11, 1, 2, 6]
    assert words.shares([10**9, 1, 0, 1], 10) == [8, 1, 0, 1]
    assert words.shares([0, 0], 10) == [0, 0]
    assert sum(words.shares([1, 1, 1], 76)) == 76


def test_flags_are_united() -> None:
    reasons = ["record with --trace=cuda,nvtx.", "record with --trace=cuda,osrt", "(--sample=cpu)"]
    assert words.flags(reasons) == "--trace=cuda,nvtx,osrt --sample=cpu"


def test_options_of_other_commands_are_not_called_recording_options() -> None:
    reasons = [
        "mark the steps with NVTX ranges, or name a steady stretch with --window",
        "export again with nsys export --type sqlite",
    ]
    assert words.flags(reasons) == ""
    assert words.flags([*reasons, "record with --trace=osrt"]) == "--trace=osrt"


def shown_by(markdown: str) -> str:
    """Returns the text a reader sees; fails on raw HTML that is not ours."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    seen: list[str] = []
    for token in parser.parse(markdown):
        if token.type == "html_block":
            assert re.fullmatch(r"</?details>(<summary>[^<]*</summary>)?\s*", token.content)
        if token.type in ("fence", "code_block"):
            seen.append(token.content)
        for child in token.children or ():
            assert child.type in (
                "text",
                "strong_open",
                "strong_close",
                "em_open",
                "em_close",
                "softbreak",
                "hardbreak",
                "text_special",
            ), child
            seen.append(child.content if "text" in child.type else " ")
    return "".join(seen)


@pytest.mark.parametrize("edge", EDGES)
def test_markdown_is_short_and_holds_no_foreign_markup(edge: str) -> None:
    text = render_markdown(EDGES[edge]())
    shown_by(text)
    assert len(text) < 12_000


@pytest.mark.parametrize("name", NASTY[:6])
def test_markdown_shows_names_literally(name: str) -> None:
    report = make_report(findings=[make_finding(title=name, message=name, subject=name, fix=name)])
    literal = flat(name)
    assert flat(shown_by(render_markdown(report))).count(literal) >= 4


def test_markdown_tells_the_whole_story() -> None:
    text = shown_by(render_markdown(make_report()))
    for part in ("GPU utilization 60.0 %", "up to 18.0 ms (18.0 %)", "DataLoader", "Not judged"):
        assert part in text


def test_two_traces_are_told_apart() -> None:
    report = EDGES["two traces"]()
    assert "rank 1, GPU 0" in on_terminal(report)
    assert "rank 1, GPU 0" in render_markdown(report)
    unnamed = make_report(traces=[make_trace(path="a/x.sqlite"), make_trace(path="b/y.sqlite")])
    assert words.device_label(unnamed, 1, 0) == "y.sqlite, GPU 0"


def test_blocks_tell_prose_from_code() -> None:
    text = (
        "Pin it:\n    a = 1\n      b\nthen `wait`.\n\nAgain.\n```py\nfor x in y:\n\n    z\n```\nend"
    )
    assert [(piece.code, piece.text) for piece in words.blocks(text)] == [
        (False, "Pin it:"),
        (True, "a = 1\n  b"),
        (False, "then `wait`."),
        (False, "Again."),
        (True, "for x in y:\n\n    z"),
        (False, "end"),
    ]
    assert words.blocks("") == []


def test_cure_that_is_only_code() -> None:
    report = make_report(findings=[make_finding(fix="    a = 1\n    b = 2")])
    assert "a = 1 b = 2" in flat(on_terminal(report))
    assert "a = 1; b = 2" in flat(shown_by(render_markdown(report)))


def test_a_cure_that_saves_nothing_says_so() -> None:
    finding = make_finding(saving_ns=0, saving_low_ns=0, saving_high_ns=0, saving_ratio=0.0)
    assert savings.saving_text(finding) == "no saving"
    assert words.first_cure(make_report(findings=[finding])) is None
