import assert from "node:assert/strict";
import { test } from "node:test";
import { coloured, themed } from "../../nsysdoctor/render/assets/charts.mjs";
import { inkOn } from "../../nsysdoctor/render/assets/draw.mjs";
import { compared, holds } from "../../nsysdoctor/render/assets/tables.mjs";

test("colours of the theme replace their names, everywhere and only there", () => {
  const read = (name) => ({ "--p-copy": "#2b9486" })[name] ?? "";
  const figure = { marker: { color: ["var(--p-copy)", "var(--none)"] }, text: "var(--p-copy) in text", n: 3, z: null };
  assert.deepEqual(coloured(figure, read), {
    marker: { color: ["#2b9486", "#888888"] }, text: "var(--p-copy) in text", n: 3, z: null,
  });
});

test("a themed layout keeps what the figure asked for", () => {
  const layout = themed({ barmode: "stack", xaxis: { type: "log", title: { text: "bytes" } } }, () => "#123456", false);
  assert.equal(layout.barmode, "stack");
  assert.equal(layout.xaxis.type, "log");
  assert.equal(layout.xaxis.title.text, "bytes");
  assert.equal(layout.font.color, "#123456");
});

test("cells sort as numbers where they are, empty ones last", () => {
  const sorted = (cells, direction) => cells.toSorted((a, b) => compared(a, b, direction));
  assert.deepEqual(sorted(["9", "10", "", "2"], 1), ["2", "9", "10", ""]);
  assert.deepEqual(sorted(["9", "10", "", "2"], -1), ["10", "9", "2", ""]);
  assert.deepEqual(sorted(["norm", "gemm"], 1), ["gemm", "norm"]);
});

test("a filter wants every word, in any case", () => {
  assert.ok(holds("Void Gemm<1> fp32", "gemm FP32"));
  assert.ok(!holds("Void Gemm<1> fp32", "gemm bf16"));
  assert.ok(holds("anything", ""));
});

test("ink is readable on its colour", () => {
  assert.equal(inkOn("#ffffff"), "#16202a");
  assert.equal(inkOn("#2f6da8"), "#ffffff");
});
