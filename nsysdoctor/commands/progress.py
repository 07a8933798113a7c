"""A bar on a terminal while several or large traces are read; nothing when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsysdoctor.jobs.job import Seen

_LARGE_BYTES = 100_000_000


@contextmanager
def progress(traces: Sequence[Path], quiet: bool) -> Iterator[Seen]:
    """Yields a function to call with a trace, its stage and the finished share of that stage.

    The bar counts files; where these are read one after the other it also shows the stage.
    """
    size = sum(path.stat().st_size for path in traces if path.is_file())
    if quiet or not sys.stderr.isatty() or (len(traces) < 2 and size < _LARGE_BYTES):
        yield lambda _path, _stage, _share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{traces[0].name}: reading", total=len(traces))
        behind = dict.fromkeys(traces, 0.0)

        def seen(path: Path, stage: str, share: float) -> None:
            behind[path] = share
            bar.update(
                task, completed=sum(behind.values()), description=f"{path.name}: {stage}"
            )

        yield seen
