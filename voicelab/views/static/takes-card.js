// A card of a grid of takes: what the take is, a small player, figures or what went wrong.

import { copier, element } from "./dom.js";
import { shape } from "./player-controls.js";

export const HEIGHT = 138; // pixels of a card
export const WORDS = { missing: "not synthesized", waiting: "waiting", running: "synthesizing", done: "", failed: "failed" };

/** One card, used for one take after another. */
export class Card {
  constructor(view) {
    const { takes } = view;
    const named = (tag, name, ...children) => element(tag, { className: `voicelab-take-${name}` }, {}, ...children);
    this.view = view;
    this.play = element("button", { type: "button", onclick: () => takes.toggle(this.id) });
    this.pin = element("button", { type: "button", title: "Pin (P)", onclick: () => takes.flip("pinned", this.id) });
    this.pin.append("★");
    this.select = element("input", { type: "checkbox", title: "Select (X)", onchange: () => takes.flip("selected", this.id) });
    this.title = named("div", "title");
    this.wave = element("canvas", {}, { "aria-hidden": "true" });
    this.wave.onclick = (event) => takes.play(this.id, event.offsetX / this.wave.clientWidth);
    this.state = named("div", "state");
    this.figures = named("div", "figures");
    this.wave.ondblclick = () => takes.open(this.id);
    this.open = element("button", { type: "button", title: "Open in the player below (O)", onclick: () => takes.open(this.id) });
    this.open.append("⤢");
    this.copy = copier("Copy the Python code of this take", () => this.card?.code ?? "");
    const head = named("div", "head", this.title, this.pin, this.select);
    const body = named("div", "body", this.play, this.wave, this.state, named("div", "tools", this.open, this.copy));
    this.root = element("div", { className: "voicelab-take" }, { role: "listitem", tabindex: "-1" }, head, body, this.figures);
    for (const part of [this.play, this.copy, this.open, this.pin, this.select]) part.tabIndex = -1;
    this.root.onfocus = () => view.activate(this.id);
  }

  move(id, place, box) {
    const where = `${id} ${place} ${box.x} ${box.y} ${box.width} ${this.view.takes.order.length}`;
    if (this.where === where) return;
    Object.assign(this, { id, where, seen: null });
    Object.assign(this.root.style, {
      transform: `translate(${box.x}px, ${box.y}px)`,
      width: `${box.width}px`,
      height: `${HEIGHT}px`,
    });
    this.root.dataset.id = id;
    this.root.setAttribute("aria-posinset", place + 1);
    this.root.setAttribute("aria-setsize", this.view.takes.order.length);
  }

  refresh() {
    const { takes, active } = this.view;
    const card = takes.cards.get(this.id);
    const selected = takes.selected.has(this.id);
    const pinned = takes.model.get("pinned").includes(this.id);
    const current = takes.current === this.id;
    const playing = current && takes.transport.playing;
    // Nothing is written that is so already: most cards stay as they are while others come into sight.
    const seen = [selected, pinned, current, playing, active === this.id, this.view.odd === this.id, this.view.ink.wave].join();
    if (!current && this.card === card && this.seen === seen && this.wide === this.view.width) return;
    Object.assign(this, { seen, wide: this.view.width });
    this.root.tabIndex = active === this.id ? 0 : -1;
    this.root.classList.toggle("voicelab-take-odd", this.view.odd === this.id);
    this.select.checked = selected;
    this.pin.setAttribute("aria-pressed", String(pinned));
    shape(this.play, playing ? "pause" : "play");
    this.play.disabled = !card?.hear;
    if (this.card !== card || this.selected !== selected || this.pinned !== pinned) this.fill(card, selected, pinned);
    this.play.setAttribute("aria-label", `${playing ? "Pause" : "Play"} ${this.name}`);
    this.draw(card, current ? takes.share : null);
  }

  /** Write what changes seldom. */
  fill(card, selected, pinned) {
    Object.assign(this, { card, selected, pinned });
    const labels = card?.labels ?? [];
    this.name = labels.map(([axis, value]) => `${axis} ${value}`).join(", ");
    const named = ([axis, value]) => element("span", {}, {}, element("i", {}, {}, axis), ` ${value}`);
    // A text is long, and would leave no room for the others.
    const titled = [...labels].sort(([one], [other]) => (one === "text") - (other === "text"));
    this.title.replaceChildren(...titled.map(named));
    this.title.title = this.name;
    const word = WORDS[card?.state] ?? "…";
    this.root.dataset.state = card?.state ?? "unknown";
    this.state.textContent = card?.error ? card.error : word;
    this.state.hidden = !this.state.textContent;
    this.wave.hidden = Boolean(this.state.textContent);
    // The whole error can be read, scrolled with the keys too.
    this.state.tabIndex = card?.error ? 0 : -1;
    const figures = card?.figures ?? [];
    const figure = ([metric, value]) => element("span", {}, {}, element("i", {}, {}, metric), ` ${value}`);
    this.figures.replaceChildren(...figures.map(figure));
    this.copy.hidden = !card?.code;
    this.copy.title = card?.code ?? "";
    this.figures.title = (card?.notes ?? []).join(" ");
    const told = figures.map(([metric, value]) => `${metric} ${value}`);
    const marks = [selected && "selected", pinned && "pinned"];
    const parts = [this.name, card?.error ? `failed: ${card.error}` : word, ...told, ...marks];
    this.root.setAttribute("aria-label", parts.filter(Boolean).join(", "));
    this.open.setAttribute("aria-label", `Open ${this.name}`);
    this.open.disabled = !card?.hear;
    this.pin.setAttribute("aria-label", `Pin ${this.name}`);
    this.select.setAttribute("aria-label", `Select ${this.name}`);
    this.drawn = null;
  }

  draw(card, share) {
    const { clientWidth: width, clientHeight: height } = this.wave;
    const cursor = share === null ? -1 : Math.round(share * width * pixels());
    const now = card?.outline && width ? `${card.id} ${width} ${height} ${pixels()} ${cursor} ${this.view.ink.wave}` : "";
    if (this.drawn === now) return;
    this.drawn = now;
    drawWave(this.wave, card?.outline, this.view.ink, share);
  }
}

function pixels() {
  return globalThis.devicePixelRatio || 1;
}

/**
 * Draw a small waveform over the first `wide` of a canvas, with a cursor at a share of the canvas, null for none.
 *
 * `outline` is the least and the greatest sample of equal parts, 127 for full scale; without it nothing is drawn.
 */
export function drawWave(canvas, outline, ink, share, wide = 1) {
  const ratio = pixels();
  const [columns, rows] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.round(size * ratio));
  Object.assign(canvas, { width: columns, height: rows }); // which also empties it
  if (!outline || !columns) return;
  const pen = canvas.getContext("2d");
  const cursor = share === null ? -1 : Math.round(share * columns);
  const parts = outline.length / 2;
  const step = (wide * columns) / parts;
  for (let part = 0; part < parts; part++) {
    const [low, high] = [outline[2 * part], outline[2 * part + 1]];
    pen.fillStyle = part * step < cursor ? ink.heard : ink.wave;
    const top = ((1 - high / 127) * rows) / 2;
    const left = Math.round(part * step); // whole pixels, without seams
    pen.fillRect(left, top, Math.max(1, Math.round((part + 1) * step) - left), Math.max(1, ((high - low) / 254) * rows));
  }
  if (cursor >= 0) {
    pen.fillStyle = ink.cursor;
    pen.fillRect(cursor - ratio, 0, 2 * ratio, rows);
  }
}
