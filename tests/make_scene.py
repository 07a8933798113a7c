"""Traces from text tables for tests, and changes to a written file that no tool would make."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from textwrap import dedent

from nsysdoctor.cases.scene_export import write_scene
from nsysdoctor.cases.scene_text import read_scene
from nsysdoctor.trace.trace import Trace, open_trace
from nsysdoctor.trace.window import Request

KEPT: list[tempfile.TemporaryDirectory[str]] = []


def write_text(text: str, path: Path, without: Iterable[str] = ()) -> Path:
    """Writes the text table as an export and returns its path."""
    write_scene(read_scene(dedent(text)), path, list(without))
    return path


def trace_of(
    text: str, request: Request | None = None, *, without: Iterable[str] = (), sql: str = ""
) -> Trace:
    """Returns the open trace of a text table, changed by an SQL script before it is opened."""
    folder = tempfile.TemporaryDirectory(prefix="scene-")
    KEPT.append(folder)
    path = write_text(text, Path(folder.name) / "run.sqlite", without)
    if sql:
        change(path, sql)
    return open_trace(path, request)


def change(path: Path, sql: str) -> None:
    """Runs an SQL script on a file."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(sql)
