"""Input that breaks readers: each gets two lines and exit status 2, or a correct answer."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import Options, diagnose
from nsysdoctor.ingest.reader import open_export
from nsysdoctor.report.model import Report, read_report
from nsysdoctor.rulebook.rule import Rule, load_rules, select_rules
from nsysdoctor.trace.trace import open_trace
from nsysdoctor.trace.window import parse_window
from tests import swept
from tests.make_scene import change, write_text
from tests.run_cli import listing, run

KERNEL, MEMCPY = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
API, NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
MS = 1_000_000

SCENE = """
    thread host "python"
    kernel gemm = ampere_sgemm_128x64_tn
    kernel add = void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>()
    repeat 6 every 10ms
      0     9ms   host  range "step {n}"
      0     1ms   host  os poll
      1ms   2ms   host  cudaMemcpyAsync_v3020 -> +20us 1.9ms s7 copy HtoD 20MB pageable
      +5us  6us   host  cudaLaunchKernel -> +2us 1ms  s7 kernel gemm
      +5us  6us   host  cudaLaunchKernel -> +2us 1ms  s8 kernel add
      +5us  6us   host  cudaMemsetAsync  -> +2us 3us  s7 set 4kB
      +5us  6us   host  cudaGraphLaunch  -> +2us 1ms  s7 graph 1
      +1us  ..s7  host  cudaStreamSynchronize s7
      +1us  1ms   host  pause "CUPTI flush"
    """
SPAN_NS = 56_000_000
"""A little more than from the first copy to the last kernel."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report on the scene as it is."""
    path = write_text(SCENE, tmp_path_factory.mktemp("as_is") / "run.sqlite")
    return answered(path, brief=False)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """An export of the scene in a folder of its own."""
    folder = tmp_path / "in"
    folder.mkdir()
    return write_text(SCENE, folder / "run.sqlite")


def refused(path: Path, *words: str) -> str:
    """The message of a report that cannot be: exit status 2 and two lines, the second a hint.

    Nothing in the folder changes.
    """
    home = path if path.is_dir() else path.parent
    before = listing(home)
    ran = run("report", path, "--format", "json")
    assert listing(home) == before
    assert (ran.code, ran.out) == (2, "")
    message, hint = ran.error_lines
    assert message.startswith(f"nsysdoctor: {path} ")
    assert hint.startswith("  hint: ")
    assert len(hint) > len("  hint: ") + 5
    for word in words:
        assert word in ran.err
    return ran.err


def answered(path: Path, *, brief: bool = True) -> Report:
    """The report on a file that can be read: its account adds up, and its folder is as before."""
    before = listing(path.parent)
    made = diagnose(path, Options(rules=_few_rules(), brief=brief))
    assert listing(path.parent) == before
    for device in made.devices:
        parts = (device.compute_ns, device.exposed_communication_ns, device.exposed_copy_ns)
        assert sum(parts) + device.idle_ns == device.span_ns
        assert 0 <= device.utilization_ratio <= device.busy_ratio <= 1
        causes = [c.idle_ns for c in made.idle_causes if c.device == device.device]
        assert sum(causes) == device.idle_ns
    assert [o for o in made.outcomes if o.state == "failed"] == []
    assert read_report(made.to_json()) == made
    return made


@cache
def _few_rules() -> list[Rule]:
    return select_rules(load_rules(), ["gpu_idle", "pageable_copy"])


def dropped(made: Report) -> dict[tuple[str, str], int]:
    """Dropped rows by table and reason."""
    return {(d.table, d.reason): d.rows for d in made.traces[0].dropped}


# --- files that are no export


def test_a_missing_file_is_named_and_nothing_is_created(tmp_path: Path) -> None:
    refused(tmp_path / "typo.sqlite", "does not exist")
    assert listing(tmp_path) == {}


