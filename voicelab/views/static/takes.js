// A grid of takes: small players with figures below, built for what is in sight only.
//
// The kernel sends {kind: "takes", all, cards, ordered} with the waveforms of the cards, one after another, and, where
// the order is new, the ids in order as int32; and {kind: "sound", id, rate} with s16le samples. The page says which
// takes are in sight ({kind: "show", ids}) and which one shall be heard ({kind: "sound", id}).

import { download, element, followTheme, guard, hideSaved, watchTheme } from "./dom.js";
import { Samples } from "./player-samples.js";
import { Transport } from "./player-transport.js";
import { Card, HEIGHT } from "./takes-card.js";
import { Facets } from "./takes-facets.js";

const WIDTH = 236; // pixels of a card, at least
const GAP = 8;
const EDGE = 2; // of the list, so that the outline of what has the focus is seen
const PATIENCE = 60; // frames
const TALL = 4; // rows of cards that are seen at once
const SOUNDS = 48; // takes whose samples are kept
const FILLING_MS = 1500; // how long a tab that was opened is kept in sight

class Takes {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.cards = new Map();
    this.order = new Int32Array();
    this.places = new Map();
    this.all = 0;
    this.sounds = new Map();
    this.transport = new Transport(new Samples(44_100));
    this.current = null; // the take that is heard
    this.wanted = null; // the take that shall be heard once it is here
    this.heard = 0;
    model.on("msg:custom", (message, buffers) => this.receive(message, buffers));
    this.cells = null; // of facets: what they mean, and their figures
    const follow = () => ((this.selected = new Set(model.get("selected"))), this.tell());
    for (const name of ["selected", "pinned", "label", "view", "facets"]) model.on(`change:${name}`, follow);
    follow();
    model.on("comm_live_update", () => this.lost());
    model.send({ kind: "ready" });
  }

  /** The kernel has gone, and the run with it: nothing sounds by itself, and no take is being made any more. */
  lost() {
    this.gone = true;
    this.wanted = null;
    this.transport.rest();
    for (const [id, card] of this.cards) if (!card.hear && !card.error) this.cards.set(id, { ...card, state: "missing" });
    this.tell();
  }

  receive(message, buffers) {
    const bytes = buffers?.map((view) => view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
    if (message.kind === "takes") this.take(message, bytes);
    else if (message.kind === "cells") this.cells = { ...message, values: new Float32Array(bytes[0]) };
    else if (message.kind === "sound") this.sound(message, bytes[0]);
    else if (message.kind === "file") this.file(message, bytes[0]);
    else if (message.kind === "reveal") for (const view of this.views) view.reveal(message.id);
    else if (message.kind === "player") for (const view of this.views) showPlayer(view.root);
    else if (message.kind === "tab") for (const view of this.views) focusTab(view.root);
    else if (message.kind === "clear") {
      this.transport.reset();
      this.cards.clear();
      this.sounds.clear();
      this.current = this.wanted = this.cells = null;
    }
    this.tell();
  }

  take(message, [drawn, order]) {
    const width = drawn.byteLength / Math.max(1, message.cards.filter((card) => card.drawn).length);
    let at = 0;
    for (const card of message.cards) {
      card.outline = card.drawn ? new Int8Array(drawn, at, width) : null;
      if (card.drawn) at += width;
      // Another take may have come in its place.
      if (this.cards.get(card.id)?.state !== card.state) this.sounds.delete(card.id);
      this.cards.set(card.id, card);
    }
    this.all = message.all;
    if (!message.ordered) return;
    this.order = new Int32Array(order);
    this.places = new Map(Array.from(this.order, (id, place) => [id, place]));
  }

  file({ name, media, start, last }, bytes) {
    this.pieces = start ? [...this.pieces, bytes] : [bytes];
    if (last) download(new Blob(this.pieces, { type: media }), name);
  }

  sound(message, bytes) {
    const samples = new Samples(message.rate);
    samples.add(0, bytes);
    samples.complete = true;
    this.sounds.set(message.id, samples);
    while (this.sounds.size > SOUNDS) this.sounds.delete(this.sounds.keys().next().value);
    if (this.wanted?.id === message.id) this.play(message.id, this.wanted.share);
  }

  /** Play a take from a share of its length; its samples are fetched where they are not here. */
  play(id, share = 0) {
    const samples = this.sounds.get(id);
    this.wanted = samples ? null : { id, share };
    if (!samples && this.gone) this.wanted = null;
    if (!samples) return void (this.gone || this.model.send({ kind: "sound", id }));
    if (this.transport.samples !== samples) {
      this.transport.reset();
      this.transport.samples = samples;
    }
    this.current = id;
    this.heard = 0;
    this.transport.play(share * samples.length);
    this.tell();
  }

  toggle(id) {
    if (this.current === id && this.transport.playing) this.transport.pause();
    else this.play(id, this.current === id ? this.share : 0);
    this.tell();
  }

  /** How far the current take has been heard, 0 to 1. */
  get share() {
    return this.transport.position / Math.max(1, this.transport.samples.length);
  }

  flip(name, id) {
    const held = this.model.get(name);
    this.model.set(name, held.includes(id) ? held.filter((other) => other !== id) : [...held, id]);
    this.model.save_changes();
  }

  /** Select some takes, or do not. */
  select(ids, on) {
    const others = this.model.get("selected").filter((id) => !ids.includes(id));
    this.model.set("selected", on ? [...others, ...ids] : others);
    this.model.save_changes();
  }

  /** Show a take in the player below, where all that is known of it stands. */
  open(id) {
    if (!this.gone && this.cards.get(id)?.hear) this.model.send({ kind: "open", id });
  }

  show() {
    const ids = [...new Set([...this.views].flatMap((view) => view.ids))];
    const told = ids.join();
    if (told !== this.told && !this.gone) this.model.send({ kind: "show", ids });
    this.told = told;
  }

  /** Stop playback after the last view was removed. */
  left(view) {
    this.views.delete(view);
    if (this.views.size) return;
    this.transport.rest();
    this.told = null;
  }

  close() {
    this.transport.close();
  }

  tell() {
    for (const view of this.views) view.ask();
  }
}

