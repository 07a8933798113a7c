"""The timeline of a trace, small enough for one page: from tables to a payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nsysdoctor.arrays.intervals import EMPTY, Ints, Spans, union
from nsysdoctor.ingest.cut import widened
from nsysdoctor.report.model import Report
from nsysdoctor.timeline.figures import figures
from nsysdoctor.timeline.merge import (
    Items,
    Mask,
    caps,
    detail_windows,
    inside,
    merged,
    merged_pieces,
)
from nsysdoctor.timeline.payload import MIXED, Figures, Payload, Track
from nsysdoctor.timeline.rows import (
    MOST_DEPTH,
    Bounds,
    DeviceRow,
    Names,
    Row,
    Tables,
    device_rows,
    host_rows,
    ints,
    optional,
    stream_rows,
    touching,
)
from nsysdoctor.units import count_text, ns_text

__all__ = ["Payload", "timeline_payload"]

BUDGET = 240_000
"""Most items on a page, all rows and traces together; about 2.5 MB when packed."""

DEVICE_BINS = 4000
SAMPLES = 24
MOST_NAMES = 4000
MOST_CHARACTERS = 3_000_000


def timeline_payload(
    tables: Tables, report: Report, *, trace: int = 0, budget: int | None = None
) -> Payload:
    """Returns the timeline of one trace: every device, stream and busy host thread.

    `tables` gives documented tables by name and raises MissingTableError for one that the trace
    cannot give; its rows are then left out. For a given window (START:END) the timeline shows the
    window and the margin around it, and the charts cover what ran or was called in it. A trace with
    more than `budget` items (by default BUDGET, shared by the report's traces) shows singly the
    places that findings point to, samples in between and the longest operation of each name.
    Neighbours elsewhere are merged into blocks, which `notes` mentions.
    """
    budget = budget or max(20_000, BUDGET // max(1, len(report.traces)))
    names, shapes = Names([], []), list[str]()
    device_numbers = [device.device for device in report.devices if device.trace == trace]
    given = _given_window(report)
    view = None if given is None else widened(*given)
    rows = list(stream_rows(tables, names, shapes, device_numbers, view))
    hosts, left_out = host_rows(tables, names, view)
    rows += hosts
    devices = list(device_rows(tables, device_numbers))
    origin, end = _bounds(rows, devices)
    found = figures(tables, origin, given)
    windows = _windows(rows, report, trace, found, budget, (origin, end))
    shown = _within_budget(rows, windows, budget, (origin, end))
    tracks = [_device_track(row, windows, origin, budget) for row in devices]
    tracks += [_track(row, kept, origin) for row, kept in zip(rows, shown, strict=True)]
    tracks, full, short = _renamed(tracks, names)
    full, cut = _cut(full)
    omitted = _omission_notes(tables, rows, device_numbers, left_out, view)
    notes = [*cut, *_merge_notes(rows, shown), *omitted]
    label = report.traces[trace].path if trace < len(report.traces) else ""
    return Payload(
        trace, label, origin, end - origin, full, short, shapes, _by_place(tracks), found, notes,
        view and (max(view[0] - origin, 0), min(view[1], end) - origin),
    )  # fmt: skip


def _given_window(report: Report) -> tuple[int, int] | None:
    """The window that was given as START:END, None without one."""
    window = report.window
    return (window.start_ns, window.end_ns) if window and window.basis == "given" else None


def _bounds(rows: Sequence[Row], devices: Sequence[DeviceRow]) -> tuple[int, int]:
    starts = [int(row.items.start[0]) for row in rows if len(row.items.start)]
    ends = [int(row.items.end.max()) for row in rows if len(row.items.end)]
    starts += [int(row.start[0]) for row in devices if len(row.start)]
    ends += [int(row.end[-1]) for row in devices if len(row.end)]
    return min(starts, default=0), max(ends, default=0)


def _places(
    report: Report, trace: int, found: Figures, origin: int, span: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yields the places to show item by item, the most important first: evidence of each finding in
    turn, a typical step, samples."""
    evidence = [finding.evidence for finding in report.findings if finding.trace == trace]
    for turn in range(max(map(len, evidence), default=0)):
        yield from ((e[turn].start_ns, e[turn].end_ns) for e in evidence if turn < len(e))
        if turn == 0:
            steady = [step for step in found.steps if step.phase == "steady"]
            for step in sorted(steady, key=lambda s: (s.end_ns - s.start_ns, s.step))[
                len(steady) // 2 : len(steady) // 2 + 1
            ]:
                yield step.start_ns + origin, step.end_ns + origin
    low, high = span
    for sample in range(1, SAMPLES + 1):
        at = low + (high - low) * sample // (SAMPLES + 1)
        yield at, at + (high - low) // 1000


def _windows(
    rows: Sequence[Row],
    report: Report,
    trace: int,
    found: Figures,
    budget: int,
    span: tuple[int, int],
) -> Spans:
    if sum(len(row.items.start) for row in rows) <= budget:
        return union(Spans(np.array([span[0]]), np.array([span[1] + 1])))
    places = _places(report, trace, found, span[0], span)
    starts = [row.items.start for row in rows]
    return detail_windows(starts, places, budget // 2) if rows else EMPTY


def _within_budget(
    rows: Sequence[Row], windows: Spans, budget: int, span: tuple[int, int]
) -> list[Items]:
    """Merges what lies outside the windows so that all rows together stay near the budget.

    Calls are merged last: a call stays single where one of its operations does, so that a click on
    one leads to the other.
    """
    named = _named(rows)
    single = [inside(row.items, windows) | mask for row, mask in zip(rows, named, strict=True)]
    rest = [int((~mask).sum()) for mask in single]
    allowed = caps(rest, max(0, budget - sum(int(mask.sum()) for mask in single)))
    shown = [
        row.items if cap >= size else merged(row.items, mask, max(1, cap // 2), span)
        for row, mask, cap, size in zip(rows, single, allowed, rest, strict=True)
    ]
    wanted = _keys(rows, shown)
    for place, (row, mask, cap) in enumerate(zip(rows, single, allowed, strict=True)):
        if row.kind == "calls" and shown[place] is not row.items:
            partner = np.isin(row.items.key, wanted)
            shown[place] = merged(row.items, mask | partner, max(1, cap // 2), span)
    return shown


def _keys(rows: Sequence[Row], shown: Sequence[Items]) -> Ints:
    """Returns the call rows + 1 of all operations that are shown one by one."""
    keys = [
        kept.key[kept.count == 1]
        for row, kept in zip(rows, shown, strict=True)
        if row.kind == "stream"
    ]
    found = np.unique(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)
    return found[found > 0]


def _named(rows: Sequence[Row]) -> list[Mask]:
    """Marks the longest operation of each name, so that a search finds every kernel."""
    masks = [np.zeros(len(row.items.start), dtype=bool) for row in rows]
    for row, mask in zip(rows, masks, strict=True):
        if row.kind == "stream":
            order = np.lexsort((row.items.start, row.items.start - row.items.end, row.items.name))
            _, first = np.unique(row.items.name[order], return_index=True)
            mask[order[first[:MOST_NAMES]]] = True
    return masks


def _track(row: Row, kept: Items, origin: int) -> Track:
    columns: dict[str, Ints] = {
        "start_ns": kept.start - origin,
        "length_ns": kept.end - kept.start,
        "name": kept.name,
        "paint": kept.paint,
        "count": kept.count,
        "busy_ns": kept.busy,
    }
    if row.kind in ("stream", "calls"):
        columns["key"] = kept.key
    if row.kind == "stream":
        columns |= {"bytes": kept.bytes, "shape": kept.shape}
    return Track(row.kind, row.group, row.label, row.device, row.thread, row.depth, columns)


def _device_track(row: DeviceRow, windows: Spans, origin: int, budget: int) -> Track:
    whole = len(row.start) <= budget // 4
    single = np.ones(len(row.start), dtype=bool)
    if not whole:
        zero = np.zeros(len(row.start), dtype=np.int64)
        base = Items(row.start, row.end, zero, zero, zero, zero, zero, zero, zero)
        single = inside(base, windows)
    pieces = merged_pieces(row.start, row.end, row.paint, single, DEVICE_BINS, MIXED)
    columns = {
        "start_ns": pieces.start - origin,
        "length_ns": pieces.end - pieces.start,
        "paint": pieces.paint,
        "count": pieces.count,
        "part_count": pieces.part_count,
        "part_paint": pieces.part_paint,
        "part_ns": pieces.part_ns,
    }
    return Track("device", row.group, "device", row.device, columns=columns)


def _renamed(tracks: Sequence[Track], names: Names) -> tuple[list[Track], list[str], list[str]]:
    """Drops the texts that no item refers to. Returns the tracks with new codes, and the texts."""
    columns = [track.columns["name"] for track in tracks if "name" in track.columns]
    used = np.unique(np.concatenate(columns)) if columns else np.empty(0, dtype=np.int64)
    made = [
        replace(track, columns=track.columns | {"name": np.searchsorted(used, codes)})
        if (codes := track.columns.get("name")) is not None
        else track
        for track in tracks
    ]
    kept = used.tolist()
    return made, [names.full[code] for code in kept], [names.short[code] for code in kept]


def _cut(names: list[str]) -> tuple[list[str], list[str]]:
    """Shortens the longest names where all names together are too long for a page. Returns the
    names and a note about it."""
    allowed = caps([len(name) for name in names], MOST_CHARACTERS)
    cut = [
        name if len(name) <= cap else name[: max(cap - 1, 0)] + "…"
        for name, cap in zip(names, allowed, strict=True)
    ]
    count = sum(len(name) > cap for name, cap in zip(names, allowed, strict=True))
    if not count:
        return names, []
    return cut, [f"{count_text(count)} names are cut after {count_text(max(allowed))} characters."]


def _by_place(tracks: Sequence[Track]) -> list[Track]:
    """Devices with their streams first, then host threads, in the order found."""
    gpu = sorted(
        (track for track in tracks if track.device >= 0),
        key=lambda track: (track.device, track.kind != "device"),
    )
    return gpu + [track for track in tracks if track.device < 0]


def _merge_notes(rows: Sequence[Row], shown: Sequence[Items]) -> list[str]:
    whole = sum(len(row.items.start) for row in rows)
    blocks = sum(int((kept.count > 1).sum()) for kept in shown)
    if not blocks:
        return []
    inside_blocks = sum(int(kept.count[kept.count > 1].sum()) for kept in shown)
    mean = sum(int((kept.end - kept.start)[kept.count > 1].sum()) for kept in shown) / blocks
    return [
        f"{count_text(whole - inside_blocks)} of {count_text(whole)} operations and calls are shown"
        " one by one: the places the findings point to, samples between them and the longest run"
        f" of each kernel. The other {count_text(inside_blocks)} are merged with their neighbours"
        f" into {count_text(blocks)} blocks of {ns_text(mean)} on average."
    ]


def _omission_notes(
    tables: Tables, rows: Sequence[Row], devices: list[int], threads: int, bounds: Bounds | None
) -> list[str]:
    notes, lanes = [], 0
    ops = optional(tables, "ops")
    if ops is not None:
        near = touching(ints(ops, "start_ns"), ints(ops, "end_ns"), bounds)
        places = ops[["device", "lane"]].iloc[near]
        lanes = int(places.loc[places["device"].isin(devices), "lane"].nunique())
    hidden = lanes - sum(row.kind == "stream" for row in rows)
    if hidden > 0:
        notes.append(f"{count_text(hidden)} streams with the least work are left out.")
    if threads > 0:
        notes.append(f"{count_text(threads)} host threads with the least activity are left out.")
    depth, ranges = optional(tables, "range_depth"), optional(tables, "ranges")
    if depth is not None and ranges is not None and len(depth):
        near = touching(ints(ranges, "start_ns"), ints(ranges, "end_ns"), bounds)
        deep = int((ints(depth, "depth")[near] >= MOST_DEPTH).sum())
        if deep:
            notes.append(f"{count_text(deep)} ranges nested deeper than {MOST_DEPTH} are left out.")
    return notes
