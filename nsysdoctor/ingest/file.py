"""Checks that a file can be read as an export, before SQLite opens it: SQLite accepts too much."""

from __future__ import annotations

from pathlib import Path

from nsysdoctor.errors import UnreadableTraceError

_HEADER = b"SQLite format 3\x00"


def live_logs(path: Path) -> list[Path]:
    """Returns the log files beside a database that hold changes not yet written to it or to be
    undone."""
    logs = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    return [log for log in logs if log.exists() and log.stat().st_size > 0]


def check_kind(path: Path) -> None:
    """Raises UnreadableTraceError for what cannot be an export: a missing file, a folder, text …"""
    try:
        if not path.exists():
            raise UnreadableTraceError(f"{path} does not exist", "check the path")
        if path.is_dir():
            raise UnreadableTraceError(f"{path} is a folder", "name the .sqlite file inside it")
        if not path.is_file():
            raise UnreadableTraceError(f"{path} is no file", "name a .sqlite file")
        with path.open("rb") as file:
            head = file.read(16)
    except PermissionError as error:
        raise UnreadableTraceError(f"{path} may not be read", "check its permissions") from error
    except (OSError, ValueError) as error:
        raise UnreadableTraceError(f"{path} cannot be read: {error}", "check the path") from error
    if head != _HEADER:
        what = "is empty" if not head else "is not an SQLite file"
        raise UnreadableTraceError(
            f"{path} {what}", "export a report with: nsys export --type sqlite run.nsys-rep"
        )


def check_length(path: Path) -> None:
    """Raises UnreadableTraceError for a file shorter than its header says.

    SQLite itself reads a file that was cut at a page boundary without any error.
    """
    with path.open("rb") as file:
        head = file.read(100)
    size = path.stat().st_size
    page = int.from_bytes(head[16:18], "big")
    page = 65_536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    header_is_current = head[24:28] == head[92:96]
    whole = page * pages if header_is_current and pages else size
    if len(head) < 100 or page < 512 or size % page or size < whole:
        raise UnreadableTraceError(
            f"{path} is cut off or corrupt: {size:,} bytes of {whole:,}",
            "copy or export it again",
        )
