"use strict";
/* Puts the parts in motion. Without it the page still shows every number but the charts and the details of stacks. */
Headroom.tables = new Map();
Headroom.charts = [];

Headroom.segments = function (group, chosen) {
  const buttons = [...group.querySelectorAll("button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      chosen(button);
    });
  }
};

Headroom.showDevice = function (id) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const own = tab.getAttribute("aria-controls") === id;
    tab.setAttribute("aria-selected", String(own));
    tab.tabIndex = own ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !own;
  }
  Headroom.follow();
};

Headroom.tabs = function () {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => { Headroom.showDevice(tab.getAttribute("aria-controls")); scrollTo(0, 0); });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  });
  if (tabs.length) Headroom.showDevice(tabs[0].getAttribute("aria-controls"));
};

Headroom.composition = function (section) {
  const parts = [...section.querySelectorAll(".parts")], group = section.querySelector(".seg");
  const show = (number) => parts.forEach((part) => (part.hidden = part.dataset.part !== number));
  if (group) Headroom.segments(group, (button) => show(button.dataset.show));
  show("0");
};

Headroom.exactToggle = function () {
  const button = document.getElementById("exact");
  button.addEventListener("click", () => {
    Headroom.exact = !Headroom.exact;
    button.setAttribute("aria-pressed", String(Headroom.exact));
    for (const node of document.querySelectorAll(".b")) {
      const text = node.textContent;
      node.textContent = node.title;
      node.title = text;
    }
    Headroom.repaint();
  });
};

Headroom.repaint = function () {
  for (const chart of Headroom.charts) chart.redraw();
};

/** Marks the section being read in the side navigation. */
Headroom.follow = function () {
  for (const nav of document.querySelectorAll(".side")) {
    if (!nav.offsetParent && getComputedStyle(nav).display === "none") continue;
    let current = null;
    for (const link of nav.querySelectorAll("a")) {
      link.removeAttribute("aria-current");
      const target = document.getElementById(link.hash.slice(1));
      if (target && target.getBoundingClientRect().top < innerHeight * 0.35) current = link;
    }
    if (scrollY < 40) current = nav.querySelector("a");
    if (current) current.setAttribute("aria-current", "true");
  }
};

Headroom.print = function (on) {
  document.documentElement.classList.toggle("print", on);
  Headroom.repaint();
};

Headroom.start = function () {
  document.documentElement.classList.add("js-on");
  for (const view of Headroom.data.views) {
    const id = "d" + view.device, at = (name) => document.getElementById(id + "-" + name);
    Headroom.tables.set(id, new Headroom.StackTable(view, at("stacks")));
    Headroom.composition(at("composition"));
    if (view.timeline) {
      const chart = new Headroom.Timeline(view, at("timeline"));
      Headroom.charts.push({ redraw: () => chart.plot && chart.plot.redraw(false) });
    }
    const updates = at("growth").querySelector(".updates");
    if (updates) Headroom.charts.push(Headroom.updatesChart(view, updates));
  }
  Headroom.tabs();
  Headroom.exactToggle();
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.to-stack");
    if (link && Headroom.openStack(link.hash.slice(1))) event.preventDefault();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", Headroom.repaint);
  addEventListener("beforeprint", () => Headroom.print(true));
  addEventListener("afterprint", () => Headroom.print(false));
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; Headroom.follow(); });
  }, { passive: true });
  Headroom.follow();
};
Headroom.start();
