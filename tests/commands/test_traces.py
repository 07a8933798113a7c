"""What paths on the command line stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsysdoctor.commands.traces import is_own, natural, traces_of
from nsysdoctor.errors import UsageError


def test_a_folder_stands_for_its_traces_in_natural_order(tmp_path: Path) -> None:
    for name in ("rank10.sqlite", "rank2.sqlite", "rank1.json.gz", "notes.txt", "b.nsys-rep"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "report.json").write_text('{"format": "nsysdoctor-report"}')
    found = [path.name for path in traces_of([tmp_path])]
    assert found == ["b.nsys-rep", "rank1.json.gz", "rank2.sqlite", "rank10.sqlite"]


def test_a_pattern_stands_for_what_it_fits(tmp_path: Path) -> None:
    for name in ("a2.sqlite", "a10.sqlite", "b.sqlite"):
        (tmp_path / name).write_bytes(b"x")
    found = [path.name for path in traces_of([tmp_path / "a*.sqlite"])]
    assert found == ["a2.sqlite", "a10.sqlite"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    odd = tmp_path / "run[1].sqlite"
    odd.write_bytes(b"x")
    assert traces_of([odd]) == [odd]


@pytest.mark.parametrize("name", ["empty", "none*.sqlite"])
def test_what_stands_for_nothing_says_so(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        traces_of([tmp_path / name])


def test_other_paths_stay_as_they_are() -> None:
    assert traces_of([Path("missing.sqlite")]) == [Path("missing.sqlite")]


def test_numbers_in_names_sort_as_numbers() -> None:
    names = [Path("r10"), Path("r9"), Path("r1b2")]
    assert sorted(names, key=natural) == [Path("r1b2"), Path("r9"), Path("r10")]


def test_only_our_own_files_are_own(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    assert not is_own(tmp_path / "trace.json")
    assert not is_own(tmp_path / "missing.json")