class View {
  constructor(takes, el) {
    this.takes = takes;
    this.cards = new Map();
    this.spare = [];
    this.ids = [];
    this.active = null;
    this.odd = null;
    this.unseen = 0;
    this.frame = 0;
    this.ask = () => (this.frame ||= requestAnimationFrame(() => this.paint()));
    this.list = element("div", { className: "voicelab-takes-list" }, { role: "list" });
    this.root = element("div", { className: "voicelab-takes" }, { role: "group" }, this.list);
    this.empty = element("div", { className: "voicelab-takes-empty", textContent: "No takes to show." });
    const lost = "Kernel disconnected; takes that were played can be replayed.";
    this.lost = element("div", { className: "voicelab-takes-lost", textContent: lost }, { role: "alert" });
    this.facets = new Facets(this);
    this.root.append(this.facets.root, this.empty);
    this.root.onscroll = this.ask;
    this.root.onkeydown = (event) => this.key(event);
    el.append(this.facets.tabs, this.root, this.facets.legend);
    this.sizes = new ResizeObserver(this.ask);
    this.sizes.observe(this.root);
    this.theme = watchTheme(() => ((this.ink = null), this.ask()));
    this.shown = hideSaved(el);
    followTheme(el);
    guard(el);
    takes.views.add(this);
    this.ask();
  }

  get faceted() {
    return this.takes.model.get("view") === "facets" && this.facets.axes.length > 0;
  }

