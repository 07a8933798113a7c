// Finding items of tracks: what is visible, what lies under the pointer, who belongs together.

export const MIXED = 255;

function firstWhere(length, holds) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// [from, to) of the items that may touch the view.
export function visible(track, view) {
  const count = track.start_ns.length;
  const from = firstWhere(count, (i) => track.reach[i] >= view.start);
  const to = firstWhere(count, (i) => track.start_ns[i] > view.end);
  return [from, Math.max(from, to)];
}

export function endOf(track, i) {
  return track.start_ns[i] + track.length_ns[i];
}

// The innermost item at a time, else the nearest within `slack` ns, else -1.
export function itemAt(track, time, slack) {
  const after = firstWhere(track.start_ns.length, (i) => track.start_ns[i] > time);
  for (let i = after - 1; i >= 0 && track.reach[i] > time; i--) {
    if (endOf(track, i) > time) return i;
  }
  let best = -1;
  let distance = slack;
  for (const i of [after - 1, after]) {
    if (i < 0 || i >= track.start_ns.length) continue;
    const away = Math.max(track.start_ns[i] - time, time - endOf(track, i), 0);
    if (away <= distance) [best, distance] = [i, away];
  }
  return best;
}

// The call of an operation, or the first operation of a call: { track, index } or null.
export function partner(tracks, track, index) {
  const key = track.key ? track.key[index] : 0;
  if (!key || track.count[index] !== 1) return null;
  const wanted = track.kind === "calls" ? "stream" : "calls";
  let best = null;
  for (const other of tracks) {
    if (other.kind !== wanted) continue;
    const i = other.key.indexOf(key);
    if (i >= 0 && (!best || other.start_ns[i] < best.track.start_ns[best.index])) {
      best = { track: other, index: i };
    }
  }
  return best;
}

// Codes of the ranges that enclose a time on one host thread, outermost first.
export function rangePath(tracks, thread, time) {
  const path = [];
  for (const track of tracks) {
    if (track.kind !== "ranges" || track.thread !== thread || track.depth < 0) continue;
    const i = itemAt(track, time, -1);
    if (i >= 0 && track.count[i] === 1) path.push([track.depth, track.name[i]]);
  }
  return path.sort((a, b) => a[0] - b[0]).map(([, name]) => name);
}

// Hits of a text in full names, all tracks, by time. Ignores case.
export function hits(payload, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const codes = new Set();
  payload.names.forEach((name, code) => {
    if (name.toLowerCase().includes(wanted)) codes.add(code);
  });
  const found = [];
  for (const track of payload.tracks) {
    if (!track.name) continue;
    for (let i = 0; i < track.name.length; i++) {
      if (codes.has(track.name[i])) found.push({ track, index: i });
    }
  }
  const start = (hit) => hit.track.start_ns[hit.index];
  return found.sort((a, b) => start(a) - start(b));
}

// ns of each state in each pixel column of a device row: rows of `paints` numbers.
export function stateColumns(track, view, width, paints) {
  const columns = new Float64Array(width * paints);
  const perPixel = (view.end - view.start) / width;
  const [from, to] = visible(track, view);
  for (let i = from; i < to; i++) {
    for (const [paint, share] of statesOf(track, i)) {
      spread(columns, track.start_ns[i], endOf(track, i), paint, share, view, perPixel, paints);
    }
  }
  return columns;
}

// [paint, share of the item's length] of one piece.
export function statesOf(track, i) {
  if (track.paint[i] !== MIXED) return [[track.paint[i], 1]];
  const found = [];
  for (let part = track.part_at[i]; part < track.part_at[i] + track.part_count[i]; part++) {
    found.push([track.part_paint[part], track.part_ns[part] / track.length_ns[i]]);
  }
  return found;
}

function spread(columns, start, end, paint, share, view, perPixel, paints) {
  const low = Math.max(start, view.start);
  const high = Math.min(end, view.end);
  if (high <= low) return;
  const width = columns.length / paints;
  const first = Math.floor((low - view.start) / perPixel);
  const last = Math.min(width - 1, Math.floor((high - view.start) / perPixel));
  for (let x = first; x <= last; x++) {
    const left = Math.max(low, view.start + x * perPixel);
    const right = Math.min(high, view.start + (x + 1) * perPixel);
    if (right > left) columns[x * paints + paint] += (right - left) * share;
  }
}

// ns that a device row draws in all states whose name starts so; what the page's tests read back.
export function drawnNs(track, paints, prefix) {
  let total = 0;
  for (let i = 0; i < track.paint.length; i++) {
    if (track.paint[i] !== MIXED && paints[track.paint[i]].startsWith(prefix)) {
      total += track.length_ns[i];
    }
  }
  for (let part = 0; part < track.part_ns.length; part++) {
    if (paints[track.part_paint[part]].startsWith(prefix)) total += track.part_ns[part];
  }
  return total;
}
