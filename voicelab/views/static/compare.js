// The comparison: synchronized clips, one audible at a time, switched at the same time or the same word.
//
// The kernel sends {clips: [{name, rate, samples, gain, columns, bands, knots}], text} with two buffers for each clip:
// s16le samples, and its mel spectrogram as bytes, 0 for 80 dB below the maximum. `knots` are pairs of aligned
// times (first clip, this clip). Later it sends {kind: "figures"}: see compare-figures.js.

import { colour } from "./cividis.js";
import { warped } from "./compare-aligner.js";
import { COLORS, Figures, copied, node } from "./compare-figures.js";
import { actsOn, element, followTheme, guard, hideSaved, watchTheme } from "./dom.js";
import { shape } from "./player-controls.js";
import { roundTimes } from "./player-timeline.js";
import { Switcher } from "./switcher.js";
import { WordLane } from "./words.js";

const NONE = [];
const TICKS = 70; // pixels between labels of the axis

class Comparison {
  constructor(el, message, buffers) {
    this.clips = message.clips;
    this.mode = "word";
    this.matched = message.lufs !== null;
    this.order = this.clips.map((_, place) => place);
    this.audio = new AudioContext({ latencyHint: "interactive" });
    this.switcher = new Switcher(this.audio, { warp: (...way) => this.warp(...way), onend: () => this.refresh() });
    for (const [place, clip] of this.clips.entries()) {
      clip.pcm = Int16Array.from(new Int16Array(copied(buffers[2 * place])));
      clip.mel = new Uint8Array(copied(buffers[2 * place + 1]));
      const buffer = this.audio.createBuffer(1, Math.max(clip.pcm.length, 1), clip.rate);
      buffer.getChannelData(0).set(Float32Array.from(clip.pcm, (value) => value / 32768));
      this.switcher.add(String(place), buffer);
      clip.seconds = clip.pcm.length / clip.rate;
    }
    this.longest = Math.max(...this.clips.map(({ seconds }) => seconds));
    this.setMatched(this.matched);
    this.build(el, message);
    this.refresh();
  }

  warp(from, to, seconds) {
    return this.mode === "time" ? seconds : warped(this.clips, Number(from), Number(to), seconds);
  }

  setMatched(on) {
    this.matched = on;
    const levels = this.clips.map(({ gain }, place) => [String(place), on ? 10 ** ((gain ?? 0) / 20) : 1]);
    this.switcher.setLevels(new Map(levels));
  }

  build(el, message) {
    this.root = node("div", { className: "voicelab-compare", tabIndex: 0 });
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", "Comparison of clips");
    const button = (label, keys, onclick) => {
      const made = node("button", { type: "button", title: `${label} (${keys})`, onclick });
      made.setAttribute("aria-label", label);
      return made;
    };
    this.play = button("Play", "space", () => this.toggle());
    this.play.className = "voicelab-play";
    this.repeat = button("Loop", "L; drag over a picture to loop a region, Escape to stop", () => this.loop());
    shape(this.repeat, "loop");
    this.clock = node("span", { className: "voicelab-clock" });
    const choice = (label, options, change) => {
      const select = node("select", {}, ...options.map(([value, text]) => node("option", { value }, text)));
      select.onchange = () => change(select.value);
      return node("label", {}, `${label} `, select);
    };
    const words = [["word", "word"], ["time", "time"]];
    const levels = this.matched
      ? [["matched", `matched to ${message.lufs} LUFS`], ["raw", "unmatched"]]
      : [["raw", "unmatched: no clip has a defined loudness"]];
    const mode = choice("Align by", words, (value) => (this.mode = value));
    const loudness = choice("Loudness", levels, (value) => (this.setMatched(value === "matched"), this.refresh()));
    this.blind = node("button", { type: "button", title: "Shuffle and hide the names" }, "Blind");
    this.blind.onclick = () => this.toggleBlind();
    const head = node("div", { className: "voicelab-compare-head" }, this.play, this.repeat, this.clock, mode, loudness, this.blind);
    this.rows = this.clips.map(() => this.row());
    this.axis = node("canvas");
    this.axis.setAttribute("aria-hidden", "true");
    const scale = node("div", { className: "voicelab-compare-axis" }, node("span"), this.axis);
    this.root.append(head, ...this.rows.map(({ line }) => line), scale);
    this.root.onkeydown = (event) => this.key(event);
    // After a mouse click, keys act on the panel rather than on the clicked button.
    this.root.onclick = (event) => event.detail && event.target.closest("button") && this.root.focus({ preventScroll: true });
    el.append(this.root);
    this.observer = new ResizeObserver(() => this.refresh());
    for (const { canvas } of [...this.rows, { canvas: this.axis }]) this.observer.observe(canvas);
    this.theme = watchTheme(() => this.refresh());
    this.shown = hideSaved(el);
    followTheme(el);
    guard(this.root);
  }

