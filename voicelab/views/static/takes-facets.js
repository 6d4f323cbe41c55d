// Takes as facets: the first axis down, the second across, the others as tabs; a cell for each combination.
//
// The kernel sends {kind: "cells", metric, unit, low, high, longest} with float32 mean, standard deviation, number of
// takes and twin of every cell, in the order of the grid: the last axis runs fastest, a cell's takes follow each other.
// A twin is the number of an earlier cell whose takes are the same sample by sample, or -1.

import { colour } from "./cividis.js";
import { element } from "./dom.js";
import { WORDS, drawWave } from "./takes-card.js";

const HEAD = 160; // pixels of the names of the rows, at most
const NARROWEST = 112; // pixels of a cell
const STEP = 26; // pixels from one play button to the next
const TOOLS = 55; // pixels of a cell's width that its play buttons do not have
const REST = 72; // pixels of a cell's height that its play buttons do not have
const SHORTEST = 1e-3; // seconds
const pen = document.createElement("canvas").getContext("2d");

/** A name that may be broken after its underscores. */
const breakable = (name) => name.replaceAll("_", "_\u200b");

export class Facets {
  constructor(view) {
    this.view = view;
    this.rows = new Map();
    this.spare = [];
    this.fixed = []; // which value of each further axis is shown
    this.heard = new Map(); // the take of a cell that its picture shows: what was heard of it last
    this.tabs = element("div", { className: "voicelab-facet-tabs" });
    this.legend = element("div", { className: "voicelab-legend" });
    this.names = element("div", { className: "voicelab-facet-names" }, { role: "row" });
    this.body = element("div", { className: "voicelab-facet-body" }, { role: "rowgroup" });
    this.root = element("div", { className: "voicelab-facets" }, { role: "grid" }, this.names, this.body);
  }

  get axes() {
    return this.view.takes.model.get("facets").axes ?? [];
  }

  get repeats() {
    return this.view.takes.model.get("facets").repeats ?? 1;
  }

  /** What the axes are has changed. */
  set(axes) {
    if (this.shown === axes) return;
    Object.assign(this, { shown: axes, rows: new Map(), laid: null });
    this.heard.clear();
    this.body.replaceChildren();
    this.fixed = axes.slice(2).map(() => 0);
    const choice = ([name, labels], place) => {
      const options = labels.map((label, value) => {
        const tab = element("button", { type: "button", textContent: label, title: `${name} ${label}` }, { role: "tab" });
        tab.onclick = () => this.turn(place, value);
        return tab;
      });
      const list = element("div", {}, { role: "tablist", "aria-label": name }, ...options);
      return element("div", {}, {}, element("i", {}, {}, name), list);
    };
    this.tabs.replaceChildren(...axes.slice(2).map(choice));
    this.tabs.hidden = axes.length < 3;
    const columns = (axes[1]?.[1] ?? [""]).map((label) => element("div", { textContent: breakable(label), title: label }, { role: "columnheader" }));
    const corner = element("div", {}, { role: "columnheader" });
    const ways = axes.slice(0, 2).map(([name], place) => element("i", {}, {}, breakable(`${name}\u00a0${"↓→"[place]}`)));
    corner.append(...ways);
    this.names.replaceChildren(corner, ...columns);
    this.named = ways.map((way) => way.textContent);
  }

  /** How wide the names of the axes are: a word of them is not broken. */
  wide() {
    pen.font = getComputedStyle(this.names).font;
    const labels = [...this.named, ...(this.axes[0]?.[1] ?? []).map(breakable)];
    const words = labels.flatMap((label) => label.split(/[ \u200b]/));
    const widths = words.map((word) => pen.measureText(word).width + 12);
    return Math.min(HEAD, Math.ceil(Math.max(0, ...widths)));
  }

  turn(place, value) {
    this.fixed[place] = value;
    this.view.active = null;
    this.view.ask();
  }

  /** The number of the cell that stands in a row and a column. */
  cell(row, column) {
    return this.axes.reduce((cell, [, labels], place) => {
      const value = place === 0 ? row : place === 1 ? column : this.fixed[place - 2];
      return cell * labels.length + value;
    }, 0);
  }

  /** What a cell is called: the values of its axes. */
  name(cell) {
    const { row, column, fixed } = this.spot(cell * this.repeats);
    return this.axes.map(([name, labels], place) => `${name} ${labels[[row, column, ...fixed][place]]}`).join(", ");
  }

  /** Where a take stands: its row, its column, and what is fixed of the other axes. */
  spot(id) {
    let cell = Math.floor(id / this.repeats);
    const values = [];
    for (const [, labels] of [...this.axes].reverse()) {
      values.unshift(cell % labels.length);
      cell = Math.floor(cell / labels.length);
    }
    const [row = 0, column = 0, ...fixed] = values;
    return { row, column, fixed };
  }

