"""The ledger tiles what a device loses, and names each piece by what the export proves."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from nsysdoctor.tables.account.time_budget import BUCKETS
from nsysdoctor.tables.ledger.culprits import KINDS
from nsysdoctor.tables.ledger.device_phases import PHASES
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import parse_window
from sample_traces import PROGRAMS, record, write
from tests import swept
from tests.make_scene import trace_of

MS, US = 1_000_000, 1_000
FOLDER = os.environ.get("NSYSDOCTOR_CORPUS", "")
EXPORTS = sorted(Path(FOLDER).glob("*.sqlite")) if FOLDER else []
AROUND = ("before", "after")


def ledger(trace: Trace) -> pd.DataFrame:
    """The pieces with their lengths; what must hold of every ledger holds of it."""
    pieces = trace.table("lost_time")
    found = pieces.assign(ns=pieces["end_ns"] - pieces["start_ns"])
    assert (found["ns"] > 0).all()
    assert set(found["culprit_kind"]) <= set(KINDS)
    assert set(found["phase"]) <= set(PHASES)
    assert ((found["culprit"] == "") == (found["culprit_kind"] == "none")).all()
    for device, mine in found.groupby("device"):
        assert (mine["start_ns"].to_numpy()[1:] >= mine["end_ns"].to_numpy()[:-1]).all(), device
    return found


def assert_tiles(trace: Trace) -> pd.DataFrame:
    """Holds the ledger against the budget and the causes of gaps, to the nanosecond."""
    found = ledger(trace)
    inside = found[~found["phase"].isin(AROUND)]
    for row in trace.table("time_budget").to_dict("records"):
        mine = inside[inside["device"] == row["device"]]
        spent = mine.groupby("bucket", observed=False)["ns"].sum()
        assert [int(spent[name]) for name in BUCKETS[1:]] == [row[f"{n}_ns"] for n in BUCKETS[1:]]
    causes = inside[inside["bucket"] == "idle"].groupby(["device", "cause"], observed=True)["ns"]
    gaps = trace.table("gap_causes")
    length = (gaps["end_ns"] - gaps["start_ns"]).groupby([gaps["device"], gaps["cause"]]).sum()
    assert sorted(causes.sum()) == sorted(length[length > 0])
    return found


def by(found: pd.DataFrame, *columns: str) -> dict[object, int]:
    """ns by the values of some columns, without those that take none."""
    spent = found.groupby(list(columns), observed=True)["ns"].sum()
    return {key if len(columns) > 1 else key[0]: int(ns) for key, ns in _keyed(spent)}


def _keyed(spent: pd.Series[int]) -> list[tuple[tuple[object, ...], int]]:
    return [(k if isinstance(k, tuple) else (k,), n) for k, n in spent.items() if n]


@pytest.mark.parametrize("name", swept(PROGRAMS, 8))
def test_the_ledger_of_every_program_tiles_its_lost_time(name: str, tmp_path: Path) -> None:
    write(record(name), tmp_path / "run.sqlite")
    assert_tiles(open_trace(tmp_path / "run.sqlite"))


@pytest.mark.corpus
@pytest.mark.skipif(not FOLDER, reason="NSYSDOCTOR_CORPUS names no folder of real exports")
@pytest.mark.parametrize("path", EXPORTS or [None], ids=lambda p: p.stem if p else "none")
def test_the_ledger_of_every_real_export_tiles_its_lost_time(path: Path) -> None:
    trace = open_trace(path)
    ops = trace.optional("ops")
    if ops is not None and len(ops):
        assert_tiles(trace)


@pytest.mark.parametrize("name", ["pageable_copy", "input_starvation", "unfused_chain"])
def test_a_later_clock_changes_no_owner(name: str, tmp_path: Path) -> None:
    rows = ["device", "bucket", "cause", "culprit", "culprit_kind", "thread", "range", "phase"]
    found = []
    for moved_ns in (0, 86_400 * 10**9 + 7):
        path = tmp_path / f"{moved_ns}.sqlite"
        write(record(name), path)
        shift(path, moved_ns)
        pieces = ledger(open_trace(path))
        found.append(pieces.assign(start=pieces["start_ns"] - moved_ns)[["start", "ns", *rows]])
    pd.testing.assert_frame_equal(*found, check_categorical=False)


def shift(path: Path, by_ns: int) -> None:
    """Moves all that happened in an export to a later time."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master")]
        for table in names:
            columns = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
            for column in columns & {"start", "end"}:
                database.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + ?', (by_ns,))
        database.commit()


# --- who is named


def test_a_call_is_named_and_what_it_calls_in_the_os_more_closely() -> None:
    found = assert_tiles(trace_of("""
        0      5us   host  cudaLaunchKernel -> 10us 90us s7 kernel gemm
        100us  50ms  host  cudaMalloc
        20ms   10ms  host  os ioctl
        50.2ms 5us   host  cudaLaunchKernel -> 50.21ms 1ms s7 kernel gemm
        """))
    spent = by(found[found["phase"] == "steady"], "culprit", "culprit_kind")
    assert spent["cudaMalloc", "call"] == 40 * MS
    assert spent["ioctl in cudaMalloc", "os_call"] == 10 * MS


def test_host_code_is_named_by_its_innermost_range_or_not_at_all() -> None:
    found = assert_tiles(trace_of("""
        0     5us   host  cudaLaunchKernel -> 0 100us s7 kernel gemm
        10ms  20ms  host  range "tokenize"
        15ms  5ms   host  range "vocabulary 7"
        40ms  5us   host  cudaLaunchKernel -> 40.005ms 1ms s7 kernel gemm
        """))
    spent = by(found[found["cause"] == "host_code"], "culprit")
    assert spent == {"": 40 * MS - 20 * MS - 100 * US, "tokenize": 15 * MS, "vocabulary #": 5 * MS}


def test_a_copy_is_named_by_what_it_moves_and_who_asked_for_it() -> None:
    found = assert_tiles(trace_of("""
        0    5us  host  range "to device"
        0    5us  host  cudaMemcpyAsync -> 10us 4ms s7 copy HtoD 40MB pageable
        0    5us  host  cudaLaunchKernel -> 5ms 1ms s7 kernel gemm
        """))
    (row,) = found[found["bucket"] == "exposed_copy"].to_dict("records")
    assert row["culprit"] == "Memcpy HtoD (pageable to device) by cudaMemcpyAsync"
    assert (row["culprit_kind"], row["range"], row["ns"]) == ("copy", "to device", 4 * MS)


def test_what_the_host_did_around_the_device_is_told_apart() -> None:
    trace = trace_of("""
        0     30ms  host  cudaHostAlloc
        40ms  5us   host  cudaLaunchKernel -> 40.01ms 5ms s7 kernel gemm
        46ms  20ms  host  cudaFreeHost
        """)
    found = assert_tiles(trace)
    assert by(found, "phase", "culprit") == {
        ("before", "cudaHostAlloc"): 30 * MS,
        ("before", ""): 10 * MS,
        ("before", "cudaLaunchKernel"): 10 * US - 5 * US + 5 * US,
        ("after", ""): 46 * MS - 45 * MS - 10 * US,
        ("after", "cudaFreeHost"): 20 * MS,
    }


def test_a_part_of_a_capture_has_nothing_around_it() -> None:
    text = """
        0     30ms  host  cudaHostAlloc
        40ms  5us   host  cudaLaunchKernel -> 40.01ms 5ms s7 kernel gemm
        """
    found = assert_tiles(trace_of(text, parse_window("41ms:44ms")))
    assert not found["phase"].isin(AROUND).any()