  /** Show the figures from the kernel. */
  figure(message, buffers) {
    this.figures?.root.remove();
    this.figures = new Figures(this.clips, message, buffers, (seconds) => {
      this.switcher.seek(this.warp("0", this.switcher.current, seconds));
      this.refresh();
    });
    this.root.append(this.figures.root);
    for (const canvas of this.figures.root.querySelectorAll("canvas")) this.observer.observe(canvas);
    this.refresh();
  }

  row() {
    const button = node("button", { type: "button" });
    const canvas = node("canvas");
    const lane = new WordLane(
      (seconds) => this.playFrom(clip(), seconds),
      (edges) => (this.switcher.loop(edges), this.playFrom(clip(), edges[0])),
    );
    const line = node("div", { className: "voicelab-compare-row" }, button, node("div", {}, canvas, lane.root));
    const made = { line, button, canvas, lane };
    const clip = () => this.order[this.rows.indexOf(made)];
    const moment = (event) => (event.offsetX / canvas.clientWidth) * this.span(this.clips[clip()]);
    button.onclick = () => this.hear(clip());
    let pressed = null;
    canvas.onpointerdown = (event) => {
      canvas.setPointerCapture(event.pointerId);
      pressed = moment(event);
    };
    canvas.onpointerup = (event) => {
      if (pressed === null) return;
      const released = Math.min(moment(event), this.clips[clip()].seconds);
      this.hear(clip());
      if (Math.abs(released - pressed) > 0.05) {
        this.switcher.loop([Math.min(pressed, released), Math.max(pressed, released)]);
        if (!this.switcher.playing) this.switcher.play(Math.min(pressed, released));
      } else {
        this.switcher.seek(pressed);
      }
      pressed = null;
      this.refresh();
    };
    return made;
  }

  /** Width of a picture in seconds: the longest duration, or in blind mode, which hides durations, the clip's. */
  span(clip) {
    return this.hidden ? clip.seconds : this.longest;
  }

  loop() {
    if (this.switcher.looped) this.switcher.loop(null);
    else this.switcher.loopAll();
    this.refresh();
  }

  /** Seek to the next word, or to the start of the current or previous word. */
  word(step) {
    const { position } = this.switcher;
    const starts = this.clips[Number(this.switcher.current)].words.map(([, start]) => start);
    const there = step > 0 ? starts.find((start) => start > position + 0.01) : starts.findLast((start) => start < position - 0.05);
    if (there !== undefined) this.switcher.seek(there);
  }

  playFrom(place, seconds) {
    this.hear(place);
    this.switcher.seek(seconds);
    if (!this.switcher.playing) this.switcher.play();
    this.refresh();
  }

  hear(place) {
    this.switcher.select(String(place));
    this.refresh();
  }

  toggle() {
    if (this.switcher.playing) this.switcher.pause();
    else this.switcher.play();
    this.refresh();
  }

  pause() {
    if (this.switcher.playing) this.toggle();
  }

