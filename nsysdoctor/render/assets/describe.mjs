// Words for an item: what the tip and the panel under the timeline say. Names stay plain text.

import { bytesText, countText, exactNs, nsText, rateText, ratioText } from "./format.mjs";
import { endOf, MIXED, partner, rangePath, statesOf } from "./items.mjs";

const STATES = {
  compute: "compute", communication: "communication", copy: "copy",
};
const KIND = {
  device: "device", stream: "operation", calls: "CUDA call", waits: "OS call", ranges: "NVTX range",
};

export function stateText(paint) {
  if (paint.startsWith("idle-")) return `idle: ${paint.slice(5).replaceAll("_", " ")}`;
  return STATES[paint] ?? paint;
}

// { title, lines: [label, text][] } of an item.
export function described(payload, track, i) {
  if (track.kind === "device") return deviceWords(payload, track, i);
  const name = payload.names[track.name[i]];
  if (track.count[i] > 1) return mergedWords(payload, track, i, name);
  const lines = [["start", exactNs(track.start_ns[i])], ["duration", lengthText(track, i)]];
  if (track.kind === "stream") lines.push(...operationWords(payload, track, i));
  if (track.kind === "calls") lines.push(...callWords(payload, track, i));
  if (track.kind !== "stream") lines.push(["row", `${track.group}, ${track.label || KIND[track.kind]}`]);
  return { title: name, lines };
}

function lengthText(track, i) {
  const length = track.length_ns[i];
  return length < 1000 ? exactNs(length) : `${nsText(length)} (${exactNs(length)})`;
}

function deviceWords(payload, track, i) {
  const states = statesOf(track, i);
  const lines = [["start", exactNs(track.start_ns[i])], ["duration", lengthText(track, i)]];
  if (track.paint[i] !== MIXED) {
    const title = stateText(payload.paints[track.paint[i]]);
    return { title: `${track.group} ${title}`, lines };
  }
  lines.push(["merged", `${countText(track.count[i])} stretches`]);
  for (const [paint, share] of states.sort((a, b) => b[1] - a[1])) {
    const time = nsText(share * track.length_ns[i]);
    lines.push([stateText(payload.paints[paint]), `${time} (${ratioText(share)})`]);
  }
  return { title: `${track.group} merged`, lines };
}

function mergedWords(payload, track, i, name) {
  const share = track.length_ns[i] ? track.busy_ns[i] / track.length_ns[i] : 1;
  return {
    title: `${countText(track.count[i])} merged, mostly ${name}`,
    lines: [
      ["start", exactNs(track.start_ns[i])],
      ["stretch", lengthText(track, i)],
      ["busy", `${nsText(track.busy_ns[i])} (${ratioText(Math.min(1, share))})`],
    ],
  };
}

function operationWords(payload, track, i) {
  const lines = [];
  if (track.shape[i]) lines.push(["launch", payload.shapes[track.shape[i] - 1]]);
  if (track.bytes[i]) {
    const rate = track.length_ns[i] ? rateText((track.bytes[i] * 1e9) / track.length_ns[i]) : "";
    lines.push(["bytes", rate ? `${bytesText(track.bytes[i])} at ${rate}` : bytesText(track.bytes[i])]);
  }
  lines.push(["row", `${track.group}, ${track.label}`]);
  const call = partner(payload.tracks, track, i);
  if (call) lines.push(...launchWords(payload, call.track, call.index, track.start_ns[i]));
  return lines;
}

function launchWords(payload, calls, call, started) {
  const lines = [["launched by", `${payload.names[calls.name[call]]}, ${calls.group}`]];
  lines.push(["launch latency", nsText(started - calls.start_ns[call])]);
  const path = rangePath(payload.tracks, calls.thread, calls.start_ns[call]);
  if (path.length) lines.push(["NVTX", path.map((code) => payload.names[code]).join(" › ")]);
  return lines;
}

function callWords(payload, track, i) {
  const lines = [];
  const op = partner(payload.tracks, track, i);
  if (op) {
    const name = payload.shorts[op.track.name[op.index]];
    const wait = op.track.start_ns[op.index] - endOf(track, i);
    lines.push(["runs", wait > 0 ? `${name}, ${nsText(wait)} after the call` : name]);
  }
  const path = rangePath(payload.tracks, track.thread, track.start_ns[i]);
  if (path.length) lines.push(["NVTX", path.map((code) => payload.names[code]).join(" › ")]);
  return lines;
}
