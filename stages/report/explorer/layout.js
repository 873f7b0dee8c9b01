// Where boxes and lines of a graph stand. Each open group is laid out by itself, with dagre.
"use strict";

const TITLE = 24; // height of an open group's title, in pixels
const BOX = 42; // height of a closed box
const AROUND = 12; // room around what is in a group

class Item {
  constructor(view, parent, title) {
    Object.assign(this, { view, parent, title, open: false, parts: null, keys: [], edges: new Map(), stale: true });
    Object.assign(this, { x: 0, y: 0, width: 0, height: 0, left: 0, top: 0, lines: [] });
    this.depth = parent ? parent.depth + 1 : 0;
  }

  get within() { // the group and those around it, the outermost first
    const found = [];
    for (let item = this; item; item = item.parent) found.unshift(item);
    return found;
  }
}

class View {
  // One graph as a tree of items, of which some are open.
  constructor(graphs, number) {
    this.graphs = graphs;
    this.number = number;
    this.graph = graphs.graphs[number];
    this.leaves = [];
    this.root = new Item(this, null, this.graph.title);
    this.root.open = true;
    this.fill(this.root, this.graph.tree);
    this.graph.reads.forEach((reads, index) => reads.forEach((read) => this.join(read, index)));
    this.openSome();
  }

  fill(group, tree) {
    group.parts = tree.map((part) => {
      if (typeof part === "number") {
        const leaf = new Item(this, group, this.graphs.text(this.graph.labels[part]));
        leaf.keys = [this.number * SPAN + part];
        this.leaves[part] = leaf;
        return leaf;
      }
      const inner = new Item(this, group, part[0]);
      this.fill(inner, part[1]);
      return inner;
    });
    group.keys = group.parts.flatMap((part) => part.keys);
  }

  // A line between the two parts of the innermost group that holds both operations.
  join(source, target) {
    const [one, other] = [this.leaves[source].within, this.leaves[target].within];
    let depth = 0;
    while (one[depth] === other[depth]) depth += 1;
    const [group, from, to] = [one[depth - 1], one[depth], other[depth]];
    if (!group.edges.has(from)) group.edges.set(from, new Map());
    const read = group.edges.get(from);
    if (!read.has(to)) read.set(to, { from, to, tensors: new Set(), points: [] });
    read.get(to).tensors.add(source);
  }

  linesOf(group) { return [...group.edges.values()].flatMap((read) => [...read.values()]); }

  // Open groups level by level while there are few boxes.
  openSome(most = 28) {
    let level = [this.root];
    let count = this.root.parts.length;
    while (level.length) {
      const groups = level.flatMap((item) => item.parts.filter((part) => part.parts));
      for (const group of groups) {
        if (count + group.parts.length - 1 > most) return;
        this.setOpen(group, true);
        count += group.parts.length - 1;
      }
      level = groups;
    }
  }

  setOpen(item, open) {
    if (!item.parts || item.open === open || item === this.root) return;
    item.open = open;
    item.within.forEach((group) => (group.stale = true));
  }

  setAll(open) {
    const visit = (item) => (item.parts ?? []).forEach((part) => {
      this.setOpen(part, open);
      visit(part);
    });
    visit(this.root);
  }

  // What stands for an operation now: the outermost closed group that holds it, or its own box.
  shown(key) {
    const within = this.leaves[this.graphs.indexOf(key)].within;
    return within.find((item) => !item.open) ?? within[within.length - 1];
  }

  lay(measure) {
    this.layGroup(this.root, measure);
    this.place(this.root, 0, 0);
  }

  place(item, left, top) {
    item.left = left;
    item.top = top;
    if (item.open) item.parts.forEach((part) => this.place(part, left + part.x, top + part.y));
  }

  layGroup(group, measure) {
    if (!group.stale) return;
    group.parts.forEach((part) => {
      if (part.open) {
        this.layGroup(part, measure);
      } else {
        part.width = Math.min(Math.max(measure(part), 84), 280);
        part.height = BOX;
      }
    });
    const lines = this.linesOf(group);
    const at = new Map(group.parts.map((part, index) => [part, index]));
    const sizes = group.parts.map((part) => `${Math.round(part.width)}x${Math.round(part.height)}`);
    const signature = `${sizes}|${lines.map((line) => `${at.get(line.from)}-${at.get(line.to)}`)}`;
    if (!View.known.has(signature)) View.known.set(signature, View.laid(group.parts, lines, at));
    const { places, points, width, height } = View.known.get(signature);
    group.parts.forEach((part, index) => {
      part.x = AROUND + places[index][0];
      part.y = TITLE + places[index][1];
    });
    lines.forEach((line, index) => {
      line.points = points[index].map(({ x, y }) => ({ x: x + AROUND, y: y + TITLE }));
    });
    group.lines = lines;
    group.width = Math.max(width + 2 * AROUND, measure(group));
    group.height = height + TITLE + AROUND;
    group.stale = false;
  }

  static known = new Map(); // layers of a model are alike: each kind is laid out once

  static laid(parts, lines, at) {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "TB", nodesep: 18, edgesep: 10, ranksep: 30, ranker: "tight-tree" });
    graph.setDefaultEdgeLabel(() => ({}));
    parts.forEach((part, index) => graph.setNode(String(index), { width: part.width, height: part.height }));
    lines.forEach((line) => graph.setEdge(String(at.get(line.from)), String(at.get(line.to)), {}));
    dagre.layout(graph);
    const places = parts.map((part, index) => {
      const { x, y } = graph.node(String(index));
      return [x - part.width / 2, y - part.height / 2];
    });
    const points = lines.map((line) => graph.edge(String(at.get(line.from)), String(at.get(line.to))).points);
    const { width, height } = graph.graph();
    return { places, points, width, height };
  }
}