  /** How many cards stand side by side, and how wide they are. */
  layout() {
    const width = this.root.clientWidth - 2 * EDGE;
    const columns = Math.max(1, Math.floor((width + GAP) / (WIDTH + GAP)));
    const row = this.takes.model.get("columns");
    // In whole rows of the last axis where these fit: what stands below each other then differs by the others only.
    this.columns = row > 1 && row <= columns ? columns - (columns % row) : columns;
    this.width = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    const rows = Math.ceil(this.takes.order.length / this.columns);
    this.list.style.height = `${Math.max(0, rows * (HEIGHT + GAP) - GAP)}px`;
  }

  box(place) {
    const [column, row] = [place % this.columns, Math.floor(place / this.columns)];
    return { x: column * (this.width + GAP), y: row * (HEIGHT + GAP), width: this.width };
  }

  /** Let a card, or a cell, stand for each take in sight, and a screen beyond on both sides; take the others away. */
  place() {
    if (this.faceted) this.ids = this.facets.place(this.root);
    else this.deal();
  }

  deal() {
    const { order } = this.takes;
    const tall = Math.max(this.root.clientHeight, HEIGHT);
    const first = Math.max(0, Math.floor((this.root.scrollTop - tall) / (HEIGHT + GAP))) * this.columns;
    const last = Math.ceil((this.root.scrollTop + 2 * tall) / (HEIGHT + GAP)) * this.columns;
    const ids = Array.from(order.subarray(first, Math.min(last, order.length)));
    // What has the focus stays, or the keys would have nowhere to go.
    if (this.focused && !ids.includes(this.active) && this.takes.places.has(this.active)) ids.push(this.active);
    const wanted = new Set(ids);
    for (const [id, card] of this.cards) {
      if (wanted.has(id)) continue;
      this.cards.delete(id);
      this.spare.push(card);
    }
    for (const id of ids) {
      if (!this.cards.has(id)) {
        const card = this.spare.pop() ?? new Card(this);
        Object.assign(card, { card: undefined, drawn: null, where: null, seen: null });
        this.cards.set(id, card);
        if (!card.root.isConnected) this.list.append(card.root);
      }
      const place = this.takes.places.get(id);
      this.cards.get(id).move(id, place, this.box(place));
    }
    for (const card of this.spare) card.root.remove();
    this.spare.length = 0;
    this.ids = ids;
  }

  get focused() {
    return this.root.contains(document.activeElement);
  }

  paint() {
    this.frame = 0;
    if (!this.root.isConnected) return;
    // Without a size for a moment, as while the theme changes.
    if (!this.root.clientWidth && this.unseen++ < PATIENCE) return this.ask();
    this.unseen = 0;
    const began = performance.now();
    const { takes } = this;
    takes.transport.finish();
    takes.heard = Math.max(takes.heard, takes.transport.playing ? takes.transport.level() : 0);
    if (!takes.places.has(this.active)) this.active = takes.order[0] ?? null;
    this.ink ??= colours(this.root);
    this.root.setAttribute("aria-label", `${takes.model.get("label")}: ${takes.order.length} of ${takes.all}`);
    const { faceted } = this;
    for (const part of [this.facets.root, this.facets.tabs, this.facets.legend]) part.classList.toggle("voicelab-off", !faceted);
    this.list.hidden = faceted;
    this.root.style.maxHeight = `${TALL * (HEIGHT + GAP)}px`;
    this.empty.hidden = takes.order.length > 0;
    if (takes.gone && !this.lost.isConnected) this.root.after(this.lost);
    if (faceted) this.facets.layout(this.root.clientWidth - 2 * EDGE);
    else this.layout();
    this.place();
    if (faceted) this.facets.refresh();
    else for (const card of this.cards.values()) card.refresh();
    takes.show();
    Object.assign(this.root.dataset, {
      all: takes.all,
      shown: takes.order.length,
      view: faceted ? "facets" : "list",
      cards: faceted ? this.facets.rows.size * this.facets.columns : this.cards.size,
      drawn: this.ids.filter((id) => takes.cards.get(id)?.outline).length,
      current: takes.current ?? "",
      heard: takes.heard.toFixed(4),
      position: takes.share.toFixed(3),
      paint: (performance.now() - began).toFixed(2),
    });
    if (takes.transport.playing) this.ask();
  }

