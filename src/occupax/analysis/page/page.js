"use strict";

const say = (number) => {
  if (number === null) return "–";
  const small = number !== 0 && Math.abs(number) < 1e-3;
  if (small || Math.abs(number) >= 1e9) return number.toExponential(3).replace(/\.?0+e/, "e");
  return number.toLocaleString("en", { maximumSignificantDigits: Math.abs(number) >= 1e4 ? 9 : 5 });
};

const element = (tag, text = "", name = "") => {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
};

/** What charts and maps share: a place in the drawing, marks on it, and a box of text beside it. */
class Plot {
  constructor(figure, data) {
    this.data = data;
    this.figure = figure;
    this.place = figure.querySelector(".plot");
    this.svg = this.place.querySelector("svg");
    this.tip = this.place.querySelector(".tip");
    this.marks = this.svg.appendChild(document.createElementNS(this.svg.namespaceURI, "g"));
    this.marks.setAttribute("class", "cross");
    this.place.addEventListener("pointermove", (event) => this.point(...this.locate(event)));
    this.place.addEventListener("pointerdown", (event) => this.point(...this.locate(event)));
    this.place.addEventListener("pointerleave", (event) => event.pointerType === "touch" || this.hide());
    this.place.addEventListener("blur", () => this.hide());
    this.place.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.hide();
      else if (!this.press(event.key)) return;
      event.preventDefault();
    });
  }

  /** From pixels of the screen to points of the drawing. */
  locate(event) {
    const shown = this.svg.getBoundingClientRect();
    const size = this.svg.viewBox.baseVal;
    return [((event.clientX - shown.left) * size.width) / shown.width, ((event.clientY - shown.top) * size.height) / shown.height];
  }

  mark(tag, attributes) {
    const made = this.marks.appendChild(document.createElementNS(this.svg.namespaceURI, tag));
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  }

  /** Show lines of [sample or null, name, value] beside a place, where there is room; below the top, or above the bottom. */
  show(heading, lines, [left, right], [top, bottom]) {
    this.tip.replaceChildren(element("b", heading));
    for (const [sample, name, value] of lines) {
      const line = this.tip.appendChild(element("div"));
      if (sample) line.append(sample.cloneNode(true));
      line.append(element("span", name), element("span", value));
    }
    this.tip.hidden = false;
    const scale = this.svg.getBoundingClientRect().width / this.svg.viewBox.baseVal.width;
    const room = this.place.clientWidth - this.tip.offsetWidth;
    const beside = right * scale + 12;
    this.tip.style.left = `${beside <= room ? beside : Math.max(0, Math.min(room, left * scale - 12 - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${bottom === null ? top * scale : bottom * scale - this.tip.offsetHeight}px`;
  }

  hide() {
    this.tip.hidden = true;
    this.marks.replaceChildren();
  }
}

class Chart extends Plot {
  constructor(figure, data) {
    super(figure, data);
    this.hidden = new Set();
    this.at = null;
    this.buttons = new Map();
    for (const button of figure.querySelectorAll("[aria-pressed]")) {
      this.buttons.set(button.dataset.toggles, button);
      button.addEventListener("click", () => this.toggle(button));
    }
  }

  toggle(button) {
    const part = button.dataset.toggles;
    const shown = this.hidden.delete(part);
    if (!shown) this.hidden.add(part);
    button.setAttribute("aria-pressed", shown);
    for (const drawn of this.svg.querySelectorAll(`[data-part="${part}"]`)) drawn.classList.toggle("off", !shown);
    this.hide();
  }

  visible(parts) {
    return parts.filter((part) => !this.hidden.has(part.part));
  }

  /** Where a value is on an axis: a share of its length. */
  share(value, [low, high, logarithmic]) {
    if (logarithmic) [value, low, high] = [value, low, high].map(Math.log);
    return (value - low) / (high - low);
  }

  across(x) {
    const [left, , right] = this.data.box;
    return left + this.share(x, this.data.across) * (right - left);
  }

  down(y) {
    const [, top, , bottom] = this.data.box;
    return bottom - this.share(y, this.data.up) * (bottom - top);
  }

  places() {
    const found = this.visible(this.data.series).flatMap((series) => series.x.filter((x) => x !== null));
    return [...new Set(found)].sort((a, b) => a - b);
  }

  point(left) {
    const distance = (x) => Math.abs(this.across(x) - left);
    const places = this.places();
    if (places.length) this.look(places.reduce((best, x) => (distance(x) < distance(best) ? x : best)));
  }

