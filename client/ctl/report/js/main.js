// SPDX-License-Identifier: Apache-2.0
// Puts the page together: a panel a plan, all with one zoom.

const KEY_TEXTS = {
  compute: "op", recompute: "op run again", idle: "idle", out: "SwapOut",
  in: "SwapIn", "flash-out": "to flash", "flash-in": "from flash", picked: "picked tensor",
};

function key(entries) {
  return element("ul", { className: "key" }, ...entries.map(([name, text, kind]) => {
    const mark = element("i", { className: kind ?? "" });
    mark.style[kind ? "borderColor" : "background"] = `var(--${name})`;
    return element("li", {}, mark, text);
  }));
}

// What goes on at a time, in words.
function momentText(data, plan, time) {
  const lines = [`at ${timeText(time)}`];
  const bytes = bytesAt(plan.memory, time);
  const unplanned = bytesAt(data.before, time);
  const memory = [bytes === null ? "" : `with the plan ${bytesText(bytes)}`,
                  unplanned === null ? "" : `without ${bytesText(unplanned)}`];
  lines.push(`HBM: ${memory.filter((text) => text !== "").join(", ")}`);
  for (const row of plan.rows) {
    const i = after(row.start, time) - 1;
    if (i < 0 || row.end[i] < time) continue;
    lines.push(`${row.name}: ${spanText(data.ops, plan, row.ref[i])}, ` +
               timeText(row.end[i] - row.start[i]));
  }
  return lines.join("\n");
}

function planText(plan) {
  const exposed = Math.max(0, plan.memory.step - plan.computeUs);
  return plan.verdict === "planned" ? `${plan.planner}: planned, ${timeText(exposed)} exposed`
                                    : `${plan.planner}: ${plan.verdict}`;
}

// Why a curve may stay below the planned peak that the figures name.
function predicted() {
  return element("p", { className: "hint predicted", textContent:
    "As predicted. The planned peak in the figures holds whatever the durations." });
}

class Panel {
  constructor(parent, data, plan, zoom, many) {
    this.data = data;
    this.plan = plan;
    this.zoom = zoom;
    this.box = element("section", { className: "panel", "aria-label": `planner ${plan.planner}` });
    parent.append(this.box);
    if (many) this.box.append(element("h2", { textContent: planText(plan) }));
    this.memory(many);
    if (plan.rows.length === 0) {
      this.box.append(element("p", { textContent: "No plan, so there is nothing to draw of it." }));
      return;
    }
    this.timeline();
    this.table(many);
  }

  // Charts need a width, so each is made when its place is in the document.
  memory(many) {
    const { plan } = this;
    this.box.append(element("h3", { textContent: "Memory in HBM" }));
    const entries = [["before", "nothing moved", "line"], ["budget", "budget", "dashed"]];
    if (plan.memory.t.length > 0) entries.unshift(["after", "with the plan", "line"]);
    this.box.append(key(entries));
    if (plan.verdict === "planned" && !many) this.box.append(predicted());
    const label = `Memory in HBM over time, planner ${plan.planner}. ` +
                  "Keys: plus and minus zoom, arrows move, Home shows the whole step";
    this.memoryChart = memoryChart(this.box, this.zoom, label, this.data.before, plan.memory,
                                   this.data.budget);
  }

