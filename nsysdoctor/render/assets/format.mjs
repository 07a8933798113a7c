// Text for numbers, word for word what the reports print.

const TIME = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
const SIZE = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

export function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

function threeDigits(value) {
  const size = Math.abs(value);
  if (size >= 99.95) return grouped(value.toFixed(0));
  return value.toFixed(size >= 9.995 ? 1 : 2);
}

function scaled(value, scale, base) {
  for (const [unit, name] of scale) {
    if (Math.abs(value) >= unit * 0.9995) return `${threeDigits(value / unit)} ${name}`;
  }
  return `${value.toFixed(0)} ${base}`;
}

export function nsText(value) {
  return scaled(value, TIME, "ns");
}

// A duration to the nanosecond, for one operation: 1,234,567 ns.
export function exactNs(value) {
  return `${grouped(Math.round(value))} ns`;
}

// A whole number of nanoseconds, given as text, in seconds to the last digit: what --window takes.
export function clockText(ns) {
  const [, sign, digits] = /^(-?)(\d+)$/.exec(ns);
  const padded = digits.padStart(10, "0");
  return `${sign}${padded.slice(0, -9)}.${padded.slice(-9)}s`;
}

export function bytesText(value) {
  return scaled(value, SIZE, "B");
}

export function rateText(value) {
  return `${bytesText(value)}/s`;
}

export function ratioText(value) {
  const percent = value * 100;
  if (percent > 0 && percent < 0.1) return "<0.1 %";
  if (percent > 99.9 && percent < 100) return ">99.9 %";
  return `${percent.toFixed(1)} %`;
}

export function countText(value) {
  return grouped(Math.round(value));
}

// The first end of a label that fits, with an ellipsis; empty where not even three letters do.
export function clipped(text, letters) {
  if (text.length <= letters) return text;
  return letters < 4 ? "" : `${text.slice(0, letters - 1)}…`;
}
