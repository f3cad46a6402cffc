/* Interactive charts from the data of a figure: axes, marks, tooltips, legends. No library, no network. */
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const LEAST_PANEL = 300; // pixels; narrower panels go below each other

function element(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function html(name, className, parent, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

/* ---------------------------------------------------------------- numbers */

function said(value, digits, log) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const exponent = Math.floor(Math.log10(Math.abs(value)) + 1e-9);
  if (exponent >= (log ? -3 : -4) && exponent < (log ? 4 : 6)) {
    return String(Number(value.toPrecision(digits))).replace("-", "−");
  }
  const mantissa = String(Number((value / 10 ** exponent).toPrecision(digits))).replace("-", "−");
  const power = "10" + [...String(exponent)].map((each) => SUPERSCRIPT[each]).join("");
  return mantissa === "1" ? power : mantissa + "·" + power;
}

function linearTicks(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999) || 10 * power;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= high / step + 1e-9 && ticks.length < 50; k++) ticks.push(k * step);
  return ticks;
}

function logTicks(low, high, most) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, most)));
  const ticks = [];
  for (let k = first; k <= last; k += stride) ticks.push(10 ** k);
  if (last - first < 2) {
    for (let k = first - 1; k <= last; k++) {
      for (const factor of [2, 5]) {
        const tick = factor * 10 ** k;
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    }
    if (ticks.length < 2) return linearTicks(low, high, 4).filter((each) => each > 0);
  }
  return ticks.sort((a, b) => a - b);
}

function scale(range, log, from, to) {
  const place = (value) => (log ? Math.log10(value) : value);
  const low = place(range[0]);
  const high = place(range[1]);
  const at = (value, offset) => from + ((place(value) + (offset || 0) - low) / (high - low)) * (to - from);
  at.step = Math.abs(to - from) / (high - low); // pixels of one unit of the axis, or of a decade
  return at;
}

/* ---------------------------------------------------------------- one panel */