  timeline() {
    const { ops } = this.data;
    const { plan } = this;
    this.box.append(element("h3", { textContent: "Timeline" }));
    const colours = new Set(plan.rows.flatMap((row) => (row.link ? LINK_COLOURS[row.name]
                                                                  : ["compute", "idle"])));
    if (plan.rows.some((row) => !row.link && row.ref.some((ref) => ref < 0))) {
      colours.add("recompute");
    }
    if (plan.moved.name.length > 0) colours.add("picked");
    this.box.append(key([...colours].map((name) => [name, KEY_TEXTS[name]])));
    const nameOf = (ref) => (ref >= 0 ? ops.names[ref] : plan.moved.name[plan.moves.of[-1 - ref]]);
    const label = `Timeline of compute and links, planner ${plan.planner}. Keys: plus and minus ` +
                  "zoom, arrows move, Home shows the whole step, n and p go from event to event";
    this.chart = timelineChart(this.box, this.zoom, label, plan, nameOf);
    this.readout = element("p", { className: "readout", "aria-live": "polite" });
    this.readout.textContent = "Point at a chart, or press n in it, to read what happens when.";
    this.box.append(this.readout, element("p", {
      className: "hint",
      textContent: "Where parts are narrower than a pixel, a bar's height is the share of the " +
                   "time they fill.",
    }));
    this.time = 0;
    const tell = (time) => {
      this.time = time;
      this.readout.textContent = momentText(this.data, plan, time);
    };
    this.chart.onTime = tell;
    this.memoryChart.onTime = tell;
    this.chart.box.addEventListener("keydown", (event) => {
      if (event.key === "n" || event.key === "p") this.step(event.key === "n");
    });
  }

  // The cursor to the next, or the previous, start of an op or a transfer.
  step(forward) {
    let best = null;
    for (const { start } of this.plan.rows) {
      const next = after(start, this.time);
      const i = forward ? next : after(start, this.time - this.zoom.least) - 1;
      const found = start[i];
      if (found === undefined || (!forward && found >= this.time)) continue;
      if (best === null || (forward ? found < best : found > best)) best = found;
    }
    if (best === null) return;
    if (best < this.zoom.min || best > this.zoom.max) {
      const half = (this.zoom.max - this.zoom.min) / 2;
      this.zoom.set(best - half, best + half);
    }
    this.time = best;
    // The charts take their new scale first.
    queueMicrotask(() => {
      this.chart.cursorAt(best);
      this.time = best;
      this.readout.textContent = momentText(this.data, this.plan, best);
    });
  }

  table(many) {
    const count = this.plan.moved.name.length;
    const title = `Moved tensors: ${count}`;
    if (count === 0) {
      this.box.append(element("p", { textContent: "No tensor is moved." }));
      return;
    }
    const place = many ? element("details", {}, element("summary", { textContent: title }))
                       : element("div", {}, element("h3", { textContent: title }));
    this.box.append(place);
    place.append(element("p", {
      className: "hint",
      textContent: "What decides: how often a tensor is used, what making it anew costs, and " +
                   "what the link needs to bring it back. Pick a tensor to see its moves.",
    }));
    this.moved = new MovedTable(place, this.data, this.plan, (i) => this.pick(i));
  }

  // Shows the moves of a tensor: marked, and zoomed to.
  pick(i) {
    const { plan, zoom } = this;
    let first = Infinity;
    let last = -Infinity;
    plan.rows.forEach((row, band) => {
      const spans = pickSpans(row, (ref) => ref < 0 && plan.moves.of[-1 - ref] === i);
      this.chart.picked[band].spans = spans;
      if (spans.start.length === 0) return;
      first = Math.min(first, spans.start[0]);
      last = Math.max(last, spans.end[spans.end.length - 1]);
    });
    if (first <= last) {
      const room = Math.max(last - first, zoom.whole / 200);
      zoom.set(first - room, last + room);
    }
    this.chart.show();
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.chart.box.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  }
}

function main() {
  const place = document.getElementById("data");
  const data = decode(place.textContent);
  place.remove();
  const steps = [data.before, ...data.plans.map((plan) => plan.memory)].map((m) => m.step);
  const zoom = new Zoom(Math.max(...steps));
  const many = data.plans.length > 1;
  const plans = document.getElementById("plans");
  plans.classList.toggle("many", many);
  if (many) plans.before(predicted());
  for (const plan of data.plans) new Panel(plans, data, plan, zoom, many);
  wireZoom(zoom);
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.drawn = String(Math.round(performance.now()));
  }));
}

main();
