// Mouse, touch and keyboard on the timeline.

import { described } from "./describe.mjs";
import { timeAt } from "./view.mjs";

const CLICK_PX = 4;

export function attachPointer(timeline, parts) {
  const { canvas, scroll, tip } = parts;
  const down = new Map();
  let moved = false;
  let pinch = 0;
  let chosen = null;

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const wide = () => timeline.scene.width - timeline.scene.gutter;
  const anchorOf = (x) => Math.min(1, Math.max(0, (x - timeline.scene.gutter) / wide()));

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    scroll.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, at(event));
    moved = false;
    pinch = spread();
    chosen = event.shiftKey ? at(event).x : null;
  });

  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    const before = down.get(event.pointerId);
    if (!before) return hover(event, here);
    if (Math.abs(here.x - before.x) + Math.abs(here.y - before.y) > CLICK_PX) moved = true;
    if (!moved) return;
    tip.hidden = true;
    down.set(event.pointerId, here);
    if (down.size === 2) return pinched();
    if (chosen !== null) return mark(chosen, here.x);
    timeline.pan((before.x - here.x) / wide());
  });

  function release(event) {
    const before = down.get(event.pointerId);
    down.delete(event.pointerId);
    if (!before) return;
    if (!moved) return click(before);
    if (chosen !== null && timeline.scene.band) timeline.look(timeline.scene.band);
  }
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", (event) => down.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });

  function click({ x, y }) {
    const group = timeline.headingUnder(x, y);
    if (group !== null) return timeline.fold(group);
    timeline.select(timeline.itemUnder(x, y));
  }

  canvas.addEventListener("dblclick", (event) => {
    const { x, y } = at(event);
    const item = timeline.itemUnder(x, y);
    if (!item) return timeline.zoom(0.5, anchorOf(x));
    const start = item.track.start_ns[item.index];
    timeline.look({ start: start - item.track.length_ns[item.index] * 0.1, end: start + item.track.length_ns[item.index] * 1.1 });
  });

  function mark(from, to) {
    const { scene } = timeline;
    const times = [from, to].map((x) => timeAt(scene.view, x - scene.gutter, wide()));
    scene.band = { start: Math.min(...times), end: Math.max(...times) };
    timeline.look(scene.view);
  }

  function spread() {
    if (down.size !== 2) return 0;
    const [a, b] = [...down.values()];
    return Math.max(20, Math.hypot(a.x - b.x, a.y - b.y));
  }

  function pinched() {
    const now = spread();
    const [a, b] = [...down.values()];
    if (pinch) timeline.zoom(pinch / now, anchorOf((a.x + b.x) / 2));
    pinch = now;
  }

  function hover(event, here) {
    const item = timeline.itemUnder(here.x, here.y);
    canvas.style.cursor = item || timeline.headingUnder(here.x, here.y) ? "pointer" : "grab";
    if (!item) {
      tip.hidden = true;
      return;
    }
    const words = described(timeline.scene.payload, item.track, item.index);
    fillWords(tip, words);
    tip.hidden = false;
    placeTip(tip, event.clientX, event.clientY);
  }

  // The wheel zooms once the timeline is in use; before, the page scrolls on.
  canvas.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const inUse = document.activeElement === scroll || event.ctrlKey || event.metaKey;
    if (!sideways && !inUse) return;
    event.preventDefault();
    const delta = event.deltaMode === 1 ? 20 : 1;
    if (sideways) timeline.pan(((event.deltaX || event.deltaY) * delta) / wide());
    else timeline.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * delta * 0.002))), anchorOf(at(event).x));
  }, { passive: false });
}

export function attachOverview(timeline, overview) {
  const centre = (event) => {
    const box = overview.getBoundingClientRect();
    const { view, payload } = timeline.scene;
    const at = ((event.clientX - box.left) / box.width) * payload.span_ns;
    const half = (view.end - view.start) / 2;
    timeline.look({ start: at - half, end: at + half });
  };
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    centre(event);
  });
  overview.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) centre(event);
  });
}

export function attachKeys(timeline, scroll, search) {
  const actions = {
    w: () => timeline.zoom(0.7), "+": () => timeline.zoom(0.7), "=": () => timeline.zoom(0.7),
    s: () => timeline.zoom(1 / 0.7), "-": () => timeline.zoom(1 / 0.7),
    a: () => timeline.pan(-0.2), ArrowLeft: () => timeline.pan(-0.2),
    d: () => timeline.pan(0.2), ArrowRight: () => timeline.pan(0.2),
    ArrowUp: () => scroll.scrollBy(0, -60), ArrowDown: () => scroll.scrollBy(0, 60),
    0: () => timeline.fit(), Home: () => timeline.fit(),
    "]": () => timeline.neighbour(1), "[": () => timeline.neighbour(-1),
    f: () => timeline.selected && timeline.goTo(timeline.selected),
    n: () => search.step(1), p: () => search.step(-1), "/": () => search.focus(),
    Enter: () => timeline.follow(),
    Escape: () => { timeline.clear(); scroll.blur(); },
  };
  scroll.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = actions[key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

// Fills an element with a title and a list; every text is set as text, never as markup.
export function fillWords(element, words) {
  const title = document.createElement("strong");
  title.textContent = words.title;
  const list = document.createElement("dl");
  for (const [label, text] of words.lines) {
    const term = document.createElement("dt");
    const value = document.createElement("dd");
    term.textContent = label;
    value.textContent = text;
    list.append(term, value);
  }
  element.replaceChildren(title, list);
}

function placeTip(tip, x, y) {
  const wide = tip.offsetWidth;
  const tall = tip.offsetHeight;
  const left = x + 14 + wide > window.innerWidth ? Math.max(4, x - wide - 14) : x + 14;
  const top = y + 14 + tall > window.innerHeight ? Math.max(4, y - tall - 14) : y + 14;
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}
