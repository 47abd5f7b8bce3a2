// SPDX-License-Identifier: Apache-2.0
// Levels of detail: what to draw of curves and spans with more parts than the screen has pixels.

// The first index whose value is > `value`; the array ascends.
function after(array, value) {
  let low = 0;
  let high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

function bytesAt(curve, t) {
  const i = after(curve.t, t) - 1;
  return i < 0 || t > curve.step ? null : curve.b[i];
}

// Common x values and one column of y values a curve, between two times. Few points stand as they
// are; many become the highest and the lowest of each of `pixels` columns, so that no peak is lost.
function curveColumns(curves, from, to, pixels) {
  const inside = curves.map((curve) => [after(curve.t, from), after(curve.t, to)]);
  const points = inside.reduce((sum, [first, last]) => sum + last - first, 0);
  return points <= 2 * pixels ? allPoints(curves, inside, from, to)
                              : extremes(curves, from, to, pixels);
}

function allPoints(curves, inside, from, to) {
  const times = new Set([from, to]);
  curves.forEach((curve, c) => {
    for (let i = inside[c][0]; i < inside[c][1]; ++i) times.add(curve.t[i]);
    if (curve.step > from && curve.step < to) times.add(curve.step);
  });
  const xs = Float64Array.from(times).sort();
  return [xs, ...curves.map((curve) => Array.from(xs, (x) => bytesAt(curve, x)))];
}

function extremes(curves, from, to, pixels) {
  const width = (to - from) / pixels;
  const xs = new Float64Array(2 * pixels + 1);
  for (let i = 0; i < 2 * pixels; ++i) xs[i] = from + (i * width) / 2;
  xs[2 * pixels] = to;
  const columns = curves.map((curve) => {
    const ys = new Array(xs.length).fill(null);
    let i = after(curve.t, from);
    for (let p = 0; p < pixels; ++p) {
      const begin = xs[2 * p];
      if (begin > curve.step || i === 0) continue;
      let high = curve.b[i - 1];
      let low = high;
      for (; i < curve.t.length && curve.t[i] <= begin + width; ++i) {
        high = Math.max(high, curve.b[i]);
        low = Math.min(low, curve.b[i]);
      }
      ys[2 * p] = high;
      ys[2 * p + 1] = low;
    }
    ys[2 * pixels] = bytesAt(curve, to);
    return ys;
  });
  return [xs, ...columns];
}

// Calls fn(from, to, share): the spans that lie between two times. While they are few each is its
// own, share 1; beyond that, for each of `pixels` columns the share of it that they fill.
function drawSpans(spans, from, to, pixels, fn) {
  const first = after(spans.end, from);
  const last = after(spans.start, to);
  if (last - first <= pixels / 3) {
    for (let i = first; i < last; ++i) {
      fn(Math.max(from, spans.start[i]), Math.min(to, spans.end[i]), 1);
    }
    return;
  }
  const width = (to - from) / pixels;
  const filled = new Float64Array(pixels);
  for (let i = first; i < last; ++i) {
    const start = Math.max(0, (spans.start[i] - from) / width);
    const end = Math.min(pixels, (spans.end[i] - from) / width);
    for (let p = Math.floor(start); p < end; ++p) {
      filled[p] += Math.min(end, p + 1) - Math.max(start, p);
    }
  }
  for (let p = 0; p < pixels; ) {
    let q = p + 1;
    while (q < pixels && filled[q] === filled[p]) ++q;
    if (filled[p] > 0) fn(from + p * width, from + q * width, Math.min(1, filled[p]));
    p = q;
  }
}

// Those spans of a row that `keep` accepts, and the row's idle times within the step.
function pickSpans(row, keep) {
  const chosen = [];
  for (let i = 0; i < row.ref.length; ++i) if (keep(row.ref[i])) chosen.push(i);
  return {
    start: Float64Array.from(chosen, (i) => row.start[i]),
    end: Float64Array.from(chosen, (i) => row.end[i]),
  };
}

function idleSpans(row, step) {
  const start = [];
  const end = [];
  let busy = 0;
  const least = step * 1e-9;
  for (let i = 0; i <= row.start.length; ++i) {
    const next = i < row.start.length ? row.start[i] : step;
    if (next - busy > least) {
      start.push(busy);
      end.push(next);
    }
    if (i < row.start.length) busy = row.end[i];
  }
  return { start: Float64Array.from(start), end: Float64Array.from(end) };
}
