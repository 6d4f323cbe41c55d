// Lane of words below a waveform: a click plays from a word, a double click loops it.

import { element } from "./dom.js";

const WORD_FONT = "11px system-ui, sans-serif";
const WORD_ROOM = 8; // pixels of border and margin of a word
const ruler = document.createElement("canvas").getContext("2d");

export class WordLane {
  /** `hear(seconds)` plays from a time on, `repeat([first, last])` loops an interval. */
  constructor(hear, repeat) {
    Object.assign(this, { hear, repeat, words: null, items: [] });
    this.root = element("div", { className: "voicelab-words" }, { role: "group", "aria-label": "Words" });
    this.root.onkeydown = (event) => this.key(event);
  }

  /** Move the focus between words by arrow keys; a single word is reached by Tab. */
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = this.items.findIndex(({ item }) => item === event.target);
    const next = this.items[at + step]?.item;
    if (!step || at < 0 || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation(); // or the player would seek
    if (!next) return;
    for (const { item } of this.items) item.tabIndex = item === next ? 0 : -1;
    next.focus({ preventScroll: true });
  }

  /** Set the words: [text, start, end], in seconds. */
  set(words) {
    if (this.words === words) return;
    Object.assign(this, { words, drawn: null, lit: null });
    ruler.font = WORD_FONT;
    this.items = words.map(([text, start, end], n) => {
      const title = `${text}, ${start.toFixed(2)} to ${end.toFixed(2)} s: click plays from here, double click loops it`;
      const item = element("button", { type: "button", tabIndex: n ? -1 : 0, title, textContent: text });
      item.onclick = () => this.hear(start);
      item.ondblclick = () => this.repeat([start, end]);
      return { item, wide: ruler.measureText(text).width + WORD_ROOM };
    });
    this.root.replaceChildren(...this.items.map(({ item }) => item));
    this.root.hidden = !words.length;
  }

  /** Lay out the words for a view of `span` seconds from `first`, and highlight the word at `now`. */
  draw(first, span, now) {
    const width = this.root.clientWidth;
    const drawn = `${first} ${span} ${width}`;
    if (width && drawn !== this.drawn) {
      this.drawn = drawn;
      this.items.forEach(({ item, wide }, n) => {
        const [, start, end] = this.words[n];
        const [left, right] = [start, end].map((seconds) => ((seconds - first) / span) * width);
        item.hidden = right < 0 || left > width;
        Object.assign(item.style, { left: `${left}px`, width: `${Math.max(right - left - 1, 2)}px` });
        item.classList.toggle("voicelab-narrow", right - left < wide);
      });
    }
    const lit = this.words?.findIndex(([, start, end]) => now >= start && now < end) ?? -1;
    if (lit === this.lit) return;
    this.items[this.lit]?.item.classList.remove("voicelab-lit");
    this.items[lit]?.item.classList.add("voicelab-lit");
    this.lit = lit;
  }
}
