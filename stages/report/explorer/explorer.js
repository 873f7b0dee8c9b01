// The section with the graphs: two panes, one selection, search, colours, and what is known of what is selected.
"use strict";

const LISTED = 8; // operations named of one graph
const FOUND = 20; // results of a search that are listed
const OPENED = 12; // selected operations up to which a pane opens the groups that they are in
const COLOURS = { findings: "findings", errors: "errors", times: "time", flops: "FLOPs" };
const LEGENDS = {
  findings: "Findings of the profile at an operation, or at what it reads. Of a group: the worst, with their number.",
  errors: "Values that were compared, wrong ones with their error over their own noise floor. At fault: an operation that is wrong though what it received is right. Wrong: a value that ends in it is. Without a colour: no value of it was compared alone; it may lie inside a kernel whose result was.",
  times: "Time of the kernels that an operation takes part in, whole: it takes that at most (≤), and one kernel counts for several operations. The darker, the more of a step.",
  flops: "FLOPs of the captured operations, where they are known. The darker, the more of all.",
};

const STOPPED = "Red: operations of the kernel that did not compile. No value was compared.";

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};

class Explorer {
  constructor(root, data) {
    this.root = root;
    this.graphs = new Graphs(data);
    this.panes = [];
    this.status = element("p", { className: "spoken", role: "status" });
    this.details = root.querySelector(".details");
    root.prepend(this.controls(), this.status);
    root.querySelectorAll(".pane").forEach((part, index) => this.pane(part, index));
    this.colour(this.colours.value);
    this.beside();
    root.hidden = false;
  }

  // Graphs to begin with: where the model's own operations are, and what was made of them.
  start(index) {
    const { graphs } = this.graphs;
    const lowest = graphs.findIndex((graph) => graph.level === 1);
    const first = lowest < 0 ? 0 : lowest;
    if (index === 0) return first;
    const of = `${graphs[first].id} `;
    const made = graphs.findIndex((graph) => graph.id === `${of}kernels`);
    return made >= 0 ? made : graphs.findIndex((_, number) => number !== first);
  }

  controls() {
    const { marks } = this.graphs;
    const used = Object.keys(COLOURS).filter((what) => marks[what].size);
    const wrong = [...marks.errors.values()].some(([state]) => this.graphs.text(state) !== "right");
    this.colours = element("select");
    this.colours.append(element("option", { value: "", textContent: "nothing" }));
    used.forEach((what) => this.colours.append(element("option", { value: what, textContent: COLOURS[what] })));
    this.colours.value = wrong ? "errors" : (used[0] ?? "");
    this.colours.addEventListener("change", () => this.colour(this.colours.value));
    this.search = element("input", { type: "search" });
    this.search.addEventListener("input", () => this.look());
    this.search.addEventListener("keydown", (event) => {
      const first = this.results.querySelector("button");
      if (event.key === "Enter" && first) first.click();
    });
    this.results = element("div", { className: "results" });
    this.legend = element("p", { className: "note" });
    const bar = element("div", { className: "bar" },
      element("label", {}, "Find ", this.search), element("label", {}, "Colour by ", this.colours));
    return element("div", { className: "controls" }, bar, this.results, this.legend);
  }

