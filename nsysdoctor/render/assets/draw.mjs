// Painting the timeline on a canvas. Knows pixels and colours; decides nothing.

import { clipped } from "./format.mjs";
import { MIXED, stateColumns, visible } from "./items.mjs";
import { ticks, tickText, xOf } from "./view.mjs";

export const AXIS = 40;
const LETTER = 6.1;

// Colours of the page's theme by paint code, each with a readable ink.
export function paletteOf(element, paints) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(name).trim();
  const fill = paints.map((paint) => read(`--p-${paint}`) || "#888888");
  const dark = read("--dark") === "1";
  return {
    dark,
    fill,
    ink: fill.map(inkOn),
    text: read("--ink"),
    soft: read("--soft"),
    line: read("--line"),
    panel: read("--panel"),
    raised: read("--raised"),
    accent: read("--accent"),
    range: (code) => `hsl(${(code * 47 + 200) % 360} ${dark ? "24% 34%" : "34% 84%"})`,
  };
}

export function inkOn(hex) {
  const value = parseInt(hex.slice(1), 16);
  const light = 0.299 * (value >> 16) + 0.587 * ((value >> 8) & 255) + 0.114 * (value & 255);
  return light > 150 ? "#16202a" : "#ffffff";
}

// Draws everything that is visible. `scene` holds payload, view, rows, scroll, selection, marks.
export function drawScene(ctx, scene, palette) {
  const { width, height, gutter } = scene;
  ctx.clearRect(0, 0, width, height);
  ctx.fillStyle = palette.panel;
  ctx.fillRect(0, 0, width, height);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  ctx.save();
  ctx.beginPath();
  ctx.rect(gutter, 0, width - gutter, height);
  ctx.clip();
  ctx.translate(gutter, 0);
  const box = { width: width - gutter, height };
  drawGrid(ctx, scene, palette, box);
  for (const row of shownRows(scene)) {
    const y = row.y - scene.scroll + AXIS;
    if (!row.track) continue;
    if (row.track.kind === "device") drawDevice(ctx, scene, palette, row, y, box);
    else drawItems(ctx, scene, palette, row, y, box);
  }
  drawMarks(ctx, scene, palette, box);
  drawAxis(ctx, scene, palette, box);
  ctx.restore();
  drawGutter(ctx, scene, palette);
}

export function shownRows(scene) {
  const low = scene.scroll - 60;
  const high = scene.scroll + scene.height;
  return scene.rows.filter((row) => row.y + row.height >= low && row.y <= high);
}

function drawGrid(ctx, scene, palette, box) {
  ctx.fillStyle = palette.line;
  for (const time of ticks(scene.view, box.width).at) {
    ctx.fillRect(Math.round(xOf(scene.view, time, box.width)), AXIS - 16, 1, box.height);
  }
}

function drawAxis(ctx, scene, palette, box) {
  ctx.fillStyle = palette.panel;
  ctx.fillRect(0, 0, box.width, AXIS - 16);
  ctx.fillStyle = palette.soft;
  const { step, at } = ticks(scene.view, box.width);
  ctx.textAlign = "center";
  for (const time of at) {
    const text = tickText(time, step);
    const half = (text.length * LETTER) / 2 + 3;
    const x = Math.min(Math.max(xOf(scene.view, time, box.width), half), box.width - half);
    ctx.fillText(text, x, 12);
  }
  ctx.textAlign = "left";
  drawSteps(ctx, scene, palette, box);
}

// Steps stand under the axis, alternately shaded, named where they are wide enough.
function drawSteps(ctx, scene, palette, box) {
  ctx.fillStyle = palette.panel;
  ctx.fillRect(0, AXIS - 16, box.width, 16);
  for (const [step, start, end, phase] of scene.payload.steps) {
    const x0 = xOf(scene.view, start, box.width);
    const x1 = xOf(scene.view, end, box.width);
    if (x1 < 0 || x0 > box.width || x1 - x0 < 0.4) continue;
    const left = Math.max(x0, 0);
    const width = Math.min(x1, box.width) - left;
    ctx.fillStyle = step % 2 ? palette.raised : palette.line;
    ctx.fillRect(left, AXIS - 15, Math.max(width - 1, 0.6), 13);
    const name = phase === "steady" ? `step ${step}` : `step ${step}, ${phase}`;
    ctx.fillStyle = palette.soft;
    ctx.fillText(clipped(name, Math.floor((width - 6) / LETTER)), left + 3, AXIS - 8);
  }
}

