// The picture of the nodes, with rates on the arrows, and the charts. All text from the network is set as text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
// Up to these numbers, each pair of a ROS and an SFI has an arrow of its own.
const PAIR_ROSS = 8, PAIR_SFIS = 4, NARROW_PX = 150, NARROW_PAIRS = 6, LABEL_PX = 75;
// From these numbers on, nodes are lines, and then cells.
const COMPACT = 11, CELLS = 33;
const CHART_S = 600, CHART_GAP_S = 5;

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Three digits and a prefix: 1.23 kHz.
function si(value, unit) {
  if (!isNumber(value)) return "–";
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let i = 0;
  for (; Math.abs(value) >= 999.5 && i + 1 < prefixes.length; i++) value /= 1000;
  const digits = i === 0 && (Number.isInteger(value) || value < 0.005) ? String(Math.round(value)) : value.toPrecision(3);
  return `${digits}\u00a0${prefixes[i]}${unit}`.trim();
}

const count = (value) => (isNumber(value) ? String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f") : "–");

function percent(share) {
  if (!isNumber(share)) return "–";
  const value = 100 * share;
  return `${value === 0 || value >= 9.95 ? Math.round(value) : value < 0.1 ? "< 0.1" : value.toFixed(1)}\u00a0%`;
}

function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds < 120) return `${Math.round(seconds)}\u00a0s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)}\u00a0min` : `${Math.round(seconds / 3600)}\u00a0h`;
}

function microseconds(value) {
  if (!isNumber(value)) return "–";
  if (value < 999.5) return `${Number(value.toPrecision(3))}\u00a0µs`;
  return value < 999.5e3 ? `${(value / 1e3).toPrecision(3)}\u00a0ms` : `${(value / 1e6).toPrecision(3)}\u00a0s`;
}

// Twice the rate, twice the area.
const strokeOf = (rate, most) => (rate > 0 ? 1.2 + 3.8 * Math.sqrt(rate / most) : 1.2);

// A node's box. `view` is what viewOf() of page.js made of its state.
class NodeBox {
  constructor(parent) {
    this.box = make("div", "node");
    const head = make("div", "head");
    this.name = make("span", "name");
    this.state = make("span", "state");
    this.glyph = make("span");
    this.glyph.setAttribute("aria-hidden", "true");
    this.word = make("span", "word");
    this.state.append(this.glyph, " ", this.word);
    head.append(this.name, this.state);
    this.figures = make("div", "figures");
    this.first = make("span");
    this.more = make("span", "more");
    this.figures.append(this.first, this.more);
    this.fill = make("div", "fill");
    const bar = draw(this.fill, "svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" });
    draw(bar, "rect", { width: 100, height: 6, rx: 2 });
    this.part = draw(bar, "rect", { class: "part", width: 0, height: 6, rx: 2 });
    this.share = make("span");
    this.fill.append(make("span", "what", "buffer"), bar, this.share);
    this.why = make("div", "why");
    this.box.append(head, this.figures, this.fill, this.why);
    parent.append(this.box);
  }

  show(view) {
    this.box.className = `node ${view.kind}`;
    this.box.dataset.node = view.name;
    this.box.title = [view.name, view.word, view.why].filter(Boolean).join(": ");
    setText(this.name, view.name);
    this.state.className = `state ${view.kind === "gone" ? "bad" : view.kind}`;
    setText(this.glyph, view.glyph);
    setText(this.word, view.word);
    setText(this.first, view.figures[0] || "");
    setText(this.more, view.figures.slice(1).map((text) => ` · ${text}`).join(""));
    this.fill.hidden = !isNumber(view.buffer);
    if (isNumber(view.buffer)) {
      this.part.setAttribute("width", Math.min(100, Math.max(0, 100 * view.buffer)));
      this.part.setAttribute("class", view.buffer > 0.9 ? "part bad" : view.buffer > 0.7 ? "part warn" : "part");
      setText(this.share, percent(view.buffer));
    }
    setText(this.why, view.why || "");
    this.why.hidden = !view.why;
  }
}

class Picture {
  constructor() {
    this.root = document.getElementById("picture");
    this.svg = document.getElementById("arrows");
    this.parents = { dfm: document.getElementById("dfm"), ros: document.getElementById("left"), sfi: document.getElementById("right") };
    this.boxes = new Map();
    this.drawing = null;
    new ResizeObserver(() => this.drawArrows()).observe(this.root);
  }

