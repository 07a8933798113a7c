"""A trace: one export, and every table made from it, each computed once."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.ingest.cut import WHOLE, View, outlined
from nsysdoctor.ingest.reader import Export, open_export
from nsysdoctor.ingest.schema import SOURCES
from nsysdoctor.ingest.source import Source
from nsysdoctor.ingest.survey import surroundings, survey
from nsysdoctor.trace.identity import Identity, identity_of
from nsysdoctor.trace.recipe import Recipe, recipes
from nsysdoctor.trace.window import Request

_SOURCES: dict[str, Source] = {f"{source.name}_rows": source for source in SOURCES}

_MADE_BY = {
    # Pages of managed memory move without a call; they are rows of copies as well.
    "memcpy": ("emcpy|GraphLaunch|Managed", "made no copies"),
    "graph": ("GraphLaunch", "launched no graphs"),
}
"""The calls that make what a source holds, and what is said of a program without such calls."""

_ABOUT_STEPS = ("step_marks", "every_step", "phases", "step_lengths", "device_steps",
                "step_times")  # fmt: skip
"""Tables that look at more of a capture than a window of it."""


@cache
def table_recipes() -> Mapping[str, Recipe]:
    """Returns the recipes of every module in the rooms of `nsysdoctor.tables`, and of the
    constraint graph."""
    package = importlib.import_module("nsysdoctor.tables")
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = [*sorted(m.name for m in found if not m.ispkg), "nsysdoctor.replay.constraints"]
    return recipes(importlib.import_module(name) for name in names)


class Trace:
    """One export and its tables. It owns their cache, which is freed with it."""

    def __init__(
        self,
        export: Export,
        request: Request | None = None,
        *,
        view: View | None = None,
        outline: bool = False,
    ) -> None:
        """Reads what `view` covers, by default what the request's window needs. With `outline` it
        reads only the columns from which steps are found."""
        self.export = export
        self.request = request or Request()
        self._given, self._is_outline = view, outline
        self._tables: dict[str, Any] = {}
        self._missing: dict[str, MissingTableError] = {}
        self._dropped: dict[str, dict[str, int]] = {}
        self._counted: dict[str, int] = {}
        self._uses: Counter[str] = Counter()
        self._owed: set[str] = set()

    @cached_property
    def identity(self) -> Identity:
        """Returns the rank and host that the export records."""
        return identity_of(self.export)

    def table(self, name: str) -> Any:
        """Returns the table of that name, computed at most once.

        Raises MissingTableError, at most once computed as well, when the export lacks a table
        that it is made from; the hint says how to record it.
        """
        if name in self._missing:
            known = self._missing[name]
            raise MissingTableError(known.message, known.hint)
        if name not in self._tables:
            try:
                self._tables[name] = self._make(name)
            except MissingTableError as error:
                # The raised error itself would keep its stack frames, and their data, alive.
                self._missing[name] = MissingTableError(error.message, error.hint)
                raise
        return self._tables[name]

    def optional(self, name: str) -> Any | None:
        """Returns the table, or None when the trace cannot give it."""
        try:
            return self.table(name)
        except MissingTableError:
            return None

    def require(self, source: str) -> None:
        """Raises MissingTableError when a source of the export holds nothing, as `table` does."""
        name = f"{source}_rows"
        if name in self._missing or source not in self._dropped:
            self.table(name)
            if self._uses and self._uses[name] <= 0:
                del self._tables[name]

    def expect(self, uses: Iterable[str]) -> None:
        """Announces the tables that will be used, one entry per use. A table is freed after its
        last use, including uses by the tables made from it. If it is used again later, it is made
        again."""
        waiting = list(uses)
        while waiting:
            name = waiting.pop()
            self._uses[name] += 1
            if name not in self._owed and name not in self._tables and name in table_recipes():
                self._owed.add(name)
                waiting.extend(table_recipes()[name].needs)

    def release(self, names: Iterable[str]) -> None:
        """Counts one announced use of each table as finished, whether or not it took place."""
        for name in names:
            self._uses[name] -= 1
            if self._uses[name] == 0:
                self._tables.pop(name, None)
                self._settle(name)

    def _settle(self, name: str) -> None:
        """Releases the tables that one is made from, when it was made or will not be used any more.
        This happens once per table, as their uses were announced once."""
        if name in self._owed:
            self._owed.remove(name)
            self.release(table_recipes()[name].needs)

    def run(self, made: Recipe, params: Mapping[str, object] | None = None) -> Any:
        """Returns the result of a recipe on this trace's tables, without caching it."""
        inputs = [
            self.optional(name) if name in made.optional else self.table(name)
            for name in made.needs
        ]
        return made.function(*inputs, **(params or {}))

    def dropped(self) -> list[tuple[str, str, int]]:
        """Returns (table, reason, rows) for all rows left out of the tables read so far."""
        return [
            (source, reason, count)
            for source, reasons in sorted(self._dropped.items())
            for reason, count in sorted(reasons.items())
        ]

    def row_counts(self) -> dict[str, int]:
        """Returns how many rows the main tables of the export hold. `sample` counts samples of
        running threads, `sched` their scheduling events."""
        counts = {}
        for name in ("kernel", "memcpy", "memset", "graph", "api", "nvtx", "osrt"):
            counts[name] = self._counted.get(name, -1)
            if counts[name] < 0:
                table = self.export.table_of(_SOURCES[f"{name}_rows"])
                counts[name] = self.export.count(f'SELECT count(*) FROM "{table}"') if table else 0
        for name, table in (("sample", "COMPOSITE_EVENTS"), ("sched", "SCHED_EVENTS")):
            known = table in self.export.tables
            counts[name] = self.export.count(f'SELECT count(*) FROM "{table}"') if known else 0
        return counts

    def _make(self, name: str) -> Any:
        if name == "request":
            return self.request
        if name == "capture":
            return self._view.capture
        if name == "strings":
            return self.export.strings()
        if name in _SOURCES:
            return self._read(_SOURCES[name])
        made = table_recipes().get(name)
        if made is None:
            known = ", ".join(sorted([*_SOURCES, *table_recipes()]))
            raise LookupError(f"there is no table {name}; tables are: {known}")
        wider = name in _ABOUT_STEPS and not self._is_outline and self._view is not WHOLE
        try:
            return self._steps[name] if wider else self.run(made)
        finally:
            self._settle(name)

    @cached_property
    def _view(self) -> View:
        """What to read: everything, or for a given window (START:END) what its results depend
        on."""
        if self._given is not None:
            return self._given
        if not isinstance(self.request.window, tuple):
            return WHOLE
        return survey(self.export, *self.request.window)

    @cached_property
    def _steps(self) -> dict[str, Any]:
        """The tables about steps, made from an outline of the window's surroundings."""
        wider = surroundings(self.export, self._view)
        outline = Trace(self.export, self.request, view=wider, outline=True)
        outline.expect((*_ABOUT_STEPS, "threads", "processes"))
        outline._tables["strings"] = self.table("strings")
        found = {name: outline.table(name) for name in _ABOUT_STEPS}
        if found["step_marks"] is not None:
            numbers = (outline.table(name) for name in ("threads", "processes"))
            own = (self.table(name) for name in ("threads", "processes"))
            found["step_marks"] = found["step_marks"].renumbered(*numbers, *own)
        return found

    def _require_made(self, source: Source) -> None:
        """Raises MissingTableError without a hint where all calls were recorded and none of them
        makes what the source holds: recording the source would then add nothing."""
        pattern, what = _MADE_BY.get(source.name, ("", ""))
        whole = not isinstance(self.request.window, tuple) and not self._is_outline
        calls = self.optional("api_names") if pattern and whole else None
        if calls is not None and not calls["name"].str.contains(pattern).any():
            raise MissingTableError(f"the program {what}", "")

    def _read(self, source: Source) -> pd.DataFrame:
        cut = self._view.cut
        if cut is None and self.export.table_of(source) is None:
            self._require_made(source)
        wanted = outlined(source) if self._is_outline else source
        if wanted is None:
            raise MissingTableError(f"steps are told without {source.name} rows", "")
        rows = self.export.read(wanted, cut)
        self._dropped[source.name] = rows.dropped
        if cut is None and source.where is None:
            self._counted[source.name] = rows.total
        if not len(rows.frame) and (cut is None or not self.export.holds(source)):
            self._require_made(source)
            # Some exports hold an empty table for everything that was not recorded.
            raise MissingTableError(
                f"the trace holds no usable rows in {self.export.table_of(source)}",
                self.export.recorder.hint(source),
            )
        return rows.frame


def open_trace(path: str | Path, request: Request | None = None) -> Trace:
    """Returns the trace at `path`; raises UnreadableTraceError when it cannot be read."""
    return Trace(open_export(Path(path)), request)
