"""Turns a scene's events into rows of an export's tables, by the names of `ingest.schema`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from nsysdoctor.cases.scene_host import off_rows, sample_rows
from nsysdoctor.cases.scene_text import (
    SIZES_BYTES,
    TIMES_NS,
    Event,
    Header,
    Place,
    Scene,
    place_of,
    quantity,
)
from nsysdoctor.errors import RuleError
from nsysdoctor.ingest.schema import EXPORT_SCHEMA, EXPORT_VERSION, INVALID_ID

Row = dict[str, Any]
Rows = dict[str, list[Row]]

_VM = 1 << 48
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
_MEMORY_KINDS = {"pageable": 0, "pinned": 1, "device": 2, "array": 3, "managed": 4}
_MIGRATION_KINDS = {"HtoD": 11, "DtoH": 12, "DtoD": 13}
_STREAM_FLAGS = {"blocking": 1, "nonblocking": 2, "null": 3}
_NULL_STREAM = 7
_NVTX_RANGE, _NVTX_DOMAIN = 59, 75
_CARD = {"cc": "8.0", "sms": "108", "clock_mhz": "1410", "bandwidth": "2039GB", "memory": "80GB"}
_CARD_NAME = "NVIDIA A100-SXM4-80GB"
_VERSIONS = {EXPORT_VERSION: "2025.5.2", EXPORT_SCHEMA: "3.24.0"}


def rows_of(scene: Scene) -> Rows:
    """Returns a scene's rows by source name, with `strings` and `versions` beside them.

    Raises RuleError naming the line of an event that no export could hold.
    """
    return _Writer(scene).rows()


class _Writer:
    """Turns a scene's events into rows by source name."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._strings: dict[str, int] = {}
        self._rows: Rows = {}
        self._visible = {
            int(h.words[0].removeprefix("p")): [int(d) for d in h.options["gpus"].split(",")]
            for h in scene.headers
            if h.kind == "process" and "gpus" in h.options
        }
        self._correlation: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._domains: dict[str, int] = {}

    def rows(self) -> Rows:
        """Returns all rows, the machine's and the string table's included."""
        for position, event in enumerate(self.scene.events):
            try:
                self._event(position, event)
            except (KeyError, ValueError, IndexError) as error:
                words = " ".join((event.what, *event.words))
                raise RuleError(
                    f"line {event.line} of the trace cannot be written ({words}): {error}",
                    "see docs/own-rules.md for what a line may say",
                ) from error
        self._about_machine()
        self._rows["strings"] = [{"id": i, "value": t} for t, i in self._strings.items()]
        self._rows["versions"] = [{"name": n, "value": v} for n, v in _VERSIONS.items()]
        return self._rows

    def _add(self, source: str, row: Row) -> None:
        self._rows.setdefault(source, []).append(row)

    def _text(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _event(self, position: int, event: Event) -> None:
        if event.place.thread:
            self._host(position, event)
        elif event.what == "migration":
            self._migration(event)
        else:
            self._operation(event)

    def _host(self, position: int, event: Event) -> None:
        base = {
            "start_ns": event.start_ns,
            "end_ns": event.end_ns,
            "global_tid": _global_tid(event.place),
        }
        if event.what == "range":
            domain = self._domain(event)
            self._add(
                "nvtx",
                {**base, "event_type": _NVTX_RANGE, "text": event.words[0], "domain": domain},
            )
        elif event.what in ("os", "pause"):
            source = "osrt" if event.what == "os" else "overhead"
            self._add(source, {**base, "name_id": self._text(" ".join(event.words))})
        elif event.what in ("off", "sample"):
            rows = off_rows(event, base) if event.what == "off" else self._sampled(event, base)
            for source, row in rows:
                self._add(source, row)
        else:
            number = self._numbered(position, event.place.process)
            named = {"name_id": self._text(event.what), "correlation": number}
            returned = {"return_value": int(event.options.get("error", "0"))}
            self._add("api", {**base, **named, **returned})
            self._synchronisation(event, number)

    def _sampled(self, event: Event, base: Row) -> list[tuple[str, Row]]:
        return sample_rows(event, base, self._text, len(self._rows.get("sample", [])))

    def _domain(self, event: Event) -> int:
        name = event.options.get("domain", "")
        if name and name not in self._domains:
            self._domains[name] = len(self._domains) + 1
            row = {"start_ns": 0, "event_type": _NVTX_DOMAIN, "text": name}
            place = {"global_tid": _global_tid(event.place), "domain": self._domains[name]}
            self._add("nvtx", {**row, **place})
        return self._domains.get(name, 0)

    def _numbered(self, position: int, process: int) -> int:
        """Correlation ids count from 1 in every process, so that they repeat between them."""
        number = self._next.get(process, 0) + 1
        self._next[process] = number
        self._correlation[position] = number
        return number

    def _synchronisation(self, event: Event, number: int) -> None:
        """A synchronisation record: what a call waits for or marks, where the line names the stream
        or event."""
        stream = next((w for w in event.words if re.search(r"(^|/)s\d+$", w)), None)
        mark = int(event.options.get("event", INVALID_ID))
        if not (stream or mark != INVALID_ID or "DeviceSync" in event.what):
            return
        device = next((w for w in event.words if w.startswith("gpu")), None)
        named = place_of(stream or device or f"gpu{self._visible_to(event.place.process)[0]}")
        row = self._where(replace(named, process=event.place.process), number)
        row |= {"stream": named.stream if stream else INVALID_ID, "event": mark}
        if "Record" in event.what:
            self._add("event", row)
        else:
            self._add("sync", row | {"start_ns": event.start_ns, "end_ns": event.end_ns})

    def _visible_to(self, process: int) -> list[int]:
        return self._visible.get(process, [0])

    def _operation(self, event: Event) -> None:
        row = self._where(event.place, self._correlation.get(event.parent, 0))
        row |= {"start_ns": event.start_ns, "end_ns": event.end_ns}
        row["node"] = int(event.options.get("node", 0)) or None
        kind = event.what
        if kind == "kernel":
            self._add("kernel", row | self._launch(event))
        elif kind == "copy":
            self._add("memcpy", row | _copy(event))
        elif kind == "set":
            self._add("memset", row | {"bytes": quantity(event.words[0], SIZES_BYTES)})
        else:
            number = int(event.words[0]) if event.words else 1
            self._add("graph", row | {"graph": number, "graph_exec": number})

    def _launch(self, event: Event) -> Row:
        from nsysdoctor.roofline.kernel_names import short_name

        full = self.scene.kernels.get(event.words[0], event.words[0])
        shape = {
            f"{name}_{axis}": size
            for name in ("grid", "block")
            for axis, size in zip("xyz", _sizes(event.options.get(name, "108")), strict=True)
        }
        return shape | {
            "full_id": self._text(full),
            "short_id": self._text(short_name(full)),
            "registers": int(event.options.get("registers", 32)),
            "local_bytes_per_thread": int(event.options.get("local", 0)),
            "static_shared_bytes": int(event.options.get("shared", 0)),
        }

    def _migration(self, event: Event) -> None:
        self._add(
            "memcpy",
            {
                "start_ns": event.start_ns,
                "end_ns": event.end_ns,
                "global_pid": _global_pid(event.place.process),
                "bytes": quantity(event.words[1], SIZES_BYTES),
                "copy_kind": _MIGRATION_KINDS[event.words[0]],
                "src_kind": 7,
                "dst_kind": 7,
                "migration_cause": int(event.options.get("cause", 2)),
            },
        )

    def _where(self, place: Place, correlation: int) -> Row:
        ordinal = self._ordinal(place)
        return {
            "ordinal": ordinal,
            "context": ordinal + 1,
            "stream": place.stream,
            "correlation": correlation,
            "global_pid": _global_pid(place.process),
        }

    def _ordinal(self, place: Place) -> int:
        """The number by which a process knows a device: its position among the devices visible to
        it."""
        seen = self._visible.get(place.process)
        if seen is not None and place.device not in seen:
            raise ValueError(f"process p{place.process} does not see GPU {place.device}")
        return place.device if seen is None else seen.index(place.device)

    def _about_machine(self) -> None:
        used = sorted({e.place for e in self.scene.events if e.place.stream}, key=_order)
        given = {int(h.words[0]): h for h in self.scene.headers if h.kind == "gpu"}
        for device in sorted({p.device for p in used} | set(given)):
            self._add("gpu", _card(device, given.get(device)))
        contexts = {(p.process, p.device) for p in used}
        for process, device in sorted(contexts):
            self._context(Place(process, 0, device, _NULL_STREAM))
        flags = {
            place_of(h.words[0]): h.words[1] for h in self.scene.headers if h.kind == "stream"
        }
        for place in used:
            usual = "null" if place.stream == _NULL_STREAM else "nonblocking"
            flag = _STREAM_FLAGS[flags.get(place, usual)]
            self._add("stream", self._owner(place) | {"stream": place.stream, "flag": flag})
        self._names()

    def _owner(self, place: Place) -> Row:
        ordinal = self._ordinal(place)
        return {"pid": _pid(place.process), "ordinal": ordinal, "context": ordinal + 1}

    def _context(self, place: Place) -> None:
        self._add("context", self._owner(place) | {"null_stream": place.stream})
        pair = {"gpu_id": place.device, "cuda_id": self._ordinal(place)}
        self._add("cuda_device", pair | {"pid": _pid(place.process)})

    def _names(self) -> None:
        for header in self.scene.headers:
            if header.kind == "process":
                number = int(header.words[0].removeprefix("p"))
                name = header.words[1] if len(header.words) > 1 else "python"
                self._add("process_name", {"global_pid": _global_pid(number), "name": name})
            elif header.kind == "thread":
                tid = _global_tid(place_of(header.words[0]))
                row = {"name_id": self._text(header.words[1]), "priority": 20, "global_tid": tid}
                self._add("thread_name", row)
            elif header.kind == "row":
                self._add(header.words[0], {k: _plain(v) for k, v in header.options.items()})


def _order(place: Place) -> tuple[int, int, int]:
    return place.process, place.device, place.stream


def _pid(process: int) -> int:
    return 1000 * process


def _global_pid(process: int) -> int:
    return _VM | _pid(process) << 24


def _global_tid(place: Place) -> int:
    return _global_pid(place.process) | (_pid(place.process) + place.thread - 1)


def _sizes(text: str) -> list[int]:
    sizes = [int(part) for part in text.split("x")]
    return [*sizes, 1, 1][:3]


def _copy(event: Event) -> Row:
    direction, size, *memory = event.words
    ends = {"HtoD": ("", "device"), "DtoH": ("device", ""), "HtoH": ("", "")}
    source, target = ends.get(direction, ("device", "device"))
    host = memory[0] if memory else "pinned"
    return {
        "bytes": quantity(size, SIZES_BYTES),
        "copy_kind": _COPY_KINDS[direction],
        "src_kind": _MEMORY_KINDS[source or host],
        "dst_kind": _MEMORY_KINDS[target or host],
    }


def _card(device: int, header: Header | None) -> Row:
    figures = _CARD | (header.options if header else {})
    major, minor = figures["cc"].split(".")
    named = header.words[1] if header and len(header.words) > 1 else _CARD_NAME
    return {
        "id": device,
        "cuda_ordinal": device,
        "name": named,
        "compute_major": int(major),
        "compute_minor": int(minor),
        "sm_count": int(figures["sms"]),
        "clock_hz": int(figures["clock_mhz"]) * 10**6,
        "memory_bandwidth_bytes_per_s": quantity(figures["bandwidth"], SIZES_BYTES),
        "total_memory_bytes": quantity(figures["memory"], SIZES_BYTES),
        "bus": f"0000:{device + 1:02x}:00.0",
    }


def _plain(text: str) -> int | str | None:
    """An option's value: a number, a time, `null`, or text."""
    if text == "null":
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return quantity(text, TIMES_NS)
    except ValueError:
        return text