const MARKERS = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0,${-1.2 * r}L${1.2 * r},${r}H${-1.2 * r}z`,
  (r) => `M0,${-1.35 * r}L${1.35 * r},0L0,${1.35 * r}L${-1.35 * r},0z`,
  (r) => `M0,${1.2 * r}L${1.2 * r},${-r}H${-1.2 * r}z`,
  (r) => `M${-r / 2},${-1.3 * r}h${r}v${0.8 * r}h${0.8 * r}v${r}h${-0.8 * r}v${0.8 * r}h${-r}v${-0.8 * r}h${-0.8 * r}v${-r}h${0.8 * r}z`,
  (r) => `M${-r},${-r}L${r},${r}M${r},${-r}L${-r},${r}`,
];

function marker(parent, series, x, y, r) {
  return element("path", {
    d: MARKERS[series.marker](r || 3.2),
    transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
    class: `marker c${series.colour}` + (series.dashed && series.kind === "points" ? " hollow" : ""),
  }, parent);
}

class PanelView {
  constructor(figure, data, parent) {
    this.figure = figure;
    this.data = data;
    this.node = html("div", "panel", parent);
    if (data.title) html("p", "panel-title", this.node, data.title);
    html("p", "axis-label", this.node, data.yLabel);
    this.plot = html("div", "plot", this.node);
    this.svg = element("svg", { tabindex: 0, role: "img", "aria-label": this.label() }, this.plot);
    this.tip = html("div", "tip", this.plot);
    this.tip.setAttribute("role", "status");
    this.tip.hidden = true;
    html("p", "axis-label x", this.node, data.xLabel);
    this.listen();
  }

  label() {
    const names = [...new Set(this.data.series.map((each) => each.label))].join(", ");
    const title = this.data.title ? this.data.title + ": " : "";
    return `${title}${this.data.yLabel} against ${this.data.xLabel}; ${names}. Arrow keys read the points.`;
  }

  draw(width) {
    const data = this.data;
    this.tip.hidden = true;
    this.svg.replaceChildren();
    const shown = data.series.filter((each) => !this.figure.hidden.has(each.key));
    const height = Math.round(Math.max(190, Math.min(330, width * 0.62)));
    const fits = Math.max(2, Math.floor(height / 42));
    const yTicks = data.yLog ? logTicks(...data.yRange, fits) : linearTicks(...data.yRange, fits);
    const longest = Math.max(1, ...yTicks.map((each) => said(each, 6, data.yLog).length));
    const left = Math.min(72, 14 + 7 * longest);
    const names = data.categories;
    const room = (width - left - 12) / Math.max(1, names ? names.length : 1);
    const turned = names && Math.max(...names.map((each) => each.length)) * 6.6 > room - 4;
    const below = turned ? Math.min(110, 22 + 3.4 * Math.max(...names.map((each) => Math.min(22, each.length)))) : 24;
    const full = height + (turned ? below - 24 : 0);
    this.box = { left, right: width - 12, top: 8, bottom: full - below, width, height: full };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${full}`);
    this.x = scale(data.xRange, data.xLog, this.box.left, this.box.right);
    this.y = scale(data.yRange, data.yLog, this.box.bottom, this.box.top);
    const any = data.series.some((each) => each.y.some((y, index) => y !== null && each.x[index] !== null));
    if (any) this.drawAxes(yTicks, turned);
    const clip = `clip-${PanelView.count++}`;
    const area = element("clipPath", { id: clip }, this.svg);
    element("rect", { x: left - 4, y: 2, width: width - left - 4, height: this.box.bottom + 1 }, area);
    const marks = element("g", { "clip-path": `url(#${clip})` }, this.svg);
    this.points = [];
    for (const kind of ["bars", "steps", "line", "points"]) {
      for (const series of shown) if (series.kind === kind) this.drawSeries(marks, series);
    }
    this.drawRules();
    this.focus = element("circle", { r: 6, class: "focus", visibility: "hidden" }, this.svg);
    if (!this.points.length) {
      const middle = { x: (left + this.box.right) / 2, y: (this.box.top + this.box.bottom) / 2, class: "none" };
      element("text", middle, this.svg, any && !shown.length ? "every series is hidden" : "no data");
    }
  }

  drawAxes(yTicks, turned) {
    const { left, right, top, bottom } = this.box;
    const data = this.data;
    for (const tick of yTicks) {
      const y = this.y(tick);
      element("line", { x1: left, x2: right, y1: y, y2: y, class: "grid" }, this.svg);
      element("text", { x: left - 7, y: y + 4, class: "tick end" }, this.svg, said(tick, 6, data.yLog));
    }
    element("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }, this.svg);
    if (data.categories) {
      data.categories.forEach((name, index) => {
        const x = this.x(index);
        const text = name.length > 24 ? name.slice(0, 23) + "…" : name;
        const place = turned
          ? { transform: `translate(${x + 4},${bottom + 14}) rotate(-32)`, class: "tick end" }
          : { x, y: bottom + 17, class: "tick middle" };
        element("text", place, this.svg, text);
      });
      return;
    }
    const fits = Math.max(2, Math.floor((right - left) / 64));
    const ticks = data.xLog ? logTicks(...data.xRange, fits) : linearTicks(...data.xRange, fits);
    for (const tick of ticks) {
      const x = this.x(tick);
      element("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, class: "axis" }, this.svg);
      if (data.xLog || x > left + 1) element("line", { x1: x, x2: x, y1: top, y2: bottom, class: "grid" }, this.svg);
      element("text", { x, y: bottom + 17, class: "tick middle" }, this.svg, said(tick, 6, data.xLog));
    }
  }

  drawRules() {
    const { left, right, top, bottom } = this.box;
    this.data.rules.forEach((rule, index) => {
      const at = rule.axis === "x" ? this.x(rule.value) : this.y(rule.value);
      if (rule.axis === "x" ? at < left - 1 || at > right + 1 : at < top - 1 || at > bottom + 1) return;
      const line = rule.axis === "x" ? { x1: at, x2: at, y1: top, y2: bottom } : { x1: left, x2: right, y1: at, y2: at };
      element("line", { ...line, class: "rule" }, this.svg);
      const flipped = at > left + 0.6 * (right - left);
      const place = rule.axis === "x"
        ? { x: at + (flipped ? -5 : 5), y: top + 9 + 13 * index, class: "rule-label " + (flipped ? "end" : "start") }
        : { x: right, y: at < top + 16 ? at + 13 : at - 5, class: "rule-label end" };
      element("text", place, this.svg, rule.label);
    });
  }

  /* Where the points of a series stand, in stretches without a gap. */
  stretches(series) {
    const found = [[]];
    series.x.forEach((x, index) => {
      const y = series.y[index];
      if (x === null || y === null) return found.push([]);
      const low = series.low ? series.low[index] : null;
      const high = series.high ? series.high[index] : null;
      const whole = low !== null && high !== null && !(this.data.yLog && high <= 0);
      const bottom = this.data.yLog && low <= 0 ? this.box.bottom : whole ? this.y(low) : 0;
      const point = { series, index, px: this.x(x, series.offset), py: this.y(y), whole, low: bottom };
      point.high = whole ? this.y(high) : 0;
      found[found.length - 1].push(point);
      if (point.px >= this.box.left - 4 && point.px <= this.box.right + 4) this.points.push(point);
    });
    return found.filter((each) => each.length);
  }

  drawSeries(parent, series) {
    const group = element("g", { class: `series c${series.colour}` + (series.dashed ? " dashed" : "") }, parent);
    for (const stretch of this.stretches(series)) {
      if (series.kind === "bars") this.drawBars(group, series, stretch);
      else if (series.kind === "steps") this.drawSteps(group, stretch);
      else if (series.kind === "line") this.drawLine(group, series, stretch);
      if (series.kind !== "line") {
        const plain = series.kind === "points" ? "whisker" : "whisker ink";
        for (const p of stretch) {
          if (p.whole) element("line", { x1: p.px, x2: p.px, y1: p.low, y2: p.high, class: plain }, group);
        }
      }
      if (series.kind === "points" || (series.kind === "line" && (series.marked || stretch.length === 1))) {
        for (const p of stretch) marker(group, series, p.px, p.py);
      }
    }
  }

  drawBars(group, series, stretch) {
    const width = Math.max(1, series.width * this.x.step - (series.width * this.x.step > 6 ? 1 : 0));
    const base = this.data.yLog ? this.box.bottom : this.y(0);
    for (const p of stretch) {
      const top = Math.min(p.py, base);
      const place = { x: (p.px - width / 2).toFixed(2), y: top.toFixed(2), width: width.toFixed(2) };
      element("rect", { ...place, height: Math.abs(base - p.py).toFixed(2), class: "bar" }, group);
    }
  }

  drawSteps(group, stretch) {
    const at = stretch.map((each) => each.px);
    const middles = at.slice(1).map((x, index) => (x + at[index]) / 2);
    const half = this.x.step * (this.data.xLog ? 0.1 : 0.5);
    const first = middles.length ? 2 * at[0] - middles[0] : at[0] - half;
    const last = middles.length ? 2 * at[at.length - 1] - middles[middles.length - 1] : at[0] + half;
    const edges = [first, ...middles, last];
    let path = `M${edges[0].toFixed(1)},${stretch[0].py.toFixed(1)}`;
    stretch.forEach((p, index) => (path += `V${p.py.toFixed(1)}H${edges[index + 1].toFixed(1)}`));
    element("path", { d: path, class: "line" }, group);
  }

  drawLine(group, series, stretch) {
    const corner = (x, y) => `${x.toFixed(1)},${y.toFixed(1)}`;
    let band = [];
    const flush = () => {
      if (band.length > 1) {
        const ends = [...band.map((p) => corner(p.px, p.high)), ...band.reverse().map((p) => corner(p.px, p.low))];
        element("path", { d: `M${ends.join("L")}Z`, class: "band" }, group);
      }
      band = [];
    };
    for (const p of stretch) p.whole ? band.push(p) : flush();
    flush();
    element("path", { d: "M" + stretch.map((p) => corner(p.px, p.py)).join("L"), class: "line" }, group);
  }

  /* -------------------------------------------------------------- reading points */

  listen() {
    const place = (event) => {
      const frame = this.svg.getBoundingClientRect();
      const ratio = this.box.width / frame.width; // the picture is scaled where the page is printed or zoomed
      this.show(this.nearest((event.clientX - frame.left) * ratio, (event.clientY - frame.top) * ratio));
    };
    this.svg.addEventListener("pointermove", place);
    this.svg.addEventListener("pointerdown", place);
    this.svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.show(null));
    this.svg.addEventListener("blur", () => this.show(null));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "next", ArrowUp: "previous", Escape: 0 }[event.key];
      if (step === undefined || !this.points || !this.points.length) return;
      event.preventDefault();
      this.show(step === 0 ? null : this.neighbour(step));
    });
  }

  nearest(x, y) {
    let best = null;
    let least = Infinity;
    for (const p of this.points || []) {
      const across = Math.abs(p.px - x);
      const inside = p.series.kind === "bars" && y >= p.py - 2;
      const distance = across ** 2 + (inside ? 0 : (0.6 * (p.py - y)) ** 2);
      if (distance < least) [best, least] = [p, distance];
    }
    return least < 90 ** 2 ? best : null;
  }

  neighbour(step) {
    if (!this.current || !this.points.includes(this.current)) return this.points[0];
    if (typeof step === "number") {
      const own = this.points.filter((p) => p.series === this.current.series).sort((a, b) => a.px - b.px);
      return own[Math.max(0, Math.min(own.length - 1, own.indexOf(this.current) + step))];
    }
    const all = [...new Set(this.points.map((p) => p.series))];
    const next = all[(all.indexOf(this.current.series) + (step === "next" ? 1 : all.length - 1)) % all.length];
    const near = this.points.filter((p) => p.series === next);
    return near.reduce((a, b) => (Math.abs(b.px - this.current.px) < Math.abs(a.px - this.current.px) ? b : a));
  }

  show(point) {
    this.current = point;
    this.tip.hidden = !point;
    if (this.focus) this.focus.setAttribute("visibility", point ? "visible" : "hidden");
    if (!point) return;
    const { series, index } = point;
    this.focus.setAttribute("cx", point.px);
    this.focus.setAttribute("cy", Math.max(this.box.top, Math.min(this.box.bottom, point.py)));
    this.focus.setAttribute("class", `focus c${series.colour}`);
    this.tip.replaceChildren();
    if (series.label) html("b", `swatch c${series.colour}`, this.tip, series.label);
    const x = series.x[index];
    const name = this.data.categories && this.data.categories[x];
    html("div", "", this.tip, `${this.data.xLabel}: ${name === undefined || name === null ? said(x, 5) : name}`);
    let value = `${this.data.yLabel}: ${said(series.y[index], 5)}`;
    if (series.low && series.low[index] !== null && series.high[index] !== null) {
      value += ` [${said(series.low[index], 4)}, ${said(series.high[index], 4)}]`;
    }
    html("div", "", this.tip, value);
    if (series.hover && series.hover[index]) html("div", "more", this.tip, series.hover[index]);
    const frame = this.svg.getBoundingClientRect();
    const ratio = frame.width / this.box.width;
    const half = this.tip.offsetWidth / 2;
    const middle = Math.max(half, Math.min(frame.width - half, point.px * ratio));
    const above = point.py * ratio > this.tip.offsetHeight + 16;
    this.tip.style.left = `${middle}px`;
    this.tip.style.top = `${point.py * ratio + (above ? -this.tip.offsetHeight - 12 : 14)}px`;
  }
}
PanelView.count = 0;