def test_a_folder_without_traces_is_no_trace(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder without a trace")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello\n", "is not an SQLite file"),
        (b"SQLite format 3", "is not an SQLite file"),
        (b"SQLite format 3\x00", "cut off"),
        (b"SQLite format 3\x00" + bytes(84), "cut off"),
        (b"\x89HDF\r\n\x1a\n" + bytes(500), "is not an SQLite file"),
    ],
)
def test_other_files_are_no_trace(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    refused(path, words)


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdrep"])
def test_a_report_file_gets_the_command_that_exports_it(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    path = tmp_path / f"my run{suffix}"
    path.write_bytes(b"\x00\x01")
    refused(path, "nsys export --type sqlite", f"'{path}'")


def fake_nsys(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a shell script of the name nsys first on PATH."""
    folder.mkdir()
    script = folder / "nsys"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_report_file_is_exported_where_nsys_is_installed(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nsys export --type sqlite --output TARGET REPORT: here the report is an export already.
    fake_nsys(tmp_path / "bin", 'cp "$6" "$5"', monkeypatch)
    path = sound.rename(sound.parent / "my run.nsys-rep")
    made = answered(path)
    assert made.traces[0].path == str(path)
    assert made.traces[0].rows["kernel"] == 12


def test_an_nsys_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nsys(tmp_path / "bin", "echo the report is too new >&2; exit 3", monkeypatch)
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "run.nsys-rep"
    path.write_bytes(b"\x00")
    refused(path, "the report is too new", "nsys export --type sqlite")


def test_a_pipe_is_no_trace_and_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    ran = run("report", path)
    assert ran.code == 2
    assert "is no file" in ran.err


def test_a_database_of_another_program_is_no_export(tmp_path: Path) -> None:
    path = tmp_path / "app.sqlite"
    change(path, "CREATE TABLE users (id INTEGER, name TEXT); INSERT INTO users VALUES (1, 'a')")
    refused(path, "no nsys export")


def test_an_empty_database_is_no_export(tmp_path: Path) -> None:
    path = tmp_path / "app.sqlite"
    change(path, "CREATE TABLE t (x); DROP TABLE t; VACUUM")
    refused(path, "no nsys export")


# --- files that are no longer whole


def test_a_zeroed_header_is_told(sound: Path) -> None:
    raw = bytearray(sound.read_bytes())
    raw[:100] = bytes(100)
    sound.write_bytes(raw)
    refused(sound, "is not an SQLite file")


@pytest.mark.parametrize("share", [0.6, 0.99])
@pytest.mark.parametrize("at_page", [True, False])
def test_a_file_that_was_cut_is_told(sound: Path, share: float, at_page: bool) -> None:
    raw = sound.read_bytes()
    size = int(len(raw) * share)
    size -= size % 4096 if at_page else 0
    sound.write_bytes(raw[:size])
    refused(sound, "cut off", f"{size:,} bytes of {len(raw):,}")


def test_a_file_with_a_destroyed_middle_is_told(sound: Path) -> None:
    raw = bytearray(sound.read_bytes())
    low, high = len(raw) // 10, len(raw) * 9 // 10
    raw[low:high] = b"\xff" * (high - low)
    sound.write_bytes(raw)
    refused(sound, "corrupt")


# --- exports with nothing to analyse


def test_an_export_without_gpu_activity_says_what_to_record(sound: Path) -> None:
    kinds = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
    change(sound, "".join(f"DROP TABLE CUPTI_ACTIVITY_KIND_{kind};" for kind in kinds))
    refused(sound, "holds no GPU activity", "nsys profile", "--trace=cuda")


def test_empty_activity_tables_are_no_activity(sound: Path) -> None:
    kinds = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
    change(sound, "".join(f"DELETE FROM CUPTI_ACTIVITY_KIND_{kind};" for kind in kinds))
    refused(sound, "holds no GPU activity")


def test_activity_of_impossible_rows_only_is_no_activity(sound: Path) -> None:
    kinds = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
    change(sound, "".join(f"UPDATE CUPTI_ACTIVITY_KIND_{k} SET start = NULL;" for k in kinds))
    refused(sound, "holds no GPU activity")


@pytest.mark.parametrize("sql", ["DROP TABLE {};", "DELETE FROM {};"])
def test_a_trace_without_kernels_says_that_they_may_be_missing(sound: Path, sql: str) -> None:
    """Utilization is 0 % then, which must not read as if it had been measured."""
    told = "no kernels were recorded"
    assert not [note for note in answered(sound, brief=False).notes if told in note.text]
    kinds = ("KERNEL", "GRAPH_TRACE")
    change(sound, "".join(sql.format(f"CUPTI_ACTIVITY_KIND_{kind}") for kind in kinds))
    assert [note for note in answered(sound, brief=False).notes if told in note.text]


def test_page_migrations_alone_are_no_activity(tmp_path: Path) -> None:
    path = write_text("0 20us s0 migration HtoD 64KiB", tmp_path / "run.sqlite")
    refused(path, "holds no GPU activity")


# --- where files lie


@pytest.mark.parametrize(
    "name",
    ["a?b.sqlite", "a#b.sqlite", "100%.sqlite", "a%3fb.sqlite", "my run.sqlite", "lauf-ä→.sqlite",
     "a?mode=rw.sqlite", "'quoted\".sqlite", "-o.sqlite", "no extension"],
)  # fmt: skip
def test_any_file_name_opens_that_file(sound: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "odd #1? 50%"
    folder.mkdir()
    path = folder / name
    shutil.copyfile(sound, path)
    assert answered(path).traces[0].path == str(path)


def test_a_read_only_folder_is_enough(sound: Path) -> None:
    sound.chmod(0o444)
    sound.parent.chmod(0o555)
    try:
        answered(sound)
    finally:
        sound.parent.chmod(0o755)
    # Root may write anywhere, so also hold what makes it work for everybody.
    assert open_export(sound).uri.endswith("?mode=ro&immutable=1")


def test_a_symbolic_link_is_followed(sound: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(sound)
    assert answered(link).traces[0].path == str(link)


@pytest.fixture
def with_log(sound: Path, tmp_path: Path) -> Iterator[Path]:
    """A file whose last rows are only in the write-ahead log beside it."""
    with closing(sqlite3.connect(sound)) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute(f"DELETE FROM {MEMCPY}")
        database.commit()
        folder = tmp_path / "live"
        folder.mkdir()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{sound}{suffix}", folder / f"run.sqlite{suffix}")
        yield folder / "run.sqlite"


def test_rows_that_are_only_in_a_live_log_are_read(with_log: Path) -> None:
    assert (with_log.parent / "run.sqlite-wal").stat().st_size > 0
    made = answered(with_log)
    assert made.traces[0].rows["memcpy"] == 0
    assert made.devices[0].exposed_copy_ns < MS


def test_a_live_log_beside_what_a_link_points_to_is_read(with_log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(with_log)
    assert answered(link).traces[0].rows["memcpy"] == 0


def test_a_file_in_log_mode_without_a_log_opens(sound: Path) -> None:
    with closing(sqlite3.connect(sound)) as database:
        database.execute("PRAGMA journal_mode = wal")
    assert sorted(listing(sound.parent)) == ["run.sqlite"]
    answered(sound)


def test_a_transaction_that_was_not_finished_is_taken_back(
    sound: Path, tmp_path: Path, before: Report
) -> None:
    folder = tmp_path / "hot"
    folder.mkdir()
    with closing(sqlite3.connect(sound, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN")
        database.execute("CREATE TABLE filler (x TEXT)")
        database.executemany("INSERT INTO filler VALUES (?)", [("x" * 2000,)] * 200)
        database.execute(f"UPDATE {KERNEL} SET \"end\" = start")
        for suffix in ("", "-journal"):
            shutil.copyfile(f"{sound}{suffix}", folder / f"run.sqlite{suffix}")
        database.execute("ROLLBACK")
    assert (folder / "run.sqlite-journal").stat().st_size > 512
    assert answered(folder / "run.sqlite").devices == before.devices


# --- rows that cannot be


def impossible(start: str, end: str, table: str = KERNEL) -> str:
    """SQL that adds three rows with these times to a table."""
    return f"""
        CREATE TEMP TABLE more AS SELECT * FROM {table} LIMIT 3;
        UPDATE more SET start = {start}, "end" = {end};
        INSERT INTO {table} SELECT * FROM more;
        """


@pytest.mark.parametrize("table", swept([KERNEL, MEMCPY, API], 3))
@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("NULL", "NULL", "a time that is no number"),
        ("'soon'", "5000000", "a time that is no number"),
        ("1000000", "'later'", "a time that is no number"),
        ("1000000.5", "2000000.5", "a time that is no number"),
        ("0", "0", "start and end are 0"),
        ("1000000", "0", "end before start"),
        ("9000000", "8000000", "end before start"),
        ("1000000", "9223372036854775807", "a time beyond any capture"),
        ("9223372036854775806", "9223372036854775807", "a time beyond any capture"),
        ("(-9223372036854775807 - 1)", "1000000", "a time beyond any capture"),
        ("1000000", "100000000000000000", "longer than any capture"),
    ],
)
def test_impossible_rows_are_dropped_counted_and_change_nothing(
    sound: Path, before: Report, table: str, start: str, end: str, reason: str
) -> None:
    change(sound, impossible(start, end, table))
    made = answered(sound)
    source = {KERNEL: "kernel", MEMCPY: "memcpy", API: "api"}[table]
    assert dropped(made) == {(source, reason): 3}
    assert made.devices == before.devices
    assert made.idle_causes == before.idle_causes


def test_rows_that_only_pricing_reads_are_counted_as_well(sound: Path) -> None:
    change(sound, impossible("9000000", "8000000", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"))
    assert dropped(answered(sound)) == {("sync", "end before start"): 3}


def test_dropped_rows_are_said_on_the_terminal(sound: Path) -> None:
    change(sound, impossible("9000000", "8000000"))
    ran = run("report", sound)
    assert ran.code == 0
    assert "end before start" in ran.out


def test_an_end_that_overlaps_its_own_stream_by_far_is_dropped(sound: Path, before: Report) -> None:
    change(sound, f'UPDATE {KERNEL} SET "end" = start + 3000000000 WHERE rowid = 3')
    made = answered(sound)
    assert dropped(made) == {("kernel", "overlaps its own stream"): 1}
    assert made.devices[0].span_ns == before.devices[0].span_ns < SPAN_NS


def test_zero_length_operations_are_counted_and_take_no_time(tmp_path: Path) -> None:
    path = write_text(
        """
        0     5us  host  cudaLaunchKernel -> 0    1ms s7 kernel gemm
        10us  5us  host  cudaLaunchKernel -> 500us 0  s8 kernel instant
        20us  5us  host  cudaLaunchKernel -> 1ms   0  s8 kernel instant
        30us  5us  host  cudaLaunchKernel -> 3ms   0  s8 kernel instant
        2ms   0    host  cudaLaunchKernel -> 4ms  1ms s7 kernel gemm
        """,
        tmp_path / "run.sqlite",
    )
    made = answered(path, brief=False)
    (device,) = made.devices
    assert (device.compute_ns, device.idle_ns, device.span_ns) == (2 * MS, 3 * MS, 5 * MS)
    assert {k.name: (k.count, k.total_ns) for k in made.kernels} == {
        "gemm": (2, 2 * MS),
        "instant": (3, 0),
    }


def test_a_trace_of_nothing_but_instants_is_answered(tmp_path: Path) -> None:
    path = write_text("5us 0 s7 kernel instant", tmp_path / "run.sqlite")
    (device,) = answered(path).devices
    assert device.span_ns == 0


def test_negative_times_are_times(sound: Path, before: Report) -> None:
    tables = (KERNEL, MEMCPY, API, NVTX, "CUPTI_ACTIVITY_KIND_MEMSET", "OSRT_API",
              "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "PROFILER_OVERHEAD",
              "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")  # fmt: skip
    change(
        sound,
        "".join(f'UPDATE {t} SET start = start - 30000000, "end" = "end" - 30000000;'
                for t in tables),
    )  # fmt: skip
    made = answered(sound)
    assert made.devices[0].start_ns < 0
    moved = [replace(d, start_ns=d.start_ns + 30 * MS) for d in made.devices]
    assert moved == before.devices
    assert made.idle_causes == before.idle_causes


# --- names


def test_names_that_are_no_utf_8_are_shown_leniently(sound: Path) -> None:
    bad = "CAST(x'766f69642066ff' AS TEXT)"
    change(
        sound,
        f"UPDATE StringIds SET value = {bad} WHERE value LIKE 'ampere%';"
        f"UPDATE {NVTX} SET text = {bad} WHERE rowid = 2;"
        f"UPDATE TARGET_INFO_GPU SET name = {bad};"
        f"UPDATE META_DATA_EXPORT SET value = {bad};",
    )
    made = answered(sound, brief=False)
    assert "void f\ufffd" in {k.name for k in made.kernels}
    assert made.devices[0].name == "void f\ufffd"
    assert run("report", sound).code == 0


def test_names_with_control_characters_markup_and_colour_codes_are_harmless(sound: Path) -> None:
    change(
        sound,
        "UPDATE StringIds SET value = 'evil' || char(27) || '[31m' || char(0, 10, 13, 7) || "
        "'[bold]</script>' WHERE value LIKE 'ampere%'",
    )
    answered(sound)
    ran = run("report", sound, "--verbose")
    assert ran.code == 0
    assert "\x1b[31m" not in ran.out


def test_names_that_repeat_under_several_ids_are_one_kernel(sound: Path, before: Report) -> None:
    change(
        sound,
        "INSERT INTO StringIds SELECT max(id) + 1, 'ampere_sgemm_128x64_tn' FROM StringIds;"
        f"UPDATE {KERNEL} SET demangledName = (SELECT max(id) FROM StringIds), "
        "shortName = (SELECT max(id) FROM StringIds) WHERE rowid = 1",
    )
    made = answered(sound, brief=False)
    assert made.devices == before.devices
    count = {k.name: k.count for k in made.kernels}
    assert count["ampere_sgemm_128x64_tn"] == 6


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO StringIds SELECT id, 'again ' || value FROM StringIds",
        "INSERT INTO StringIds VALUES (NULL, 'nobody')",
        "INSERT INTO StringIds VALUES ('text', 'nobody')",
        "INSERT INTO StringIds VALUES (CAST(x'66ff' AS TEXT), x'00ff')",
        "INSERT INTO StringIds VALUES (1.5, NULL)",
    ],
)
def test_odd_string_ids_name_nothing(sound: Path, before: Report, sql: str) -> None:
    change(sound, sql)
    assert answered(sound, brief=False).kernels == before.kernels


def test_names_that_are_missing_are_said_to_be(sound: Path) -> None:
    change(sound, "DELETE FROM StringIds")
    assert {k.name for k in answered(sound, brief=False).kernels} == {"(unnamed kernel)"}


# --- ranges


def test_ranges_of_every_kind_are_read_and_marks_are_none(sound: Path) -> None:
    change(
        sound,
        f"""
        INSERT INTO StringIds VALUES (9001, 'registered');
        CREATE TEMP TABLE more AS SELECT * FROM {NVTX} LIMIT 1;
        UPDATE more SET text = NULL, textId = 9001, start = 1000000, "end" = 2000000;
        INSERT INTO {NVTX} SELECT * FROM more;
        UPDATE more SET eventType = 60; INSERT INTO {NVTX} SELECT * FROM more;
        UPDATE more SET "end" = NULL; INSERT INTO {NVTX} SELECT * FROM more;
        UPDATE more SET textId = NULL; INSERT INTO {NVTX} SELECT * FROM more;
        UPDATE more SET eventType = 34; INSERT INTO {NVTX} SELECT * FROM more;
        UPDATE more SET eventType = 75, start = 0; INSERT INTO {NVTX} SELECT * FROM more;
        UPDATE more SET eventType = 39; INSERT INTO {NVTX} SELECT * FROM more;
        """,
    )
    answered(sound)
    trace = open_trace(sound)
    ranges, names = trace.table("ranges"), trace.table("range_names")
    found = ranges.assign(name=names["text"].to_numpy()[ranges["text"]])
    added = found[~found.name.str.startswith("step")]
    last = int(trace.table("ops")["end_ns"].max())
    rows = sorted(
        zip(added["name"], added["pushed"], added["open"], added["end_ns"], strict=True)
    )
    assert rows == [
        ("", False, True, last),
        ("registered", False, False, 2 * MS),
        ("registered", False, True, last),
        ("registered", True, False, 2 * MS),
    ]


# --- tables and columns that a version lacks


def tables_of(path: Path) -> dict[str, list[str]]:
    """Every table of a file with its columns."""
    with closing(sqlite3.connect(path)) as database:
        names = [n for (n,) in database.execute("SELECT name FROM sqlite_master")]
        return {
            n: [c[1] for c in database.execute(f'PRAGMA table_info("{n}")')] for n in names
        }


ACTIVITY = (KERNEL, MEMCPY, "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
OPTIONAL = (
    "StringIds", "META_DATA_EXPORT", API, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", NVTX, "OSRT_API",
    "PROFILER_OVERHEAD", "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_STREAM", "ThreadNames",
)  # fmt: skip


def test_the_scene_has_every_table_that_the_next_tests_drop(sound: Path) -> None:
    assert set(tables_of(sound)) == {*ACTIVITY, *OPTIONAL}


@pytest.mark.parametrize("table", swept([*ACTIVITY, *OPTIONAL], 4))
@pytest.mark.parametrize("how", ["DROP TABLE", "DELETE FROM"])
def test_any_table_may_be_missing_or_empty(sound: Path, table: str, how: str) -> None:
    change(sound, f"{how} {table}")
    states = {o.rule: (o.state, o.reason) for o in answered(sound).outcomes}
    state, reason = states["pageable_copy"]
    # Without names nothing tells what a call does, so nothing can be found.
    found = "passed" if table == "StringIds" else "found"
    assert state == ("skipped" if table in (MEMCPY, API) else found)
    if table in (MEMCPY, API):
        assert table in reason
        assert "record with --trace=cuda" in reason


NEEDED = ("start", "end", "eventType")


def without_columns(keep: Callable[[str], bool]) -> Callable[[Path], None]:
    """A change that drops every column for which `keep` is false."""

    def dropping(path: Path) -> None:
        lines = [
            f'ALTER TABLE {table} DROP COLUMN "{column}";'
            for table, columns in tables_of(path).items()
            for column in columns[0 if any(map(keep, columns)) else 1 :]
            if not keep(column)
        ]
        change(path, "".join(lines))

    return dropping


COLUMNS = (
    "greenContextId", "graphNodeId", "srcKind", "dstKind", "globalPid", "correlationId", "bytes",
    "copyKind", "contextId", "streamId", "deviceId", "nameId", "globalTid", "demangledName",
    "shortName", "gridX", "eventClass", "textId", "text", "domainId", "eventId", "memKind",
    "name", "cuDevice", "memoryBandwidth", "smCount", "gpuId", "cudaId", "pid", "nullStreamId",
)  # fmt: skip


@pytest.mark.parametrize("column", swept(COLUMNS, 6))
def test_any_column_may_be_missing(sound: Path, column: str) -> None:
    without_columns(lambda name: name != column)(sound)
    answered(sound)


def test_every_column_but_the_times_may_be_missing(sound: Path) -> None:
    without_columns(lambda name: name in (*NEEDED, "id", "value"))(sound)
    (device,) = answered(sound).devices
    assert device.span_ns < SPAN_NS


def test_without_memory_kinds_pageable_copies_cannot_be_judged(sound: Path) -> None:
    without_columns(lambda name: name not in ("srcKind", "dstKind"))(sound)
    (outcome,) = [o for o in answered(sound).outcomes if o.rule == "pageable_copy"]
    assert outcome.state == "skipped"
    assert "memory kinds" in outcome.reason


@pytest.mark.parametrize("value", ["NULL", "'zz'", "9223372036854775807", "-1", "1.5", "x'ff00'"])
@pytest.mark.parametrize("table", swept([KERNEL, MEMCPY, API, "TARGET_INFO_GPU"], 4))
def test_odd_values_in_any_column_but_the_times_are_answered(
    sound: Path, table: str, value: str
) -> None:
    for column in tables_of(sound)[table]:
        if column not in NEEDED:
            change(sound, f'UPDATE {table} SET "{column}" = {value} WHERE rowid % 3 = 1')
    answered(sound)


def test_objects_of_other_tools_in_the_file_do_no_harm(sound: Path, before: Report) -> None:
    change(
        sound,
        f"""
        CREATE INDEX i ON {KERNEL} (start); CREATE VIEW v AS SELECT * FROM {KERNEL};
        CREATE TABLE "odd ""name" (x); ALTER TABLE {KERNEL} ADD COLUMN kernel_name TEXT;
        CREATE TABLE cudaAPIStats (a, b);
        """,
    )
    assert answered(sound).devices == before.devices


@pytest.mark.parametrize(
    "sql",
    swept([
        "",
        *(f"DELETE FROM {table}" for table in (KERNEL, MEMCPY, API, "StringIds", "OSRT_API")),
        f"DELETE FROM {KERNEL} WHERE rowid > 1; DELETE FROM {MEMCPY} WHERE rowid > 1",
        f'UPDATE {KERNEL} SET "end" = start',
        f"UPDATE {KERNEL} SET correlationId = 0; UPDATE {MEMCPY} SET correlationId = NULL",
        f"UPDATE {KERNEL} SET streamId = NULL, contextId = NULL, deviceId = NULL",
        f"UPDATE {KERNEL} SET gridX = -1, blockX = 0, registersPerThread = 'many'",
        f"UPDATE {MEMCPY} SET bytes = 0, copyKind = 99, srcKind = 99, dstKind = -5",
        f"UPDATE {MEMCPY} SET bytes = 9223372036854775807 WHERE rowid = 2",
        f"UPDATE {API} SET correlationId = 5, globalTid = globalTid + rowid",
        f'UPDATE {NVTX} SET "end" = NULL, text = NULL',
        "UPDATE TARGET_INFO_GPU SET smCount = 0, memoryBandwidth = NULL, computeMajor = 'x'",
        "UPDATE TARGET_INFO_GPU SET computeMajor = -1, clockRate = -1, totalMemory = -1",
        "UPDATE StringIds SET value = ''",
    ], 6),
)
def test_every_rule_copes_with_odd_rows(sound: Path, sql: str, all_rules: list[Rule]) -> None:
    change(sound, sql)
    made = diagnose(sound, Options(rules=all_rules))
    assert [(o.rule, o.reason) for o in made.outcomes if o.state == "failed"] == []
    assert {o.rule for o in made.outcomes} == {rule.name for rule in all_rules}
    for finding in made.findings:
        ratio = finding.saving_ratio
        assert ratio is None or 0 <= ratio <= 1
        assert "{" not in finding.title + finding.message


@pytest.mark.parametrize(
    "window",
    swept([
        "1020000ns:1020001ns",
        "55013999ns:55014ms",
        "0:1021us",
        "55010us:60s",
        "3008us:4018us",
        "2900us:5010us",
        "5014us:11020us",
        "6ms:6000001ns",
        "13ms:33ms",
    ], 4),
)
def test_every_rule_copes_with_any_window(sound: Path, window: str, all_rules: list[Rule]) -> None:
    made = diagnose(sound, Options(parse_window(window), rules=all_rules))
    assert [(o.rule, o.reason) for o in made.outcomes if o.state == "failed"] == []
    assert {o.rule for o in made.outcomes} == {rule.name for rule in all_rules}
