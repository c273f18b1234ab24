// Small charts of the last hour, drawn as SVG from the samples that the master keeps.

import { element, number } from "./table.js";

const WIDTH = 360, HEIGHT = 72, HOUR_MS = 3600_000, LEAST_MS = 300_000;
const SHOWN = {
  writes_per_s: { title: "Transactions executed", unit: "/s" },
  reads_per_s: { title: "Reads passed on", unit: "/s" },
  lag_entries: { title: "Lag, transactions", unit: "" },
  lag_s: { title: "Lag, seconds", unit: " s" },
  incoming: { title: "Incoming, not ordered yet", unit: "" },
  open: { title: "Open transactions", unit: "" },
  in_doubt: { title: "In doubt", unit: "" },
};

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Pieces without gaps: a sample without a value, or a pause, interrupts the line.
function pieces(points, gapMs) {
  const found = [];
  let last = null;
  for (const [at, value] of points) {
    if (value === null) { last = null; continue; }
    if (last === null || at - last > gapMs) found.push([]);
    found[found.length - 1].push([at, value]);
    last = at;
  }
  return found;
}

export class Charts {
  constructor(id) {
    this.place = document.getElementById(id);
    this.figures = new Map();
  }

  draw(rates, nowMs) {
    // As wide as the samples, so that a newly started master shows more than a stroke.
    const span = rates.samples.length ? Math.min(HOUR_MS, Math.max(LEAST_MS, nowMs - rates.samples[0][1])) : HOUR_MS;
    rates.names.forEach((name, column) => {
      const about = SHOWN[name];
      if (!about) return;
      const points = rates.samples.map((sample) => [sample[1], sample[2 + column]]);
      this.figure(name, about).update(points, nowMs, span, 3000 * rates.every_s);
    });
  }

  figure(name, about) {
    if (!this.figures.has(name)) this.figures.set(name, new Figure(this.place, about));
    return this.figures.get(name);
  }
}

class Figure {
  constructor(place, about) {
    this.about = about;
    this.now = element("strong");
    this.most = element("span");
    this.svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    const caption = element("figcaption");
    caption.append(element("span", about.title), this.now);
    const scale = element("small");
    this.begin = element("span");
    scale.append(this.begin, this.most, element("span", "now"));
    const figure = element("figure");
    figure.append(caption, this.svg, scale);
    place.append(figure);
  }

  update(points, nowMs, spanMs, gapMs) {
    const values = points.map(([, value]) => value).filter((value) => value !== null);
    const most = Math.max(0, ...values);
    const last = points.length ? points[points.length - 1][1] : null;
    const unit = this.about.unit;
    this.now.textContent = last === null ? "–" : number(last) + unit;
    const minutes = Math.round(spanMs / 60_000);
    this.begin.textContent = minutes >= 60 ? "an hour ago" : `${minutes} min ago`;
    this.most.textContent = `most ${number(most)}${unit}`;
    this.svg.setAttribute("aria-label", `${this.about.title}: now ${last === null ? "not known" : number(last) + unit}, most ${number(most)}${unit} within the last ${minutes} minutes`);
    const x = (at) => Math.max(0, WIDTH - ((nowMs - at) / spanMs) * WIDTH).toFixed(1);
    const y = (value) => (HEIGHT - 2 - (most ? value / most : 0) * (HEIGHT - 8)).toFixed(1);
    const shapes = [drawn("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 })];
    for (const piece of pieces(points, gapMs)) {
      const line = piece.map(([at, value]) => `${x(at)},${y(value)}`).join(" ");
      shapes.push(drawn("polygon", { class: "area", points: `${x(piece[0][0])},${HEIGHT} ${line} ${x(piece[piece.length - 1][0])},${HEIGHT}` }));
      shapes.push(drawn("polyline", { class: "line", points: line }));
    }
    this.svg.replaceChildren(...shapes);
  }
}