// A device row: each pixel column stacks the states by their share of its time.
function drawDevice(ctx, scene, palette, row, y, box) {
  const paints = palette.fill.length;
  const width = Math.floor(box.width);
  const columns = stateColumns(row.track, scene.view, width, paints);
  const perPixel = (scene.view.end - scene.view.start) / width;
  for (let x = 0; x < width; x++) {
    let bottom = y + row.height;
    for (let paint = 0; paint < paints; paint++) {
      const share = columns[x * paints + paint] / perPixel;
      if (share <= 0) continue;
      const tall = share * row.height;
      ctx.fillStyle = palette.fill[paint];
      ctx.fillRect(x, bottom - tall, 1, tall);
      bottom -= tall;
    }
  }
}

// Items wider than a pixel are boxes; narrower ones add up to a column as high as they are dense.
function drawItems(ctx, scene, palette, row, y, box) {
  const track = row.track;
  const [from, to] = visible(track, scene.view);
  const scale = box.width / (scene.view.end - scene.view.start);
  const dense = new Map();
  for (let i = from; i < to; i++) {
    const x0 = (track.start_ns[i] - scene.view.start) * scale;
    const wide = track.length_ns[i] * scale;
    if (wide < 1) addDense(dense, Math.floor(x0), track, i, scale);
    else drawBox(ctx, scene, palette, track, i, x0, wide, y, row.height, box);
  }
  for (const [x, column] of dense) {
    const tall = Math.max(3, Math.min(1, column.busy) * row.height);
    ctx.globalAlpha = scene.hitKeys && !column.hit ? 0.25 : 1;
    ctx.fillStyle = colourOf(palette, track, column.item);
    ctx.fillRect(x, y + row.height - tall, 1, tall);
  }
  ctx.globalAlpha = 1;
  function addDense(into, x, owner, i) {
    const busy = (owner.count[i] > 1 ? owner.busy_ns[i] : owner.length_ns[i]) * scale;
    const column = into.get(x) ?? { busy: 0, longest: -1, item: i, hit: false };
    column.busy += busy;
    if (busy > column.longest) [column.longest, column.item] = [busy, i];
    column.hit ||= Boolean(scene.hitKeys?.has(owner.name[i]));
    into.set(x, column);
  }
}

function colourOf(palette, track, i) {
  return track.kind === "ranges" ? palette.range(track.name[i]) : palette.fill[track.paint[i]];
}

function drawBox(ctx, scene, palette, track, i, x0, wide, y, height, box) {
  const left = Math.max(x0, -1);
  const width = Math.min(x0 + wide, box.width + 1) - left;
  if (width <= 0) return;
  const merged = track.count[i] > 1;
  const share = merged ? Math.min(1, track.busy_ns[i] / track.length_ns[i]) : 1;
  const tall = Math.max(4, height * share);
  const faded = scene.hitKeys && !scene.hitKeys.has(track.name[i]);
  ctx.globalAlpha = (merged ? 0.62 : 1) * (faded ? 0.25 : 1);
  ctx.fillStyle = colourOf(palette, track, i);
  ctx.fillRect(left, y + height - tall, Math.max(width - (width > 3 ? 0.6 : 0), 0.6), tall);
  ctx.globalAlpha = faded ? 0.4 : 1;
  const letters = Math.floor((width - 6) / LETTER);
  if (letters >= 4 && height >= 12 && tall >= 12) {
    const name = scene.payload.shorts[track.name[i]];
    const text = merged ? `${track.count[i]} × ${name}` : name;
    ctx.fillStyle = track.kind === "ranges" ? palette.text : palette.ink[track.paint[i]];
    ctx.fillText(clipped(text, letters), left + 3, y + height - tall / 2 + 0.5);
  }
  ctx.globalAlpha = 1;
}

// The place that a finding points to, the selection, and the line from a call to its operation.
function drawMarks(ctx, scene, palette, box) {
  if (scene.band) {
    const x0 = xOf(scene.view, scene.band.start, box.width);
    const x1 = Math.max(xOf(scene.view, scene.band.end, box.width), x0 + 2);
    ctx.fillStyle = palette.accent;
    ctx.globalAlpha = 0.13;
    ctx.fillRect(x0, AXIS, x1 - x0, box.height);
    ctx.globalAlpha = 0.8;
    ctx.fillRect(x0, AXIS, 1.5, box.height);
    ctx.fillRect(x1 - 1.5, AXIS, 1.5, box.height);
    ctx.globalAlpha = 1;
  }
  const here = scene.selected && outline(ctx, scene, palette, scene.selected, box);
  const there = scene.partner && outline(ctx, scene, palette, scene.partner, box);
  if (here && there) drawLink(ctx, palette, here, there);
}

