// Figures below a comparison: differences of pitch and level from the first clip, and tables.
//
// The kernel sends {hop, middles, tables} with two float32 buffers for each clip but the first: differences of F0 in
// semitones (NaN unless both are voiced) and of level in dB, a value every `hop` seconds of the first clip.

// Okabe and Ito (2008), in the order of clips, orange and sky blue darkened to 3:1 on white; the first clip is the reference.
export const COLORS = ["", "#d55e00", "#009e73", "#b87d00", "#3d94c6", "#cc79a7", "#0072b2", "#8c8c8c"];
const KINDS = [
  { name: "F0", unit: "semitones", least: 3 },
  { name: "level", unit: "dB", least: 6 },
];

export function node(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

export class Figures {
  constructor(clips, message, buffers, seek) {
    this.hop = message.hop;
    this.lines = KINDS.map((_, kind) => clips.slice(1).map((_, other) => new Float32Array(copied(buffers[2 * other + kind]))));
    const named = clips.slice(1).map(({ name }, other) => {
      const key = node("span", { className: "voicelab-compare-key" });
      key.style.background = COLORS[other + 1];
      return node("span", {}, key, `${name}: ${message.middles[other]}`);
    });
    this.canvases = KINDS.map(({ name, unit }, kind) => {
      const canvas = node("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `Difference of ${name} from ${clips[0].name}, in ${unit}: ${message.middles.join("; ")}`);
      canvas.onclick = (event) => seek((event.offsetX / canvas.clientWidth) * this.seconds);
      return node("div", { className: "voicelab-compare-line" }, node("span", {}, `${name}, ${unit} above ${clips[0].name}`), canvas);
    });
    const tables = node("div", { className: "voicelab-compare-tables" }, ...message.tables.map(table));
    const legend = node("div", { className: "voicelab-compare-legend" }, ...named);
    this.root = node("div", { className: "voicelab-compare-figures" }, legend, ...this.canvases, tables);
  }

  get seconds() {
    return this.hop * this.lines[0][0].length;
  }

  /** Draw with a cursor at a time of the first clip; `gains` are the playback gains in dB. */
  draw(moment, gains) {
    const ratio = globalThis.devicePixelRatio || 1;
    for (const [kind, line] of this.canvases.entries()) {
      const canvas = line.lastChild;
      const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.max(1, Math.round(size * ratio)));
      const ink = getComputedStyle(canvas).color;
      const shown = [width, height, ink, gains.join()].join(" ");
      if (line.shown !== shown) Object.assign(line, { shown, picture: this.picture(kind, width, height, ink, gains, ratio) });
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
      const pen = canvas.getContext("2d");
      pen.clearRect(0, 0, width, height);
      pen.drawImage(line.picture, 0, 0);
      pen.fillStyle = "#d55e00";
      pen.fillRect(Math.round((moment / this.seconds) * width) - ratio, 0, 2 * ratio, height);
    }
  }

  picture(kind, width, height, ink, gains, ratio) {
    const made = Object.assign(document.createElement("canvas"), { width, height });
    const pen = made.getContext("2d");
    // Levels include playback gains.
    const lifted = this.lines[kind].map((line, other) => (kind ? line.map((value) => value + gains[other + 1] - gains[0]) : line));
    const known = lifted.flatMap((line) => Array.from(line, Math.abs)).filter(Number.isFinite).sort((a, b) => a - b);
    // The range of 98 % of values, so that outliers of the pitch tracker do not flatten the curve.
    const { least } = KINDS[kind];
    const range = Math.max(least, Math.ceil((known[Math.floor(0.98 * known.length)] ?? 0) / least) * least);
    const y = (value) => (0.5 - (0.46 * Math.max(-range, Math.min(range, value))) / range) * height;
    pen.fillStyle = pen.strokeStyle = ink;
    pen.globalAlpha = 0.35;
    pen.fillRect(0, Math.round(y(0)), width, ratio);
    pen.globalAlpha = 0.8;
    pen.font = `${10 * ratio}px sans-serif`;
    pen.fillText(`+${range}`, 3 * ratio, 11 * ratio);
    pen.fillText(`−${range}`, 3 * ratio, height - 3 * ratio);
    pen.globalAlpha = 1;
    pen.lineWidth = 1.5 * ratio;
    for (const [other, line] of lifted.entries()) {
      pen.strokeStyle = COLORS[other + 1];
      pen.beginPath();
      let drawing = false;
      line.forEach((value, place) => {
        const known = Number.isFinite(value);
        if (known) pen[drawing ? "lineTo" : "moveTo"]((place / line.length) * width, y(value));
        drawing = known;
      });
      pen.stroke();
    }
    return made;
  }
}

function table({ title, heads, rows, empty }) {
  if (!rows.length) return node("p", {}, empty);
  const cells = (tag, texts) => texts.map((text) => node(tag, {}, text));
  const head = node("thead", {}, node("tr", {}, ...cells("th", heads)));
  const body = node("tbody", {}, ...rows.map(([label, ...values]) => node("tr", {}, node("th", { scope: "row" }, label), ...cells("td", values))));
  return node("table", {}, node("caption", {}, title), head, body);
}

export function copied(view) {
  return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
}
