"""A bar on a terminal while several or large traces are read; nothing when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_LARGE_BYTES = 100_000_000


@contextmanager
def progress(traces: Sequence[Path], quiet: bool) -> Iterator[Callable[[Path], None] | None]:
    """Yields what to call with each finished trace; None when there is nothing worth showing."""
    size = sum(path.stat().st_size for path in traces if path.is_file())
    if quiet or not sys.stderr.isatty() or (len(traces) < 2 and size < _LARGE_BYTES):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"reading {traces[0].name}", total=len(traces))

        def seen(path: Path) -> None:
            place = min(list(traces).index(path) + 1, len(traces) - 1)
            bar.update(task, advance=1, description=f"reading {traces[place].name}")

        yield seen