  pane(part, index) {
    const number = this.start(index);
    if (number < 0) {
      part.remove();
      return;
    }
    const canvas = element("canvas", { tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-describedby", "explorer-keys");
    const choice = element("select");
    this.graphs.graphs.forEach((graph, at) => {
      choice.append(element("option", { value: at, textContent: `${graph.title} (${graph.names.length})` }));
    });
    const pane = new Pane(canvas, this.graphs, {
      chosen: (item) => this.choose(item, pane),
      toggled: () => this.say(pane),
    });
    const button = (text, label, run) => {
      const made = element("button", { type: "button", textContent: text });
      made.setAttribute("aria-label", `${label}, graph ${index + 1}`);
      made.addEventListener("click", run);
      return made;
    };
    const label = element("label", {}, `Graph ${index + 1} `, choice);
    const printed = element("h4", { className: "printed" }); // a list of graphs is of no use on paper
    part.append(element("div", { className: "bar" }, label,
      button("+", "Zoom in", () => pane.zoom(1.25)),
      button("−", "Zoom out", () => pane.zoom(0.8)),
      button("Fit", "Show it all", () => pane.fit()),
      button("Unfold", "Unfold all modules", () => pane.setAll(true)),
      button("Fold", "Fold all modules", () => pane.setAll(false))), printed, canvas);
    Object.assign(pane, { choice, printed });
    choice.addEventListener("change", () => this.turn(pane, Number(choice.value)));
    this.panes.push(pane);
    this.turn(pane, number);
  }

  turn(pane, number) {
    pane.choice.value = String(number);
    pane.show(number);
    const { title, names } = this.graphs.graphs[number];
    pane.printed.textContent = title;
    pane.canvas.setAttribute("aria-label", `Graph of ${title}, ${counted(names.length, "operation")}`);
    if (this.selection) pane.select(this.selection, { move: true, opened: OPENED });
  }

  colour(what) {
    const stopped = [...this.graphs.marks.errors.values()].every(([state]) => this.graphs.text(state) === "not compiled");
    this.legend.textContent = what === "errors" && stopped ? STOPPED : (LEGENDS[what] ?? "");
    this.panes.forEach((pane) => {
      pane.what = what;
      pane.redraw();
    });
  }

  // An item that the reader pointed at in a pane.
  choose(item, pane) {
    this.select(item.keys, item.parts ? item : null, pane);
    this.say(pane);
  }

  // Operations that the reader asked for elsewhere: a pane shows them.
  go(keys, { focus = false } = {}) {
    if (!keys.length) return;
    const number = this.graphs.graphOf(keys[0]);
    let pane = this.panes.find((one) => one.view.number === number);
    if (!pane) {
      pane = this.panes[this.panes.length - 1];
      this.turn(pane, number);
    }
    this.select(keys, null, pane);
    pane.select(this.selection, { move: true, opened: Infinity });
    pane.current = pane.view.shown(keys[0]);
    this.say(pane);
    if (focus) {
      this.root.scrollIntoView({ block: "start" });
      pane.canvas.focus({ preventScroll: true });
    }
  }

  select(keys, group, from) {
    this.selection = this.graphs.closure(keys);
    this.panes.forEach((pane) => {
      if (pane === from) pane.select(this.selection);
      else pane.select(this.selection, { move: true, opened: OPENED });
    });
    this.tell(keys, group);
    this.mark();
  }

  say(pane) {
    const item = pane.current;
    if (!item) return;
    const what = item.parts ? `${item.title}, ${item.open ? "open" : "closed"} group of ${item.keys.length}`
      : `${this.graphs.name(item.keys[0])}, ${pane.under(item)}`;
    const mark = this.graphs.mark(pane.what, item);
    this.status.textContent = [what, mark?.words].filter(Boolean).join(", ");
  }

  look() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) {
      this.results.replaceChildren();
      return;
    }
    const keys = this.graphs.search(words, this.panes.map((pane) => pane.view.number));
    const more = keys.length > FOUND ? `, the first ${FOUND}; more words find fewer` : "";
    const told = keys.length ? `${counted(keys.length, "operation")}${more}:` : "Nothing has these words in its name, operator, module, line or parameters.";
    const list = keys.slice(0, FOUND).map((key) => {
      const { title } = this.graphs.graphs[this.graphs.graphOf(key)];
      const where = [this.graphs.text(this.graphs.of(key, "modules")), title].filter(Boolean).join(", ");
      return element("li", {}, this.button(key), ` ${where}`);
    });
    this.results.replaceChildren(element("p", { role: "status", textContent: told }), element("ul", {}, ...list));
  }

  button(key) {
    const made = element("button", { type: "button", className: "operation", textContent: this.graphs.name(key) });
    made.addEventListener("click", () => this.go([key]));
    return made;
  }

  buttons(keys) {
    const shown = keys.slice(0, LISTED).flatMap((key, index) => (index ? [", ", this.button(key)] : [this.button(key)]));
    return element("span", {}, ...shown, keys.length > LISTED ? `, ${keys.length - LISTED} more` : "");
  }

  // What is known of what is selected.
  tell(keys, group) {
    const { graphs } = this;
    const [one] = keys;
    const number = graphs.graphOf(one);
    const single = keys.length === 1 && !group;
    const rows = [];
    const row = (name, value) => {
      if (value) rows.push(element("dt", { textContent: name }), element("dd", {}, value));
    };
    const key = (index) => number * SPAN + index;
    row("Graph", graphs.graphs[number].title);
    if (single) {
      const index = graphs.indexOf(one);
      row("Calls", graphs.text(graphs.of(one, "targets")));
      row("Module", graphs.text(graphs.of(one, "modules")));
      row("Makes", graphs.text(graphs.of(one, "made")));
      row("Reads", graphs.of(one, "reads").length ? this.buttons(graphs.of(one, "reads").map(key)) : null);
      const outside = graphs.outside[number][index].map((value) => graphs.text(value[1]));
      row("And", outside.slice(0, LISTED).join("; ") + (outside.length > LISTED ? `; ${outside.length - LISTED} more` : ""));
      row("Read by", graphs.readers[number][index].length ? this.buttons(graphs.readers[number][index].map(key)) : null);
    } else {
      row("Operations", group ? String(keys.length) : this.buttons(keys));
    }
    this.lineRows(row, single);
    for (const what of Object.keys(COLOURS)) row(COLOURS[what][0].toUpperCase() + COLOURS[what].slice(1), this.known(what, keys));
    const others = graphs.graphs.map((graph, at) => [graph, [...this.selection].filter((some) => graphs.graphOf(some) === at)]);
    others.forEach(([graph, found], at) => {
      if (at !== number && found.length) row(`In ${graph.title}`, this.buttons(found));
    });
    row("Source of", this.sources());
    const title = single ? graphs.name(one) : group ? group.title : `${keys.length} operations`;
    this.details.replaceChildren(element("h3", { textContent: title }), element("dl", {}, ...rows));
  }