  // views: of all nodes; pairs: rate by "ROS SFI", in bytes per second; rates: of the DFM, in hertz.
  show(views, pairs, rates) {
    const names = new Set(views.map((view) => view.role + " " + view.name));
    for (const [key, box] of this.boxes) {
      if (!names.has(key)) {
        box.box.remove();
        this.boxes.delete(key);
      }
    }
    for (const role of ["ros", "sfi"]) {
      const n = views.filter((view) => view.role === role).length;
      this.parents[role].className = `column${n >= CELLS ? " cells" : n >= COMPACT ? " compact" : ""}`;
    }
    const many = (role) => views.filter((view) => view.role === role).length >= CELLS;
    this.root.className = `picture${many("ros") ? (many("sfi") ? " wide-both" : " wide") : ""}`;
    for (const view of views) {
      const key = view.role + " " + view.name, parent = this.parents[view.role];
      if (!parent) continue;
      if (!this.boxes.has(key)) this.boxes.set(key, new NodeBox(parent));
      this.boxes.get(key).show(view);
    }
    this.drawing = { views, pairs, rates };
    this.drawArrows();
  }

  // The place of an element in the picture.
  place(element) {
    const own = this.root.getBoundingClientRect(), r = element.getBoundingClientRect();
    return { left: r.left - own.left, right: r.right - own.left, top: r.top - own.top, bottom: r.bottom - own.top, height: r.height,
      middle: (r.left + r.right) / 2 - own.left, y: (r.top + r.bottom) / 2 - own.top };
  }

