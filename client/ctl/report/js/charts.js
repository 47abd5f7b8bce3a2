// SPDX-License-Identifier: Apache-2.0
// The two charts of a plan, drawn by uPlot: memory over time, and who is busy when. uPlot has the
// axes, scales, cursor and the drag that zooms; what is ours is which data it gets (detail.js).

const AXIS_WIDTH = 84;
const MEMORY_HEIGHT = 250;
const ROW_HEIGHT = 34;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function axis(options) {
  const line = { stroke: () => colour("grid"), width: 1 };
  return { stroke: () => colour("muted"), grid: line, ticks: line, ...options };
}

function timeAxis() {
  return axis({ size: 32, space: 90,
                values: (u, ticks) => timeTicks(ticks, ticks[1] - ticks[0] || 1) });
}

// What both charts have: one time scale, one cursor, dragging that zooms all charts.
function chartOptions(zoom, chart, height) {
  return {
    width: 320,
    height,
    padding: [14, 14, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { show: false },
      drag: { x: true, y: false, setScale: true },
      sync: { key: "hmm", setSeries: false,
              filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => () => zoom.do("whole") },
    },
    hooks: {
      setScale: [(u, key) => {
        const { min, max } = u.scales.x;
        if (key === "x" && chart.ready && (min !== zoom.min || max !== zoom.max)) {
          zoom.set(min, max);
        }
      }],
      setCursor: [(u) => {
        if (chart.ready && u.cursor.left >= 0) chart.onTime(u.posToVal(u.cursor.left, "x"));
      }],
    },
  };
}

// A chart in `parent`, as wide as that. `columns(min, max, pixels)` gives its data.
class Chart {
  constructor(parent, zoom, label, columns) {
    this.zoom = zoom;
    this.columns = columns;
    this.ready = false;
    this.onTime = () => {};
    this.box = element("div", { className: "chart", tabIndex: 0, role: "group",
                                "aria-label": label });
    this.box.addEventListener("keydown", (event) => zoomByKey(zoom, event));
    parent.append(this.box);
  }

  start(options) {
    this.u = new uPlot({ ...options, width: this.width() }, this.data(), this.box);
    this.ready = true;
    this.zoom.listeners.push(() => this.show());
    new ResizeObserver(() => this.resize()).observe(this.box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.u.redraw());
  }

  width() {
    return Math.max(160, Math.floor(this.box.clientWidth));
  }

  data() {
    const pixels = Math.max(1, Math.round((this.width() - AXIS_WIDTH) * devicePixelRatio));
    return this.columns(this.zoom.min, this.zoom.max, pixels);
  }

  show() {
    this.u.batch(() => {
      this.u.setData(this.data(), false);
      this.u.setScale("x", { min: this.zoom.min, max: this.zoom.max });
    });
  }

  resize() {
    const width = this.width();
    if (width === this.u.width) return;
    this.u.setSize({ width, height: this.u.height });
    this.show();
  }

  cursorAt(time) {
    this.u.setCursor({ left: this.u.valToPos(time, "x"), top: 10 });
  }
}

function markPeak(u, curve, name) {
  if (curve.peak < 0) return;
  const at = curve.t[curve.peak];
  if (at < u.scales.x.min || at > u.scales.x.max) return;
  const { ctx } = u;
  const scale = devicePixelRatio;
  const x = u.valToPos(at, "x", true);
  const y = u.valToPos(curve.b[curve.peak], "y", true);
  const left = x < u.bbox.left + u.bbox.width / 2;
  ctx.save();
  ctx.fillStyle = colour(name);
  ctx.beginPath();
  ctx.arc(x, y, 4 * scale, 0, 2 * Math.PI);
  ctx.fill();
  ctx.font = `${12 * scale}px system-ui, sans-serif`;
  ctx.textAlign = left ? "left" : "right";
  ctx.textBaseline = "bottom";
  const text = `peak ${bytesText(curve.b[curve.peak])}`;
  ctx.fillText(text, x + (left ? 6 : -6) * scale, y - 2 * scale);
  ctx.restore();
}

// Memory in HBM over time: without a plan, with it, and the budget.
function memoryChart(parent, zoom, label, before, memory, budget) {
  const curves = [before, memory];
  const top = Math.max(budget, ...curves.map((c) => (c.peak < 0 ? 0 : c.b[c.peak])), 1) * 1.12;
  const chart = new Chart(parent, zoom, label, (min, max, pixels) => {
    const data = curveColumns(curves, min, max, pixels);
    return [...data, new Array(data[0].length).fill(budget)];
  });
  const options = chartOptions(zoom, chart, MEMORY_HEIGHT);
  const step = uPlot.paths.stepped({ align: 1 });
  const line = (name, width, more) => (
    { stroke: () => colour(name), width, points: { show: false }, ...more });
  options.scales = { x: { time: false, range: (u, min, max) => [min, max] },
                     y: { range: () => [0, top] } };
  options.series = [{}, line("before", 1.5, { paths: step }), line("after", 2, { paths: step }),
                    line("budget", 1.5, { dash: [7, 5] })];
  const powers = Array.from({ length: 51 }, (_, i) => 2 ** i);
  options.axes = [timeAxis(), axis({
    size: AXIS_WIDTH, incrs: powers, space: 40, values: (u, ticks) => ticks.map(bytesText) })];
  options.hooks.draw = [(u) => {
    markPeak(u, before, "before");
    markPeak(u, memory, "after");
  }];
  chart.start(options);
  return chart;
}

