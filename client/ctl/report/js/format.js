// SPDX-License-Identifier: Apache-2.0
// How figures read, as hmmctl prints them.

function significant(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

function timeText(us) {
  if (us < 1e3) return `${significant(us, 3)} us`;
  if (us < 1e6) return `${significant(us / 1e3, 4)} ms`;
  return `${significant(us / 1e6, 4)} s`;
}

const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function bytesText(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < SIZE_UNITS.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${SIZE_UNITS[unit]}`;
}

function shareText(part, whole) {
  return whole > 0 ? `${significant((part / whole) * 100, 3)}%` : "0%";
}

// Ticks of a time axis, all in the unit of the largest and as exact as their distance asks for.
function timeTicks(ticks, step) {
  const most = Math.max(...ticks.map(Math.abs));
  const [unit, scale] = most < 1e3 ? ["us", 1] : most < 1e6 ? ["ms", 1e3] : ["s", 1e6];
  let decimals = 0;
  for (let s = step / scale; decimals < 9 && Math.abs(s - Math.round(s)) > 1e-6 * s; s *= 10) {
    ++decimals;
  }
  return ticks.map((tick) => `${(tick / scale).toFixed(decimals)} ${unit}`);
}

// An element with properties and children; text is text, never markup.
function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}
