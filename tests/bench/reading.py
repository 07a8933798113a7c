"""Reads the columns that a report needs, with ADBC alone: the yardstick of the benchmark.

`python -m tests.bench.reading run.sqlite` prints rows, wall and CPU seconds and peak memory.
"""

from __future__ import annotations

import resource
import sys
import time

from nsysdoctor.ingest.schema import API, KERNEL, MEMCPY, MEMSET, NVTX, OSRT, SYNC
from nsysdoctor.ingest.source import Source

SOURCES = (KERNEL, MEMCPY, MEMSET, API, SYNC, NVTX, OSRT)


def columns_of(source: Source, present: set[str]) -> list[str]:
    """Returns the export's own names of the columns that we read of a source."""
    found = (next((s for s in c.spellings if s in present), None) for c in source.columns)
    return sorted({f'"{name}"' for name in found if name is not None})


def read(path: str) -> int:
    """Returns how many rows were read."""
    import adbc_driver_sqlite.dbapi as adbc

    rows = 0
    with adbc.connect(f"file:{path}?mode=ro&immutable=1") as db, db.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": 65_536})
        for source in SOURCES:
            table = source.tables[0]
            cursor.execute(f"SELECT name FROM pragma_table_info('{table}')")
            present = {name for (name,) in cursor.fetchall()}
            if not present:
                continue
            cursor.execute(f"SELECT {', '.join(columns_of(source, present))} FROM {table}")
            rows += sum(batch.num_rows for batch in cursor.fetch_record_batch())
    return rows


def main() -> None:
    """Prints one line."""
    began, cpu = time.perf_counter(), time.process_time()
    rows = read(sys.argv[1])
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{rows} rows {wall:.2f} s wall {used:.2f} s cpu {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
