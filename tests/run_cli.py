"""The command line run inside the test process, with what it printed and how it ended."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nsysdoctor.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command left: exit status and both streams."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def error_lines(self) -> list[str]:
        """The lines on stderr."""
        return self.err.splitlines()


def run(*words: str | Path, encoding: str = "utf-8") -> Ran:
    """Runs `nsysdoctor` with these words; streams have the encoding of some console."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    err = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    code = 0
    with (
        patch.object(sys, "argv", ["nsysdoctor", *map(str, words)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Ran(code, *(_text(stream) for stream in (out, err)))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode("utf-8", "replace")


def listing(folder: Path) -> dict[str, str]:
    """Every file under a folder with the hash of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }
