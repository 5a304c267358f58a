"use strict";
/* Shared by the other scripts. Every text reaches the page through textContent. */
const Headroom = { data: JSON.parse(document.getElementById("data").textContent), exact: false };

Headroom.bytes = function (size) {
  if (Headroom.exact) return Headroom.exactly(size);
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (Math.abs(size) >= factor) return (size / factor).toFixed(2) + " " + unit;
  }
  return size + " B";
};
Headroom.exactly = (size) => Headroom.number(size) + " bytes";
Headroom.number = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
Headroom.count = (number, noun) => Headroom.number(number) + " " + noun + (number === 1 ? "" : "s");
Headroom.percent = function (part, whole) {
  const share = whole ? (100 * part) / whole : 0;
  return !share ? "0 %" : share >= 0.95 ? share.toFixed(0) + " %" : "<1 %";
};

Headroom.el = function (tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
Headroom.size = function (size) {
  const node = Headroom.el("span", "b", Headroom.bytes(size));
  node.title = Headroom.exact ? Headroom.short(size) : Headroom.exactly(size);
  return node;
};
Headroom.short = function (size) {
  const was = Headroom.exact;
  Headroom.exact = false;
  const text = Headroom.bytes(size);
  Headroom.exact = was;
  return text;
};
Headroom.swatch = function (colour) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  svg.setAttribute("class", "sw");
  svg.setAttribute("viewBox", "0 0 10 10");
  svg.setAttribute("aria-hidden", "true");
  rect.setAttribute("class", colour);
  for (const [name, value] of [["width", 10], ["height", 10], ["rx", 2]]) rect.setAttribute(name, value);
  svg.append(rect);
  return svg;
};
Headroom.css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
Headroom.mix = function (one, other, part) {
  const parts = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
  const from = parts(one), to = parts(other);
  return "rgb(" + from.map((value, index) => Math.round(value + (to[index] - value) * part)).join(",") + ")";
};
Headroom.running = function (steps) {
  let total = 0;
  return steps.map((step) => (total += step));
};
Headroom.anchor = (view, stack) => "d" + view.device + "-" + stack;
