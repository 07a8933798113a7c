"""A share of the fuzzer's seeds, and what it found before."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from nsysdoctor.arrays.numbers import bounded
from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.roofline.launch_geometry import layout_of, operand_sizes
from nsysdoctor.roofline.operator_text import read_text
from nsysdoctor.trace.identity import identity_of
from nsysdoctor.trace.trace import open_trace
from sample_traces import record, write
from tests import fuzz
from tests.run_cli import run

FOUND = ("name 467", "export 12")
"""Seeds that failed once."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fuzz")
    fuzz.prepare(made)
    return made


@pytest.mark.parametrize("seed", FOUND)
def test_what_failed_once(seed: str, folder: Path) -> None:
    kind, number = seed.split()
    assert fuzz.attempt(kind, int(number), folder) is None


@pytest.mark.parametrize("kind", ["name", "text", "report"])
def test_a_few_seeds_of_all_that_is_quick(kind: str, folder: Path) -> None:
    tried = (fuzz.attempt(kind, seed, folder) for seed in range(40))
    assert [fault for fault in tried if fault] == []


@pytest.mark.sweep
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_many_seeds(kind: str, folder: Path) -> None:
    count = 40 if kind == "export" else 1000
    tried = (fuzz.attempt(kind, seed, folder) for seed in range(1000, 1000 + count))
    assert [fault for fault in tried if fault] == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("12", 12), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None),
        ("9" * 5000, None), ("-1", None), ("+1", None), ("1_0", None), (" 1", None), ("²", None),
        ("٣", None), ("", None), ("1e3", None), ("0x1", None), (None, None),
    ],
)  # fmt: skip
def test_numbers_in_texts_are_read_within_bounds(text: str | None, number: int | None) -> None:
    assert bounded(text) == number
    assert bounded("5", 4) is None


def test_an_array_of_millions_takes_no_memory() -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
        "std::array<char *, {}>>(int)"
    )
    assert operand_sizes(name.format(1)) == (4,)
    for count in ("300000000", "99999999999999999999", "²"):
        assert len(operand_sizes(name.format(count)) or ()) <= 64
        layout_of(name.format(count))


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 5000])
def test_a_sequence_number_beyond_64_bits_is_none(number: str) -> None:
    assert read_text(f"aten::mm, seq = {number}, op_id = 1")[1] == -1


@pytest.mark.parametrize("size", [2**41, 2**63, 10**30])
def test_a_size_beyond_all_memory_is_no_shape(size: int) -> None:
    assert read_text(f"aten::mm, seq = 1, op_id = 1, sizes = [[{size}, 2], [2, 2]]")[0].sizes == ()


@pytest.mark.parametrize(
    ("value", "rank"),
    [
        ("3", 3), ("NULL", None), ("'3'", 3), ("'three'", None), ("-1", None), ("2.5", None),
        ("'²'", None), ("9223372036854775807", None), ("x'ff'", None),
    ],
)  # fmt: skip
def test_a_rank_that_is_no_number_is_none(value: str, rank: int | None, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    write(record("sync_in_loop"), path)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE IF EXISTS MPI_RANKS")
        db.execute("CREATE TABLE MPI_RANKS (globalPid, rank)")
        db.execute(f"INSERT INTO MPI_RANKS VALUES (1, {value})")
    db.close()
    assert identity_of(open_trace(path).export).rank == rank


@pytest.mark.parametrize("table", ["MPI_RANKS", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"])
def test_optional_tables_without_their_columns_tell_nothing(table: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    write(record("sync_in_loop"), path)
    with sqlite3.connect(path) as db:
        db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute(f"CREATE TABLE {table} (other)")
        db.execute(f"INSERT INTO {table} VALUES (1)")
    db.close()
    assert identity_of(open_trace(path).export).rank is None


@pytest.mark.parametrize("name", ["rowid", "ROWID"])
def test_a_column_may_be_called_rowid(name: str, tmp_path: Path) -> None:
    path, other = tmp_path / "run.sqlite", tmp_path / "other.sqlite"
    for one in (path, other):
        write(record("sync_in_loop"), one)
    with sqlite3.connect(other) as db:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds"):
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} INTEGER DEFAULT 7")
    db.close()
    one, two = diagnose(path), diagnose(other)
    assert (one.devices, one.findings) == (two.devices, two.findings)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are UTF-8 here")
def test_a_path_need_not_be_utf_8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff b#?.sqlite")
    write(record("sync_in_loop"), tmp_path / "run.sqlite")
    (tmp_path / "run.sqlite").rename(path)
    ran = run("report", path, "--format", "json")
    assert ran.code == 0, ran.err
    assert ran.report["traces"][0]["path"].endswith("a\ufffd b#?.sqlite")
    targets = [tmp_path / f"o{end}" for end in (".json", ".html", ".sarif", ".xml", ".md", ".txt")]
    ran = run("report", path, *(word for target in targets for word in ("-o", target)))
    assert ran.code == 0, ran.err
    assert all(target.stat().st_size for target in targets)