  press(key) {
    const places = this.places();
    const last = places.length - 1;
    const now = this.tip.hidden ? null : places.indexOf(this.at);
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10 };
    let next = { Home: 0, End: last }[key];
    if (key in moves) next = now === null ? (moves[key] > 0 ? 0 : last) : now + moves[key];
    if (next === undefined || last < 0) return false;
    this.look(places[Math.max(0, Math.min(last, next))]);
    return true;
  }

  /** The crosshair at x, and what every visible series is there, or at the nearest place where it is known. */
  look(x) {
    this.at = x;
    this.marks.replaceChildren();
    const [, top, , bottom] = this.data.box;
    const middle = this.across(x);
    this.mark("line", { x1: middle, x2: middle, y1: top, y2: bottom });
    const sample = (part) => this.buttons.get(part).querySelector("svg");
    const lines = this.visible(this.data.series).map((series) => {
      const i = this.nearest(series, x);
      if (i === null) return [sample(series.part), series.name, "–"];
      this.ring(series, i);
      const band = series.lower && series.lower[i] !== null ? ` [${say(series.lower[i])}, ${say(series.upper[i])}]` : "";
      const elsewhere = series.x[i] === x ? "" : ` at ${say(series.x[i])}`;
      return [sample(series.part), series.name, say(series.y[i]) + band + elsewhere];
    });
    for (const level of this.visible(this.data.levels)) lines.push([sample(level.part), level.name, say(level.y)]);
    const heights = [...this.marks.querySelectorAll("circle")].map((circle) => circle.cy.baseVal.value);
    const isHigh = heights.filter((height) => height < (top + bottom) / 2).length > heights.length / 2;
    this.show(`${this.data.label}: ${say(x)}`, lines, [middle, middle], isHigh ? [null, bottom - 6] : [top, null]);
  }

  nearest(series, x) {
    const middle = this.across(x);
    let best = null;
    series.x.forEach((place, i) => {
      if (place === null || series.y[i] === null) return;
      if (best === null || Math.abs(this.across(place) - middle) < Math.abs(this.across(series.x[best]) - middle)) best = i;
    });
    return best;
  }

  ring(series, i) {
    const height = this.down(series.y[i]);
    if (!Number.isFinite(height)) return;
    this.mark("circle", { cx: this.across(series.x[i]), cy: height, r: 3, style: `stroke: ${series.colour}` });
  }
}

class Maps extends Plot {
  point(left, top) {
    const inside = this.data.grids.findIndex(({ box }) => left >= box[0] && left < box[2] && top >= box[1] && top < box[3]);
    if (inside < 0) {
      this.hide();
      return;
    }
    const { box, values } = this.data.grids[inside];
    const row = Math.floor(((top - box[1]) / (box[3] - box[1])) * values.length);
    this.look(inside, row, Math.floor(((left - box[0]) / (box[2] - box[0])) * values[0].length));
  }

  press(key) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (!(key in moves)) return false;
    const [grid, row, column] = this.tip.hidden ? [0, 0, 0] : this.at;
    const [down, right] = this.tip.hidden ? [0, 0] : moves[key];
    const { values } = this.data.grids[grid];
    const within = (place, count) => Math.max(0, Math.min(count - 1, place));
    this.look(grid, within(row + down, values.length), within(column + right, values[0].length));
    return true;
  }

  /** A frame around the cell in all grids, and what is in it. */
  look(grid, row, column) {
    this.at = [grid, row, column];
    this.marks.replaceChildren();
    const lines = [];
    let beside = null;
    this.data.grids.forEach(({ box, values, arrows, marks, title }, i) => {
      if (row >= values.length || column >= values[0].length) return;
      const [width, height] = [(box[2] - box[0]) / values[0].length, (box[3] - box[1]) / values.length];
      const [left, top] = [box[0] + column * width, box[1] + row * height];
      this.mark("rect", { x: left, y: top, width, height, class: "under" });
      this.mark("rect", { x: left, y: top, width, height });
      if (i === grid) beside = [[left, left + width], [top + height + 4, null]];
      lines.push([null, title, [say(values[row][column]), marks && marks[row][column], arrows && arrows[row][column]].filter(Boolean).join(" ")]);
    });
    this.show(`row ${row}, column ${column}`, lines, ...beside);
  }
}

for (const figure of document.querySelectorAll("figure.live")) {
  const data = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
  if (data.grids) new Maps(figure, data);
  else new Chart(figure, data);
}

/** Tables that are wider than the screen say so. */
const hint = () => {
  for (const part of document.querySelectorAll(".wide")) {
    const scrolls = part.querySelector(".scrolls");
    if (scrolls) scrolls.hidden = part.scrollWidth <= part.clientWidth + 1;
  }
};
addEventListener("resize", hint);
document.addEventListener("toggle", hint, true);
hint();

document.querySelector(".theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