  /** Sizes, for the room there is and the axes there are. */
  layout(width) {
    this.set(this.axes);
    this.columns = this.axes[1]?.[1].length ?? 1;
    this.count = this.axes[0]?.[1].length ?? 1;
    this.head = Math.max(this.wide(), Math.round(Math.min(HEAD, width / 5)));
    this.width = Math.max(NARROWEST, Math.floor((width - this.head) / this.columns));
    const lines = Math.ceil(this.repeats / Math.max(1, Math.floor((this.width - TOOLS) / STEP)));
    this.height = REST + STEP * Math.min(lines, 4); // more of them scroll within the cell
    const laid = [this.columns, this.width, this.height, this.count, this.head].join();
    if (laid === this.laid) return;
    this.laid = laid;
    const grid = `${this.head}px repeat(${this.columns}, ${this.width}px)`;
    const style = { "--vl-columns": grid, "--vl-cell": `${this.height}px` };
    for (const [name, value] of Object.entries(style)) this.root.style.setProperty(name, value);
    this.root.style.width = `${this.head + this.columns * this.width}px`;
    this.body.style.height = `${this.count * this.height}px`;
    this.root.setAttribute("aria-rowcount", this.count);
    for (const [number, row] of this.rows) row.move(number);
  }

  /** Let a row stand for each in sight, and some beyond. */
  place(scroller) {
    const tall = Math.max(scroller.clientHeight, this.height);
    const first = Math.max(0, Math.floor((scroller.scrollTop - tall / 2) / this.height));
    const last = Math.min(this.count, Math.ceil((scroller.scrollTop + 1.5 * tall) / this.height));
    const wanted = new Set(Array.from({ length: Math.max(0, last - first) }, (_, n) => first + n));
    // What has the focus stays, or the keys would have nowhere to go.
    if (this.root.contains(document.activeElement) && this.view.active !== null) wanted.add(this.spot(this.view.active).row);
    for (const [number, row] of this.rows) {
      if (wanted.has(number)) continue;
      this.rows.delete(number);
      this.spare.push(row);
    }
    for (const number of wanted) {
      if (this.rows.has(number)) continue;
      const spare = this.spare.pop();
      const row = spare?.cells.length === this.columns && spare.repeats === this.repeats ? spare : new Line(this);
      spare !== row && spare?.root.remove();
      row.move(number);
      this.rows.set(number, row);
      if (!row.root.isConnected) this.body.append(row.root);
    }
    for (const row of this.spare) row.root.remove();
    this.spare.length = 0;
    const { repeats } = this;
    return [...this.rows.keys()].flatMap((row) =>
      Array.from({ length: this.columns * repeats }, (_, n) => this.cell(row, Math.floor(n / repeats)) * repeats + (n % repeats)),
    );
  }

  refresh() {
    for (const [place, list] of [...this.tabs.querySelectorAll("[role=tablist]")].entries()) {
      for (const [value, tab] of [...list.children].entries()) tab.setAttribute("aria-selected", String(this.fixed[place] === value));
    }
    this.describe();
    for (const row of this.rows.values()) for (const cell of row.cells) cell.refresh();
  }

  /** The legend: what the colours mean, and how long the pictures are. */
  describe() {
    const { cells } = this.view.takes;
    if (this.described === cells) return;
    this.described = cells;
    this.legend.hidden = !cells;
    if (!cells) return;
    const { metric, unit, low, high, longest } = cells;
    const bar = element("span", { className: "voicelab-legend-bar" }, { "aria-hidden": "true" });
    bar.style.background = `linear-gradient(to right, ${Array.from({ length: 9 }, (_, n) => rgb(colour((255 * n) / 8))).join()})`;
    const ends = low === high ? ["the same in every cell: "] : ["mean ± sd ", figure(low), bar];
    const scale = low === null ? ["not measured yet"] : [...ends, `${figure(high)}\u00a0${unit}`.trim()];
    this.legend.replaceChildren(element("b", {}, {}, metric), " ", ...scale, longest ? ` · waveforms span ${longest.toFixed(2)}\u00a0s` : "");
  }

  /** The mean of a cell, its standard deviation and its takes, NaN where there are none, and its twin. */
  figures(cell) {
    const values = this.view.takes.cells?.values;
    return values ? [...values.subarray(4 * cell, 4 * cell + 4)] : [NaN, NaN, 0, -1];
  }

