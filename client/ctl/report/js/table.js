// SPDX-License-Identifier: Apache-2.0
// The table of moved tensors: sorted by any column, searched, a page of rows at a time.

const ROWS_A_PAGE = 50;

// Columns: how a cell reads, and what it is sorted by.
function movedColumns(data, plan) {
  const m = plan.moved;
  const op = (index, none) => (index < 0 ? none : data.ops.names[index]);
  const number = (title, values, text, hint) => (
    { title, hint, number: true, value: (i) => values[i], text: (i) => text(values[i]) });
  const words = (title, text, hint) => ({ title, hint, text, value: text });
  return [
    { ...words("tensor", (i) => m.name[i], "show its moves in the timeline"), pick: true },
    words("kind", (i) => m.kind[i]),
    number("size", m.bytes, bytesText),
    number("uses", m.uses, (v) => String(v), "access frequency: ops that touch it in a step"),
    number("recompute", m.recompute, (v) => (v < 0 ? "cannot" : timeText(v)),
           "cost of making it anew"),
    number("bring back", m.in, timeText, "bandwidth: time on the link, alone"),
    number("of compute", m.in, (v) => shareText(v, plan.computeUs),
           "bandwidth: that time as a share of the compute time"),
    number("slack", m.slack, timeText, "compute time in which it may be away"),
    number("exposed", m.exposed, timeText, "time that ops waited for its moves"),
    words("moves", (i) => m.how[i]),
    { ...words("away after", (i) => op(m.after[i], "the start of the step")), long: true },
    { ...words("until", (i) => op(m.before[i], "the end of the step")), long: true },
  ];
}

class MovedTable {
  constructor(parent, data, plan, onPick) {
    this.columns = movedColumns(data, plan);
    this.count = plan.moved.name.length;
    this.onPick = onPick;
    this.picked = -1;
    this.page = 0;
    this.query = "";
    this.haystack = null;  // made at the first search
    this.build(parent, `Moved tensors, planner ${plan.planner}`);
    this.sortBy(this.columns.findIndex((column) => column.title === "exposed"), true);
  }

  build(parent, name) {
    const search = element("input", { type: "search", autocomplete: "off", spellcheck: false });
    search.addEventListener("input", () => {
      this.query = search.value;
      this.page = 0;
      this.choose();
    });
    this.found = element("output", { "aria-live": "polite" });
    this.earlier = element("button", { type: "button", textContent: "Previous rows" });
    this.later = element("button", { type: "button", textContent: "Next rows" });
    this.earlier.addEventListener("click", () => this.turn(-1));
    this.later.addEventListener("click", () => this.turn(1));
    this.heads = this.columns.map((column, i) => {
      const button = element("button", { type: "button", textContent: column.title,
                                         title: column.hint ?? "" });
      button.addEventListener("click", () =>
        this.sortBy(i, this.sorted === i ? !this.down : column.number === true));
      const classes = [column.number ? "n" : "", column.long ? "long" : ""].join(" ").trim();
      return element("th", { scope: "col", className: classes }, button);
    });
    this.body = element("tbody");
    parent.append(
      element("div", { className: "tools" },
              element("label", {}, "Search tensors and ops", search), this.found),
      element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": name },
              element("table", { className: "moved" },
                      element("thead", {}, element("tr", {}, ...this.heads)), this.body)),
      element("div", { className: "tools" }, this.earlier, this.later));
  }

  sortBy(index, down) {
    this.sorted = index;
    this.down = down;
    this.page = 0;
    this.heads.forEach((head, i) => {
      if (i === index) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const { value, number } = this.columns[index];
    const keys = Array.from({ length: this.count }, (_, i) => value(i));
    const order = number ? (a, b) => keys[a] - keys[b]
                         : (a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0);
    const sign = down ? -1 : 1;
    this.order = Uint32Array.from(keys, (_, i) => i).sort((a, b) => sign * order(a, b) || a - b);
    this.choose();
  }

  choose() {
    const words = this.query.toLowerCase().split(/\s+/).filter((word) => word !== "");
    this.haystack ??= words.length === 0 ? null : Array.from({ length: this.count }, (_, i) =>
      this.columns.filter((column) => !column.number).map((column) => column.text(i)).join("\n")
        .toLowerCase());
    this.rows = words.length === 0 ? this.order
                                   : this.order.filter((i) =>
                                       words.every((word) => this.haystack[i].includes(word)));
    this.draw();
  }

  turn(pages) {
    this.page += pages;
    this.draw();
  }

  draw() {
    const first = this.page * ROWS_A_PAGE;
    const shown = Array.from(this.rows.slice(first, first + ROWS_A_PAGE));
    this.body.replaceChildren(...shown.map((i) => this.row(i)));
    const last = first + shown.length;
    this.earlier.disabled = first === 0;
    this.later.disabled = last >= this.rows.length;
    const of = this.rows.length === this.count ? "" : ` found, of ${this.count}`;
    this.found.textContent = this.rows.length === 0
      ? `0${of} tensors` : `rows ${first + 1} to ${last} of ${this.rows.length}${of}`;
  }

  row(i) {
    const cells = this.columns.map((column) => {
      const classes = [column.number ? "n" : "", column.long || column.pick ? "long" : ""];
      const properties = { className: classes.join(" ").trim() };
      if (!column.pick) return element("td", properties, column.text(i));
      const button = element("button", { type: "button", textContent: column.text(i),
                                         title: column.hint });
      button.addEventListener("click", () => {
        this.picked = i;
        for (const row of this.body.children) row.className = "";
        button.closest("tr").className = "picked";
        this.onPick(i);
      });
      return element("td", properties, button);
    });
    return element("tr", { className: i === this.picked ? "picked" : "" }, ...cells);
  }
}
