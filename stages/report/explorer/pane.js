// A canvas that shows one graph: drawn, moved, zoomed, pointed at, walked through by keys.
"use strict";

const FONT = "12px system-ui, sans-serif";
const BOLD = `600 ${FONT}`;
const LEGIBLE = 0.4; // scale from which on texts are drawn

class Pane {
  // `chosen(item)` is called when the reader selects an item, `toggled()` when a group opens or closes.
  constructor(canvas, graphs, { chosen, toggled }) {
    Object.assign(this, { canvas, graphs, chosen, toggled, view: null, what: "", selected: new Set(), current: null });
    this.context = canvas.getContext("2d");
    this.views = new Map();
    this.scale = 1;
    this.x = this.y = 0;
    this.pointers = new Map();
    this.waiting = false;
    this.sized = false;
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    matchMedia("print").addEventListener("change", () => this.draw()); // paper is light, whatever the screen
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => this.release(event, kind === "pointerup"));
    }
    canvas.addEventListener("dblclick", (event) => this.toggle(this.at(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(number) {
    if (!this.views.has(number)) this.views.set(number, new View(this.graphs, number));
    this.view = this.views.get(number);
    this.current = null;
    this.lay();
    this.fit(true);
  }

  lay() {
    this.view.lay((item) => this.widthOf(item));
    this.redraw();
  }

  // Room for a box's texts, those of every colour too: a colour moves nothing.
  widthOf(item) {
    this.context.font = BOLD;
    const around = item.parts ? 36 : 18;
    const title = this.context.measureText(item.title).width + around;
    if (item.open) return title;
    this.context.font = FONT;
    const words = Object.keys(this.graphs.marks).map((what) => this.graphs.mark(what, item)?.words ?? "");
    return Math.max(title, ...[this.under(item), ...words].map((text) => this.context.measureText(text).width + around));
  }

  // The second line of a box, without a colour's words.
  under(item) {
    if (item.parts) return counted(item.keys.length, "operation");
    const [first, ...more] = this.graphs.text(this.graphs.of(item.keys[0], "made")).split(", ");
    return more.length ? `${first} +${more.length}` : first;
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    if (!this.sized && this.view) this.fit(true);
    this.sized = true;
    this.draw();
  }

  // The whole graph or, to begin with, as much from its beginning as can be read.
  fit(legible = false) {
    const { root } = this.view;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const whole = Math.min((width - 16) / root.width, (height - 16) / root.height, 1);
    const wide = Math.min(Math.max((width - 16) / root.width, LEGIBLE * 1.2), 0.7);
    this.scale = Math.max(whole, legible ? wide : 0, 0.02);
    const first = root.parts.reduce((one, other) => (other.top < one.top ? other : one));
    const middle = root.width * this.scale > width ? first.left + first.width / 2 : root.width / 2;
    this.x = width / 2 - middle * this.scale;
    this.y = whole < this.scale ? 8 : (height - root.height * this.scale) / 2;
    this.redraw();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(Math.max(this.scale * factor, 0.02), 4);
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.redraw();
  }

  // Bring items into the middle, where they can be read.
  centre(items) {
    const sides = items.map((item) => [item.left, item.top, item.left + item.width, item.top + item.height]);
    const [left, top] = [0, 1].map((at) => Math.min(...sides.map((side) => side[at])));
    const [right, bottom] = [2, 3].map((at) => Math.max(...sides.map((side) => side[at])));
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const holds = Math.min((width - 40) / (right - left), (height - 40) / (bottom - top));
    this.scale = Math.min(Math.max(Math.min(holds, Math.max(this.scale, 0.7)), 0.3), 1.5);
    const first = holds < 0.3 ? sides[0] : [left, top, right, bottom];
    this.x = width / 2 - ((first[0] + first[2]) / 2) * this.scale;
    this.y = height / 2 - ((first[1] + first[3]) / 2) * this.scale;
    this.redraw();
  }

  // Show what is selected; `opened` is how many operations are worth opening the groups that they are in.
  select(keys, { move = false, opened = 0 } = {}) {
    this.selected = keys;
    const here = [...keys].filter((key) => this.graphs.graphOf(key) === this.view.number);
    if (here.length && here.length <= opened) {
      here.forEach((key) => {
        const within = this.view.leaves[this.graphs.indexOf(key)].within;
        within.slice(0, -1).forEach((group) => this.view.setOpen(group, true));
      });
      this.view.lay((item) => this.widthOf(item));
    }
    if (move && here.length) this.centre([...new Set(here.map((key) => this.view.shown(key)))]);
    this.redraw();
  }

  toggle(item) {
    if (!item || !item.parts || item === this.view.root) return;
    const before = [item.left * this.scale + this.x, item.top * this.scale + this.y];
    this.view.setOpen(item, !item.open);
    this.lay();
    this.x = before[0] - item.left * this.scale; // the group stays where it was looked at
    this.y = before[1] - item.top * this.scale;
    this.toggled();
  }

  setAll(open) {
    this.view.setAll(open);
    this.lay();
    this.fit(true);
  }

  at(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const x = (event.clientX - left - this.x) / this.scale;
    const y = (event.clientY - top - this.y) / this.scale;
    const holds = (item) => x >= item.left && y >= item.top && x <= item.left + item.width && y <= item.top + item.height;
    let found = null;
    for (let item = this.view.root; item; item = item.open ? item.parts.find(holds) : null) found = item;
    return found;
  }

  wheel(event) {
    if (!event.ctrlKey && document.activeElement !== this.canvas) return; // the page scrolls
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * 0.002), event.offsetX, event.offsetY);
  }

  press(event) {
    this.canvas.focus({ preventScroll: true });
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.moved = 0;
    try {
      this.canvas.setPointerCapture(event.pointerId);
    } catch {
      return; // the pointer has left already
    }
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const [x, y] = [event.clientX - before.x, event.clientY - before.y];
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.moved += Math.abs(x) + Math.abs(y);
    if (other) {
      const { left, top } = this.canvas.getBoundingClientRect();
      const apart = (point) => Math.max(Math.hypot(point.x - other.x, point.y - other.y), 1);
      const now = { x: event.clientX, y: event.clientY };
      this.zoom(apart(now) / apart(before), (now.x + other.x) / 2 - left, (now.y + other.y) / 2 - top);
      this.x += x / 2;
      this.y += y / 2;
    } else {
      this.x += x;
      this.y += y;
    }
    Object.assign(before, { x: event.clientX, y: event.clientY });
    this.redraw();
  }

  release(event, clicked) {
    this.pointers.delete(event.pointerId);
    if (!clicked || this.moved > 6) return;
    const item = this.at(event);
    if (!item || item === this.view.root) return;
    const x = (event.clientX - this.canvas.getBoundingClientRect().left - this.x) / this.scale;
    if (item.parts && x < item.left + 24) this.toggle(item); // the mark before its title
    else this.choose(item);
  }

  choose(item, move = false) {
    this.current = item;
    this.chosen(item);
    if (move) this.centre([item]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const item = this.current && this.current.view === this.view ? this.current : null;
    const lines = item ? this.view.linesOf(item.parent) : [];
    const beside = (step) => item && item.parent.parts[item.parent.parts.indexOf(item) + step];
    const steps = {
      ArrowDown: () => this.step(item?.open ? item.parts[0] : (lines.find((line) => line.from === item)?.to ?? beside(1))),
      ArrowUp: () => this.step(lines.find((line) => line.to === item)?.from ?? beside(-1)),
      ArrowRight: () => this.step(beside(1)),
      ArrowLeft: () => this.step(beside(-1)),
      Enter: () => this.toggle(item),
      " ": () => this.toggle(item),
      Backspace: () => item && item.parent !== this.view.root && this.choose(item.parent, true),
      "+": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      0: () => this.fit(),
    };
    if (!steps[event.key]) return;
    event.preventDefault();
    steps[event.key]();
  }

  step(item) { this.choose(item ?? this.current ?? this.view.root.parts[0], true); }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    if (!this.view || !this.canvas.width) return;
    const style = getComputedStyle(this.canvas);
    this.colour = (name) => style.getPropertyValue(`--${name}`);
    const ratio = this.canvas.width / this.canvas.clientWidth;
    const { context } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.colour("ground");
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, ratio * this.x, ratio * this.y);
    this.seen = {
      left: -this.x / this.scale,
      top: -this.y / this.scale,
      right: (this.canvas.clientWidth - this.x) / this.scale,
      bottom: (this.canvas.clientHeight - this.y) / this.scale,
    };
    this.drawInside(this.view.root);
  }

  drawInside(group) {
    const { context } = this;
    const chosen = this.current && this.current.view === this.view ? this.current : null;
    context.strokeStyle = this.colour("quiet");
    context.lineWidth = 1;
    context.globalAlpha = 0.7;
    context.beginPath();
    const marked = [];
    for (const line of group.lines) {
      if (line.from === chosen || line.to === chosen) marked.push(line);
      else this.trace(line, group);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.strokeStyle = this.colour("link");
    context.lineWidth = 2;
    context.beginPath();
    marked.forEach((line) => this.trace(line, group));
    context.stroke();
    for (const part of group.parts) {
      const { seen } = this;
      if (part.left > seen.right || part.left + part.width < seen.left) continue;
      if (part.top > seen.bottom || part.top + part.height < seen.top) continue;
      this.drawItem(part);
    }
  }

  trace({ points }, group) {
    const { context, seen } = this;
    const [first, last] = [points[0], points[points.length - 1]];
    if (group.top + first.y > seen.bottom || group.top + last.y < seen.top) return;
    const at = ({ x, y }) => [group.left + x, group.top + y];
    context.moveTo(...at(first));
    for (let index = 1; index < points.length - 1; index += 1) {
      const [here, next] = [points[index], points[index + 1]];
      const end = index === points.length - 2 ? next : { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 };
      context.quadraticCurveTo(...at(here), ...at(end));
    }
    if (this.scale < LEGIBLE) return;
    const [x, y] = at(last);
    context.moveTo(x - 4, y - 6);
    context.lineTo(x, y);
    context.lineTo(x + 4, y - 6);
  }

  drawItem(item) {
    const { context } = this;
    const mark = item.open ? null : this.graphs.mark(this.what, item);
    context.beginPath();
    if (this.scale < 0.15) context.rect(item.left, item.top, item.width, item.height);
    else context.roundRect(item.left, item.top, item.width, item.height, item.parts ? 8 : 4);
    this.fill(item, mark);
    const selected = item.open ? item === this.current : item.keys.some((key) => this.selected.has(key));
    context.strokeStyle = this.colour(selected ? "link" : item.parts ? "quiet" : "line");
    context.lineWidth = selected ? Math.max(3, 2 / this.scale) : 1;
    context.stroke();
    if (this.scale >= LEGIBLE) this.write(item, mark);
    if (item.open) this.drawInside(item);
  }

  fill(item, mark) {
    const { context } = this;
    context.fillStyle = this.colour(item.open && item.depth % 2 ? "shade" : "ground");
    context.fill();
    if (!mark) {
      if (item.parts && !item.open) {
        context.fillStyle = this.colour("shade");
        context.fill();
      }
      return;
    }
    if (mark.state === "share") {
      context.globalAlpha = 0.06 + 0.5 * Math.sqrt(Math.min(mark.strength, 1));
      context.fillStyle = this.colour("link");
    } else {
      context.fillStyle = this.colour(`${mark.state}-shade`);
    }
    context.fill();
    context.globalAlpha = 1;
  }

  write(item, mark) {
    const { context } = this;
    const room = item.width - (item.parts ? 36 : 16);
    context.textBaseline = "middle";
    context.fillStyle = this.colour("text");
    context.font = BOLD;
    if (item.parts) context.fillText(item.open ? "▾" : "▸", item.left + 8, item.top + 13);
    this.fitted(item.title, item.left + (item.parts ? 24 : 8), item.top + 13, room);
    if (item.open) return;
    context.font = FONT;
    context.fillStyle = this.colour(mark && mark.state !== "share" ? mark.state : "quiet");
    if (mark && mark.state === "share") context.fillStyle = this.colour("text");
    this.fitted(mark ? mark.words : this.under(item), item.left + (item.parts ? 24 : 8), item.top + 30, room);
  }

  fitted(text, x, y, room) {
    const { context } = this;
    const width = context.measureText(text).width;
    const kept = width > room ? `${text.slice(0, Math.floor((text.length * room) / width) - 1)}…` : text;
    context.fillText(kept, x, y, room);
  }
}
