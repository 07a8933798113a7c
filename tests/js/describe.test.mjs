import assert from "node:assert/strict";
import { test } from "node:test";
import { withReach } from "../../nsysdoctor/render/assets/decode.mjs";
import { described, stateText } from "../../nsysdoctor/render/assets/describe.mjs";
import { MIXED } from "../../nsysdoctor/render/assets/items.mjs";

const nasty = "void k<Input, std::pair<int,int>>() </script><img src=x onerror=alert(1)>";
const one = (kind, start, end, more) =>
  withReach({
    kind, group: "GPU 0", label: "stream 7", thread: 3, depth: 0,
    start_ns: Float64Array.of(start), length_ns: Float64Array.of(end - start),
    count: Float64Array.of(1), paint: Float64Array.of(0), busy_ns: Float64Array.of(0), ...more,
  });
const op = one("stream", 9000, 10_000, {
  name: Float64Array.of(0), key: Float64Array.of(5), shape: Float64Array.of(1), bytes: Float64Array.of(2000),
});
const call = one("calls", 4000, 6000, { name: Float64Array.of(1), key: Float64Array.of(5), group: "thread 3" });
const range = one("ranges", 0, 20_000, { name: Float64Array.of(2) });
const payload = {
  names: [nasty, "cudaLaunchKernel", "step 1"], shorts: ["k", "cudaLaunchKernel", "step 1"],
  shapes: ["grid 1×2×3, block 256×1×1"], paints: ["compute", "idle-input_wait"], tracks: [op, call, range],
};

test("an operation tells name, shape, bytes, rate, call, latency and ranges", () => {
  const { title, lines } = described(payload, op, 0);
  const told = Object.fromEntries(lines);
  assert.equal(title, nasty);
  assert.equal(told.launch, "grid 1×2×3, block 256×1×1");
  assert.equal(told.bytes, "2.00 kB at 2.00 GB/s");
  assert.equal(told["launched by"], "cudaLaunchKernel, thread 3");
  assert.equal(told["launch latency"], "5.00 µs");
  assert.equal(told.NVTX, "step 1");
  assert.equal(told.start, "9,000 ns");
});

test("a call tells what it runs and how long that waits", () => {
  assert.equal(Object.fromEntries(described(payload, call, 0).lines).runs, "k, 3.00 µs after the call");
});

test("a block says how many it holds", () => {
  const block = { ...op, count: Float64Array.of(1200), busy_ns: Float64Array.of(250) };
  const { title, lines } = described(payload, block, 0);
  assert.equal(title, `1,200 merged, mostly ${nasty}`);
  assert.equal(Object.fromEntries(lines).busy, "250 ns (25.0 %)");
});

test("a device row tells its state or its mixture", () => {
  const piece = one("device", 0, 1000, { paint: Float64Array.of(1) });
  assert.equal(described(payload, piece, 0).title, "GPU 0 idle: input wait");
  const mixed = one("device", 0, 1000, {
    paint: Float64Array.of(MIXED), part_at: Float64Array.of(0), part_count: Float64Array.of(2),
    part_paint: Float64Array.of(0, 1), part_ns: Float64Array.of(400, 600),
  });
  const { lines } = described(payload, mixed, 0);
  assert.deepEqual(lines.slice(-2), [["idle: input wait", "600 ns (60.0 %)"], ["compute", "400 ns (40.0 %)"]]);
  assert.equal(stateText("graph"), "graph");
});
