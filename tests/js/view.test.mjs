import assert from "node:assert/strict";
import { test } from "node:test";
import { around, clamped, panned, ticks, tickText, timeAt, xOf, zoomed } from "../../nsysdoctor/render/assets/view.mjs";

test("a view stays inside the trace", () => {
  assert.deepEqual(clamped({ start: -50, end: 50 }, 1000), { start: 0, end: 100 });
  assert.deepEqual(clamped({ start: 950, end: 1050 }, 1000), { start: 900, end: 1000 });
  assert.deepEqual(clamped({ start: -5, end: 5000 }, 1000), { start: 0, end: 1000 });
  assert.deepEqual(clamped({ start: 0, end: 0 }, 0), { start: 0, end: 20 });
});

test("zooming keeps the time under the pointer", () => {
  const view = { start: 100, end: 1100 };
  const near = zoomed(view, 0.5, 0.25, 10_000);
  assert.equal(timeAt(near, 250, 1000), timeAt(view, 250, 1000));
  assert.equal(near.end - near.start, 500);
  let deep = view;
  for (let i = 0; i < 100; i++) deep = zoomed(deep, 0.5, 0.5, 10_000);
  assert.equal(deep.end - deep.start, 20);
  for (let i = 0; i < 100; i++) deep = zoomed(deep, 2, 0.5, 10_000);
  assert.deepEqual(deep, { start: 0, end: 10_000 });
});

test("panning moves by a share of the view", () => {
  assert.deepEqual(panned({ start: 0, end: 100 }, 0.5, 1000), { start: 50, end: 150 });
});

test("a place is shown with its neighbours", () => {
  const view = around(1000, 2000, 1e6);
  assert.ok(view.start < 1000 && view.end > 2000 && view.end - view.start < 4000);
});

test("pixels and times are inverse", () => {
  const view = { start: 123, end: 987_654 };
  assert.ok(Math.abs(timeAt(view, xOf(view, 5000, 800), 800) - 5000) < 1e-6);
});

test("ticks are round, inside the view and not crowded", () => {
  for (const wide of [37, 1234, 5e5, 7.7e8, 3e12]) {
    const view = { start: wide / 3, end: wide / 3 + wide };
    const { step, at } = ticks(view, 1000);
    assert.ok(at.length >= 2 && at.length <= 10, `${at.length} ticks for ${wide}`);
    assert.ok(at.every((t) => t >= view.start && t <= view.end));
    assert.ok([1, 2, 5].includes(Number(String(step)[0])), `step ${step}`);
  }
});

test("tick texts tell neighbours apart", () => {
  for (const [start, wide] of [[0, 50], [1.2e9, 400], [5e12, 3e5], [17, 9e9]]) {
    const { step, at } = ticks({ start, end: start + wide }, 1000);
    const texts = at.map((t) => tickText(t, step));
    assert.equal(new Set(texts).size, texts.length, texts.join(" "));
  }
  assert.equal(tickText(1_200_000, 200_000), "1.2 ms");
  assert.equal(tickText(0, 10), "0");
});
