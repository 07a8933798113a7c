"""What is written: whole files only, nothing foreign, and lines that nothing can break."""

from __future__ import annotations

import csv
import errno
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsysdoctor.arrays import compiled
from nsysdoctor.commands.outputs import beside, say, write_whole
from nsysdoctor.errors import UsageError
from nsysdoctor.export.events import guarded
from nsysdoctor.units import escaped
from sample_traces import record, write
from tests.run_cli import listing, run


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outputs") / "run.sqlite"
    write(record("sync_in_loop"), path)
    return path


def _full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


# --- whole or not at all


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt(), SystemExit(1)])
@pytest.mark.parametrize("before", [None, "old"])
def test_what_fails_half_way_leaves_what_was_there(
    error: BaseException, before: str | None, tmp_path: Path
) -> None:
    target = tmp_path / "out.json"
    if before is not None:
        target.write_text(before)
    seen = listing(tmp_path)
    with pytest.raises(type(error)), beside(target) as path:
        path.write_text("half")
        raise error
    assert listing(tmp_path) == seen


@pytest.mark.parametrize("name", ["r.json", "r.html", "r.md", "r.sarif", "r.xml", "r.txt"])
def test_a_full_disk_keeps_the_last_good_report(
    name: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / name
    assert run("report", trace, "-o", target).code == 0
    seen = listing(tmp_path)
    monkeypatch.setattr(Path, "write_text", _full_disk)
    ran = run("report", trace, "-o", target)
    assert (ran.code, ran.error_lines[0]) == (2, "nsysdoctor: No space left on device")
    assert listing(tmp_path) == seen


@pytest.mark.parametrize("name", ["o.csv", "o.parquet", "o.sqlite", "o.perfetto.json"])
@pytest.mark.parametrize("words", [("--table", "opss"), ("--table", "window_s")])
def test_a_refused_export_keeps_the_earlier_one(
    name: str, words: tuple[str, str], trace: Path, tmp_path: Path
) -> None:
    target = tmp_path / name
    assert run("export", trace, target).code == 0
    seen = listing(tmp_path)
    if not name.endswith(".perfetto.json"):
        assert run("export", trace, target, "--force", *words).code == 2
        assert run("export", trace, tmp_path / f"new_{name}", *words).code == 2
    assert run("export", tmp_path / "typo.sqlite", target, "--force").code == 2
    assert listing(tmp_path) == seen


def test_links_and_rights_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640
    write_whole(Path("/dev/null"), "gone")


# --- nothing of others


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "nsysdoctor is what we should try\n"),
        ("b.txt", "nsysdoctor notes\n\nBuy milk\n"),
        ("c.html", "<title>How to read nsysdoctor pages</title>"),
        ("d.md", "### nsysdoctor in our team\n"),
        ("e.xml", '<testsuite name="nsysdoctor-tests"/>'), ("f.json", '{"format": "nsys"}'),
    ],
)  # fmt: skip
def test_what_only_begins_with_our_name_is_not_ours(
    name: str, content: str, trace: Path, tmp_path: Path
) -> None:
    target = tmp_path / name
    target.write_text(content)
    ran = run("report", trace, "-o", target)
    assert (ran.code, target.read_text()) == (2, content)
    assert "--force" in ran.err


def test_no_report_takes_the_place_of_a_baseline(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "base.json"
    assert run("baseline", "save", trace, "-o", target).code == 0
    before = target.read_text()
    ran = run("report", trace, "-o", target)
    assert (ran.code, target.read_text()) == (2, before)
    assert "is a baseline" in ran.err
    assert run("baseline", "save", trace, "-o", target).code == 0
    assert run("report", trace, "-o", target, "--force").code == 0


def test_files_of_different_kinds_of_ours_are_kept_apart(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    write_whole(target, '{"format": "nsysdoctor-report"}')
    write_whole(target, '{"format": "nsysdoctor-report", "a": 1}')
    with pytest.raises(UsageError, match="report"):
        write_whole(target, '{"format": "nsysdoctor-diff"}')


# --- lines and cells


@pytest.mark.parametrize(
    "text",
    ["a\x1b[31mb", "a\nb", "a\r\nb", "a\x00b", "a\u202eb", "a\x85b", "a\u2028b", "a\udcffb",
     "a\x9bb"],
)
def test_nothing_in_a_line_breaks_a_terminal(
    text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    said = escaped(text)
    assert said.isprintable()
    assert said.startswith("a")
    assert said.endswith("b")
    say(text)
    assert capfd.readouterr().err == said + "\n"


def test_a_file_name_with_commands_is_written_out(tmp_path: Path) -> None:
    ran = run("report", tmp_path / "a\x1b[2Jb\nnsysdoctor: all is well.sqlite")
    assert ran.code == 2
    assert len(ran.error_lines) == 2
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("sign", "=+-@\t\r")
def test_cells_are_no_formulas(sign: str) -> None:
    frame = pd.DataFrame({"name": [f"{sign}cmd|' /C calc'!A0", "gemm"], "ns": [-5, 5]})
    made = guarded(frame)
    assert made["name"].tolist() == [f"'{sign}cmd|' /C calc'!A0", "gemm"]
    assert made["ns"].tolist() == [-5, 5]


def test_exported_cells_are_guarded(trace: Path, tmp_path: Path) -> None:
    import shutil
    import sqlite3

    evil, target = tmp_path / "evil.sqlite", tmp_path / "ops.csv"
    shutil.copy(trace, evil)
    with sqlite3.connect(evil) as db:
        db.execute("UPDATE StringIds SET value = '=1+1' || value")
    db.close()
    assert run("export", evil, target).code == 0
    with target.open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+"))]
    assert any(cell.startswith("'=1+1") for cell in cells)


# --- machines


def test_where_no_cache_can_be_had_passes_are_compiled_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read-only install with a home that cannot be written to."""
    import numba

    asked = []

    def njit(*, nogil: bool, cache: bool = False) -> Any:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function 'x': no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)

    def double(values: Any, out: Any) -> None:
        out[0] = 2 * values[0]

    made = compiled._compiled(double)
    assert (made, asked) == (double, [True, False])
