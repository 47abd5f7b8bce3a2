// SPDX-License-Identifier: Apache-2.0
// The stretch of time that all charts show, and the ways to change it: buttons, keys, dragging.

class Zoom {
  constructor(whole) {
    this.whole = whole > 0 ? whole : 1e-3;
    this.min = 0;
    this.max = this.whole;
    this.least = this.whole * 1e-7;
    this.listeners = [];
  }

  set(min, max) {
    let width = Math.min(this.whole, Math.max(this.least, max - min));
    if (this.whole - width < this.least) width = this.whole;  // so that rounding leaves no sliver
    const start = Math.min(this.whole - width, Math.max(0, (min + max - width) / 2));
    if (start === this.min && start + width === this.max) return;
    this.min = start;
    this.max = start + width;
    for (const listener of this.listeners) listener(this.min, this.max);
  }

  // By a factor, about a time (the middle where there is none).
  by(factor, about = (this.min + this.max) / 2) {
    this.set(about - (about - this.min) * factor, about + (this.max - about) * factor);
  }

  // By a share of what is shown.
  shift(share) {
    const width = this.max - this.min;
    this.set(this.min + share * width, this.max + share * width);
  }

  do(action) {
    switch (action) {
      case "in": return this.by(0.5);
      case "out": return this.by(2);
      case "earlier": return this.shift(-0.25);
      case "later": return this.shift(0.25);
      default: return this.set(0, this.whole);
    }
  }

  text() {
    const all = this.min === 0 && this.max === this.whole;
    return all ? `the whole step, ${timeText(this.whole)}`
               : `${timeText(this.min)} to ${timeText(this.max)} of ${timeText(this.whole)}`;
  }
}

const ZOOM_KEYS = {
  "+": "in", "=": "in", "-": "out", "_": "out", ArrowLeft: "earlier", ArrowRight: "later",
  Home: "whole", 0: "whole",
};

function zoomByKey(zoom, event) {
  const action = ZOOM_KEYS[event.key];
  if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  zoom.do(action);
}

function wireZoom(zoom) {
  const bar = document.getElementById("zoom");
  const range = document.getElementById("range");
  const tell = () => {
    range.textContent = zoom.text();
    for (const button of bar.querySelectorAll("button")) {
      const widest = zoom.max - zoom.min >= zoom.whole;
      button.disabled = (button.dataset.do !== "in" && widest) ||
                        (button.dataset.do === "earlier" && zoom.min <= 0) ||
                        (button.dataset.do === "later" && zoom.max >= zoom.whole);
    }
  };
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) zoom.do(button.dataset.do);
  });
  zoom.listeners.push(tell);
  tell();
  bar.hidden = false;
}
