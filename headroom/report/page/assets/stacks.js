"use strict";
/* The table of stacks: sort, filter, open. */
Headroom.StackTable = class {
  constructor(view, section) {
    this.view = view;
    this.table = section.querySelector(".rows");
    this.found = section.querySelector(".found");
    if (!this.table) return;
    this.body = this.table.tBodies[0];
    this.rows = [...this.body.rows];
    this.table.querySelectorAll("th button").forEach((button) => {
      button.addEventListener("click", () => this.sort(button.parentElement));
    });
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr.stack");
      if (row && !String(getSelection())) this.toggle(row);
    });
    const input = section.querySelector(".filter input");
    input.addEventListener("input", () => this.filter(input.value));
    this.input = input;
    this.texts = this.rows.map((row) => (row.textContent + " " + row.querySelector(".open").title + " " + this.searchable(row)).toLowerCase());
  }

  searchable(row) {
    const told = this.view.stacks[row.dataset.stack];
    return told.user.map((number) => this.view.frames[number].join(" ")).join(" ");
  }

  sort(head) {
    const column = [...head.parentElement.cells].indexOf(head);
    const numeric = head.classList.contains("num");
    const rising = head.ariaSort === "descending" || (head.ariaSort === "none" && !numeric);
    for (const other of head.parentElement.cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const value = (row) => (numeric ? Number(row.cells[column].dataset.v) : row.cells[column].dataset.v);
    const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b);
    const order = [...this.rows].sort((a, b) => (rising ? 1 : -1) * compare(value(a), value(b)));
    for (const row of order) {
      const more = this.moreOf(row);
      this.body.append(row);
      if (more) this.body.append(more);
    }
  }

  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0, size = 0;
    this.rows.forEach((row, index) => {
      const hit = words.every((word) => this.texts[index].includes(word));
      const more = this.moreOf(row);
      row.hidden = !hit;
      if (more) more.hidden = !hit;
      if (hit) {
        count += 1;
        size += Number(row.cells[1].dataset.v);
      }
    });
    this.found.textContent = words.length ? Headroom.count(count, "stack") + ", " + Headroom.bytes(size) : "";
  }

  moreOf(row) {
    return document.getElementById(row.id + "-more");
  }

  toggle(row, open) {
    const button = row.querySelector(".open"), more = this.moreOf(row);
    const wanted = open ?? !more;
    button.setAttribute("aria-expanded", String(wanted));
    if (!wanted && more) more.remove();
    if (wanted && !more) row.after(this.more(row));
  }

  more(row) {
    const { el } = Headroom, told = this.view.stacks[row.dataset.stack];
    const line = el("tr", "more"), cell = el("td"), inner = el("div", "more-in");
    line.id = row.id + "-more";
    cell.colSpan = row.cells.length;
    const left = el("div"), right = el("div");
    left.append(el("h4", "", "Stack, innermost call first"), this.frames(told));
    right.append(el("h4", "", "At the peak"), this.facts(row, told), el("h4", "", "Blocks"), this.blocks(told));
    inner.append(left, right);
    cell.append(inner);
    line.append(cell);
    return line;
  }

  facts(row, told) {
    const { el } = Headroom, list = el("ul", "facts");
    const say = (...parts) => {
      const item = el("li");
      item.append(...parts);
      list.append(item);
    };
    say(Headroom.size(Number(row.cells[1].dataset.v)), " allocated, ", Headroom.size(Number(row.dataset.requested)), " requested");
    const category = row.querySelector(".c-cat"), life = row.querySelector(".c-life").textContent;
    say(category.dataset.v.replace(/_/g, " ") + (category.querySelector(".inferred") ? " (inferred)" : "") +
      (life ? ", " + life : "") + (row.dataset.phase ? ", born in " + row.dataset.phase : ""));
    for (const holder of told.held) say("kept by " + holder);
    const growth = row.querySelector(".c-growth");
    if (growth && growth.textContent.trim()) say("grows by " + growth.textContent.trim());
    say(told.pools.join("; "));
    return list;
  }

  frames(told) {
    const { el } = Headroom, list = el("ol", "frames"), user = new Set(told.user);
    let hidden = [], shown = 0;
    const flush = () => {
      if (hidden.length > 2) this.fold(list, hidden);
      else for (const number of hidden) list.append(this.frame(number, false));
      hidden = [];
    };
    for (const number of told.frames) {
      if (user.has(number)) {
        flush();
        list.append(this.frame(number, true, shown < 2));
        shown += 1;
      } else hidden.push(number);
    }
    flush();
    if (told.left) list.append(el("li", "lib", Headroom.count(told.left, "outer frame") + " left out"));
    if (!told.frames.length) list.append(el("li", "lib", "No frame was recorded."));
    return list;
  }

  fold(list, numbers) {
    const item = Headroom.el("li"), button = Headroom.el("button", "link", Headroom.count(numbers.length, "library frame"));
    button.type = "button";
    button.addEventListener("click", () => item.replaceWith(...numbers.map((number) => this.frame(number, false))));
    item.append(button);
    list.append(item);
  }

  /** A button that gives way to what it names. */
  later(text, node) {
    const button = Headroom.el("button", "link later", text);
    button.type = "button";
    button.addEventListener("click", () => button.replaceWith(node));
    return button;
  }

  frame(number, isUser, open) {
    const { el } = Headroom, [where, name, path] = this.view.frames[number];
    const item = el("li", isUser ? "" : "lib"), place = el("code", "", where);
    place.title = path || where;
    item.append(place, " ");
    if (name !== where) item.append(el("span", "fn", name));
    const told = this.view.windows[number];
    if (told && isUser) {
      const source = this.source(told, Number((where.match(/:(\d+)$/) || [])[1]));
      item.append(open ? source : this.later("source", source));
    }
    return item;
  }

  source([first, lines], here) {
    const { el } = Headroom, pre = el("pre", "source");
    pre.tabIndex = 0;
    lines.forEach((text, index) => {
      const line = el("span", first + index === here ? "here" : "");
      line.append(el("i", "", String(first + index)), text);
      pre.append(line, "\n");
    });
    return pre;
  }

  blocks(told) {
    const { el } = Headroom, table = el("table", "plain"), body = el("tbody");
    const named = told.blocks.some((row) => row[2] || row[3]);
    const head = el("tr");
    for (const [text, cls] of [["Size", "num"], ["Blocks", "num"], ...(named ? [["Tensor or module", ""]] : []), ["Born", ""], ["Lives until", ""]]) {
      head.append(el("th", cls, text));
    }
    const top = el("thead");
    top.append(head);
    for (const [size, count, name, module, born, until] of told.blocks) {
      const row = el("tr"), cell = el("td", "num");
      cell.append(Headroom.size(size));
      row.append(cell, el("td", "num", count ? "× " + Headroom.number(count) : ""));
      if (named) row.append(el("td", "", name || module));
      row.append(el("td", "dim", named ? born : born || name), el("td", "dim", until));
      body.append(row);
    }
    table.append(top, body);
    const scroll = el("div", "scroll");
    scroll.append(table);
    return scroll;
  }

  reveal(row) {
    if (row.hidden) {
      this.input.value = "";
      this.filter("");
    }
    this.toggle(row, true);
  }
};

/** Open a stack wherever it was named: its device's panel, its row, its details. */
Headroom.openStack = function (id) {
  const row = document.getElementById(id);
  if (!row || !row.classList.contains("stack")) return false;
  const panel = row.closest(".device");
  if (panel.hidden) Headroom.showDevice(panel.id);
  Headroom.tables.get(panel.id).reveal(row);
  row.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  row.querySelector(".open").focus({ preventScroll: true });
  row.classList.add("flash");
  setTimeout(() => row.classList.remove("flash"), 1400);
  return true;
};