function outline(ctx, scene, palette, item, box) {
  const row = scene.rows.find((r) => r.track === item.track);
  if (!row) return null;
  const start = item.track.start_ns[item.index];
  const x0 = xOf(scene.view, start, box.width);
  const x1 = xOf(scene.view, start + item.track.length_ns[item.index], box.width);
  const y = row.y - scene.scroll + AXIS;
  ctx.strokeStyle = palette.text;
  ctx.lineWidth = 2;
  ctx.strokeRect(x0 - 1, y - 1, Math.max(x1 - x0, 1) + 2, row.height + 2);
  return { x: (Math.max(x0, 0) + Math.min(x1, box.width)) / 2, y, height: row.height };
}

function drawLink(ctx, palette, a, b) {
  const [top, low] = a.y < b.y ? [a, b] : [b, a];
  const y0 = top.y + top.height;
  ctx.strokeStyle = palette.text;
  ctx.lineWidth = 1.2;
  ctx.beginPath();
  ctx.moveTo(top.x, y0);
  const bend = Math.max(20, (low.y - y0) / 2);
  ctx.bezierCurveTo(top.x, y0 + bend, low.x, low.y - bend, low.x, low.y);
  ctx.stroke();
}

function drawGutter(ctx, scene, palette) {
  ctx.fillStyle = palette.panel;
  ctx.fillRect(0, 0, scene.gutter, scene.height);
  ctx.fillStyle = palette.line;
  ctx.fillRect(scene.gutter - 1, 0, 1, scene.height);
  for (const row of shownRows(scene)) {
    const y = row.y - scene.scroll + AXIS;
    if (row.track) drawLabel(ctx, scene, palette, row, y);
    else drawHeading(ctx, scene, palette, row, y);
  }
  ctx.fillStyle = palette.panel;
  ctx.fillRect(0, 0, scene.gutter - 1, AXIS);
  ctx.fillStyle = palette.soft;
  ctx.fillText("time", 8, 12);
  if (scene.payload.steps.length) ctx.fillText("steps", 8, AXIS - 8);
}

function drawLabel(ctx, scene, palette, row, y) {
  const letters = Math.floor((scene.gutter - 24) / LETTER);
  ctx.fillStyle = palette.soft;
  ctx.fillText(clipped(row.track.label, letters), 18, y + row.height / 2);
}

function drawHeading(ctx, scene, palette, row, y) {
  ctx.fillStyle = palette.raised;
  ctx.fillRect(0, y, scene.width, row.height - 3);
  ctx.fillStyle = palette.text;
  ctx.font = "600 11px system-ui, sans-serif";
  const sign = scene.folded.has(row.group) ? "▸" : "▾";
  const letters = Math.floor((scene.width - 24) / 6.6);
  ctx.fillText(`${sign} ${clipped(row.group, letters)}`, 6, y + row.height / 2 - 1);
  ctx.font = "11px system-ui, sans-serif";
}

// The whole trace in one strip: its first device, or density of the first row, and the view.
export function drawOverview(ctx, scene, palette, width, height) {
  ctx.clearRect(0, 0, width, height);
  ctx.fillStyle = palette.raised;
  ctx.fillRect(0, 0, width, height);
  const whole = { start: 0, end: Math.max(scene.payload.span_ns, 1) };
  const devices = scene.payload.tracks.filter((t) => t.kind === "device").slice(0, 8);
  devices.forEach((track, place) => {
    const row = { track, height: height / devices.length - 1 };
    const box = { width, height };
    drawDevice(ctx, { ...scene, view: whole }, palette, row, (place * height) / devices.length, box);
  });
  const x0 = xOf(whole, scene.view.start, width);
  const x1 = Math.max(xOf(whole, scene.view.end, width), x0 + 3);
  ctx.fillStyle = palette.panel;
  ctx.globalAlpha = 0.6;
  ctx.fillRect(0, 0, x0, height);
  ctx.fillRect(x1, 0, width - x1, height);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = palette.text;
  ctx.lineWidth = 1.5;
  ctx.strokeRect(x0 + 0.75, 0.75, x1 - x0 - 1.5, height - 1.5);
}

export function isMixed(track, i) {
  return track.paint[i] === MIXED;
}