/* ---------------------------------------------------------------- a figure */

class FigureView {
  constructor(node) {
    this.data = JSON.parse(node.querySelector("script[type='application/json']").textContent);
    this.hidden = new Set();
    this.stage = html("div", "stage");
    if (this.data.legend.length > 1) this.drawLegend(html("div", "legend", this.stage));
    this.grid = html("div", "grid-of-panels", this.stage);
    this.panels = this.data.panels.map((each) => new PanelView(this, each, this.grid));
    node.querySelector(".static").before(this.stage);
    this.width = 0;
    this.draw(true);
    node.classList.add("live");
    new ResizeObserver(() => this.draw(false)).observe(this.stage);
  }

  drawLegend(parent) {
    parent.setAttribute("role", "group");
    parent.setAttribute("aria-label", "Series; press to hide or show");
    for (const series of this.data.legend) {
      const button = html("button", "", parent);
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      const key = element("svg", { viewBox: "0 0 26 12", class: "key", "aria-hidden": "true" }, button);
      const group = element("g", { class: `series c${series.colour}` + (series.dashed ? " dashed" : "") }, key);
      if (series.kind === "bars") element("rect", { x: 8, y: 1, width: 10, height: 10, class: "bar" }, group);
      if (series.kind === "line" || series.kind === "steps") element("path", { d: "M1,6H25", class: "line" }, group);
      if (series.kind === "line" || series.kind === "points") marker(group, series, 13, 6);
      html("span", "", button, series.label);
      button.addEventListener("click", () => {
        const visible = this.hidden.delete(series.key);
        if (!visible) this.hidden.add(series.key);
        button.setAttribute("aria-pressed", String(visible));
        this.draw(true);
      });
    }
  }

  draw(anew) {
    const width = Math.floor(this.stage.clientWidth);
    if (!width || (!anew && width === this.width)) return;
    this.width = width;
    const gap = 28;
    const columns = Math.max(1, Math.min(this.data.columns, Math.floor((width + gap) / (LEAST_PANEL + gap))));
    this.grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    const each = Math.floor((width - gap * (columns - 1)) / columns);
    for (const panel of this.panels) panel.draw(each);
  }
}

/* A figure that cannot be drawn keeps its static picture. */
for (const node of document.querySelectorAll("figure.chart")) {
  try {
    new FigureView(node);
  } catch (error) {
    node.querySelectorAll(".stage").forEach((stage) => stage.remove());
    console.error(error);
  }
}
