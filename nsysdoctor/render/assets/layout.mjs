// Where rows stand: groups with a heading, rows under it, folded groups without their rows.

export const HEADING = 22;
const HEIGHT = { device: 34, stream: 20, calls: 18, waits: 10, ranges: 16 };
const GAP = 3;

export function groupsOf(tracks) {
  const names = [];
  for (const track of tracks) if (!names.includes(track.group)) names.push(track.group);
  return names;
}

// Rows { track | null for a heading, group, y, height } from top to bottom, and the height of all.
export function layout(tracks, folded) {
  const rows = [];
  let y = 0;
  for (const group of groupsOf(tracks)) {
    rows.push({ track: null, group, y, height: HEADING });
    y += HEADING;
    for (const track of tracks.filter((t) => t.group === group)) {
      if (folded.has(group) && track.kind !== "device") continue;
      rows.push({ track, group, y, height: HEIGHT[track.kind] });
      y += HEIGHT[track.kind] + GAP;
    }
    y += 4;
  }
  return { rows, height: y };
}

export function rowAt(rows, y) {
  return rows.find((row) => y >= row.y && y < row.y + row.height) ?? null;
}

export function rowOf(rows, track) {
  return rows.find((row) => row.track === track) ?? null;
}

// The row to look at for a place: the device's own row, else the first.
export function deviceRow(rows, device) {
  const mine = rows.find((row) => row.track?.kind === "device" && row.track.device === device);
  return mine ?? rows.find((row) => row.track) ?? null;
}

// Many groups start folded, so that the page is not one long list of streams.
export function firstFolds(tracks) {
  const groups = groupsOf(tracks);
  const devices = groupsOf(tracks.filter((t) => t.kind === "device" || t.kind === "stream"));
  const hosts = groups.filter((group) => !devices.includes(group));
  const folds = hosts.slice(2);
  if (devices.length > 2) folds.push(...devices.slice(1));
  return new Set(folds);
}
