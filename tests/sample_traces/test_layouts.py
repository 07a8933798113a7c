"""The files that the model writes: tables and columns of four generations of real exports."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sample_traces import PROGRAMS, record, write
from sample_traces.__main__ import KEPT, main
from sample_traces.layouts import LAYOUTS, Layout
from tests import SAMPLES, swept

WHERE = ["start!", "end!", "deviceId!", "contextId!", "streamId!", "correlationId", "globalPid"]
GREEN = [*WHERE[:4], "greenContextId", *WHERE[4:]]
GEOMETRY = [
    *("registersPerThread!", "gridX!", "gridY!", "gridZ!", "blockX!", "blockY!", "blockZ!"),
    *("staticSharedMemory!", "dynamicSharedMemory!", "localMemoryPerThread!"),
    *("localMemoryTotal!", "gridId!", "sharedMemoryExecuted", "graphNodeId"),
]
NAMES = ["demangledName!", "shortName!"]
LAUNCH = ["launchType", "cacheConfig"]
KERNEL_2022 = [*NAMES, "mangledName", *LAUNCH, *GEOMETRY, "sharedMemoryLimitConfig"]
KERNEL_2025 = [
    *("qmdBulkReleaseDone", "qmdPreexitDone", "qmdLastCtaDone", "graphId"),
    *("clusterX", "clusterY", "clusterZ", "clusterSchedulingPolicy"),
    *("maxPotentialClusterSize", "maxActiveClusters"),
]
COPY = [
    *("bytes!", "copyKind!", "deprecatedSrcId", "srcKind", "dstKind"),
    *("srcDeviceId", "srcContextId", "dstDeviceId", "dstContextId"),
]
RUNTIME = [
    *("start!", "end!", "eventClass!", "globalTid", "correlationId", "nameId!", "returnValue!")
]
OS = ["start!", "end!", "eventClass!", "globalTid", "nameId!", "returnValue!", "nestingLevel"]
NVTX = [
    *("start!", "end", "eventType!", "rangeId", "category", "color", "text", "globalTid"),
    *("endGlobalTid", "textId", "domainId", "uint64Value", "int64Value", "doubleValue"),
    *("uint32Value", "int32Value", "floatValue", "jsonTextId", "jsonText"),
]

EXPECTED: dict[tuple[str, str], list[str]] = {
    ("2020", "KERNEL"): [*WHERE, *NAMES, *LAUNCH, *GEOMETRY],
    ("2022", "KERNEL"): [*WHERE, *KERNEL_2022],
    ("2024", "KERNEL"): [*GREEN, *KERNEL_2022],
    ("2025", "KERNEL"): [*GREEN, *KERNEL_2022, *KERNEL_2025],
    ("2020", "MEMCPY"): [*WHERE, *COPY, "graphNodeId"],
    ("2022", "MEMCPY"): [*WHERE, *COPY, "migrationCause", "graphNodeId", "virtualAddress"],
    ("2024", "MEMCPY"): [*GREEN, *COPY, "migrationCause", "graphNodeId", "virtualAddress"],
    ("2025", "MEMCPY"): [
        *GREEN,
        *COPY,
        *("migrationCause", "graphNodeId", "virtualAddress", "copyCount"),
    ],
    ("2020", "RUNTIME"): RUNTIME,
    ("2022", "RUNTIME"): [*RUNTIME, "callchainId"],
    ("2024", "RUNTIME"): [*RUNTIME, "callchainId"],
    ("2025", "RUNTIME"): [*RUNTIME, "callchainId"],
    ("2020", "SYNCHRONIZATION"): [*WHERE, "syncType!", "eventId!"],
    ("2022", "SYNCHRONIZATION"): [*WHERE, "syncType!", "eventId!"],
    ("2024", "SYNCHRONIZATION"): [*GREEN, "syncType!", "eventId!"],
    ("2025", "SYNCHRONIZATION"): [
        *GREEN,
        *("deprecatedSyncType", "syncType!", "eventId!", "eventSyncId"),
    ],
    ("2020", "OSRT_API"): [*OS[:4], "correlationId", *OS[4:], "callchainId!"],
    ("2022", "OSRT_API"): [*OS, "callchainId!"],
    ("2024", "OSRT_API"): [*OS, "callchainId!"],
    ("2025", "OSRT_API"): [*OS, "callchainId!", "argumentsId!"],
    ("2020", "NVTX_EVENTS"): NVTX,
    ("2022", "NVTX_EVENTS"): NVTX,
    ("2024", "NVTX_EVENTS"): [*NVTX, "binaryData"],
    ("2025", "NVTX_EVENTS"): [*NVTX, "binaryData"],
}

# Tables that tell the generations apart: there in these layouts, absent in the others.
ONLY_IN = {
    "EXPORT_META_DATA": {"2022"},
    "META_DATA_EXPORT": {"2024", "2025"},
    "META_DATA_CAPTURE": {"2024", "2025"},
    "PROCESSES": {"2022", "2024", "2025"},
    "ANALYSIS_DETAILS": {"2022", "2024", "2025"},
    "TARGET_INFO_CUDA_GPU": {"2020"},
    "TARGET_INFO_CUDA_NULL_STREAM": {"2020", "2022"},
    "TARGET_INFO_CUDA_CONTEXT_INFO": {"2024", "2025"},
    "TARGET_INFO_CUDA_DEVICE": {"2025"},
    "DIAGNOSTIC_EVENT": {"2024", "2025"},
    "ENUM_CUDA_MEM_KIND": {"2024", "2025"},
    "ENUM_CUPTI_OVERHEAD_TYPE": {"2025"},
}


def full_name(table: str) -> str:
    return table if "_" in table else f"CUPTI_ACTIVITY_KIND_{table}"


def tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master")}


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    rows = database.execute(f'SELECT name, "notnull" FROM pragma_table_info("{table}")')
    return [name + "!" * required for name, required in rows]


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def export(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, sqlite3.Connection]]:
    path = tmp_path_factory.mktemp("layout") / f"{request.param}.sqlite"
    write(record("sync_in_loop"), path, layout=request.param)
    with closing(sqlite3.connect(path)) as database:
        yield request.param, database


def written(name: str, path: Path, layout: str = "2025") -> sqlite3.Connection:
    write(record(name), path, layout=layout)
    return sqlite3.connect(path)


def test_activity_tables_have_the_columns_of_their_generation(
    export: tuple[str, sqlite3.Connection],
) -> None:
    layout, database = export
    for (name, table), wanted in EXPECTED.items():
        if name == layout:
            assert columns(database, full_name(table)) == wanted, table


def test_each_generation_has_its_own_tables(export: tuple[str, sqlite3.Connection]) -> None:
    layout, database = export
    assert {name: layout in where for name, where in ONLY_IN.items()} == {
        name: name in tables(database) for name in ONLY_IN
    }


def test_a_table_exists_only_when_it_has_rows(export: tuple[str, sqlite3.Connection]) -> None:
    _, database = export
    found = tables(database)
    assert "CUPTI_ACTIVITY_KIND_MEMSET" not in found
    assert "PROFILER_OVERHEAD" not in found
    for name in found:
        assert database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] > 0


def test_the_schema_version_is_stored_where_the_generation_kept_it(
    export: tuple[str, sqlite3.Connection],
) -> None:
    layout, database = export
    table = {"2022": "EXPORT_META_DATA", "2024": "META_DATA_EXPORT", "2025": "META_DATA_EXPORT"}
    if layout in table:
        query = f"SELECT value FROM {table[layout]} WHERE name = 'EXPORT_SCHEMA_VERSION'"
        wanted = {"2022": "2.9.1", "2024": "3.16.1", "2025": "3.24.0"}
        assert database.execute(query).fetchone() == (wanted[layout],)


def test_rows_join_by_process_and_correlation(export: tuple[str, sqlite3.Connection]) -> None:
    _, database = export
    for table in ("KERNEL", "MEMCPY"):
        query = f"""
            SELECT count(*), count(r.start), min(g.start - r.start)
            FROM CUPTI_ACTIVITY_KIND_{table} g LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
            ON r.correlationId = g.correlationId AND (r.globalTid & -16777216) = g.globalPid
        """
        rows, joined, earliest = database.execute(query).fetchone()
        assert rows == joined > 0
        assert earliest > 0


def test_the_card_is_described_in_both_forms(export: tuple[str, sqlite3.Connection]) -> None:
    layout, database = export
    if layout == "2020":
        query = "SELECT name, numMultiprocessors, coreClockRate FROM TARGET_INFO_CUDA_GPU"
        assert database.execute(query).fetchall() == [("NVIDIA A100-SXM4-80GB", 108, 1_410_000)]
        assert len(columns(database, "TARGET_INFO_GPU")) == 5
    else:
        query = "SELECT name, memoryBandwidth, clockRate, smCount FROM TARGET_INFO_GPU"
        row = ("NVIDIA A100-SXM4-80GB", 2_039_040_000_000, 1_410_000_000, 108)
        assert database.execute(query).fetchall() == [row]
        assert len(columns(database, "TARGET_INFO_GPU")) == 41


@pytest.mark.parametrize(
    ("layout", "device", "stream", "wait"),
    [("2020", 1, 3, 3), ("2024", 0, 2, 2), ("2025", 4, 2, 2)],
)
def test_synchronisations_are_numbered_as_in_their_time(
    tmp_path: Path, layout: str, device: int, stream: int, wait: int
) -> None:
    none = 4_294_967_295
    with closing(written("healthy_training", tmp_path / "a.sqlite", layout)) as database:
        query = (
            "SELECT DISTINCT streamId = ?, eventId = ?, syncType"
            " FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
        )
        found = set(database.execute(query, (none, none)))
    assert found == {(1, 1, device), (0, 1, stream), (0, 0, wait)}


def test_graph_replays_are_rows_of_their_own_where_the_layout_has_them(tmp_path: Path) -> None:
    with closing(written("graph_inference", tmp_path / "new.sqlite")) as database:
        assert "CUPTI_ACTIVITY_KIND_KERNEL" not in tables(database)
        query = "SELECT count(*), count(DISTINCT graphExecId) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
        assert database.execute(query).fetchone() == (50, 1)
    with closing(written("graph_inference", tmp_path / "old.sqlite", "2022")) as database:
        assert "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" not in tables(database)
        query = (
            "SELECT count(*), count(graphNodeId), count(DISTINCT correlationId)"
            " FROM CUPTI_ACTIVITY_KIND_KERNEL"
        )
        assert database.execute(query).fetchone() == (50 * 90, 50 * 90, 50)


def test_migrations_are_copies_without_ids(tmp_path: Path) -> None:
    with closing(written("unified_memory", tmp_path / "a.sqlite")) as database:
        query = (
            "SELECT DISTINCT deviceId, contextId, streamId, correlationId, srcKind, dstKind,"
            " migrationCause FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 11"
        )
        assert database.execute(query).fetchall() == [(0, 0, 0, 0, 7, 7, 2)]


def test_ranks_are_processes_that_each_see_their_card_as_device_zero(tmp_path: Path) -> None:
    with closing(written("two_gpu", tmp_path / "a.sqlite")) as database:
        query = (
            "SELECT DISTINCT k.deviceId, d.gpuId FROM CUPTI_ACTIVITY_KIND_KERNEL k"
            " JOIN TARGET_INFO_CUDA_DEVICE d ON d.cudaId = k.deviceId"
            " AND d.pid = ((k.globalPid >> 24) & 16777215)"
        )
        assert sorted(database.execute(query)) == [(0, 0), (0, 1)]
        shared = (
            "SELECT count(*) FROM (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            " GROUP BY correlationId HAVING count(DISTINCT globalTid & -16777216) = 2)"
        )
        assert database.execute(shared).fetchone()[0] > 100


def test_ranges_of_a_library_are_registered_strings_of_its_domain(tmp_path: Path) -> None:
    with closing(written("two_gpu", tmp_path / "a.sqlite")) as database:
        query = (
            "SELECT DISTINCT e.text, s.value, d.text FROM NVTX_EVENTS e"
            " JOIN StringIds s ON s.id = e.textId JOIN NVTX_EVENTS d ON d.eventType = 75"
            " AND d.domainId = e.domainId AND (d.globalTid >> 24) = (e.globalTid >> 24)"
        )
        assert database.execute(query).fetchall() == [(None, "ncclAllReduce", "NCCL")]


def test_thread_ids_pack_machine_process_and_thread(tmp_path: Path) -> None:
    with closing(written("pageable_copy", tmp_path / "a.sqlite")) as database:
        (names,) = zip(
            *database.execute(
                "SELECT s.value FROM ThreadNames t JOIN StringIds s ON s.id = t.nameId"
                " WHERE (t.globalTid >> 24) & 16777215 = 41300 AND t.globalTid >> 48 = 1"
                " ORDER BY t.globalTid & 16777215"
            ),
            strict=True,
        )
    assert names == ("python", "pt_autograd_0")


def test_a_file_is_replaced_and_the_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"something else")
    write(record("launch_gaps"), path)
    first = path.read_bytes()
    write(record("launch_gaps"), path)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.sqlite"]


def test_an_unknown_layout_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2020, 2022, 2024, 2025"):
        write(record("one_thread"), tmp_path / "a.sqlite", layout="2019")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", swept(sorted(PROGRAMS), 5))
def test_every_program_can_be_written(tmp_path: Path, name: str) -> None:
    with closing(written(name, tmp_path / "a.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert "CUPTI_ACTIVITY_KIND_RUNTIME" in tables(database)


def test_the_kept_samples_are_what_the_programs_write_now(tmp_path: Path) -> None:
    main(["samples", str(tmp_path)])
    kept = SAMPLES
    assert {path.name for path in kept.glob("*.sqlite")} == {f"{row[0]}.sqlite" for row in KEPT}
    for fresh in tmp_path.iterdir():
        assert fresh.stat().st_size < 300_000
        with (
            closing(sqlite3.connect(fresh)) as new,
            closing(sqlite3.connect(kept / fresh.name)) as old,
        ):
            assert list(new.iterdump()) == list(old.iterdump())


def test_the_command_line_lists_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["list"])
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(PROGRAMS)
    path = tmp_path / "b.sqlite"
    main(["write", "gelu_mul", "-o", str(path), "--cured", "--layout", "2024", "--seed", "3"])
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT count(*) FROM StringIds WHERE value = 'triton_poi_fused_gelu_mul_0'"
        assert database.execute(query).fetchone() == (1,)


def _real_exports(schema: str) -> Iterator[sqlite3.Connection]:
    for path in sorted(Path(os.environ["NSYSDOCTOR_CORPUS"]).glob("*.sqlite")):
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            found = tables(database)
            query = "SELECT value FROM {} WHERE name = 'EXPORT_SCHEMA_VERSION'"
            stores = [name for name in ("META_DATA_EXPORT", "EXPORT_META_DATA") if name in found]
            versions = [database.execute(query.format(name)).fetchone()[0] for name in stores]
            if versions == ([schema] if schema else []):
                yield database


@pytest.mark.corpus
@pytest.mark.skipif("NSYSDOCTOR_CORPUS" not in os.environ, reason="no folder of real exports")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_columns_equal_those_of_real_exports(layout: Layout) -> None:
    compared = 0
    for database in _real_exports(layout.schema):
        for name in tables(database) & set(layout.tables):
            real = columns(database, name)
            ours = [c.name + "!" * c.required for c in layout.tables[name]]
            # Other tools add columns behind the ones an export has.
            assert [text for text in real if text in ours] == ours, name
            compared += 1
    assert compared > 5
