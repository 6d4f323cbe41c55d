// What a player draws: the waveform, the spectrogram and the arrival of every chunk, one below the other.

import { colour } from "./cividis.js";

const FONT = "10px system-ui, sans-serif";
const LINE = 11; // pixels from one label to the next, at least
const LEAST_HEIGHT = 40; // pixels, for times to be written in
const DB = 120; // a byte of a spectrogram is 0 at -120 dB and 255 at full scale
const QUIET = 60; // dB below full scale: what has nothing louder is dark all over

/** Make a canvas as sharp as the screen; returns its pen, in CSS pixels, and its size. */
export function paper(canvas) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [width, height] = [Math.max(1, canvas.clientWidth), Math.max(1, canvas.clientHeight)];
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, ratio };
}

/** What the theme says the colours are. */
export function inks(root) {
  const style = getComputedStyle(root);
  const names = ["wave", "heard", "cursor", "axis", "ink", "region", "late"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--vl-${name}`).trim()]));
}

/** The least and greatest sample of every column; the part already heard is another colour. */
export function drawWaveform(canvas, { samples, timeline, position, ink }) {
  const { pen, width, height, ratio } = paper(canvas);
  const middle = height / 2;
  pen.fillStyle = ink.axis;
  pen.fillRect(0, middle, width, 1);
  if (!samples.length) return;
  pen.font = FONT;
  for (const [sample, text] of height > LEAST_HEIGHT ? timeline.ticks(width, 90) : []) {
    const x = timeline.x(sample, width);
    pen.fillStyle = ink.axis;
    pen.fillRect(x, 0, 1, height);
    pen.fillStyle = ink.ink;
    if (x + 3 + pen.measureText(text).width <= width) pen.fillText(text, x + 3, height - 3);
  }
  const step = timeline.width / width / ratio;
  const thin = 1 / ratio;
  pen.fillStyle = ink.heard;
  let heard = true;
  // The scale is honest: full scale is the edge.
  for (let n = 0; n < width * ratio; n++) {
    const first = timeline.first + n * step;
    if (first >= samples.length) break;
    if (heard && first > position) {
      pen.fillStyle = ink.wave;
      heard = false;
    }
    const [low, high] = samples.extremes(first, Math.max(first + step, Math.floor(first) + 1));
    pen.fillRect(n * thin, (1 - high) * middle, thin, Math.max((high - low) * middle, 1));
  }
}

/** The loop and the place that sounds, over what a lane has drawn. */
export function drawMarks(canvas, { samples, timeline, position, region, ink }) {
  if (!samples.length) return;
  const pen = canvas.getContext("2d");
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (region) {
    const [left, right] = region.map((sample) => timeline.x(sample, width));
    pen.fillStyle = ink.region;
    pen.fillRect(left, 0, right - left, height);
    pen.fillStyle = ink.cursor;
    for (const x of [left, right]) pen.fillRect(x - 0.5, 0, 1, height);
  }
  pen.fillStyle = ink.cursor;
  pen.fillRect(timeline.x(position, width) - 1, 0, 2, height);
}

/** A spectrogram of the kernel's, coloured here, so that its range in dB can be changed at once. */
export class Spectrum {
  constructor() {
    this.clear();
  }

  clear() {
    this.levels = null;
    this.picture = null;
    this.detail = null; // another of what was last zoomed in to, by a finer step and a shorter window
  }

  /** The one that shows all from `first` to `last` seconds, and shows it best. */
  best(first, last) {
    const { detail } = this;
    return detail && detail.from <= first + detail.hop && detail.to >= last - detail.hop ? detail : this;
  }

  /** Frequency and level at a moment and a share of the height, in words. */
  told(seconds, share) {
    if (!this.levels) return "";
    const column = Math.max(0, Math.min(Math.round((seconds - this.start) / this.hop), this.columns - 1));
    const band = Math.max(0, Math.min(Math.floor(share * this.bands), this.bands - 1));
    const level = (this.levels[band * this.columns + column] / 255) * DB - DB;
    return ` · ${this.frequencies[band]} Hz · ${level.toFixed(0)} dB (window ${Math.round(1000 * this.window)} ms)`;
  }

  set(about, levels) {
    if (about.part && about.scale === this.scale) {
      this.detail = new Spectrum();
      this.detail.hold(about, levels);
      [this.detail.from, this.detail.to] = about.part;
      this.detail.top = this.top; // one colour is one level, however close one looks
    } else if (!about.part) {
      this.clear();
      this.hold(about, levels);
      // Of silence, and of what is nearly that, no part is bright.
      this.top = this.levels.reduce((most, value) => Math.max(most, value), (1 - QUIET / DB) * 255);
    }
  }

  hold({ bands, columns, hop, ticks, scale, frequencies, start, window }, levels) {
    Object.assign(this, { bands, columns, hop, ticks, scale, frequencies, start, window, levels: new Uint8Array(levels) });
  }

  paint(range) {
    const lowest = this.top - (range / DB) * 255;
    const palette = Array.from({ length: 256 }, (_, level) =>
      colour(255 * Math.max(0, Math.min(1, (level - lowest) / (this.top - lowest)))),
    );
    const pixels = new ImageData(this.columns, this.bands);
    for (let band = 0; band < this.bands; band++) {
      const row = (this.bands - 1 - band) * this.columns;
      for (let column = 0; column < this.columns; column++) {
        const [red, green, blue] = palette[this.levels[band * this.columns + column]];
        pixels.data.set([red, green, blue, 255], 4 * (row + column));
      }
    }
    this.picture = Object.assign(document.createElement("canvas"), { width: this.columns, height: this.bands });
    this.picture.getContext("2d").putImageData(pixels, 0, 0);
    this.range = range;
  }

  /** Draw what is shown of it; `lacking` says why there is nothing yet. */
  draw(canvas, view, range, lacking) {
    const { samples, timeline } = view;
    const best = this.best(timeline.first / samples.rate, (timeline.first + timeline.width) / samples.rate);
    if (best !== this) return best.draw(canvas, view, range, lacking);
    const { pen, width, height } = paper(canvas);
    pen.font = FONT;
    if (!this.levels) {
      pen.fillStyle = "#fff";
      pen.fillText(lacking, 8, 16);
      return;
    }
    if (!this.picture || this.range !== range) this.paint(range);
    // A column is centred on its moment.
    const column = (sample) => (sample / samples.rate - this.start) / this.hop + 0.5;
    const first = column(timeline.first);
    const shown = column(timeline.first + timeline.width) - first;
    pen.imageSmoothingEnabled = shown > width;
    pen.drawImage(this.picture, first, 0, shown, this.bands, 0, 0, width, height);
    // Where two labels would touch, the upper one is left out; none is cut off.
    let free = height - 2;
    for (const [text, share] of this.ticks) {
      const y = (1 - share) * height;
      const line = Math.max(Math.min(y + 3, height - 3), 9);
      if (line > free) continue;
      free = line - LINE;
      // Black round the letters: below them the picture has any colour.
      Object.assign(pen, { fillStyle: "#fff", strokeStyle: "#000b", lineWidth: 3, lineJoin: "round" });
      pen.fillRect(0, y, 4, 1);
      pen.strokeText(text, 7, line);
      pen.fillText(text, 7, line);
    }
  }
}

const [LOWEST, HIGHEST] = [50, 600]; // Hz, bottom and top of the pitch that is drawn

/** Pitch over the spectrogram, on an axis of its own: logarithmic, as it is heard. */
export class Pitch {
  constructor() {
    this.clear();
  }

  clear() {
    this.values = null;
  }

  set({ hop }, bytes) {
    Object.assign(this, { hop, values: new Float32Array(bytes) });
  }

  /** What it is at a moment, in words. */
  told(seconds) {
    const value = this.values?.[Math.round(seconds / this.hop)];
    return value > 0 ? ` · F0 ${value.toFixed(0)} Hz` : "";
  }

  draw(canvas, { samples, timeline, ink }) {
    if (!this.values) return;
    const pen = canvas.getContext("2d");
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const y = (hertz) => height * (1 - Math.log(hertz / LOWEST) / Math.log(HIGHEST / LOWEST));
    pen.font = FONT;
    // Dark round it: below it the picture has any colour.
    for (const [colour, wide] of [["#000c", 5], ["#fff", 2]]) {
      Object.assign(pen, { strokeStyle: colour, lineWidth: wide, lineJoin: "round" });
      pen.beginPath();
      let drawing = false;
      this.values.forEach((value, place) => {
        const known = value > 0;
        if (known) pen[drawing ? "lineTo" : "moveTo"](timeline.x(place * this.hop * samples.rate, width), y(value));
        drawing = known;
      });
      pen.stroke();
    }
    for (const hertz of [100, 200, 400]) {
      const text = `F0 ${hertz} Hz`;
      const left = width - pen.measureText(text).width - 4;
      Object.assign(pen, { fillStyle: "#fff", strokeStyle: "#000b", lineWidth: 3 });
      pen.strokeText(text, left, y(hertz) + 3);
      pen.fillText(text, left, y(hertz) + 3);
    }
  }
}

/** When every chunk came: [seconds since the call, first sample, samples]. */
export class Arrivals {
  constructor() {
    this.clear();
  }

  clear() {
    this.chunks = [];
  }

  /** Add chunks; those that are known are skipped. */
  add(chunks) {
    const known = this.chunks.at(-1)?.[1] ?? -1;
    this.chunks.push(...chunks.filter(([, first]) => first > known));
  }

  /** Seconds that a chunk came before it was needed, had the sound begun with the first; negative is late. */
  ahead([seconds, first], rate) {
    return this.chunks[0][0] + first / rate - seconds;
  }

  /** Time to first audio and RTF, in a line; empty where nothing is known. */
  figures({ rate, length }, underruns) {
    if (!this.chunks.length || !length) return "";
    const rtf = this.chunks.at(-1)[0] / (length / rate);
    const [chunks, gaps] = [this.chunks.length, underruns];
    return (
      `first audio ${this.chunks[0][0].toFixed(2)} s · RTF ${rtf.toFixed(2)} · ` +
      `${chunks} chunk${chunks === 1 ? "" : "s"} · ${gaps} underrun${gaps === 1 ? "" : "s"}`
    );
  }

  /** What a chunk says when it is pointed at. */
  told(sample, rate) {
    const number = this.chunks.findIndex(([, first, count]) => sample >= first && sample < first + count);
    if (number < 0) return "";
    const [seconds, first, count] = this.chunks[number];
    const ahead = this.ahead(this.chunks[number], rate);
    const when = ahead < 0 ? `${(-ahead).toFixed(3)} s late` : `${ahead.toFixed(3)} s before it was needed`;
    const span = `${(first / rate).toFixed(2)} to ${((first + count) / rate).toFixed(2)} s`;
    return `Chunk ${number + 1}, ${span}: arrived ${seconds.toFixed(3)} s after the call, ${when}`;
  }

  /** A block for each chunk, where its sound is, as high as it was early; late ones are another colour. */
  draw(canvas, { samples, timeline, ink }) {
    const { pen, width, height } = paper(canvas);
    if (!this.chunks.length) return;
    const ahead = this.chunks.map((chunk) => this.ahead(chunk, samples.rate));
    const most = Math.max(0.1, ...ahead.map(Math.abs));
    this.chunks.forEach(([, first, count], n) => {
      const left = timeline.x(first, width);
      const right = timeline.x(first + count, width);
      const high = 3 + (Math.abs(ahead[n]) / most) * (height - 4);
      pen.fillStyle = ahead[n] < 0 ? ink.late : ink.heard;
      pen.fillRect(left, height - high, Math.max(right - left - (right - left > 4 ? 1 : 0), 0.5), high);
    });
  }
}
