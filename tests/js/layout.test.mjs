import assert from "node:assert/strict";
import { test } from "node:test";
import { deviceRow, firstFolds, layout, rowAt, rowOf } from "../../nsysdoctor/render/assets/layout.mjs";

const tracks = [
  { kind: "device", group: "GPU 0", device: 0 }, { kind: "stream", group: "GPU 0", device: 0 },
  { kind: "device", group: "GPU 1", device: 1 }, { kind: "stream", group: "GPU 1", device: 1 },
  { kind: "calls", group: "thread 1", device: -1 },
];

test("rows do not overlap and every height is hit", () => {
  const { rows, height } = layout(tracks, new Set());
  rows.slice(1).forEach((row, i) => assert.ok(row.y >= rows[i].y + rows[i].height));
  assert.ok(height >= rows.at(-1).y + rows.at(-1).height);
  for (const row of rows) assert.equal(rowAt(rows, row.y + 1), row);
});

test("a folded group keeps its heading and its device row", () => {
  const { rows } = layout(tracks, new Set(["GPU 0", "thread 1"]));
  const kinds = rows.filter((r) => r.group === "GPU 0").map((r) => r.track?.kind ?? "heading");
  assert.deepEqual(kinds, ["heading", "device"]);
  assert.deepEqual(rows.filter((r) => r.group === "thread 1").length, 1);
});

test("a device's row is found, a missing one falls back to the first", () => {
  const { rows } = layout(tracks, new Set());
  assert.equal(deviceRow(rows, 1).track, tracks[2]);
  assert.equal(deviceRow(rows, 7).track, tracks[0]);
  assert.equal(rowOf(rows, tracks[4]).track, tracks[4]);
  assert.equal(deviceRow([], 0), null);
});

test("many devices start folded, few do not", () => {
  assert.deepEqual([...firstFolds(tracks)], []);
  const many = Array.from({ length: 8 }, (_, i) => ({ kind: "device", group: `GPU ${i}`, device: i }));
  assert.equal(firstFolds(many).size, 7);
});
