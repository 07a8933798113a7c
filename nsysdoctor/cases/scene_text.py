"""Traces written as text tables, so that a rule's case stands on one screen.

A line says when, for how long, where and what; an arrow leads from a call to the GPU operation
that it submits. Indented lines under `repeat` are one step of many:

    kernel gemm = ampere_sgemm_128x64_tn
    repeat 40 every 10ms
      0     9ms   host  range "step {n}"
      0     4ms   host  cudaMemcpyAsync  -> +20us 3.9ms s7 copy HtoD 40MB pageable
      +5us  6us   host  cudaLaunchKernel -> +2us  5ms   s7 kernel gemm grid=108 block=256
      +1us  ..s7  host  cudaStreamSynchronize s7

`docs/own-rules.md` describes every form. This module turns the text into a `Scene`, a plain list
of what happened; `scene_export` writes it as an export.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace

from nsysdoctor.errors import RuleError

TIMES_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
SIZES_BYTES = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}  # fmt: skip
HEADERS = ("gpu", "process", "thread", "stream", "row")
ON_HOST = ("range", "os", "pause", "off", "sample")
ON_DEVICE = ("kernel", "copy", "set", "graph", "migration")
ACTIONS = (*ON_HOST, *ON_DEVICE)

_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?)([a-zA-Zµ]*)$")
_PART = re.compile(r"(p|gpu|s|host)(\d*)$")
_CALL = re.compile(r"cu[A-Z_a-z]\w*$")


@dataclass(frozen=True)
class Place:
    """A place where something runs: a host thread of a process (1 is the main one) or a device's
    stream."""

    process: int = 1
    thread: int = 0
    device: int = 0
    stream: int = 0


@dataclass(frozen=True)
class Event:
    """One thing that happened; `parent` is the position of the call that submitted it, -1
    without."""

    start_ns: int
    end_ns: int
    place: Place
    what: str
    words: tuple[str, ...]
    options: dict[str, str]
    parent: int = -1
    line: int = 0


@dataclass(frozen=True)
class Header:
    """A line about the machine instead of events: its kind, words and options."""

    kind: str
    words: tuple[str, ...]
    options: dict[str, str]


@dataclass
class Scene:
    """The content of a text table: its headers, the events in the order written, kernel names."""

    headers: list[Header] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Line:
    number: int
    indent: int
    text: str


def quantity(text: str, units: dict[str, int]) -> int:
    """Returns a whole number in the base unit: `4ms` in ns, `40MB` in bytes.

    Raises ValueError for a text that is no number with one of the units; `0` needs no unit.
    """
    found = _QUANTITY.match(text)
    unit = found.group(2) if found else ""
    if found is None or (unit not in units and not (unit == "" and float(found.group(1)) == 0)):
        raise ValueError(f"{text} is no number with one of the units {' '.join(units)}")
    return round(float(found.group(1)) * units.get(unit, 1))


def place_of(text: str) -> Place:
    """Returns the place that `host`, `host2`, `s7`, `gpu1/s7` or `p2/gpu1/s7` names."""
    named: dict[str, int] = {}
    for part in text.split("/"):
        found = _PART.match(part)
        if found is None or (found.group(1) != "host" and not found.group(2)):
            raise ValueError(f"{text} is no place; places are host, host2, s7, gpu1/s7, p2/host")
        named[found.group(1)] = int(found.group(2) or 1)
    return Place(
        named.get("p", 1), named.get("host", 0), named.get("gpu", 0), named.get("s", 0)
    )


def read_scene(text: str) -> Scene:
    """Returns the scene of a text table; raises RuleError naming the line that is wrong."""
    lines = [
        _Line(number, len(raw) - len(raw.lstrip()), raw.strip())
        for number, raw in enumerate(text.splitlines(), 1)
        if raw.strip() and not raw.strip().startswith("#")
    ]
    reader = _Reader(Scene())
    reader.block(lines, 0, None)
    return reader.scene


class _Reader:
    """Reads the lines and remembers the last event at every place, which `+` refers to."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._reached: dict[Place, int] = {}
        self._call = -1
        self._number = 0

    def block(self, lines: list[_Line], origin_ns: int, turn: int | None) -> None:
        """Reads lines whose absolute times count from `origin_ns`."""
        at = 0
        while at < len(lines):
            line = lines[at]
            inner = at + 1
            while inner < len(lines) and lines[inner].indent > line.indent:
                inner += 1
            self._number = line.number
            try:
                self._line(line, lines[at + 1 : inner], origin_ns, turn)
            except (ValueError, IndexError) as error:
                raise RuleError(
                    f"line {line.number} of the trace ({line.text}): {error}",
                    "see docs/own-rules.md for what a line may say",
                ) from error
            at = inner

    def _line(
        self, line: _Line, inside: list[_Line], origin_ns: int, turn: int | None
    ) -> None:
        text = line.text if turn is None else line.text.replace("{n}", str(turn))
        first = text.split(maxsplit=1)[0]
        if first == "repeat":
            self._repeat(text, inside, origin_ns)
            return
        if inside and not all(row.text.startswith("->") for row in inside):
            raise ValueError("only repeat and a call may have indented lines under them")
        if first == "kernel":
            name, _, full = text.removeprefix("kernel").partition("=")
            self.scene.kernels[name.strip()] = full.strip()
        elif first in HEADERS:
            words, options = _split(shlex.split(text, comments=True)[1:])
            self.scene.headers.append(Header(first, words, options))
        else:
            for row in (text, *(row.text for row in inside)):
                self._events(row.replace("{n}", str(turn or 0)), origin_ns)

    def _repeat(self, text: str, inside: list[_Line], origin_ns: int) -> None:
        words = text.rstrip(":").split()
        given = dict(zip(words[2::2], words[3::2], strict=False))
        if set(given) - {"every", "from"} or "every" not in given or len(words) % 2:
            raise ValueError("say: repeat COUNT every DURATION [from TIME]")
        step, first = (quantity(given.get(k, "0"), TIMES_NS) for k in ("every", "from"))
        for turn in range(int(words[1])):
            self.block(inside, origin_ns + first + turn * step, turn)

    def _events(self, text: str, origin_ns: int) -> None:
        tokens = shlex.split(text, comments=True)
        parts: list[list[str]] = [[]]
        for token in tokens:
            if token == "->":
                parts.append([])
            else:
                parts[-1].append(token)
        if parts[0]:
            self._event(parts[0], origin_ns, -1)
            is_call = self.scene.events[-1].what not in ACTIONS
            self._call = len(self.scene.events) - 1 if is_call else -1
        if len(parts) > 1 and self._call < 0:
            raise ValueError("an arrow needs a call before it")
        for part in parts[1:]:
            self._event(part, origin_ns, self._call)

    def _event(self, tokens: list[str], origin_ns: int, parent: int) -> None:
        if len(tokens) < 4:
            raise ValueError("an event is: START DURATION PLACE WHAT")
        place, what = self._place(tokens[2], parent), tokens[3]
        if what not in ACTIONS and not _CALL.match(what):
            raise ValueError(f"{what} is neither a CUDA call nor one of {' '.join(ACTIONS)}")
        if (place.thread == 0) != (what in ON_DEVICE):
            raise ValueError(f"{what} cannot be at {tokens[2]}")
        start = self._start(tokens[0], place, origin_ns, parent)
        end = self._end(tokens[1], start, place, origin_ns)
        words, options = _split(tokens[4:])
        self.scene.events.append(
            Event(start, end, place, what, words, options, parent, self._number)
        )
        if what not in ("range", "off", "sample"):
            self._reached[place] = max(end, self._reached.get(place, end))

    def _place(self, text: str, parent: int) -> Place:
        """An operation runs in the process of its call unless the line says otherwise."""
        place = place_of(text)
        if parent < 0 or _names_process(text):
            return place
        return replace(place, process=self.scene.events[parent].place.process)

    def _start(self, text: str, place: Place, origin_ns: int, parent: int) -> int:
        if not text.startswith("+"):
            return origin_ns + quantity(text, TIMES_NS)
        after = [self._reached.get(place, origin_ns)]
        if parent >= 0:
            after.append(self.scene.events[parent].start_ns)
        return max(after) + quantity(text[1:], TIMES_NS)

    def _end(self, text: str, start: int, place: Place, origin_ns: int) -> int:
        if not text.startswith(".."):
            return start + quantity(text, TIMES_NS)
        if text[2:3].isdigit():
            return origin_ns + quantity(text[2:], TIMES_NS)
        awaited, _, later = text[2:].partition("+")
        watched = place_of(awaited)
        if not _names_process(awaited):
            watched = replace(watched, process=place.process)
        return max(self._reached.get(watched, start), start) + quantity(later or "0", TIMES_NS)


def _names_process(place: str) -> bool:
    return place.startswith("p")


def _split(tokens: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Words and `key=value` options."""
    keyed = [t for t in tokens if re.match(r"[a-z_]+=", t)]
    options = dict(t.split("=", 1) for t in keyed)
    return tuple(t for t in tokens if t not in keyed), options