  lineRows(row, single) {
    const numbers = this.lines();
    if (!numbers.size || (!single && numbers.size > 3)) return;
    const links = [...numbers].slice(0, 3).map((number) => {
      const [text, id, code] = this.graphs.data.lines[number];
      const place = document.getElementById(id) ? element("a", { href: `#${id}`, textContent: text }) : text;
      return element("div", {}, place, code ? element("code", { textContent: ` ${code}` }) : "");
    });
    row(numbers.size > 1 ? "Lines" : "Line", element("div", {}, ...links));
  }

  // The user's lines of what is selected, by number: those that the uppermost graph tells.
  lines() {
    const told = [...this.selection].filter((key) => this.graphs.of(key, "lines") >= 0);
    const level = (key) => this.graphs.graphs[this.graphs.graphOf(key)].level;
    const upmost = Math.min(...told.map(level));
    return new Set(told.filter((key) => level(key) === upmost).map((key) => this.graphs.of(key, "lines")));
  }

  known(what, keys) {
    const { graphs } = this;
    const mark = graphs.marks[what].size ? graphs.measure(what, keys) : null;
    if (!mark) return null;
    if (what === "times") return `${mark.words}, of a step in whole kernels`;
    if (what !== "findings") return mark.words;
    const told = [...graphs.closure(keys)].filter((key) => graphs.marks.findings.has(key)).map((key) => graphs.marks.findings.get(key));
    const rows = told.flatMap(([some]) => some).map(([effect, rule, message]) => `${graphs.text(effect)}, ${graphs.text(rule)}: ${graphs.text(message)}`);
    const each = [...new Set(rows)];
    const list = each.slice(0, LISTED).map((text) => element("li", { textContent: text }));
    const more = each.length > LISTED ? [element("li", { textContent: `${each.length - LISTED} more` })] : [];
    return element("ul", {}, ...list, ...more);
  }

  sources() {
    const links = new Map();
    for (const key of this.selection) {
      const graph = this.graphs.graphs[this.graphs.graphOf(key)];
      const id = graph.kernels?.[this.graphs.indexOf(key)];
      if (id && document.getElementById(id)) links.set(id, this.graphs.text(this.graphs.of(key, "targets")));
    }
    if (!links.size) return null;
    const found = [...links].slice(0, LISTED).flatMap(([id, name], index) => [index ? ", " : "", element("a", { href: `#${id}`, textContent: name })]);
    return element("span", {}, ...found, links.size > LISTED ? `, ${links.size - LISTED} more` : "");
  }

  // Lines and kernels of what is selected, marked where they stand on the page.
  mark() {
    document.querySelectorAll(".selected").forEach((part) => part.classList.remove("selected"));
    const lines = [...this.lines()].map((number) => this.graphs.data.lines[number][1]);
    const kernels = [...this.selection].map((key) => (
      this.graphs.graphs[this.graphs.graphOf(key)].kernels?.[this.graphs.indexOf(key)]));
    [...lines, ...kernels].forEach((id) => id && document.getElementById(id)?.classList.add("selected"));
  }

  // From elsewhere on the page to here: lines of the source, kernels, and operations in tables.
  beside() {
    const { graphs } = this;
    const lines = new Map();
    const kernels = new Map();
    const add = (map, id, key) => map.set(id, [...(map.get(id) ?? []), key]);
    graphs.graphs.forEach((graph, number) => graph.names.forEach((_, index) => {
      const line = graph.lines[index];
      if (line >= 0 && graph.level < 3) add(lines, graphs.data.lines[line][1], number * SPAN + index);
      if (graph.kernels) add(kernels, graph.kernels[index], number * SPAN + index);
    }));
    const wrapped = (part, label, keys) => {
      const button = element("button", { type: "button", className: "operation" });
      button.setAttribute("aria-label", label);
      button.append(...part.childNodes);
      button.addEventListener("click", () => this.go(keys, { focus: true }));
      part.append(button);
    };
    lines.forEach((keys, id) => {
      const row = document.getElementById(id);
      const lowest = Math.min(...keys.map((key) => graphs.graphs[graphs.graphOf(key)].level));
      const own = keys.filter((key) => graphs.graphs[graphs.graphOf(key)].level === lowest);
      if (row) wrapped(row.cells[0], `Line ${row.cells[0].textContent}: show its operations`, own);
    });
    kernels.forEach((keys, id) => {
      const part = document.getElementById(id);
      if (!part) return;
      const button = element("button", { type: "button", className: "operation", textContent: "Show in the graphs" });
      button.addEventListener("click", () => this.go(keys, { focus: true }));
      part.querySelector("summary").after(element("p", {}, button));
    });
    document.querySelectorAll("td[data-graph]").forEach((cell) => {
      const name = cell.textContent.trim();
      const ids = [`${cell.dataset.graph} post-grad`, cell.dataset.graph];
      const keys = ids.map((id) => graphs.find(id, name)).find((found) => found.length);
      if (keys) wrapped(cell, `${name}: show it in the graphs`, keys);
    });
  }
}

const explorer = ((data) => data && new Explorer(document.getElementById("explorer"), JSON.parse(data.textContent)))(
  document.getElementById("explorer-data"));