  toggleBlind() {
    this.hidden = !this.hidden;
    this.order.sort((a, b) => a - b);
    for (let i = this.order.length - 1; this.hidden && i > 0; i--) {
      const j = crypto.getRandomValues(new Uint32Array(1))[0] % (i + 1);
      [this.order[i], this.order[j]] = [this.order[j], this.order[i]];
    }
    // Ongoing playback and the selection would reveal the clip's new number.
    if (this.hidden) {
      this.switcher.loop(null);
      this.switcher.stop();
      this.switcher.select(String(this.order[0]));
      this.switcher.seek(0);
    }
    this.refresh();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    if (actsOn(event.target, event.key)) return;
    const digit = Number(event.key);
    const far = event.shiftKey ? 0.1 : 1;
    const jump = { ArrowLeft: -far, ArrowRight: far, Home: -Infinity, End: Infinity }[event.key];
    const word = this.hidden ? undefined : { "[": -1, "]": 1 }[event.key];
    if (digit >= 1 && digit <= this.order.length) this.hear(this.order[digit - 1]);
    else if (event.key === " ") this.toggle();
    else if (jump) this.switcher.seek(this.switcher.position + jump);
    else if (word) this.word(word);
    else if (event.key === "l" || event.key === "L") this.loop();
    else if (event.key === "Escape") this.switcher.loop(null);
    else return;
    event.preventDefault();
    this.refresh();
  }

  refresh() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const { switcher } = this;
      shape(this.play, switcher.playing ? "pause" : "play");
      this.repeat.setAttribute("aria-pressed", String(Boolean(switcher.looped)));
      const total = this.hidden ? "" : ` / ${switcher.duration.toFixed(1)} s`;
      this.clock.textContent = `${switcher.position.toFixed(1)}${total}`;
      this.play.setAttribute("aria-label", switcher.playing ? "Pause" : "Play");
      this.blind.setAttribute("aria-pressed", String(Boolean(this.hidden)));
      for (const [row, { button, canvas, lane }] of this.rows.entries()) {
        const place = this.order[row];
        const clip = this.clips[place];
        const gain = this.matched ? (clip.gain === null ? ", unmatched" : `, gain ${signed(clip.gain)}\u00a0dB`) : "";
        button.textContent = this.hidden ? `${row + 1}` : `${row + 1}  ${clip.name}${gain}`;
        const on = switcher.current === String(place);
        button.style.borderLeft = this.hidden || !COLORS[place] ? "" : `5px solid ${COLORS[place]}`;
        button.setAttribute("aria-pressed", String(on));
        const moment = this.warp(switcher.current, String(place), switcher.position);
        this.draw(canvas, clip, moment, on);
        lane.set(this.hidden ? NONE : clip.words);
        lane.draw(0, this.span(clip), moment);
      }
      this.scale();
      if (this.figures) {
        this.figures.root.hidden = Boolean(this.hidden);
        const gains = this.clips.map(({ gain }) => (this.matched ? (gain ?? 0) : 0));
        if (!this.hidden) this.figures.draw(this.warp(switcher.current, "0", switcher.position), gains);
      }
      const current = Number(switcher.current);
      Object.assign(this.root.dataset, {
        current: this.hidden ? `${this.order.indexOf(current) + 1}` : this.clips[current].name,
        position: switcher.position.toFixed(3),
        playing: String(switcher.playing),
        heard: Math.max(Number(this.root.dataset.heard ?? 0), switcher.playing ? switcher.level() : 0).toFixed(4),
      });
      if (switcher.playing) this.refresh();
    });
  }

  draw(canvas, clip, moment, on) {
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.max(1, Math.round(size * ratio)));
    const wave = getComputedStyle(this.root).getPropertyValue("--vl-wave");
    const wide = Math.max(1, Math.round((width * clip.seconds) / this.span(clip)));
    const drawn = [wide, height, wave].join();
    if (clip.drawn !== drawn) Object.assign(clip, { drawn, picture: picture(clip, wide, height, wave) });
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const pen = canvas.getContext("2d");
    pen.globalAlpha = on ? 1 : 0.8;
    pen.clearRect(0, 0, width, height);
    if (!this.hidden) pen.drawImage(clip.picture, 0, 0);
    const seconds = this.span(clip);
    if (on && this.switcher.region) {
      const [first, last] = this.switcher.region.map((edge) => (edge / seconds) * width);
      pen.fillStyle = "rgba(230, 159, 0, 0.25)";
      pen.fillRect(first, 0, last - first, height);
    }
    pen.globalAlpha = 1;
    if (this.hidden) return; // its speed would tell the clips apart
    pen.fillStyle = "#d55e00";
    pen.fillRect(Math.round((moment / seconds) * width) - ratio, 0, 2 * ratio, height);
  }

  /** Draw the time axis. */
  scale() {
    const { axis } = this;
    axis.hidden = Boolean(this.hidden);
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [axis.clientWidth, axis.clientHeight];
    const ink = getComputedStyle(this.root).color;
    const drawn = [width, height, ratio, ink].join();
    if (!width || this.scaled === drawn) return;
    this.scaled = drawn;
    Object.assign(axis, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const pen = axis.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = ink;
    pen.font = "11px system-ui, sans-serif";
    for (const [seconds, text] of roundTimes(0, this.longest, width, TICKS)) {
      const x = Math.min((seconds / this.longest) * width, width - 1);
      pen.fillRect(x, 0, 1, 4);
      pen.textAlign = x < 12 ? "left" : x > width - 24 ? "right" : "center";
      pen.fillText(text, x, height - 3);
    }
  }

  close() {
    this.switcher.stop();
    this.observer.disconnect();
    this.theme.disconnect();
    this.shown();
    cancelAnimationFrame(this.frame);
    void this.audio.close();
  }
}

