// The timeline's state and what changes it. Drawing and finding live in their own modules.

import { described } from "./describe.mjs";
import { AXIS, drawOverview, drawScene, paletteOf } from "./draw.mjs";
import { hits, itemAt, partner } from "./items.mjs";
import { deviceRow, firstFolds, layout, rowAt, rowOf } from "./layout.mjs";
import { around, clamped, panned, timeAt, zoomed } from "./view.mjs";

export function createTimeline(parts) {
  const { canvas, overview, scroll, spacer } = parts;
  const scene = {
    payload: null, view: { start: 0, end: 1 }, rows: [], folded: new Set(), scroll: 0,
    width: 0, height: 0, gutter: 0, band: null, selected: null, partner: null, hitKeys: null,
  };
  const found = { list: [], at: -1 };
  let palette = null;
  let pending = false;

  function redraw() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      paint();
    });
  }

  function paint() {
    if (!scene.payload || !scene.width) return;
    drawScene(scaledContext(canvas, scene.width, scene.height), scene, palette);
    const wide = overview.clientWidth;
    const tall = overview.clientHeight;
    if (wide) drawOverview(scaledContext(overview, wide, tall), scene, palette, wide, tall);
  }

  function resize() {
    if (!scene.payload) return;
    const laid = layout(scene.payload.tracks, scene.folded);
    scene.rows = laid.rows;
    scene.width = scroll.clientWidth;
    scene.gutter = scene.width > 640 ? 150 : 100;
    const room = Math.max(280, Math.min(window.innerHeight * 0.72, 760));
    scene.height = Math.round(Math.min(laid.height + AXIS, room));
    scroll.style.height = `${scene.height}px`;
    canvas.style.height = `${scene.height}px`;
    spacer.style.height = `${Math.max(0, laid.height + AXIS - scene.height)}px`;
    scene.scroll = scroll.scrollTop;
    redraw();
  }

  function load(payload) {
    Object.assign(scene, { payload, band: null, selected: null, partner: null, hitKeys: null });
    scene.folded = firstFolds(payload.tracks);
    const [start, end] = payload.view ?? [0, payload.span_ns];
    scene.view = clamped({ start, end }, payload.span_ns);
    scroll.scrollTop = 0;
    Object.assign(found, { list: [], at: -1 });
    retheme();
    resize();
  }

  function retheme() {
    if (scene.payload) palette = paletteOf(scroll, scene.payload.paints);
    redraw();
  }

  function look(view) {
    scene.view = clamped(view, scene.payload.span_ns);
    redraw();
  }

  function select(item) {
    scene.selected = item;
    scene.partner = item ? partner(scene.payload.tracks, item.track, item.index) : null;
    parts.onSelect(item && described(scene.payload, item.track, item.index), scene.partner);
    redraw();
  }

  function unfold(track) {
    if (scene.folded.delete(track.group)) resize();
    const row = rowOf(scene.rows, track);
    if (!row) return;
    const low = scroll.scrollTop;
    const high = low + scene.height - AXIS - row.height;
    if (row.y < low || row.y > high) scroll.scrollTop = Math.max(0, row.y - scene.height / 3);
  }

  function goTo(item) {
    unfold(item.track);
    const start = item.track.start_ns[item.index];
    const length = Math.max(item.track.length_ns[item.index], 1);
    const wide = scene.view.end - scene.view.start;
    if (length * 400 < wide || length > wide) look(around(start - 4 * length, start + 5 * length, scene.payload.span_ns));
    else if (start < scene.view.start || start + length > scene.view.end) {
      look({ start: start + length / 2 - wide / 2, end: start + length / 2 + wide / 2 });
    }
    select(item);
  }

  return {
    scene,
    load,
    resize,
    retheme,
    select,
    goTo,
    get selected() {
      return scene.selected;
    },
    zoom(factor, anchor = 0.5) {
      look(zoomed(scene.view, factor, anchor, scene.payload.span_ns));
    },
    pan(share) {
      look(panned(scene.view, share, scene.payload.span_ns));
    },
    fit() {
      look({ start: 0, end: scene.payload.span_ns });
    },
    look,
    fold(group) {
      if (!scene.folded.delete(group)) scene.folded.add(group);
      resize();
    },
    // Zooms to a place of evidence and marks it.
    show(start, end, device) {
      scene.band = { start, end };
      look(around(start, end, scene.payload.span_ns));
      const row = deviceRow(scene.rows, device);
      if (row) scroll.scrollTop = Math.max(0, row.y - 40);
      select(null);
    },
    clear() {
      scene.band = null;
      select(null);
    },
    // Searches full names; returns how many hits there are.
    search(text) {
      found.list = hits(scene.payload, text);
      found.at = -1;
      scene.hitKeys = found.list.length
        ? new Set(found.list.map((hit) => hit.track.name[hit.index]))
        : null;
      redraw();
      return found.list.length;
    },
    // Steps to the next (1) or previous (-1) hit; returns its place, counted from 1.
    step(direction) {
      if (!found.list.length) return 0;
      const from = found.at < 0 && direction < 0 ? 0 : found.at;
      found.at = (from + direction + found.list.length) % found.list.length;
      goTo(found.list[found.at]);
      return found.at + 1;
    },
    // Moves the selection along its row.
    neighbour(direction) {
      const here = scene.selected;
      if (!here) return;
      const index = here.index + direction;
      if (index >= 0 && index < here.track.start_ns.length) goTo({ track: here.track, index });
    },
    follow() {
      if (scene.partner) goTo(scene.partner);
    },
    // The item under a point of the canvas, null over headings and empty places.
    itemUnder(x, y) {
      const row = rowAt(scene.rows, y - AXIS + scene.scroll);
      if (!row?.track || x < scene.gutter || y < AXIS) return null;
      const wide = scene.width - scene.gutter;
      const time = timeAt(scene.view, x - scene.gutter, wide);
      const slack = (3 * (scene.view.end - scene.view.start)) / wide;
      const index = itemAt(row.track, time, slack);
      return index < 0 ? null : { track: row.track, index };
    },
    headingUnder(x, y) {
      const row = rowAt(scene.rows, y - AXIS + scene.scroll);
      return row && !row.track && y >= AXIS ? row.group : null;
    },
    scrolled() {
      scene.scroll = scroll.scrollTop;
      redraw();
    },
  };
}

function scaledContext(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.round(width * ratio);
  const tall = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== tall) {
    canvas.width = wide;
    canvas.height = tall;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}