const LINK_COLOURS = { "HBM to DDR": "out", "DDR to HBM": "in",
                       "DDR to flash": "flash-out", "flash to DDR": "flash-in" };

// What is painted of a row, in order: {spans, colour, top: hangs from the top of the row}.
function layersOf(row, step) {
  if (row.link) return [{ spans: row, colour: LINK_COLOURS[row.name] ?? "out" }];
  const again = pickSpans(row, (ref) => ref < 0);
  const ops = again.start.length === 0 ? row : pickSpans(row, (ref) => ref >= 0);
  return [{ spans: idleSpans(row, step), colour: "idle", top: true },
          { spans: ops, colour: "compute" }, { spans: again, colour: "recompute" }];
}

// One series a layer: its path is the layer's boxes in the row's band.
function layerSeries(layer, band, count) {
  return {
    fill: () => colour(layer.colour),
    width: 0,
    points: { show: false },
    paths: (u) => {
      const fill = new Path2D();
      const bottom = u.valToPos(count - 1 - band + 0.12, "y", true);
      const full = bottom - u.valToPos(count - 1 - band + 0.88, "y", true);
      const { min, max } = u.scales.x;
      drawSpans(layer.spans, min, max, Math.max(1, Math.round(u.bbox.width)), (from, to, share) => {
        const x = u.valToPos(from, "x", true);
        const height = Math.max(share * full, 2);
        fill.rect(x, layer.top ? bottom - full : bottom - height,
                  Math.max(1, u.valToPos(to, "x", true) - x), height);
      });
      return { stroke: null, fill, clip: null, flags: 1 };
    },
  };
}

// Names in boxes that are wide enough for them.
function drawNames(u, rows, nameOf) {
  const { ctx } = u;
  const least = 56 * devicePixelRatio;
  const { min, max } = u.scales.x;
  const perUs = u.bbox.width / (max - min);
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillStyle = colour("on-span");
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  rows.forEach((row, band) => {
    const first = after(row.end, min);
    const last = after(row.start, max);
    if (last - first > u.bbox.width / 3) return;
    const y = u.valToPos(rows.length - 1 - band + 0.5, "y", true);
    for (let i = first; i < last; ++i) {
      const from = Math.max(min, row.start[i]);
      const width = (Math.min(max, row.end[i]) - from) * perUs;
      if (width < least) continue;
      const x = u.valToPos(from, "x", true);
      ctx.save();
      ctx.beginPath();
      ctx.rect(x, u.bbox.top, width - 4, u.bbox.height);
      ctx.clip();
      ctx.fillText(nameOf(row.ref[i]), x + 4 * devicePixelRatio, y);
      ctx.restore();
    }
  });
  ctx.restore();
}

// Who is busy when: a row a compute stream, a row a link direction.
function timelineChart(parent, zoom, label, plan, nameOf) {
  const { rows } = plan;
  const n = rows.length;
  const layers = rows.flatMap((row, band) =>
    layersOf(row, plan.memory.step).map((layer) => ({ ...layer, band })));
  const chart = new Chart(parent, zoom, label, (min, max) =>
    [[min, max], ...layers.map(() => [0, 0]), ...rows.map(() => [0, 0])]);
  chart.picked = rows.map(() => ({ spans: { start: [], end: [] }, colour: "picked" }));
  const options = chartOptions(zoom, chart, n * ROW_HEIGHT + 46);
  options.scales = { x: { time: false, range: (u, min, max) => [min, max] },
                     y: { range: () => [0, n] } };
  options.series = [{}, ...layers.map((layer) => layerSeries(layer, layer.band, n)),
                    ...chart.picked.map((layer, band) => layerSeries(layer, band, n))];
  options.axes = [timeAxis(), axis({
    size: AXIS_WIDTH, grid: { show: false }, ticks: { show: false }, gap: 4,
    splits: () => rows.map((_, band) => n - 1 - band + 0.5),
    values: () => rows.map((row) => row.name) })];
  options.hooks.draw = [(u) => drawNames(u, rows, nameOf)];
  chart.start(options);
  return chart;
}
