// The visible stretch of time: pure functions on { start, end } in ns from the origin.

const SHORTEST_NS = 20;

export function clamped(view, span) {
  const length = Math.min(Math.max(view.end - view.start, SHORTEST_NS), Math.max(span, SHORTEST_NS));
  const start = Math.min(Math.max(view.start, 0), Math.max(span - length, 0));
  return { start, end: start + length };
}

// The time under `anchor` (0 left edge, 1 right edge) stays where it is.
export function zoomed(view, factor, anchor, span) {
  const fixed = view.start + (view.end - view.start) * anchor;
  const length = (view.end - view.start) * factor;
  const kept = Math.min(Math.max(length, SHORTEST_NS), Math.max(span, SHORTEST_NS));
  return clamped({ start: fixed - kept * anchor, end: fixed + kept * (1 - anchor) }, span);
}

export function panned(view, share, span) {
  const shift = (view.end - view.start) * share;
  return clamped({ start: view.start + shift, end: view.end + shift }, span);
}

// A place with as much room again on both sides, so that its neighbours are seen.
export function around(start, end, span) {
  const pad = Math.max((end - start) * 0.6, 200);
  return clamped({ start: start - pad, end: end + pad }, span);
}

export function xOf(view, time, width) {
  return ((time - view.start) / (view.end - view.start)) * width;
}

export function timeAt(view, x, width) {
  return view.start + (x / width) * (view.end - view.start);
}

// Round times (1, 2 or 5 times a power of ten) about `gap` pixels apart.
export function ticks(view, width, gap = 110) {
  const wanted = ((view.end - view.start) * gap) / Math.max(width, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  const step = Math.max(1, [1, 2, 5, 10].find((m) => m * power >= wanted) * power);
  const found = [];
  for (let k = Math.ceil(view.start / step); k * step <= view.end; k++) found.push(k * step);
  return { step, at: found };
}

// A tick in the unit that its step needs: 12.345 ms next to 12.350 ms.
export function tickText(time, step) {
  const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(
    ([size]) => time >= size || size === 1,
  );
  if (time === 0) return "0";
  const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
  return `${(time / unit).toFixed(digits)} ${name}`;
}
