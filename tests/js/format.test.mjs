import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesText, clipped, clockText, countText, exactNs, nsText, rateText, ratioText } from "../../nsysdoctor/render/assets/format.mjs";

test("durations keep three digits and never become zero", () => {
  assert.equal(nsText(0), "0 ns");
  assert.equal(nsText(49), "49 ns");
  assert.equal(nsText(999.6), "1.00 µs");
  assert.equal(nsText(1_234_567), "1.23 ms");
  assert.equal(nsText(12_345_678_901), "12.3 s");
  assert.equal(nsText(1_234_567_890_123), "1,235 s");
});

test("an exact duration shows every nanosecond", () => {
  assert.equal(exactNs(1_732_107_141), "1,732,107,141 ns");
});

test("a time on the export's clock keeps every digit that --window takes", () => {
  assert.equal(clockText("0"), "0.000000000s");
  assert.equal(clockText("1900123456"), "1.900123456s");
  assert.equal(clockText("1728501277418275385"), "1728501277.418275385s");
  assert.equal(clockText("-5"), "-0.000000005s");
});

test("sizes, rates, ratios and counts", () => {
  assert.equal(bytesText(4_194_304), "4.19 MB");
  assert.equal(rateText(2.039e12), "2.04 TB/s");
  assert.equal(ratioText(0.0004), "<0.1 %");
  assert.equal(ratioText(0.99995), ">99.9 %");
  assert.equal(ratioText(0.5), "50.0 %");
  assert.equal(countText(1234567), "1,234,567");
});

test("labels are cut with an ellipsis or left out", () => {
  assert.equal(clipped("gemm", 4), "gemm");
  assert.equal(clipped("layer_norm", 6), "layer…");
  assert.equal(clipped("layer_norm", 3), "");
});
