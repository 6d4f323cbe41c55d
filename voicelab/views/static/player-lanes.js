// Lanes of a player: waveform, spectrogram with F0, and arrivals of chunks.

import { colour } from "./cividis.js";

const FONT = "10px system-ui, sans-serif";
const LINE = 11; // minimum distance of labels in pixels
const LEAST_HEIGHT = 40; // pixels; minimum for time labels
const DB = 120; // a byte of a spectrogram is 0 at -120 dB and 255 at full scale
const QUIET = 60; // dB below full scale; quieter recordings are drawn dark

/** Resize a canvas to device pixels; return its context, in CSS pixels, and its size. */
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

/** Return the colors of the theme. */
export function inks(root) {
  const style = getComputedStyle(root);
  const names = ["wave", "heard", "cursor", "axis", "ink", "region", "late"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--vl-${name}`).trim()]));
}

/** Draw minimum and maximum of every column; the part already played has another color. */
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
  // Not normalized: full scale is the edge.
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

/** Draw the loop and the playback position over a lane. */
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

/** A spectrogram from the kernel; coloring here allows immediate changes of its range in dB. */
export class Spectrum {
  constructor() {
    this.clear();
  }

  clear() {
    this.levels = null;
    this.picture = null;
    this.detail = null; // spectrogram of the zoomed region, with a shorter hop and window
  }

  /** Return the spectrogram with the best resolution from `first` to `last` seconds. */
  best(first, last) {
    const { detail } = this;
    return detail && detail.from <= first + detail.hop && detail.to >= last - detail.hop ? detail : this;
  }

  /** Return the readout of frequency and level at a time and a relative height. */
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
      this.detail.top = this.top; // so that colors represent the same levels
    } else if (!about.part) {
      this.clear();
      this.hold(about, levels);
      // The lower bound keeps silence dark.
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

  /** Draw the visible range; `lacking` is the message while there is no spectrogram. */
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
    // Columns are centered on their times.
    const column = (sample) => (sample / samples.rate - this.start) / this.hop + 0.5;
    const first = column(timeline.first);
    const shown = column(timeline.first + timeline.width) - first;
    pen.imageSmoothingEnabled = shown > width;
    pen.drawImage(this.picture, first, 0, shown, this.bands, 0, 0, width, height);
    // Of overlapping labels the upper is omitted; none is cut off.
    let free = height - 2;
    for (const [text, share] of this.ticks) {
      const y = (1 - share) * height;
      const line = Math.max(Math.min(y + 3, height - 3), 9);
      if (line > free) continue;
      free = line - LINE;
      // A dark outline keeps labels readable on any color.
      Object.assign(pen, { fillStyle: "#fff", strokeStyle: "#000b", lineWidth: 3, lineJoin: "round" });
      pen.fillRect(0, y, 4, 1);
      pen.strokeText(text, 7, line);
      pen.fillText(text, 7, line);
    }
  }
}

const [LOWEST, HIGHEST] = [50, 600]; // Hz, limits of the F0 axis

/** F0 over the spectrogram, on a separate logarithmic axis. */
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

  /** Return the readout at a time. */
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
    // A dark outline keeps the curve visible on any color.
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

/** Arrivals of chunks: [seconds since the call, first sample, samples]. */
export class Arrivals {
  constructor() {
    this.clear();
  }

  clear() {
    this.chunks = [];
  }

  /** Add chunks, skipping duplicates. */
  add(chunks) {
    const known = this.chunks.at(-1)?.[1] ?? -1;
    this.chunks.push(...chunks.filter(([, first]) => first > known));
  }

  /** Seconds from arrival to the playback deadline, if playback started with the first chunk; negative is late. */
  ahead([seconds, first], rate) {
    return this.chunks[0][0] + first / rate - seconds;
  }

  /** Return time to first audio, RTF, chunks and underruns as text; empty if unknown. */
  figures({ rate, length }, underruns) {
    if (!this.chunks.length || !length) return "";
    const rtf = this.chunks.at(-1)[0] / (length / rate);
    const [chunks, gaps] = [this.chunks.length, underruns];
    return (
      `first audio ${this.chunks[0][0].toFixed(2)} s · RTF ${rtf.toFixed(2)} · ` +
      `${chunks} chunk${chunks === 1 ? "" : "s"} · ${gaps} underrun${gaps === 1 ? "" : "s"}`
    );
  }

  /** Return the tooltip of a chunk. */
  told(sample, rate) {
    const number = this.chunks.findIndex(([, first, count]) => sample >= first && sample < first + count);
    if (number < 0) return "";
    const [seconds, first, count] = this.chunks[number];
    const ahead = this.ahead(this.chunks[number], rate);
    const when = ahead < 0 ? `${(-ahead).toFixed(3)} s late` : `${ahead.toFixed(3)} s early`;
    const span = `${(first / rate).toFixed(2)} to ${((first + count) / rate).toFixed(2)} s`;
    return `Chunk ${number + 1}, ${span}: arrived ${seconds.toFixed(3)} s after the call, ${when}`;
  }

  /** Draw a block per chunk at the time of its audio, as high as it was early; late chunks have another color. */
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
