"""Which files may be written: never a trace, and no file that another program wrote."""

from __future__ import annotations

import re
from pathlib import Path

from nsysdoctor.errors import UsageError

_HEAD_BYTES = 4096
_BEGINS = re.compile(
    rb"\Ansysdoctor |\A### nsysdoctor|<title>[^<]*nsysdoctor|<testsuite name=\"nsysdoctor"
    rb"|\A\{\s*\"format\": ?\"nsysdoctor-|\"driver\": \{\s*\"name\": \"nsysdoctor\""
)
"""Text, Markdown, pages, JUnit, our JSON, SARIF: a file that only mentions us is not ours."""


def check_target(target: Path, traces: list[Path], force: bool) -> None:
    """Raises UsageError when `target` is a trace, its folder does not exist, or another program
    wrote it."""
    if any(_same(target, trace) for trace in traces):
        raise UsageError(f"{target} is the trace itself", "name another output file")
    if not target.parent.is_dir():
        raise UsageError(f"the folder of {target} does not exist", "make it first")
    if target.is_dir():
        raise UsageError(f"{target} is a folder", "name a file in it")
    if target.exists() and not force and not _ours(target):
        raise UsageError(
            f"{target} exists and was not written by nsysdoctor", "use --force to overwrite it"
        )


def _same(target: Path, trace: Path) -> bool:
    if target.exists() and trace.exists():
        return target.samefile(trace)
    return target.resolve() == trace.resolve()


def _ours(target: Path) -> bool:
    """Whether a file begins as one of our formats does; true, too, for an empty file."""
    with target.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return not head or _BEGINS.search(head) is not None
