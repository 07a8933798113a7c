// Starts the page: timeline, findings' buttons, tables, charts.

import { attachCharts } from "./charts.mjs";
import { decoded } from "./decode.mjs";
import { clockText, countText } from "./format.mjs";
import { attachKeys, attachOverview, attachPointer, fillWords } from "./input.mjs";
import { drawnNs } from "./items.mjs";
import { attachTable } from "./tables.mjs";
import { createTimeline } from "./timeline.mjs";

const byId = (id) => document.getElementById(id);

function jsonOf(id) {
  return JSON.parse(byId(id).textContent);
}

// Copies a text; where the clipboard is closed to the page, through a selection.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function attachCopies() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await copyText(button.parentElement.querySelector("code").textContent);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
}

// Paper shows what the screen folds away.
function attachPrint() {
  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details:not([open])")) {
      part.open = true;
      opened.push(part);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const part of opened.splice(0)) part.open = false;
  });
}

function detailPanel(timeline) {
  const panel = byId("tl-detail");
  return (words, other) => {
    if (!words) {
      panel.replaceChildren();
      return;
    }
    fillWords(panel, words);
    const button = (text, action) => {
      const made = document.createElement("button");
      made.textContent = text;
      made.addEventListener("click", action);
      panel.append(made);
    };
    button("zoom to it", () => timeline().goTo(timeline().selected));
    if (other) {
      const text = other.track.kind === "calls" ? "show its call" : "show its operation";
      button(text, () => timeline().follow());
    }
  };
}

function attachSearch(timeline) {
  const box = byId("tl-search");
  const said = byId("tl-hits");
  let total = 0;
  const say = (place) => {
    said.textContent = !box.value.trim() ? "" : place ? `${countText(place)} of ${countText(total)}` : `${countText(total)} hits`;
  };
  const step = (direction) => say(timeline.step(direction));
  box.addEventListener("input", () => {
    total = timeline.search(box.value);
    say(0);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") byId("tl-scroll").focus();
  });
  byId("tl-previous").addEventListener("click", () => step(-1));
  byId("tl-next").addEventListener("click", () => step(1));
  return { step, focus: () => box.focus(), forget: () => { box.value = ""; say(0); } };
}

function attachTimeline() {
  const scroll = byId("tl-scroll");
  const parts = {
    canvas: byId("tl-canvas"), overview: byId("tl-overview"), scroll,
    spacer: byId("tl-spacer"), tip: byId("tl-tip"),
  };
  let made = null;
  parts.onSelect = detailPanel(() => made);
  made = createTimeline(parts);
  const search = attachSearch(made);
  attachPointer(made, parts);
  attachOverview(made, parts.overview);
  attachKeys(made, scroll, search);
  scroll.addEventListener("scroll", made.scrolled);
  byId("tl-in").addEventListener("click", () => made.zoom(0.5));
  byId("tl-out").addEventListener("click", () => made.zoom(2));
  byId("tl-fit").addEventListener("click", () => { made.clear(); made.fit(); });
  new ResizeObserver(() => made.resize()).observe(scroll);
  return { timeline: made, search };
}

// One payload at a time is unpacked; the others wait as text.
function tracesOf(timeline, search) {
  const select = byId("tl-trace");
  const ready = new Map();
  let shown = null;
  async function show(trace) {
    if (shown === trace) return;
    shown = trace;
    if (!ready.has(trace)) ready.set(trace, decoded(byId(`payload-${trace}`).textContent));
    const payload = await ready.get(trace);
    if (shown !== trace) return;
    timeline.load(payload);
    search.forget();
    if (select) select.value = String(trace);
    const clock = `Times count from ${clockText(payload.origin_ns)} on the export's clock.`;
    byId("tl-notes").textContent = [clock, ...payload.notes].join(" ");
  }
  select?.addEventListener("change", () => show(Number(select.value)));
  return { show };
}

async function start() {
  attachCopies();
  attachPrint();
  for (const table of document.querySelectorAll("table[data-sort]")) {
    attachTable(table, byId(`${table.id}-filter`), byId(`${table.id}-count`));
  }
  const read = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const first = document.querySelector("[id^=payload-]");
  const page = { timeline: null, drawnNs, traces: null };
  window.nsysdoctor = page;
  let showPlace = () => {};
  if (first) {
    const { timeline, search } = attachTimeline();
    const traces = tracesOf(timeline, search);
    Object.assign(page, { timeline, traces });
    showPlace = async (from, to, trace, device = 0) => {
      await traces.show(trace);
      timeline.show(from, to, device);
      byId("timeline").scrollIntoView({ block: "start", behavior: "instant" });
      byId("tl-scroll").focus({ preventScroll: true });
    };
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-from]");
      if (!button) return;
      const { from, to, trace, device } = button.dataset;
      showPlace(Number(from), Number(to), Number(trace), Number(device));
    });
    await traces.show(Number(first.id.slice("payload-".length)));
  }
  const charts = attachCharts(jsonOf("charts-data"), byId("plotly-source"), read, showPlace);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    page.timeline?.retheme();
    charts.redraw();
  });
  document.documentElement.dataset.ready = "1";
}

start();