  activate(id) {
    this.active = id;
    this.ask();
  }

  /** Bring a take into sight, mark it, and let the keys begin there. */
  reveal(id) {
    this.odd = id;
    this.go(id);
  }

  go(id) {
    const place = this.takes.places.get(id);
    if (place === undefined) return;
    this.active = id;
    this.ask();
    if (this.faceted) return this.facets.go(id, this.root);
    const { y } = this.box(place);
    const { scrollTop, clientHeight } = this.root;
    if (y < scrollTop) this.root.scrollTop = y;
    else if (y + HEIGHT > scrollTop + clientHeight) this.root.scrollTop = y + HEIGHT - clientHeight;
    this.place();
    this.cards.get(id)?.root.focus({ preventScroll: true });
  }

  /** The take that a key leads to, undefined for other keys. */
  next(key) {
    const { order, places } = this.takes;
    const ends = { Home: order[0], End: order[order.length - 1] };
    if (key in ends) return ends[key];
    const [wide, tall] = this.faceted ? [1, 1] : [this.columns, TALL * this.columns];
    const across = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const down = { ArrowUp: -wide, ArrowDown: wide, PageUp: -tall, PageDown: tall }[key];
    if (across === undefined && down === undefined) return undefined;
    if (this.faceted) return this.facets.near(this.active, across ?? down, across === undefined);
    return order[Math.max(0, Math.min((places.get(this.active) ?? 0) + (across ?? down), order.length - 1))];
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { takes } = this;
    const reading = event.target.classList.contains("voicelab-take-state");
    if (reading && event.key.startsWith("Arrow")) return;
    const next = this.next(event.key);
    if (next !== undefined) this.go(next);
    else if (event.key === " " || event.key === "Enter") {
      if (event.target.matches("button, input")) return;
      takes.toggle(this.active);
    } else if (event.key === "o" || event.key === "O") takes.open(this.active);
    else if (event.key === "x" || event.key === "X") takes.flip("selected", this.active);
    else if (event.key === "p" || event.key === "P") takes.flip("pinned", this.active);
    else return;
    event.preventDefault();
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.sizes.disconnect();
    this.theme.disconnect();
    this.shown();
    this.takes.left(this);
  }
}

/** Give the focus to the open one of the tabs around, and keep it in sight while it fills. */
function focusTab(root) {
  const tabs = root.closest(".voicelab-tabs");
  const open = tabs?.querySelector(".widget-tab-contents > :not(.lm-mod-hidden)");
  if (!open) return;
  open.tabIndex = -1;
  open.style.outline = "none";
  open.focus({ preventScroll: true });
  const filling = new ResizeObserver(() => tabs.scrollIntoView({ block: "nearest" }));
  filling.observe(open);
  setTimeout(() => filling.disconnect(), FILLING_MS);
}

/** Bring the opened take into sight; it is drawn a moment later. */
function showPlayer(root) {
  const show = () => root.closest(".voicelab-takes-view")?.querySelector(".voicelab-opened")?.scrollIntoView({ block: "nearest" });
  for (const late of [100, 600]) setTimeout(show, late);
}

function colours(root) {
  const style = getComputedStyle(root);
  return Object.fromEntries(["wave", "heard", "cursor"].map((name) => [name, style.getPropertyValue(`--vl-${name}`).trim()]));
}

// Called once for each model; every call below gets another object for the same model.
export default () => {
  let takes = null;
  return {
    initialize({ model }) {
      takes = new Takes(model);
      return () => takes.close();
    },
    render({ el }) {
      const view = new View(takes, el);
      return () => view.close();
    },
  };
};