  arrow(x1, y1, x2, y2, rate, most, title) {
    const idle = !(rate > 0), bend = (x2 - x1) / 2, width = strokeOf(rate, most), head = 5 + width * 0.8;
    const path = draw(this.svg, "path", { class: idle ? "flow idle" : "flow", "stroke-width": width.toFixed(1),
      d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - head - bend} ${y2} ${x2 - head} ${y2}` });
    if (title) draw(path, "title", {}, title);
    draw(this.svg, "path", { class: idle ? "head idle" : "head", d: `M${x2 - head - 1} ${y2 - head * 0.6}L${x2} ${y2}L${x2 - head - 1} ${y2 + head * 0.6}Z` });
  }

  label(x, y, text, anchor, soft) {
    draw(this.svg, "text", { x, y, "text-anchor": anchor || "start", class: soft ? "soft" : "rate" }, text);
  }

  drawArrows() {
    if (!this.drawing || !this.root.offsetParent) return;
    const { views, pairs, rates } = this.drawing;
    const of = (role) => views.filter((view) => view.role === role).map((view) => ({ view, at: this.place(this.boxes.get(role + " " + view.name).box) }));
    const ros = of("ros"), sfi = of("sfi");
    this.svg.replaceChildren();
    this.drawMessages(rates);
    if (ros.length === 0 || sfi.length === 0) return;
    // On a narrow screen, many arrows would hide each other.
    const narrow = sfi[0].at.left - ros[0].at.right < NARROW_PX && ros.length * sfi.length > NARROW_PAIRS;
    if (ros.length <= PAIR_ROSS && sfi.length <= PAIR_SFIS && pairs.size > 0 && !narrow) this.drawPairs(ros, sfi, pairs);
    else this.drawBus(ros, sfi);
  }

  drawPairs(ros, sfi, pairs) {
    const most = Math.max(1, ...pairs.values());
    ros.forEach((from, i) => sfi.forEach((to, k) => {
      const rate = pairs.get(from.view.name + " " + to.view.name);
      const y1 = from.at.top + from.at.height * (k + 1) / (sfi.length + 1), y2 = to.at.top + to.at.height * (i + 1) / (ros.length + 1);
      this.arrow(from.at.right, y1, to.at.left, y2, rate, most, `${from.view.name} to ${to.view.name}`);
    }));
    // Above all arrows.
    ros.forEach((from) => sfi.forEach((to, k) => {
      const y1 = from.at.top + from.at.height * (k + 1) / (sfi.length + 1);
      const rate = pairs.get(from.view.name + " " + to.view.name);
      this.label(from.at.right + 7, y1 - 3 - strokeOf(rate, most) / 2, si(rate, "B/s"));
    }));
  }

  // All traffic passes a bar in the middle, the network.
  drawBus(ros, sfi) {
    const left = this.place(this.parents.ros), right = this.place(this.parents.sfi), x = (left.right + right.left) / 2;
    const top = Math.min(left.top, right.top), bottom = Math.max(left.bottom, right.bottom), half = right.left - left.right < 100 ? 4 : 7;
    const most = Math.max(1, ...ros.map((n) => n.view.bytes || 0), ...sfi.map((n) => n.view.bytes || 0));
    const sum = (nodes) => nodes.reduce((total, n) => total + (n.view.bytes || 0), 0);
    draw(this.svg, "rect", { class: "bus", x: x - half, y: top, width: 2 * half, height: bottom - top, rx: half });
    const side = (nodes, block, x1, x2, edge, single) => {
      if (!single) {
        const total = sum(nodes);
        this.arrow(x1, block.y, x2, block.y, total, total || 1, "all");
        this.label((x1 + x2) / 2, block.y - 10, si(total, "B/s"), "middle");
        return;
      }
      for (const n of nodes) this.arrow(edge === "from" ? n.at.right : x1, n.at.y, edge === "from" ? x2 : n.at.left, n.at.y, n.view.bytes, most, n.view.name);
      // The boxes have the rates too.
      if (x2 - x1 < LABEL_PX) return;
      for (const n of nodes) this.label(edge === "from" ? n.at.right + 7 : x1 + 7, n.at.y - 4, si(n.view.bytes, "B/s"));
    };
    side(ros, left, left.right, x - half, "from", ros.length < CELLS);
    side(sfi, right, x + half, right.left, "to", sfi.length < CELLS);
  }

  drawMessages(rates) {
    const dfm = this.place(this.parents.dfm.firstElementChild || this.parents.dfm), left = this.place(this.parents.ros), right = this.place(this.parents.sfi);
    const line = (column, edge) => {
      const beside = column.middle < dfm.left || column.middle > dfm.right;
      draw(this.svg, "path", { class: "message", "stroke-width": 1.5, d: beside ? `M${edge} ${dfm.y}H${column.middle}V${column.top}` : `M${column.middle} ${dfm.bottom}V${column.top}` });
      return column.top - 9;
    };
    const y1 = line(left, dfm.left), y2 = line(right, dfm.right);
    if (!rates) return;
    this.label(left.middle + 6, y1, rates.push ? `assigns ${si(rates.triggers, "Hz")}` : "clears", "start", true);
    this.label(right.middle - 6, y2, `${rates.push ? "" : `assigns ${si(rates.triggers, "Hz")}, `}built ${si(rates.events, "Hz")}`, "end", true);
  }
}

class Chart {
  constructor(parent, title, column, format, full) {
    Object.assign(this, { title, column, format, full });
    const box = make("div", "chart"), head = make("h3");
    this.now = make("b");
    head.append(make("span", "", title), this.now);
    this.svg = draw(box, "svg", { viewBox: "0 0 600 120", preserveAspectRatio: "none", role: "img" });
    this.frame = make("div", "muted axis");
    box.prepend(head);
    box.append(this.frame);
    parent.append(box);
    this.left = make("span");
    this.most = make("span");
    this.frame.append(this.left, this.most, make("span", "", "now"));
  }

  // samples: [time, triggers, events, bytes, busy share], the oldest first.
  show(samples) {
    const last = samples.length ? samples[samples.length - 1] : null, values = samples.map((sample) => sample[this.column]);
    const most = Math.max(...values, 0), top = this.full || (most > 0 ? most * 1.1 : 1);
    // Whole minutes, ten at most.
    const span = Math.min(CHART_S, Math.max(60, last ? 60 * Math.ceil((last[0] - samples[0][0]) / 60) : 0));
    const now = last ? this.format(last[this.column]) : "–", x = (sample) => (600 * (1 - (last[0] - sample[0]) / span)).toFixed(1);
    const y = (sample) => (118 - 112 * Math.min(1, sample[this.column] / top)).toFixed(1);
    let line = "", area = "", begin = null, previous = null;
    const close = () => { if (begin) area += `L${x(previous)} 118L${x(begin)} 118Z`; };
    for (const sample of samples) {
      const gap = !previous || sample[0] - previous[0] > CHART_GAP_S;
      if (gap) {
        close();
        begin = sample;
      }
      line += `${gap ? "M" : "L"}${x(sample)} ${y(sample)}`;
      area += `${gap ? "M" : "L"}${x(sample)} ${y(sample)}`;
      previous = sample;
    }
    close();
    this.svg.replaceChildren();
    this.svg.setAttribute("aria-label", `${this.title}: now ${now}, at most ${this.format(most)} in the last ${span / 60} min`);
    draw(this.svg, "line", { x1: 0, x2: 600, y1: 118, y2: 118, "vector-effect": "non-scaling-stroke" });
    draw(this.svg, "line", { x1: 0, x2: 600, y1: 6, y2: 6, "vector-effect": "non-scaling-stroke", "stroke-dasharray": "3 4" });
    draw(this.svg, "path", { class: "area", d: area });
    draw(this.svg, "path", { class: "line", d: line });
    setText(this.now, now);
    setText(this.left, `${span / 60} min ago`);
    setText(this.most, `top line: ${this.format(top)}`);
  }
}
