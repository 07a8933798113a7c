"""Reading a profiler's JSON event by event, plain or packed, as far as it is whole."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

_HEAD_BYTES, _TAIL_BYTES = 4 << 20, 1 << 20
"""What stands beside the events stands in front of them or behind them, and is small."""
_GZIP = b"\x1f\x8b"
_SPACE = b" \t\r\n\xef\xbb\xbf"


def is_profiler_json(path: Path) -> bool:
    """Returns whether a file begins as a profiler's trace does: an object or a list, perhaps
    packed with gzip."""
    try:
        with _opened(path) as file:
            return file.read(64).lstrip(_SPACE)[:1] in (b"{", b"[")
    except (OSError, EOFError, zlib.error):
        return False


class EventStream:
    """The events of one trace; iterate once, then ask for what stands beside them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._head, self._tail = b"", b""
        self.broken_at: int | None = None
        """After how many events the file breaks off or stops being JSON; None where it is whole."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the events in the file's order; numbers with a fraction are exact decimals."""
        import ijson

        count = 0
        try:
            with _opened(self._path) as file:
                kept = _Kept(file, self)
                for event in ijson.items(kept, _prefix(self._path)):
                    count += 1
                    if isinstance(event, dict):
                        yield event
        except (ijson.JSONError, EOFError, zlib.error, OSError, UnicodeDecodeError):
            self.broken_at = count

    def keep(self, block: bytes) -> None:
        """Keeps the beginning and the end of what was read."""
        if len(self._head) < _HEAD_BYTES:
            self._head += block[: _HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + block)[-_TAIL_BYTES:]

    def beside(self, key: str) -> Any:
        """Returns the value of a key that stands beside the events, None where there is none."""
        for text in (self._head, self._tail):
            found = re.search(rb'"' + key.encode() + rb'"\s*:\s*', text)
            if found is None:
                continue
            rest = text[found.end() :].decode("utf-8", "replace")
            try:
                return json.JSONDecoder().raw_decode(rest)[0]
            except ValueError:
                continue
        return None


class _Kept:
    """A file whose beginning and end the stream keeps while it is read."""

    def __init__(self, file: gzip.GzipFile | BufferedReader, stream: EventStream) -> None:
        self._file, self._stream = file, stream

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._stream.keep(block)
        return block


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return gzip.open(path, "rb") if packed else path.open("rb")


def _prefix(path: Path) -> str:
    """Where the events stand: in a list of their own, or under a key."""
    with _opened(path) as file:
        return "item" if file.read(64).lstrip(_SPACE)[:1] == b"[" else "traceEvents.item"