  /** Which take is `step` further, in reading order or by rows. */
  near(id, step, rows) {
    const { row, column } = this.spot(id);
    const repeat = id % this.repeats;
    if (rows) return this.cell(Math.max(0, Math.min(row + step, this.count - 1)), column) * this.repeats + repeat;
    const wide = this.columns * this.repeats;
    const at = Math.max(0, Math.min(row * wide + column * this.repeats + repeat + step, this.count * wide - 1));
    return this.cell(Math.floor(at / wide), Math.floor((at % wide) / this.repeats)) * this.repeats + (at % this.repeats);
  }

  /** Bring a take into sight, with the tabs that it is under, and give it the focus. */
  go(id, scroller) {
    const { row, column, fixed } = this.spot(id);
    this.fixed = fixed;
    const [top, left] = [row * this.height, column * this.width];
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + this.height + this.names.offsetHeight > scroller.scrollTop + scroller.clientHeight) {
      scroller.scrollTop = top + this.height + this.names.offsetHeight - scroller.clientHeight;
    }
    if (left < scroller.scrollLeft) scroller.scrollLeft = left;
    else if (left + this.width + this.head > scroller.scrollLeft + scroller.clientWidth) {
      scroller.scrollLeft = left + this.width + this.head - scroller.clientWidth;
    }
    this.view.place();
    const cell = this.rows.get(row)?.cells[column];
    cell?.refresh();
    cell?.buttons[id % this.repeats].focus({ preventScroll: true });
  }
}

/** A row of cells with its name, used for one row after another. */
class Line {
  constructor(facets) {
    this.facets = facets;
    this.repeats = facets.repeats;
    this.name = element("div", {}, { role: "rowheader" });
    this.cells = Array.from({ length: facets.columns }, (_, column) => new Cell(facets, column));
    this.root = element("div", { className: "voicelab-facet-row" }, { role: "row" }, this.name, ...this.cells.map(({ root }) => root));
  }

  move(number) {
    const label = this.facets.axes[0]?.[1][number] ?? "";
    this.root.style.transform = `translateY(${number * this.facets.height}px)`;
    this.root.setAttribute("aria-rowindex", number + 1);
    Object.assign(this.name, { textContent: breakable(label), title: label });
    for (const cell of this.cells) Object.assign(cell, { row: number, seen: null });
  }
}

class Cell {
  constructor(facets, column) {
    Object.assign(this, { facets, column, row: 0, seen: null });
    const { takes } = facets.view;
    this.buttons = Array.from({ length: facets.repeats }, (_, repeat) => {
      const button = element("button", { type: "button", className: "voicelab-hear" });
      button.onclick = (event) => (event.ctrlKey || event.metaKey || event.shiftKey ? this.flip(repeat) : this.toggle(repeat));
      button.onfocus = () => facets.view.activate(this.id(repeat));
      return button;
    });
    const all = "Select the takes of this cell";
    this.all = element("input", { type: "checkbox", tabIndex: -1, title: all }, { "aria-label": all });
    this.all.onchange = () => takes.select(this.ids, this.all.checked);
    this.open = element("button", { type: "button", className: "voicelab-open", tabIndex: -1, title: "Open in the player below (O)" }, {}, "⤢");
    this.open.onclick = () => takes.open(this.shown);
    this.wave = element("canvas", {}, { "aria-hidden": "true" });
    this.wave.onclick = (event) => takes.play(this.shown, (event.offsetX / this.wave.clientWidth / this.share) || 0);
    this.figure = element("div", { className: "voicelab-facet-figure" });
    const strip = element("div", { className: "voicelab-strip" }, {}, ...this.buttons);
    const tools = element("div", { className: "voicelab-facet-tools" }, {}, this.open, this.all);
    this.root = element("div", { className: "voicelab-facet" }, { role: "gridcell" }, strip, tools, this.wave, this.figure);
  }

  get cell() {
    return this.facets.cell(this.row, this.column);
  }

  id(repeat) {
    return this.cell * this.facets.repeats + repeat;
  }

  get ids() {
    return this.buttons.map((_, repeat) => this.id(repeat)).filter((id) => this.facets.view.takes.places.has(id));
  }

  /** The take whose picture stands here: what was heard last, or the first there is. */
  get shown() {
    const { cards } = this.facets.view.takes;
    return this.facets.heard.get(this.cell) ?? this.ids.find((id) => cards.get(id)?.hear) ?? this.id(0);
  }

  toggle(repeat) {
    if (!this.cards[repeat]?.hear) return;
    this.facets.heard.set(this.cell, this.id(repeat));
    this.facets.view.takes.toggle(this.id(repeat));
  }

  flip(repeat) {
    this.facets.view.takes.flip("selected", this.id(repeat));
  }

