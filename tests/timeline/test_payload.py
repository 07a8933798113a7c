"""The timeline payload: exact numbers, levels of detail, missing tables."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysdoctor.arrays.intervals import spans
from nsysdoctor.timeline import Payload
from nsysdoctor.timeline.merge import (
    caps,
    detail_windows,
    inside,
    items,
    merged,
    merged_pieces,
)
from nsysdoctor.timeline.payload import MIXED, PAINTS, Figures, Track, unpack
from nsysdoctor.timeline.timeline import timeline_payload
from tests.make_report import NASTY, make_report
from tests.make_tables import make_frames, report_of, table_source


def payload_of(budget: int | None = None, **shape: int) -> Payload:
    """Returns the payload of a made-up run."""
    frames = make_frames(**shape)
    return timeline_payload(table_source(frames), report_of(frames), budget=budget)


def drawn_ns(track: Track) -> dict[str, int]:
    """Returns the time that a device row draws in each state."""
    columns = track.columns
    total = dict.fromkeys(PAINTS, 0)
    whole = columns["paint"] != MIXED
    for paint, length in zip(columns["paint"][whole], columns["length_ns"][whole], strict=True):
        total[PAINTS[paint]] += int(length)
    for paint, length in zip(columns["part_paint"], columns["part_ns"], strict=True):
        total[PAINTS[paint]] += int(length)
    return total


@pytest.mark.parametrize("budget", [None, 400, 2000])
def test_device_row_draws_the_budget_exactly(budget: int | None) -> None:
    frames = make_frames(steps=60, per_step=40, gpus=2)
    report = report_of(frames)
    payload = timeline_payload(table_source(frames), report, budget=budget)
    for device in report.devices:
        track = next(t for t in payload.tracks if (t.kind, t.device) == ("device", device.device))
        drawn = drawn_ns(track)
        assert sum(v for name, v in drawn.items() if name.startswith("idle-")) == device.idle_ns
        assert drawn["compute"] == device.compute_ns
        assert drawn["communication"] == device.exposed_communication_ns
        assert drawn["copy"] == device.exposed_copy_ns
        causes = {c.cause: c.idle_ns for c in report.idle_causes if c.device == device.device}
        assert {c: drawn[f"idle-{c}"] for c in causes} == causes
        assert (track.columns["part_count"] > 0).any() == (budget is not None)


def test_every_operation_is_drawn_or_counted() -> None:
    frames = make_frames(steps=200, per_step=60)
    small = timeline_payload(table_source(frames), report_of(frames), budget=1500)
    streams = [track for track in small.tracks if track.kind == "stream"]
    assert sum(int(track.columns["count"].sum()) for track in streams) == len(frames["ops"])
    work = sum(
        int(np.where(t.columns["count"] > 1, t.columns["busy_ns"], t.columns["length_ns"]).sum())
        for t in streams
    )
    assert work == int((frames["ops"]["end_ns"] - frames["ops"]["start_ns"]).sum())
    assert "merged with their neighbours" in small.notes[0]
    whole = sum(len(frames[name]) for name in ("ops", "api", "waits", "ranges"))
    assert f"of {whole:,} operations and calls" in small.notes[0]


def test_evidence_is_shown_one_by_one() -> None:
    frames = make_frames(steps=200, per_step=60)
    report = report_of(frames)
    payload = timeline_payload(table_source(frames), report, budget=4000)
    ops = frames["ops"]
    stream = next(track for track in payload.tracks if track.kind == "stream")
    single = stream.columns["count"] == 1
    shown = set((stream.columns["start_ns"][single] + payload.origin_ns).tolist())
    for evidence in report.findings[0].evidence:
        near = ops[(ops["end_ns"] > evidence.start_ns - 50_000) & (ops["stream"] == 7)]
        near = near[near["start_ns"] < evidence.end_ns + 50_000]
        assert len(near)
        assert set(near["start_ns"]) <= shown
    assert not single.all()


def test_every_name_can_be_reached() -> None:
    payload = payload_of(steps=400, per_step=60, budget=4000)
    stream = next(track for track in payload.tracks if track.kind == "stream")
    single = stream.columns["name"][stream.columns["count"] == 1]
    texts = {payload.names[code] for code in single}
    assert {name or "(unnamed kernel)" for name in NASTY} <= texts


def test_calls_of_single_operations_stay_single() -> None:
    payload = payload_of(steps=300, per_step=60, budget=4000)
    keys = [
        set(track.columns["key"][track.columns["count"] == 1].tolist())
        for kind in ("stream", "calls")
        for track in payload.tracks
        if track.kind == kind
    ]
    calls = set().union(*keys[2:])
    assert set().union(*keys[:2]) - {0} <= calls


def test_a_trace_within_the_budget_is_whole() -> None:
    payload = payload_of(steps=6, per_step=40, gpus=2)
    assert payload.notes == []
    assert all((track.columns["count"] == 1).all() for track in payload.tracks)
    assert sum(t.size for t in payload.tracks if t.kind == "stream") == 480


def test_packing_keeps_every_integer() -> None:
    far = 9_007_199_254_740_991
    columns = {
        "start_ns": np.array([0, 1, 49, 98, far], dtype=np.int64),
        "key": np.array([5, 1, 70_000, 0, 2**40], dtype=np.int64),
        "length_ns": np.array([0, 255, 256, 2**32, 3], dtype=np.int64),
    }
    track = Track("stream", "GPU 0", "stream 7", columns=columns)
    payload = Payload(0, "x", 1_732_107_141_551_429_079, far, [], [], [], [track], Figures(), [])
    header, tracks = unpack(payload.pack())
    assert header["origin_ns"] == "1732107141551429079"
    for name, values in columns.items():
        assert tracks[0][name].tolist() == values.tolist()
    assert payload.pack() == payload.pack()


def test_huge_clocks_keep_49_ns_apart() -> None:
    frames = make_frames(steps=4, per_step=30, origin_ns=1_732_107_141_551_429_079)
    payload = timeline_payload(table_source(frames), report_of(frames))
    _, tracks = unpack(payload.pack())
    ops = frames["ops"]
    drawn = np.concatenate(
        [t["start_ns"] for t, made in zip(tracks, payload.tracks, strict=True)
         if made.kind == "stream"]
    )  # fmt: skip
    assert sorted(drawn + payload.origin_ns) == sorted(ops["start_ns"])


@pytest.mark.parametrize(
    "missing",
    ["api", "waits", "ranges", "threads", "launches", "gap_causes", "device_pieces", "steps",
     "configurations", "copies", "devices", "api_names", "range_names", "processes", "ops",
     "names"],
)  # fmt: skip
def test_a_missing_table_leaves_its_row_out(missing: str) -> None:
    frames = make_frames()
    report = report_of(frames)
    del frames[missing]
    payload = timeline_payload(table_source(frames), report)
    kinds = {track.kind for track in payload.tracks}
    gone = {
        "api": {"calls"}, "api_names": {"calls"}, "waits": {"waits"}, "ranges": {"ranges"},
        "range_names": {"ranges"}, "threads": {"calls", "waits", "ranges"},
        "gap_causes": {"device"}, "device_pieces": {"device"}, "ops": {"stream"},
        "names": {"stream"},
    }.get(missing, set())  # fmt: skip
    assert kinds == {"device", "stream", "calls", "waits", "ranges"} - gone
    payload.pack()


def test_nothing_at_all_still_makes_a_payload() -> None:
    payload = timeline_payload(table_source({}), make_report())
    assert payload.tracks == []
    header, _ = unpack(payload.pack())
    assert json.dumps(header)


def test_same_input_same_bytes() -> None:
    assert payload_of(steps=40, budget=600).pack() == payload_of(steps=40, budget=600).pack()


@pytest.mark.parametrize("lanes", [30, 60])
def test_streams_beyond_the_limit_are_said(lanes: int) -> None:
    frames = make_frames(steps=10, per_step=lanes)
    frames["ops"]["lane"] = frames["ops"]["stream"] = np.arange(len(frames["ops"])) % lanes
    payload = timeline_payload(table_source(frames), report_of(frames))
    assert f"{lanes - 24} streams with the least work are left out." in payload.notes


def test_roofline_counts_an_operation_per_element_where_none_is_told() -> None:
    frames = make_frames(steps=8, gpus=2)
    found = timeline_payload(table_source(frames), report_of(frames)).figures
    assert sorted(point.device for point in found.roof_points) == [0, 1]
    for point in found.roof_points:
        assert (point.intensity, point.bound) == (0.25, "memory")
        assert point.rate_flops_per_s == pytest.approx(1e12 / 4)
    ops = frames["ops"]
    length = ops["end_ns"] - ops["start_ns"]
    share = length[ops["name"] == 1].sum() / length[ops["kind"] == 0].sum()
    assert sum(point.share_ratio for point in found.roof_points) == pytest.approx(share)
    assert set(found.data_types) == {"fp32", "bf16"}
    memory = [roof for roof in found.roofs if roof.kind == "memory"]
    assert {(roof.device, roof.peak) for roof in memory} == {(0, 2_039_040_000_000.0),
                                                             (1, 2_039_040_000_000.0)}  # fmt: skip
    kernels = frames["kernels"]
    frames["kernels"] = kernels.with_columns(flops=kernels["bytes"] * 50)
    told = timeline_payload(table_source(frames), report_of(frames)).figures
    assert {point.intensity for point in told.roof_points} == {50.0}


def test_copies_are_grouped_by_kind_and_size() -> None:
    frames = make_frames(steps=8)
    points = timeline_payload(table_source(frames), report_of(frames)).figures.copies
    assert {(p.direction, p.memory, p.bytes, p.count) for p in points} == {
        ("HtoD", "pageable", 4_194_304, 4),
        ("HtoD", "pinned", 4_194_304, 4),
    }


def test_latencies_are_counted_once_each() -> None:
    frames = make_frames(steps=8)
    found = timeline_payload(table_source(frames), report_of(frames)).figures
    latency = frames["launches"]["latency_ns"]
    assert sum(found.latency_counts) == len(latency)
    assert len(found.latency_edges_ns) == len(found.latency_counts) + 1
    assert found.latency_edges_ns[0] <= latency.min()
    assert found.latency_edges_ns[-1] > latency.max()


def test_names_that_would_burst_the_page_are_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = make_frames()
    whole = timeline_payload(table_source(frames), report_of(frames))
    assert "k" * 4000 in whole.names
    monkeypatch.setattr("nsysdoctor.timeline.timeline.MOST_CHARACTERS", 1500)
    cut = timeline_payload(table_source(frames), report_of(frames))
    assert sum(map(len, cut.names)) <= 1500
    assert "names are cut after" in cut.notes[0]
    assert NASTY[0] in cut.names


def test_only_the_devices_of_the_report_are_drawn() -> None:
    frames = make_frames(gpus=2)
    report = report_of(frames)
    one = replace(report, devices=report.devices[1:])
    payload = timeline_payload(table_source(frames), one)
    assert {track.device for track in payload.tracks if track.device >= 0} == {1}
    assert payload.notes == []


times = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 400), st.integers(0, 3)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(times, st.integers(1, 40), st.integers(0, 5000), st.integers(0, 800))
def test_merging_loses_no_time(
    rows: list[tuple[int, int, int]], bins: int, low: int, width: int
) -> None:
    start = np.array([row[0] for row in rows], dtype=np.int64)
    length = np.array([row[1] for row in rows], dtype=np.int64)
    name = np.array([row[2] for row in rows], dtype=np.int64)
    made = items(start, start + length, name, name)
    single = inside(made, spans([low], [low + width]))
    found = merged(made, single, bins, (0, 5400))
    whole = np.where(found.count > 1, found.busy, found.end - found.start)
    assert int(found.count.sum()) == len(rows)
    assert int(whole.sum()) == int(length.sum())
    assert (np.diff(found.start) >= 0).all()
    blocks = found.count > 1
    kept = {(s, e) for s, e in zip(found.start[~blocks], found.end[~blocks], strict=True)}
    assert {(s, e) for s, e in zip(made.start[single], made.end[single], strict=True)} <= kept


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4)), min_size=1, max_size=60),
    st.integers(1, 30),
)
def test_merged_pieces_keep_each_state(rows: list[tuple[int, int]], bins: int) -> None:
    end = np.cumsum([row[0] for row in rows]).astype(np.int64)
    start = end - np.array([row[0] for row in rows])
    paint = np.array([row[1] for row in rows], dtype=np.int64)
    single = np.zeros(len(rows), dtype=bool)
    found = merged_pieces(start, end, paint, single, bins, MIXED)
    columns = {"paint": found.paint, "length_ns": found.end - found.start}
    columns |= {"part_paint": found.part_paint, "part_ns": found.part_ns}
    drawn = drawn_ns(Track("device", "", "", columns=columns))
    for state in range(5):
        assert drawn[PAINTS[state]] == int((end - start)[paint == state].sum())
    assert int(found.part_count.sum()) == len(found.part_ns)
    assert (found.start[1:] == found.end[:-1]).all()


def test_merged_block_takes_the_name_that_ran_longest() -> None:
    start = np.array([0, 10, 20, 30], dtype=np.int64)
    length = np.array([3, 3, 5, 3], dtype=np.int64)
    made = items(start, start + length, np.array([1, 1, 2, 3]), np.array([0, 0, 1, 2]))
    found = merged(made, np.zeros(4, dtype=bool), 1, (0, 1000))
    assert (found.name.tolist(), found.paint.tolist(), found.count.tolist()) == ([1], [0], [4])
    assert (found.start.tolist(), found.end.tolist(), found.busy.tolist()) == ([0], [33], [14])


def test_budget_is_shared_like_water() -> None:
    assert caps([5, 100, 100], 65) == [5, 30, 30]
    assert caps([5, 7], 100) == [5, 7]
    assert caps([], 10) == []


def test_windows_are_cut_where_they_hold_too_much() -> None:
    start = np.arange(100_000, dtype=np.int64) * 100
    windows = detail_windows([start], [(0, 10_000_000)], 50_000)
    held = int(inside(items(start, start + 10, start * 0, start * 0), windows).sum())
    assert 1000 < held <= 4000
    assert int(windows.start[0]) <= 0
