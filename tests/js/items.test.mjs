import assert from "node:assert/strict";
import { test } from "node:test";
import { withReach } from "../../nsysdoctor/render/assets/decode.mjs";
import { drawnNs, hits, itemAt, MIXED, partner, rangePath, stateColumns, statesOf, visible } from "../../nsysdoctor/render/assets/items.mjs";

const row = (kind, spans, more = {}) =>
  withReach({
    kind, group: "g", label: kind, thread: -1, depth: 0,
    start_ns: Float64Array.from(spans, (s) => s[0]),
    length_ns: Float64Array.from(spans, (s) => s[1] - s[0]),
    count: new Float64Array(spans.length).fill(1),
    ...more,
  });

test("visible finds what reaches into the view, however long ago it began", () => {
  const track = row("calls", [[0, 1000], [10, 20], [30, 40], [500, 510], [2000, 2010]]);
  assert.deepEqual(visible(track, { start: 400, end: 450 }), [0, 3]);
  assert.deepEqual(visible(track, { start: 1500, end: 1900 }), [4, 4]);
  assert.deepEqual(visible(track, { start: 0, end: 5000 }), [0, 5]);
});

test("the innermost item is meant", () => {
  const track = row("calls", [[0, 1000], [10, 200], [30, 40]]);
  assert.equal(itemAt(track, 35, 0), 2);
  assert.equal(itemAt(track, 150, 0), 1);
  assert.equal(itemAt(track, 500, 0), 0);
  assert.equal(itemAt(track, 1500, 0), -1);
  assert.equal(itemAt(row("stream", [[100, 101], [300, 301]]), 110, 50), 0);
  assert.equal(itemAt(row("stream", [[100, 101], [300, 301]]), 295, 50), 1);
  assert.equal(itemAt(row("stream", []), 295, 50), -1);
});

test("a call and its operation find each other", () => {
  const ops = row("stream", [[50, 60], [70, 80]], { key: Float64Array.of(9, 0) });
  const calls = row("calls", [[1, 2], [40, 45]], { key: Float64Array.of(8, 9) });
  assert.deepEqual(partner([ops, calls], ops, 0), { track: calls, index: 1 });
  assert.deepEqual(partner([ops, calls], calls, 1), { track: ops, index: 0 });
  assert.equal(partner([ops, calls], ops, 1), null);
  assert.equal(partner([ops, calls], calls, 0), null);
});

test("a graph launch leads to its first operation, whatever its row", () => {
  const late = row("stream", [[90, 95]], { key: Float64Array.of(3) });
  const early = row("stream", [[50, 60], [61, 62]], { key: Float64Array.of(3, 3) });
  const calls = row("calls", [[1, 2]], { key: Float64Array.of(3) });
  assert.deepEqual(partner([late, early, calls], calls, 0), { track: early, index: 0 });
});

test("ranges that enclose a call are listed from the outside in", () => {
  const name = (code) => ({ name: Float64Array.of(code), thread: 4 });
  const outer = row("ranges", [[0, 100]], { ...name(7) });
  const inner = row("ranges", [[10, 90]], { ...name(8), depth: 1 });
  const other = row("ranges", [[0, 100]], { ...name(9), thread: 5 });
  assert.deepEqual(rangePath([inner, other, outer], 4, 50), [7, 8]);
  assert.deepEqual(rangePath([inner, other, outer], 4, 95), [7]);
});

test("a search finds parts of full names, by time over all rows", () => {
  const names = ["void Gemm<1>()", "layer_norm", "</script>"];
  const a = row("stream", [[50, 60], [70, 80]], { name: Float64Array.of(0, 1) });
  const b = row("stream", [[10, 20]], { name: Float64Array.of(0) });
  const found = hits({ names, tracks: [a, b] }, " gemm ");
  assert.deepEqual(found.map((hit) => hit.track.start_ns[hit.index]), [10, 50]);
  assert.deepEqual(hits({ names, tracks: [a, b] }, "  "), []);
  assert.deepEqual(hits({ names, tracks: [a, b] }, "softmax"), []);
});

const device = () =>
  row("device", [[0, 100], [100, 200], [200, 400]], {
    paint: Float64Array.of(0, MIXED, 2),
    part_count: Float64Array.of(0, 2, 0), part_at: Float64Array.of(0, 0, 2),
    part_paint: Float64Array.of(0, 2), part_ns: Float64Array.of(25, 75),
  });

test("pixel columns hold the time of each state", () => {
  const columns = stateColumns(device(), { start: 0, end: 400 }, 4, 3);
  assert.deepEqual([...columns], [100, 0, 0, 25, 0, 75, 0, 0, 100, 0, 0, 100]);
  const half = stateColumns(device(), { start: 50, end: 150 }, 1, 3);
  assert.deepEqual([...half], [62.5, 0, 37.5]);
});

test("what is drawn sums to the same whatever the width", () => {
  for (const width of [1, 3, 7, 500]) {
    const columns = stateColumns(device(), { start: 0, end: 400 }, width, 3);
    const idle = columns.reduce((sum, value, at) => sum + (at % 3 === 2 ? value : 0), 0);
    assert.ok(Math.abs(idle - 275) < 1e-6, `${idle} at ${width}`);
  }
  assert.equal(drawnNs(device(), ["compute", "copy", "idle-x"], "idle-"), 275);
});

test("a mixed piece tells its parts", () => {
  assert.deepEqual(statesOf(device(), 1), [[0, 0.25], [2, 0.75]]);
  assert.deepEqual(statesOf(device(), 2), [[2, 1]]);
});
