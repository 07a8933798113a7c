"""What commands write: files, never a trace and none that another program wrote, and lines on
stderr that no name can break."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsysdoctor.errors import NsysDoctorError, UsageError
from nsysdoctor.units import escaped

_HEAD_BYTES = 4096
_NAME_LENGTH = 60
_BEGINS = re.compile(
    rb"\Ansysdoctor (?:\d[\w.+-]*\r?\n|[^\n]+\n\n[^\n]*(?:GPU|utilization))"
    rb"|\A### nsysdoctor(:| diff:| gate:) |<meta name=\"generator\" content=\"nsysdoctor "
    rb"|<title>nsysdoctor history</title>|<testsuite name=\"nsysdoctor (gate|report)\""
    rb"|\A\{\s*\"format\": ?\"nsysdoctor-|\"driver\": \{\s*\"name\": \"nsysdoctor\""
)
"""Text, Markdown, pages, JUnit, our JSON, SARIF: a file that only mentions us is not ours."""

_KIND = re.compile(rb"\A\{\s*\"format\": ?\"nsysdoctor-(\w+)")


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


def write_whole(target: Path, text: str, force: bool = False) -> None:
    """Writes a text file that is there whole or not at all.

    Raises UsageError where a file of another kind of ours would be lost: no report takes the place
    of a baseline.
    """
    old, new = _kind_of(target), _KIND.match(text.encode("utf-8", "replace")[:_HEAD_BYTES])
    if old and new and old != new[1] and not force:
        raise UsageError(
            f"{target} is a {old.decode()} of nsysdoctor, not a {new[1].decode()}",
            "name another file, or use --force",
        )
    with beside(target) as path:
        path.write_text(text, encoding="utf-8", errors="replace")


def _kind_of(target: Path) -> bytes | None:
    """Which of our JSON files is there already: report, baseline, verdict, diff, device."""
    if not target.is_file():
        return None
    with target.open("rb") as file:
        found = _KIND.match(file.read(_HEAD_BYTES))
    return found[1] if found else None


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Yields a path beside `target`, in its folder, whose file takes its place when all went well
    and is taken away when anything did not. What a link points to is replaced, not the link, and
    devices and pipes are written to as they are."""
    place = target.resolve() if target.is_symlink() else target
    if place.exists() and not place.is_file():
        yield place
        return
    # The kinds of files that writers tell by their suffix keep theirs.
    path = place.with_name(f".{place.name[:_NAME_LENGTH]}.{os.getpid()}.part{place.suffix}")
    try:
        yield path
        if place.exists():
            path.chmod(place.stat().st_mode & 0o7777)
        path.replace(place)
    finally:
        path.unlink(missing_ok=True)


def say(line: str) -> None:
    """Prints one line on stderr, control characters written out."""
    print(escaped(line), file=sys.stderr)


def complain(error: NsysDoctorError) -> None:
    """Prints what is wrong and what to do, two lines on stderr."""
    say(f"nsysdoctor: {error.message}")
    say(f"  hint: {error.hint}")
