"""Which files a user means: a trace, a folder of them, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from glob import has_magic
from pathlib import Path

from nsysdoctor.errors import UsageError

_ENDINGS = (".sqlite", ".db", ".nsys-rep", ".qdrep", ".json", ".json.gz")
_NUMBER = re.compile(r"(\d+)")
_REPORT = b"nsysdoctor-"
"""How the formats that we write ourselves are named, near the start of the file."""


def traces_of(paths: Sequence[Path]) -> list[Path]:
    """Returns the files that paths name: a folder stands for the traces in it and a pattern for
    what it fits, both in natural order. Raises UsageError for one that names none."""
    return [trace for path in paths for trace in _of(path)]


def natural(path: Path) -> list[tuple[int, str]]:
    """Returns a key that sorts numbers in names as numbers: rank2 before rank10."""
    parts = _NUMBER.split(str(path))
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def is_own(path: Path) -> bool:
    """Returns whether a file is a report, baseline or verdict of nsysdoctor."""
    try:
        with path.open("rb") as file:
            return _REPORT in file.read(256)
    except OSError:
        return False


def _of(path: Path) -> Iterable[Path]:
    if path.is_dir():
        found = [p for p in path.iterdir() if p.is_file() and p.name.endswith(_ENDINGS)]
        found = [p for p in found if not is_own(p)]
        if not found:
            raise UsageError(
                f"{path} is a folder without a trace",
                f"name a file, or a folder with files that end with {', '.join(_ENDINGS)}",
            )
        return sorted(found, key=natural)
    if has_magic(str(path)) and not path.exists():
        found = list(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
        if not found:
            raise UsageError(f"no file fits {path}", "check the pattern")
        return sorted(found, key=natural)
    return [path]
