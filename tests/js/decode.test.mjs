import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { column, decoded, summed, withReach } from "../../nsysdoctor/render/assets/decode.mjs";

test("planes sum to the exact value up to 2^53 - 1", () => {
  const far = Number.MAX_SAFE_INTEGER;
  const bytes = new Uint8Array(14);
  let rest = BigInt(far);
  for (let plane = 0; plane < 7; plane++) {
    bytes[plane * 2 + 1] = Number(rest & 255n);
    rest >>= 8n;
  }
  bytes[0] = 49;
  assert.deepEqual([...column(bytes, 0, 2, 7)], [49, far]);
});

test("differences are undone exactly", () => {
  assert.deepEqual([...summed(Float64Array.of(5, 49, 49), "rising")], [5, 54, 103]);
  assert.deepEqual([...summed(Float64Array.of(10, 7, 0, 140000), "near")], [5, 1, 1, 70001]);
  assert.deepEqual([...summed(Float64Array.of(3, 1), "plain")], [3, 1]);
});

test("a payload is unpacked by what the platform offers", async () => {
  const header = {
    names: ["void k<Input, std::pair<int,int>>()", "</script>\u2028"],
    shorts: [null, "x"],
    tracks: [{ kind: "stream", group: "g", label: "l", columns: [["start_ns", "rising", 2, 1], ["length_ns", "plain", 2, 1]] }],
  };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const raw = new Uint8Array(4 + text.length + 4);
  new DataView(raw.buffer).setUint32(0, text.length, true);
  raw.set(text, 4);
  raw.set([1, 2, 9, 1], 4 + text.length);
  const payload = await decoded(Buffer.from(deflateSync(raw)).toString("base64"));
  assert.deepEqual([...payload.tracks[0].start_ns], [1, 3]);
  assert.deepEqual([...payload.tracks[0].reach], [10, 10]);
  assert.deepEqual(payload.shorts, ["void k<Input, std::pair<int,int>>()", "x"]);
});

test("parts of mixed pieces are found by their place", () => {
  const track = withReach({
    start_ns: Float64Array.of(0, 5, 9), length_ns: Float64Array.of(5, 4, 1),
    part_count: Float64Array.of(2, 0, 3),
  });
  assert.deepEqual([...track.part_at], [0, 2, 2]);
});