/** Format a number with sign and one decimal, without -0.0. */
function signed(value) {
  const tenths = Math.round(10 * value) / 10;
  return `${tenths < 0 ? "" : "+"}${(tenths || 0).toFixed(1)}`;
}

/** Draw waveform and spectrogram to a canvas, which is cached by size. */
function picture(clip, width, height, wave) {
  const made = Object.assign(document.createElement("canvas"), { width, height });
  const pen = made.getContext("2d");
  const half = Math.round(height / 2);
  pen.fillStyle = wave;
  const step = clip.pcm.length / width;
  for (let x = 0; x < width; x++) {
    let low = 0;
    let high = 0;
    for (let i = Math.floor(x * step); i < Math.floor((x + 1) * step); i++) {
      if (clip.pcm[i] < low) low = clip.pcm[i];
      if (clip.pcm[i] > high) high = clip.pcm[i];
    }
    const top = ((1 - high / 32768) * half) / 2;
    pen.fillRect(x, top, 1, Math.max(((high - low) / 65536) * half, 1));
  }
  const { columns, bands, mel } = clip;
  const pixels = new ImageData(columns, bands);
  for (let band = 0; band < bands; band++) {
    for (let column = 0; column < columns; column++) {
      const [red, green, blue] = colour(mel[band * columns + column]);
      pixels.data.set([red, green, blue, 255], 4 * ((bands - 1 - band) * columns + column));
    }
  }
  const small = Object.assign(document.createElement("canvas"), { width: columns, height: bands });
  small.getContext("2d").putImageData(pixels, 0, 0);
  pen.drawImage(small, 0, half, width, height - half);
  return made;
}

export default {
  render({ model, el }) {
    let shown = null;
    const waiting = element("p", { textContent: "Preparing the comparison…" }, { role: "status" });
    el.append(waiting);
    const receive = (message, buffers) => {
      if (message.kind === "clips") {
        shown ??= new Comparison(el, message, buffers);
        if (!shown.figures) el.append(Object.assign(waiting, { textContent: "Measuring the differences…" }));
      } else if (message.kind === "figures") {
        shown?.figure(message, buffers);
        waiting.remove();
      } else if (message.kind === "failed") {
        waiting.setAttribute("role", "alert");
        waiting.textContent = message.text;
      }
    };
    // Without a kernel the page can still play, but stops playback.
    const lost = () => shown?.pause();
    model.on("msg:custom", receive);
    model.on("comm_live_update", lost);
    model.send({ kind: "ready" });
    return () => {
      model.off("msg:custom", receive);
      model.off("comm_live_update", lost);
      shown?.close();
    };
  },
};
