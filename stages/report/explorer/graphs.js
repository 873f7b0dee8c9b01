// The graphs of the page as data: how operations hang together across graphs, and what is known of them.
"use strict";

const SPAN = 1e7; // a node's key is its graph's number times this, and its own number
const EFFECTS = ["reject", "fallback", "copy", "cast", "pad"]; // of findings, the worst first

class Graphs {
  constructor(data) {
    this.data = data;
    this.graphs = data.graphs;
    this.up = new Map();
    this.down = new Map();
    this.readers = this.graphs.map((graph) => graph.names.map(() => []));
    this.outside = this.graphs.map((graph) => graph.names.map(() => []));
    this.known = this.graphs.map((graph) => new Map(graph.names.map((name, index) => [name, index])));
    this.graphs.forEach((graph, number) => {
      graph.reads.forEach((reads, index) => reads.forEach((read) => this.readers[number][read].push(index)));
      graph.values.forEach((value) => value[2].forEach((reader) => this.outside[number][reader].push(value)));
      graph.up.forEach((pairs, index) => {
        for (let at = 0; at < pairs.length; at += 2) this.link(number * SPAN + index, pairs[at] * SPAN + pairs[at + 1]);
      });
    });
    this.marks = {};
    for (const what of ["findings", "errors", "flops", "times"]) {
      this.marks[what] = new Map(data[what].map(([graph, index, ...told]) => [graph * SPAN + index, told]));
    }
    this.total = data.flops.reduce((sum, row) => sum + row[2], 0);
    this.cache = { findings: new Map(), errors: new Map(), flops: new Map(), times: new Map() };
  }

  link(lower, upper) {
    for (const [map, from, to] of [[this.up, lower, upper], [this.down, upper, lower]]) {
      if (!map.has(from)) map.set(from, []);
      map.get(from).push(to);
    }
  }

  graphOf(key) { return Math.floor(key / SPAN); }
  indexOf(key) { return key % SPAN; }
  text(number) { return this.data.texts[number]; }
  name(key) { return this.graphs[this.graphOf(key)].names[this.indexOf(key)]; }
  of(key, column) { return this.graphs[this.graphOf(key)][column][this.indexOf(key)]; }

  // The keys of an operation, or of the readers of a parameter or an input, by names; none where it is not drawn.
  find(id, name) {
    const number = this.graphs.findIndex((graph) => graph.id === id);
    if (number < 0) return [];
    const index = this.known[number].get(name);
    if (index !== undefined) return [number * SPAN + index];
    const value = this.graphs[number].values.find((row) => row[0] === name);
    return value ? value[2].map((reader) => number * SPAN + reader) : [];
  }

  // The nodes themselves, all that they came from, and all that came of them.
  closure(keys) {
    const found = new Set(keys);
    for (const map of [this.up, this.down]) {
      const seen = new Set(keys);
      const waiting = [...keys];
      while (waiting.length) {
        for (const next of map.get(waiting.pop()) ?? []) {
          if (!seen.has(next)) {
            seen.add(next);
            found.add(next);
            waiting.push(next);
          }
        }
      }
    }
    return found;
  }

  // What is known of nodes together: state, a figure from 0 to 1 for how strong a colour is, and words.
  measure(what, keys) {
    const known = this.marks[what];
    const graph = this.graphs[this.graphOf(keys[0])];
    const own = (key) => graph.level === 0 || this.graphs[this.graphOf(key)].of === graph.of; // a backward's is not its forward's
    const told = [...this.closure(keys)].filter((key) => known.has(key) && own(key)).map((key) => known.get(key));
    return told.length ? this[what](told, graph.level) : null;
  }

  findings(told) {
    const counts = new Map();
    told.forEach(([rows]) => rows.forEach(([effect]) => {
      counts.set(this.text(effect), (counts.get(this.text(effect)) ?? 0) + 1);
    }));
    const rank = (effect) => (EFFECTS.includes(effect) ? EFFECTS.indexOf(effect) : EFFECTS.length);
    const effects = [...counts.keys()].sort((one, other) => rank(one) - rank(other));
    const words = effects.map((effect) => (counts.get(effect) > 1 ? `${effect} × ${counts.get(effect)}` : effect));
    return { state: rank(effects[0]) === 0 ? "bad" : "warn", strength: 1, words: words.join(", ") };
  }

  errors(told) {
    const wrong = told.filter(([state]) => this.text(state) !== "right");
    const bad = wrong.filter(([state]) => ["wrong", "slope", "not compiled"].includes(this.text(state)));
    const rows = [bad, wrong, told].find((some) => some.length);
    const worst = rows.reduce((one, other) => ((other[1] ?? 0) > (one[1] ?? 0) ? other : one));
    const floor = this.text(worst[2]) ? `, ${this.text(worst[2])} × floor` : "";
    const self = told.some((row) => row[3]) ? "at fault" : this.text(worst[0]);
    return { state: bad.length ? "bad" : wrong.length ? "unknown" : "good", strength: 1, words: `${self}${floor}` };
  }

  flops(told) {
    const sum = told.reduce((all, [flops]) => all + flops, 0);
    const share = sum / this.total;
    return { state: "share", strength: share, words: `${percent(share)} of FLOPs` };
  }

  times(told, level) {
    const most = level < 3 ? "≤ " : ""; // of an operation: its kernels may compute others too
    const sum = (at) => told.reduce((all, row) => all + (row[at] ?? 0), 0);
    const shared = told.some((row) => row[1] !== null);
    const words = most + (shared ? `${percent(sum(1))}, ${duration(sum(0))}` : duration(sum(0)));
    return { state: "share", strength: sum(1), words };
  }

  // Of one item of a graph's tree, kept.
  mark(what, item) {
    if (!what) return null;
    const cache = this.cache[what];
    if (!cache.has(item)) cache.set(item, this.measure(what, item.keys));
    return cache.get(item);
  }

  // Nodes with all words in what they are called: those called just so first, then those of the graphs given first.
  search(words, first) {
    const found = [];
    this.graphs.forEach((graph, number) => graph.names.forEach((name, index) => {
      const values = this.outside[number][index].map((value) => this.text(value[1]));
      const line = graph.lines[index] < 0 ? "" : this.data.lines[graph.lines[index]][0];
      const texts = [name, this.text(graph.targets[index]), this.text(graph.modules[index]), line, ...values];
      const text = texts.join(" ").toLowerCase();
      if (words.every((word) => text.includes(word))) found.push(number * SPAN + index);
    }));
    const place = (key) => (first.includes(this.graphOf(key)) ? first.indexOf(this.graphOf(key)) : first.length);
    const exact = (key) => (this.name(key).toLowerCase() === words.join(" ") ? 0 : 1);
    return found.sort((one, other) => exact(one) - exact(other) || place(one) - place(other) || one - other);
  }
}

const figure = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));
const duration = (time) => (time < 1000 ? `${figure(time)} µs` : time < 1e6 ? `${figure(time / 1000)} ms` : `${figure(time / 1e6)} s`);
const percent = (share) => `${(100 * share).toPrecision(share < 0.1 ? 2 : 3)} %`;
const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
