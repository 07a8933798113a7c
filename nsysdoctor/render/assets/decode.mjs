// Payload text → header and tracks. Columns become Float64Array: exact below 2^53 ns.

export function bytesOf(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// A column lies in planes, lowest bytes first; the sum in doubles is exact.
export function column(bytes, at, length, planes) {
  const values = new Float64Array(length);
  let weight = 1;
  for (let plane = 0; plane < planes; plane++) {
    const base = at + plane * length;
    for (let i = 0; i < length; i++) values[i] += bytes[base + i] * weight;
    weight *= 256;
  }
  return values;
}

// Undoes differences in place; "near" ones are folded: 2d for a step up, -2d-1 for one down.
export function summed(values, coding) {
  if (coding === "plain") return values;
  let total = 0;
  for (let i = 0; i < values.length; i++) {
    const code = values[i];
    const down = coding === "near" && code % 2 === 1;
    total += coding === "rising" ? code : down ? -(code + 1) / 2 : code / 2;
    values[i] = total;
  }
  return values;
}

export function parsed(bytes) {
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  let at = 4 + size;
  const tracks = header.tracks.map((described) => {
    const track = { ...described };
    delete track.columns;
    for (const [name, coding, length, planes] of described.columns) {
      track[name] = summed(column(bytes, at, length, planes), coding);
      at += length * planes;
    }
    return withReach(track);
  });
  const shorts = header.shorts.map((short, i) => short ?? header.names[i]);
  return { ...header, shorts, tracks };
}

// Latest end up to each item: it rises, so that a binary search finds what reaches into a view.
export function withReach(track) {
  const start = track.start_ns;
  const reach = new Float64Array(start.length);
  let latest = -Infinity;
  for (let i = 0; i < start.length; i++) {
    latest = Math.max(latest, start[i] + track.length_ns[i]);
    reach[i] = latest;
  }
  track.reach = reach;
  if (track.part_count) {
    track.part_at = new Float64Array(start.length);
    for (let i = 1; i < start.length; i++) {
      track.part_at[i] = track.part_at[i - 1] + track.part_count[i - 1];
    }
  }
  return track;
}

export async function decoded(base64) {
  return parsed(await inflated(bytesOf(base64.trim())));
}