  refresh() {
    const { view } = this.facets;
    const { takes } = view;
    const { cell } = this;
    if (takes.current !== null && Math.floor(takes.current / this.facets.repeats) === cell) this.facets.heard.set(cell, takes.current);
    const cards = this.buttons.map((_, repeat) => takes.cards.get(this.id(repeat)));
    const here = takes.current === this.shown;
    const [mean, sd, number, twin] = this.facets.figures(cell);
    const selected = takes.selected;
    const states = cards.map((card, repeat) => {
      const id = this.id(repeat);
      const marks = [takes.places.has(id), selected.has(id), takes.current === id && takes.transport.playing, view.odd === id];
      return [card?.state, ...marks, view.active === id].join(" ");
    });
    const seen = [cell, mean, sd, number, twin, this.shown, this.facets.width, view.ink.wave, takes.cells?.longest, ...states].join();
    if (seen === this.seen && !here && cards.every((card, n) => card === this.cards[n])) return;
    Object.assign(this, { seen, cards });
    for (const repeat of this.buttons.keys()) this.mark(repeat, cards[repeat]);
    this.all.checked = this.ids.length > 0 && this.ids.every((id) => selected.has(id));
    this.paint(mean, sd, number, twin);
    this.draw(here ? takes.share : null);
  }

  mark(repeat, card) {
    const { view } = this.facets;
    const { takes } = view;
    const [id, button] = [this.id(repeat), this.buttons[repeat]];
    const playing = takes.current === id && takes.transport.playing;
    const chosen = takes.selected.has(id);
    button.textContent = playing ? "❚❚" : this.facets.repeats > 1 ? String(repeat + 1) : "▶";
    button.tabIndex = view.active === id ? 0 : -1;
    button.hidden = !takes.places.has(id);
    button.setAttribute("aria-disabled", String(!card?.hear));
    Object.assign(button.dataset, { id, state: card?.state ?? "unknown" });
    button.classList.toggle("voicelab-take-odd", view.odd === id);
    button.setAttribute("aria-pressed", String(playing));
    const name = (card?.labels ?? []).map(([axis, value]) => `${axis} ${value}`).join(", ");
    const figures = (card?.figures ?? []).map(([metric, value]) => `${metric} ${value}`);
    const state = card?.error ? `failed: ${card.error}` : WORDS[card?.state];
    button.title = [name, state, ...figures, chosen && "selected"].filter(Boolean).join(", ");
    button.setAttribute("aria-label", `${playing ? "Pause" : "Play"} ${button.title}`);
    button.dataset.selected = String(chosen);
  }

  /** The colour of the mean, with black or white on it, whichever stands out: 4.5 to 1 at least. */
  paint(mean, sd, number, twin) {
    const { cells } = this.facets.view.takes;
    const known = Number.isFinite(mean) && cells.low !== null;
    const span = known ? cells.high - cells.low : 0;
    // The mean has fewer digits than the ends.
    const fill = span > 0 ? colour(Math.max(0, Math.min((255 * (mean - cells.low)) / span, 255))) : null;
    const dark = fill && luminance(fill) > 0.179; // black and white stand out equally from this one
    this.root.style.background = fill ? rgb(fill) : "";
    this.ink = fill ? (dark ? "#000" : "#fff") : "";
    this.root.style.color = this.ink;
    this.root.dataset.mean = known ? mean.toFixed(4) : "";
    const failed = this.cards.filter((card) => card?.state === "failed").length;
    const measured = known ? `${figure(mean)}${number > 1 ? ` ± ${figure(sd)}` : ""} ${cells.unit}`.trim() : "";
    const states = this.cards.map((card) => card?.state);
    const state = ["running", "waiting", "missing"].find((state) => states.includes(state));
    const pending = failed ? "" : this.cards.some((card) => card?.hear) ? "measuring…" : WORDS[state] ?? "…";
    const text = twin >= 0 ? "identical" : measured || pending;
    const why = twin >= 0 ? `identical samples to ${this.facets.name(twin)}: ${measured}` : "";
    this.figure.textContent = [text, failed && `${failed} failed`].filter(Boolean).join(", ");
    this.figure.title = this.cards.map((card) => card?.error).filter(Boolean)[0] ?? (why || this.figure.textContent);
  }

  draw(position) {
    const card = this.facets.view.takes.cards.get(this.shown);
    const longest = this.facets.view.takes.cells?.longest ?? 0;
    this.share = longest ? Math.max(card?.seconds ?? 0, SHORTEST) / longest : 1;
    const ink = this.ink || this.facets.view.ink.wave;
    const drawn = [card?.id, card?.drawn, this.share, position, ink, this.wave.clientWidth].join();
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    drawWave(this.wave, card?.outline, { wave: ink, heard: ink, cursor: ink }, position === null ? null : position * this.share, this.share);
  }
}

function rgb([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

/** Relative luminance, as WCAG 2 defines it. */
function luminance(parts) {
  const [red, green, blue] = parts.map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** A figure in few characters. */
function figure(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}
