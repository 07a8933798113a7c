"""One table of operations or calls, as far as a survey looks at it."""

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
    process_of,
    sound,
    spelled,
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
    """A table of operations or calls, as far as it is looked at here; empty if it is missing.

    `rows` are those near the window: start_ns, end_ns, correlation, node and place. A `clean`
    table holds no row whose times cannot be.
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

    def answer(self, asked: str, where: str = "1", per: str = "") -> list[tuple[object, ...]]:
        """Returns what is asked of the rows whose times can be, under a condition; of all of
        them, or of those that are alike in something."""
        if self._table is None:
            return []
        known = [f"({where})"] + ([] if self.clean else [sound(self._source, self._present)])
        kind, filtered = spelled(self._source, "copy_kind", self._present), self._source.where
        if kind is not None:
            known.append(f"{kind} NOT IN {UNIFIED_MEMORY}")
        if filtered is not None and filtered[0] in self._present:
            known.append(filtered[1])
        where = " AND ".join(known)
        grouped = f" GROUP BY {per}" if per else ""
        return self._export.query(f'SELECT {asked} FROM "{self._table}" WHERE {where}{grouped}')

    def least(self, asked: str, where: str) -> list[int]:
        """Returns the one number that is asked of the rows under a condition; none without any."""
        return [int(str(row[0])) for row in self.answer(asked, where) if row[0] is not None]

    def picked(self, pick: str, where: str, per: str) -> Pairs:
        """Returns process and correlation id of the row that a maximum or minimum picks among
        those that are alike in a column."""
        process, number = map(self._column, ("global_pid", "correlation"))
        rows = self.answer(f"{process}, {number}, {pick}", where, self._column(per))
        return sorted((int(str(row[0])), int(str(row[1]))) for row in rows if _whole(row))

    def distinct(self, *names: str, where: str = "1", **told: str) -> Pairs:
        """Returns the combinations of columns, and of whether conditions hold, sorted."""
        asked = [*map(self._column, names), *told.values()]
        rows = self.answer("DISTINCT " + ", ".join(asked), where)
        return sorted(tuple(map(int, map(str, row))) for row in rows if _whole(row))

    def large(self) -> str:
        """Returns the condition on large copies between pinned memory and a device."""
        kind, size, source, target = map(
            self._column, ("copy_kind", "bytes", "src_kind", "dst_kind")
        )
        ends = f"({source} = 1 AND {target} != 0 OR {target} = 1 AND {source} != 0)"
        return f"{kind} IN (1, 2) AND {size} >= {LARGE_BYTES} AND {ends}"

    def ids(self, wanted: Sequence[Values]) -> Pairs:
        """Returns process and correlation id of single operations."""
        if not wanted:
            return []
        where = " OR ".join(self.alike(values) for values in wanted)
        return self.distinct("global_pid", "correlation", where=where)

    def alike(self, values: Values) -> str:
        """Returns the condition that columns have these values."""
        return equal(self._source, self._present, values)

    def linked(self, cut: Cut) -> str:
        """Returns the condition on rows whose id the cut names."""
        return cut.calls(self._source, self._present)

    def named(self, ids: Sequence[int]) -> str:
        """Returns the condition on rows whose name is one of some strings."""
        return f"{self._column('name_id')} IN ({', '.join(map(str, ids))})"

    def numbered(self, cut: Cut, last: Mapping[int, int]) -> str:
        """Returns the condition on rows whose id is one of the first up to a last per process."""
        process = self._column("global_pid") if cut.by_process else "0"
        number = self._column("correlation")
        return " OR ".join(
            f"({process} = {whose} AND {number} BETWEEN 1 AND {most})"
            for whose, most in sorted(last.items())
        ) or "0"

    def _column(self, name: str) -> str:
        if name == "global_pid":
            return f"ifnull({process_of(self._source, self._present)}, 0)"
        return f"ifnull({spelled(self._source, name, self._present) or 0}, 0)"


def _whole(row: tuple[object, ...]) -> bool:
    """Whether all values are numbers, as they should be."""
    return all(isinstance(value, int) for value in row)


def _rows(found: pd.DataFrame) -> pd.DataFrame:
    """The columns that are looked at; what a table lacks is 0."""
    if "copy_kind" in found:
        found = found[~found["copy_kind"].isin(UNIFIED_MEMORY)]
    if "global_tid" in found:
        process = np.asarray(found["global_tid"], dtype=np.int64) & np.int64(PROCESS_MASK)
        found = found.assign(global_pid=process)
    return found.reindex(columns=_COLUMNS, fill_value=0).astype(np.int64)
