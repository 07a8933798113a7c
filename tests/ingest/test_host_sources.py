"""Samples, scheduling and call stacks of every version's form, whole and by windows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nsysdoctor.errors import MissingTableError
from nsysdoctor.ingest.cut import Cut
from nsysdoctor.ingest.host_sources import CALL_STACK, SAMPLE, SAMPLE_FRAME, SCHED
from nsysdoctor.ingest.reader import Export, open_export

_TABLES = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER{more});
CREATE TABLE COMPOSITE_EVENTS (id INTEGER PRIMARY KEY, start INTEGER, cpu INTEGER,
                               threadState INTEGER, globalTid INTEGER, cpuCycles INTEGER);
CREATE TABLE SAMPLING_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER, unresolved INTEGER,
                                  stackDepth INTEGER, PRIMARY KEY (id, stackDepth));
"""


def _export(folder: Path, *, newer: bool = False) -> Export:
    path = folder / "run.sqlite"
    more = ", threadState INTEGER, threadBlock INTEGER" if newer else ""
    with sqlite3.connect(path) as db:
        db.executescript(_TABLES.format(more=more))
        for at in range(0, 1000, 100):
            rest = (1, None) if newer else ()
            row = (at, 3, at // 100 % 2, 7 + at // 500, *rest)
            db.execute(f"INSERT INTO SCHED_EVENTS VALUES ({','.join('?' * len(row))})", row)
            db.execute("INSERT INTO COMPOSITE_EVENTS VALUES (?,?,3,1,7,1)", (at, at))
            db.execute("INSERT INTO SAMPLING_CALLCHAINS VALUES (?,1,2,0,0)", (at,))
    db.close()
    return open_export(path)


@pytest.mark.parametrize("newer", [False, True])
def test_both_forms_of_scheduler_events_are_read(tmp_path: Path, newer: bool) -> None:
    rows = _export(tmp_path, newer=newer).read(SCHED).frame
    assert rows["start_ns"].tolist() == list(range(0, 1000, 100))
    assert rows["runs"].tolist() == [0, 1] * 5
    assert set(rows["thread_state"]) == {int(newer)}
    assert set(rows["thread_block"]) == {0}


def test_a_window_reads_its_samples_and_the_events_next_to_it(tmp_path: Path) -> None:
    export, cut = _export(tmp_path), Cut(0, 0, 250, 450)
    assert export.read(SAMPLE, cut).frame["start_ns"].tolist() == [300, 400]
    assert export.read(SAMPLE_FRAME, cut).frame["stack"].tolist() == [300, 400]
    # Of thread 7 the ones at 0 … 400, of thread 8 those from 500 on.
    assert export.read(SCHED, cut).frame["start_ns"].tolist() == [200, 300, 400, 500]


def test_calls_without_stacks_are_no_table(tmp_path: Path) -> None:
    export = _export(tmp_path)
    with pytest.raises(MissingTableError, match="CUPTI_ACTIVITY_KIND_RUNTIME"):
        export.read(CALL_STACK)
