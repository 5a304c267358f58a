"use strict";
/* The timeline: uPlot draws the areas; ribbons, markers and the readout are drawn here. */
Headroom.BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
Headroom.RIBBON = 17;

Headroom.Timeline = class {
  constructor(view, section) {
    const told = view.timeline;
    this.view = view;
    this.section = section;
    this.box = section.querySelector(".chart");
    this.tip = section.querySelector(".tip");
    this.told = told;
    this.entries = Headroom.running(told.entries);
    this.times = Headroom.running(told.times);
    this.reserved = Headroom.running(told.reserved);
    this.layers = told.layers.map((layer, index) => ({
      ...layer, index, sizes: Headroom.running(layer.sizes),
    }));
    this.stack();
    this.by = "entries";
    this.colourBy = "stack";
    this.lit = null;
    this.at = null;
    this.ribbons = [["updates", told.updates], ["phases", told.phases]].filter((pair) => pair[1].length);
    this.timed = this.times.length && this.times[this.times.length - 1] > this.times[0];
    this.controls();
    this.legend();
    new ResizeObserver(() => this.fit()).observe(this.box);
  }

  /** Sums from the bottom up; `tops[k]` is the upper edge of layer k. */
  stack() {
    let below = this.entries.map(() => 0);
    this.tops = this.layers.map((layer) => (below = below.map((size, i) => size + layer.sizes[i])));
    this.totals = below;
  }

  xs() {
    if (this.by === "entries") return this.entries;
    const start = this.times[0];
    let last = -1;
    // uPlot wants rising values: entries of one microsecond are set apart by less than the eye sees.
    return this.times.map((time) => (last = Math.max((time - start) / 1e6, last + 1e-9)));
  }

  fit() {
    const width = this.box.clientWidth, height = this.box.clientHeight;
    if (!width) return;
    if (!this.plot) this.draw(width, height);
    else this.plot.setSize({ width, height });
  }

  rebuild() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.at = null;
    this.tip.hidden = true;
    this.section.querySelector(".reset").disabled = true;
    this.fit();
  }

  paint(layer) {
    const name = this.colourBy === "stack" ? layer.colour : Headroom.data.colours[layer.category] || "kx";
    const colour = Headroom.css(name);
    if (this.lit === null || this.lit === layer.index) return colour;
    return Headroom.mix(colour, Headroom.css("paper"), 0.62);
  }

  draw(width, height) {
    const stepped = uPlot.paths.stepped({ align: 1 });
    // From the top down: each area reaches to zero, and the next one covers its lower part.
    const order = [...this.layers].reverse();
    const areas = order.map((layer) => ({
      paths: stepped, width: 0, points: { show: false }, fill: () => this.paint(layer),
    }));
    const line = {
      paths: stepped, points: { show: false }, width: 1.25, dash: [5, 4], stroke: () => Headroom.css("soft"),
    };
    this.x = this.xs();
    const data = [this.x, ...order.map((layer) => this.tops[layer.index])];
    if (this.reserved.length) data.push(this.reserved);
    const narrow = width < 560;
    const axis = {
      stroke: () => Headroom.css("soft"), font: "12px system-ui, sans-serif", ticks: { show: false },
      grid: { stroke: () => Headroom.css("grid"), width: 1 },
    };
    this.plot = new uPlot({
      width, height, legend: { show: false },
      padding: [this.ribbons.length * Headroom.RIBBON + 18, 24, 0, 0],
      drawOrder: ["series", "axes"],
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(high, this.failureTop()) * 1.04 || 1] } },
      series: [{}, ...areas, ...(this.reserved.length ? [line] : [])],
      axes: [
        { ...axis, space: narrow ? 60 : 90, size: 28,
          values: (u, splits) => splits.map((value) => this.by === "entries" ? Headroom.number(value) : this.seconds(value)) },
        { ...axis, incrs: Headroom.BINARY, size: narrow ? 58 : 68, values: (u, splits) => splits.map(Headroom.axisBytes) },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 6, setScale: true } },
      hooks: {
        draw: [(u) => this.over(u)],
        setCursor: [(u) => this.moved(u)],
        setScale: [(u, key) => key === "x" && this.scaled(u)],
      },
    }, data, this.box);
    this.listen();
  }

  seconds(value) {
    if (value === 0) return "0 s";
    return value >= 1 ? value.toFixed(value < 10 ? 2 : 1) + " s" : (value * 1e3).toFixed(value < 0.01 ? 2 : 0) + " ms";
  }

  failureTop() {
    const failure = this.told.failure;
    return failure ? failure.request + this.failureFoot() : 0;
  }

  failureFoot() {
    const failure = this.told.failure;
    return failure.live === null ? this.totals[failure.index] : failure.live;
  }

  listen() {
    const over = this.plot.over;
    let pressed = null;
    over.addEventListener("mousedown", (event) => (pressed = [event.clientX, event.clientY]));
    over.addEventListener("click", (event) => {
      if (pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < 5) this.open();
    });
    over.addEventListener("mouseleave", () => this.leave());
  }

  leave() {
    this.at = null;
    this.tip.hidden = true;
    this.light(null);
  }

  scaled(u) {
    const { min, max } = u.scales.x;
    this.section.querySelector(".reset").disabled = min <= this.x[0] && max >= this.x[this.x.length - 1];
  }

  reset() {
    this.plot.setScale("x", { min: this.x[0], max: this.x[this.x.length - 1] });
  }

  zoom(factor) {
    const { min, max } = this.plot.scales.x;
    const middle = this.at ? this.x[this.at.point] : (min + max) / 2;
    const low = Math.max(middle - (middle - min) * factor, this.x[0]);
    const high = Math.min(middle + (max - middle) * factor, this.x[this.x.length - 1]);
    if (high > low) this.plot.setScale("x", { min: low, max: high });
  }

  /** The point whose step holds at a value of x: the last one at or before it. */
  pointAt(value) {
    let low = 0, high = this.x.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.x[middle] <= value) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  moved(u) {
    const { left, top } = u.cursor;
    if (left === undefined || left < 0) return;
    if (this.keyed) return;
    const point = this.pointAt(u.posToVal(left, "x"));
    const height = u.posToVal(top, "y");
    const layer = this.layers.findIndex((one, k) => one.sizes[point] > 0 && this.tops[k][point] >= height);
    this.show(point, layer < 0 || height < 0 ? null : layer, left, top);
  }

  show(point, layer, left, top) {
    this.at = { point, layer };
    this.light(layer);
    this.fill(point, layer);
    this.tip.hidden = false;
    const { over } = this.plot;
    const box = this.tip.getBoundingClientRect();
    const room = this.box.clientWidth;
    let x = over.offsetLeft + left + 16;
    if (x + box.width > room) x = over.offsetLeft + left - box.width - 16;
    x = Math.min(Math.max(x, 0), Math.max(room - box.width, 0));
    const y = Math.min(Math.max(over.offsetTop + top - box.height / 2, 0), this.box.clientHeight - box.height);
    this.tip.style.transform = "translate(" + Math.round(x) + "px," + Math.round(Math.max(y, 0)) + "px)";
  }

  fill(point, layer) {
    const { el } = Headroom;
    this.tip.replaceChildren();
    const total = this.totals[point];
    if (layer !== null) {
      const one = this.layers[layer], size = one.sizes[point];
      this.tip.append(el("b", "", one.label));
      this.tip.append(el("span", "big", Headroom.bytes(size)), " ",
        el("span", "dim", Headroom.percent(size, total) + (one.category ? " · " + one.category.replace(/_/g, " ") : "")));
      if (!Headroom.exact) this.tip.append(el("div", "dim", Headroom.exactly(size)));
    }
    const table = el("table");
    const rows = [["allocated", Headroom.bytes(total)]];
    if (this.reserved.length) rows.push(["reserved", Headroom.bytes(this.reserved[point])]);
    rows.push(["entry", this.entries[point] < 0 ? "before the first" : Headroom.number(this.entries[point])]);
    if (this.timed) rows.push(["time", this.seconds((this.times[point] - this.times[0]) / 1e6)]);
    for (const [name, spans] of this.ribbons) {
      const span = spans.find((one) => one[0] <= point && point <= one[1]);
      if (span) rows.push([name.slice(0, -1), span[2]]);
    }
    for (const [name, value] of rows) {
      const row = el("tr");
      row.append(el("td", "dim", name), el("td", "", value));
      table.append(row);
    }
    this.tip.append(table);
  }

  light(layer) {
    if (this.lit === layer) return;
    this.lit = layer;
    for (const button of this.section.querySelectorAll(".legend button")) {
      button.classList.toggle("on", layer !== null && Number(button.dataset.layer) === layer);
    }
    if (this.plot) this.plot.redraw(false);
  }

  open() {
    if (!this.at || this.at.layer === null) return;
    const stack = this.layers[this.at.layer].stack;
    const grey = this.layers[this.at.layer].colour;
    if (stack !== null && Headroom.openStack(Headroom.anchor(this.view, stack))) return;
    // What has no owner is told with the balance sheet; what is not live at the peak, with the paths.
    document.getElementById("d" + this.view.device + (grey === "kx" ? "-balance" : "-churn")).scrollIntoView();
  }

  key(event) {
    const at = this.at || { point: this.told.peak, layer: null };
    const last = this.x.length - 1, step = event.shiftKey ? Math.max(Math.round(last / 40), 1) : 1;
    const present = this.layers.filter((one) => one.sizes[at.point] > 0).map((one) => one.index);
    const place = present.indexOf(at.layer);
    const moves = {
      ArrowLeft: () => (at.point = Math.max(at.point - step, 0)),
      ArrowRight: () => (at.point = Math.min(at.point + step, last)),
      Home: () => (at.point = this.told.peak),
      ArrowUp: () => (at.layer = present[Math.min(place + 1, present.length - 1)] ?? null),
      ArrowDown: () => (at.layer = present[Math.max(place - 1, 0)] ?? null),
    };
    const others = {
      Enter: () => this.open(), "+": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.reset(), Escape: () => this.leave(),
    };
    const action = moves[event.key] || others[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
    if (moves[event.key]) this.point(at);
  }

  /** Show a point and layer that no mouse is at. */
  point(at) {
    const layer = at.layer, middle = layer === null ? this.totals[at.point] : this.tops[layer][at.point] - this.layers[layer].sizes[at.point] / 2;
    const left = this.plot.valToPos(this.x[at.point], "x"), top = this.plot.valToPos(middle, "y");
    this.keyed = true;
    this.plot.setCursor({ left, top });
    this.keyed = false;
    this.show(at.point, layer, left, top);
  }

  controls() {
    const choose = (selector, set) => {
      const group = this.section.querySelector(selector);
      if (group) Headroom.segments(group, (button) => set(button.dataset.by));
      return group;
    };
    const axis = choose(".axis-by", (by) => { this.by = by; this.rebuild(); });
    if (axis && !this.timed) axis.hidden = true;
    const colour = choose(".colour-by", (by) => { this.colourBy = by; this.legend(); this.plot.redraw(false); });
    if (colour && !this.layers.some((layer) => layer.category)) colour.hidden = true;
    this.section.querySelector(".reset").addEventListener("click", () => this.reset());
    this.box.addEventListener("keydown", (event) => this.plot && this.key(event));
    this.box.addEventListener("blur", () => this.leave());
  }

  legend() {
    const list = this.section.querySelector(".legend"), peak = this.told.peak;
    list.replaceChildren();
    const order = [...this.layers].sort((one, other) => other.sizes[peak] - one.sizes[peak]);
    for (const layer of order) {
      const button = Headroom.el("button");
      button.type = "button";
      button.dataset.layer = layer.index;
      button.title = layer.label + (layer.category ? " · " + layer.category.replace(/_/g, " ") : "");
      const colour = this.colourBy === "stack" ? layer.colour : Headroom.data.colours[layer.category] || "kx";
      button.append(Headroom.swatch(colour), Headroom.el("span", "label", layer.label), Headroom.size(layer.sizes[peak]));
      button.addEventListener("mouseenter", () => this.light(layer.index));
      button.addEventListener("mouseleave", () => this.light(null));
      button.addEventListener("click", () => { this.at = { point: peak, layer: layer.index }; this.open(); });
      list.append(button);
    }
  }

  /** What uPlot does not draw: ribbons of updates and phases, the peak, the refused request, the device's size. */
  over(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.font = Math.round(11 * ratio) + "px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    this.ribbons.forEach(([name, spans], row) => this.ribbon(u, name, spans, row, ratio));
    this.limit(u, ratio);
    this.mark(u, this.told.peak, this.totals[this.told.peak], "peak " + Headroom.bytes(this.totals[this.told.peak]), "ink", ratio);
    if (this.told.failure) this.refused(u, ratio);
    ctx.restore();
  }

  ribbon(u, name, spans, row, ratio) {
    const { ctx, bbox } = u, height = (Headroom.RIBBON - 3) * ratio, top = (row * Headroom.RIBBON + 1) * ratio;
    const fixed = { forward: "k0", backward: "k3", optimizer: "k4", evaluation: "k7" };
    spans.forEach(([first, last, told], number) => {
      const label = told.replace(/ \(inferred\)$/, "");
      const start = u.valToPos(this.x[first], "x", true);
      const end = u.valToPos(this.x[Math.min(last + 1, this.x.length - 1)], "x", true);
      const left = Math.max(start, bbox.left), right = Math.min(end, bbox.left + bbox.width);
      if (right - left < 0.5) return;
      const base = name === "updates" ? (number % 2 ? "line" : "hover") : fixed[label] || "kx";
      ctx.fillStyle = name === "updates" ? Headroom.mix(Headroom.css("soft"), Headroom.css("paper"), number % 2 ? 0.72 : 0.84)
        : Headroom.mix(Headroom.css(base), Headroom.css("paper"), 0.55);
      ctx.fillRect(left, top, Math.max(right - left - ratio, 1), height);
      const text = name === "updates" && /^\d+$/.test(label) ? "update " + label : label;
      const short = name === "updates" ? label : text;
      const fits = [text, short].find((one) => ctx.measureText(one).width + 10 * ratio < right - left);
      if (fits) {
        ctx.fillStyle = Headroom.css("ink");
        ctx.textAlign = "center";
        ctx.fillText(fits, (left + right) / 2, top + height / 2 + ratio / 2);
      }
    });
  }

  mark(u, point, size, text, colour, ratio) {
    const { ctx, bbox } = u, x = u.valToPos(this.x[point], "x", true), y = u.valToPos(size, "y", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
    ctx.strokeStyle = ctx.fillStyle = Headroom.css(colour);
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.arc(x, y, 3 * ratio, 0, 7);
    ctx.fill();
    const room = ctx.measureText(text).width + 6 * ratio, toLeft = x + room > bbox.left + bbox.width;
    ctx.textAlign = toLeft ? "right" : "left";
    this.text(ctx, text, x + (toLeft ? -5 : 5) * ratio, bbox.top - 8 * ratio, ratio);
  }

  refused(u, ratio) {
    const { ctx, bbox } = u, failure = this.told.failure, foot = this.failureFoot();
    const x = u.valToPos(this.x[failure.index], "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
    const low = u.valToPos(foot, "y", true), high = u.valToPos(foot + failure.request, "y", true);
    ctx.fillStyle = Headroom.css("bad");
    const left = Math.min(x - 4 * ratio, bbox.left + bbox.width - 8 * ratio);
    ctx.fillRect(left, high, 8 * ratio, Math.max(low - high, 2 * ratio));
    ctx.textAlign = x > bbox.left + bbox.width / 2 ? "right" : "left";
    const side = ctx.textAlign === "right" ? -6 : 14;
    this.text(ctx, "refused: " + Headroom.bytes(failure.request), left + side * ratio, (low + high) / 2, ratio);
  }

  /** Text that stays readable over lines and areas. */
  text(ctx, text, x, y, ratio) {
    ctx.strokeStyle = Headroom.css("paper");
    ctx.lineWidth = 3 * ratio;
    ctx.lineJoin = "round";
    ctx.strokeText(text, x, y);
    ctx.fillText(text, x, y);
  }

  limit(u, ratio) {
    const { ctx, bbox } = u, total = this.view.total;
    if (!total || total > u.scales.y.max) return;
    const y = u.valToPos(total, "y", true);
    ctx.strokeStyle = ctx.fillStyle = Headroom.css("bad");
    ctx.lineWidth = ratio;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.textAlign = "left";
    this.text(ctx, "device " + Headroom.bytes(total), bbox.left + 6 * ratio, y + 9 * ratio, ratio);
  }
};

Headroom.axisBytes = function (size) {
  if (!size) return "0";
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (size >= factor) return String(Math.round((size / factor) * 100) / 100) + " " + unit;
  }
  return size + " B";
};

/** Peak and live bytes of each update, where growth shows first. */
Headroom.updatesChart = function (view, box) {
  const columns = [0, 1, 2].map((place) => view.updates.map((row) => row[place]));
  const read = box.parentElement.querySelector(".read");
  const axis = {
    stroke: () => Headroom.css("soft"), font: "12px system-ui, sans-serif", ticks: { show: false },
    grid: { stroke: () => Headroom.css("grid"), width: 1 },
  };
  const line = (name) => ({
    stroke: () => Headroom.css(name), width: 2, points: { show: columns[0].length < 40, size: 6, fill: () => Headroom.css(name) },
  });
  const say = (u) => {
    const at = u.cursor.idx;
    read.textContent = at === null || at === undefined ? ""
      : "update " + columns[0][at] + ": peak " + Headroom.bytes(columns[1][at]) + ", then " + Headroom.bytes(columns[2][at]);
  };
  let plot = null;
  const draw = () => {
    if (!box.clientWidth) return;
    const size = { width: box.clientWidth, height: box.clientHeight };
    if (plot) { plot.setSize(size); return; }
    plot = new uPlot({
      ...size, padding: [10, 12, 0, 0], scales: { x: { time: false }, y: { range: (u, low, high) => [0, high * 1.06 || 1] } },
      series: [{}, line("k0"), line("k1")],
      axes: [{ ...axis, size: 28, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] },
        { ...axis, incrs: Headroom.BINARY, space: 34, size: 68, values: (u, splits) => splits.map(Headroom.axisBytes) }],
      cursor: { y: false, drag: { x: false, y: false } }, legend: { show: false }, hooks: { setCursor: [say] },
    }, columns, box);
  };
  new ResizeObserver(draw).observe(box);
  return { redraw: () => plot && plot.redraw(false) };
};
