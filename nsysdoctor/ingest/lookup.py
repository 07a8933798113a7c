"""Small queries on one table of operations or calls, for the survey of an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.ingest.cut import (
    LARGE_BYTES,
    Cut,
    equal,
    possible_times,
    process_of,
    quoted_column,
)
from nsysdoctor.ingest.export_codes import PROCESS_MASK, UNIFIED_MEMORY
from nsysdoctor.ingest.reader import Export
from nsysdoctor.ingest.source import Source

PLACE = ["global_pid", "ordinal", "context", "green", "stream"]
KERNELS = ("global_pid", "full_id", "early")
COPIES = ("global_pid", "ordinal", "copy_kind", "bytes", "start_ns", "end_ns")
_COLUMNS = ["start_ns", "end_ns", "correlation", "node", *PLACE]
_KNOWN = frozenset(
    {*_COLUMNS, *KERNELS, *COPIES, "global_tid", "name_id", "src_kind", "dst_kind"}
)

Values = Mapping[str, int]
Pairs = list[tuple[int, ...]]


class Lookup:
    """One table of operations or calls, limited to the columns that a survey needs; empty if
    missing.

    `rows` are those near the window: start_ns, end_ns, correlation, node and place. `clean` says
    that the table holds no row with impossible times.
    """

    def __init__(self, export: Export, source: Source, cut: Cut) -> None:
        self.name = source.name
        self._export = export
        self._source = replace(source, columns=tuple(c for c in source.columns if c.name in _KNOWN))
        self._table = export.table_of(source)
        self._present: Sequence[str] = export.tables.get(self._table or "", ())
        try:
            found = export.read(self._source, cut)
        except MissingTableError:
            self._table, self.clean, self.rows = None, False, _rows(pd.DataFrame())
        else:
            self.clean, self.rows = not found.dropped, _rows(found.frame)

    def select(self, expressions: str, where: str = "1", per: str = "") -> list[tuple[object, ...]]:
        """Returns SQL expressions evaluated over the rows with possible times that meet a
        condition: over all of them, or per group of an expression."""
        if self._table is None:
            return []
        known = [f"({where})"]
        if not self.clean:
            known.append(possible_times(self._source, self._present))
        kind, filtered = quoted_column(self._source, "copy_kind", self._present), self._source.where
        if kind is not None:
            known.append(f"{kind} NOT IN {UNIFIED_MEMORY}")
        if filtered is not None and filtered[0] in self._present:
            known.append(filtered[1])
        where = " AND ".join(known)
        grouped = f" GROUP BY {per}" if per else ""
        from_rows = f'FROM "{self._table}" WHERE {where}{grouped}'
        return self._export.query(f"SELECT {expressions} {from_rows}")

    def aggregate(self, expression: str, where: str) -> list[int]:
        """Returns the number that an SQL aggregate gives for the rows that meet a condition, in a
        list that is empty where there are no such rows."""
        return [int(str(row[0])) for row in self.select(expression, where) if row[0] is not None]

    def picked(self, pick: str, where: str, per: str) -> Pairs:
        """Returns process and correlation id of the row that a maximum or minimum selects in each
        group of rows with the same value in a column."""
        process, number = map(self._column, ("global_pid", "correlation"))
        rows = self.select(f"{process}, {number}, {pick}", where, self._column(per))
        return sorted((int(str(row[0])), int(str(row[1]))) for row in rows if _whole(row))

    def distinct(self, *names: str, where: str = "1", **flags: str) -> Pairs:
        """Returns the distinct combinations of some columns and of some conditions (0 or 1),
        sorted."""
        expressions = [*map(self._column, names), *flags.values()]
        rows = self.select("DISTINCT " + ", ".join(expressions), where)
        return sorted(tuple(map(int, map(str, row))) for row in rows if _whole(row))

    def large(self) -> str:
        """Returns the condition on large copies between pinned memory and a device."""
        kind, size, source, target = map(
            self._column, ("copy_kind", "bytes", "src_kind", "dst_kind")
        )
        ends = f"({source} = 1 AND {target} != 0 OR {target} = 1 AND {source} != 0)"
        return f"{kind} IN (1, 2) AND {size} >= {LARGE_BYTES} AND {ends}"

    def ids(self, wanted: Sequence[Values]) -> Pairs:
        """Returns process and correlation id of the operations that have these values."""
        if not wanted:
            return []
        where = " OR ".join(self.alike(values) for values in wanted)
        return self.distinct("global_pid", "correlation", where=where)

    def alike(self, values: Values) -> str:
        """Returns the condition that columns have these values."""
        return equal(self._source, self._present, values)

    def linked(self, cut: Cut) -> str:
        """Returns the condition on rows with an id that the cut lists."""
        return cut.calls(self._source, self._present)

    def named(self, ids: Sequence[int]) -> str:
        """Returns the condition on rows with a name among some string ids."""
        return f"{self._column('name_id')} IN ({', '.join(map(str, ids))})"

    def numbered(self, cut: Cut, last: Mapping[int, int]) -> str:
        """Returns the condition on rows with an id between 1 and the last id of their process."""
        process = self._column("global_pid") if cut.by_process else "0"
        number = self._column("correlation")
        return " OR ".join(
            f"({process} = {code} AND {number} BETWEEN 1 AND {most})"
            for code, most in sorted(last.items())
        ) or "0"

    def _column(self, name: str) -> str:
        if name == "global_pid":
            return f"ifnull({process_of(self._source, self._present)}, 0)"
        return f"ifnull({quoted_column(self._source, name, self._present) or 0}, 0)"


def _whole(row: tuple[object, ...]) -> bool:
    """Whether all values are integers, as they should be."""
    return all(isinstance(value, int) for value in row)


def _rows(found: pd.DataFrame) -> pd.DataFrame:
    """The columns that a survey needs; a column that the table lacks is 0."""
    if "copy_kind" in found:
        found = found[~found["copy_kind"].isin(UNIFIED_MEMORY)]
    if "global_tid" in found:
        process = np.asarray(found["global_tid"], dtype=np.int64) & np.int64(PROCESS_MASK)
        found = found.assign(global_pid=process)
    return found.reindex(columns=_COLUMNS, fill_value=0).astype(np.int64)
