// Controls of a player: buttons, pointer and keys.

import { actsOn, element } from "./dom.js";

const SHAPES = {
  play: '<path d="M7 4.5v15l12.5-7.5z"/>',
  pause: '<path d="M6 5h4v14H6zM14 5h4v14h-4z"/>',
  loop: '<path d="M17 3l4 4-4 4V8H7a3 3 0 0 0-3 3H2a5 5 0 0 1 5-5h10zM7 21l-4-4 4-4v3h10a3 3 0 0 0 3-3h2a5 5 0 0 1-5 5H7z"/>',
  closer: '<path d="M11 5h2v6h6v2h-6v6h-2v-6H5v-2h6z"/>',
  wider: '<path d="M5 11h14v2H5z"/>',
  whole: '<path d="M2 5h2v14H2zM20 5h2v14h-2zM9 8v3h6V8l4 4-4 4v-3H9v3l-4-4z"/>',
  mark: '<path d="M5 3h14l-3 5 3 5H7v8H5z"/>',
  save: '<path d="M11 3h2v9l3.5-3.5 1.4 1.4L12 15.8 6.1 9.9l1.4-1.4L11 12zM4 18h16v2H4z"/>',
};
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];
const RANGES = [40, 60, 80, 100];
const FORMATS = [["wav", "WAV"], ["mp3", "MP3"], ["opus", "Opus"], ["pcm", "PCM"], ["textgrid", "TextGrid"]];
const DRAG = 4; // pixels; less than this is a click

export function shape(button, name) {
  if (button.dataset.shape === name) return;
  button.dataset.shape = name;
  button.innerHTML = `<svg viewBox="0 0 24 24" aria-hidden="true">${SHAPES[name]}</svg>`;
}

function button(label, name, onclick, keys = "") {
  const title = keys ? `${label} (${keys})` : label;
  const made = element("button", { type: "button", title, onclick }, { "aria-label": label });
  shape(made, name);
  return made;
}

function select(label, options, value, onchange) {
  const made = element("select", { title: label }, { "aria-label": label });
  made.append(...options.map(([value, text]) => element("option", { value, textContent: text })));
  made.value = value;
  made.onchange = () => onchange(made.value);
  return made;
}

/** Build a player in `el`; `state` is shared by all views, `look` belongs to this view. */
export function build(el, state, look, act) {
  const root = element("div", { className: "voicelab-player" }, { role: "group" });
  const lane = (name, role, label) =>
    element("canvas", { className: `voicelab-${name}` }, { role, "aria-label": label });
  const parts = {
    root,
    play: button("Play", "play", act.toggle, "space"),
    clock: element("span", { className: "voicelab-clock" }),
    loop: button("Loop", "loop", act.loop, "L; drag over the waveform to loop a region, Escape to stop"),
    mark: button("Mark the loop as a region", "mark", act.mark, "M"),
    wider: button("Zoom out", "wider", () => act.zoom(1 / 2), "−"),
    closer: button("Zoom in", "closer", () => act.zoom(2), "+"),
    whole: button("Show all", "whole", act.whole, "0"),
    speed: select("Playback rate, at the same pitch", SPEEDS.map((x) => [x, `${x}×`]), 1, act.speed),
    scale: select(
      "Spectrogram",
      [["", "no spectrogram"], ["mel", "mel"], ["linear", "linear"]],
      look.scale,
      act.scale,
    ),
    pitch: element("button", { type: "button", title: "Pitch (F0) over the spectrogram (F)", onclick: act.pitch }, {}, "F0"),
    range: select("Range of the spectrogram in dB", RANGES.map((x) => [x, `${x} dB`]), look.range, act.range),
    format: select("Format of the download", FORMATS, "wav", act.format),
    save: button("Download as WAV", "save", act.save),
    wave: lane("wave", "slider", "Position in the recording"),
    spectrum: lane("spectrum", "img", "Spectrogram"),
    minimap: lane("minimap", "img", "Overview of the recording with the visible range"),
    arrivals: lane("arrivals", "img", "Arrival of every chunk"),
    figures: element("div", { className: "voicelab-figures" }),
    readout: element("div", { className: "voicelab-readout" }, { "aria-hidden": "true" }),
    notice: element("div", { className: "voicelab-notice" }, { role: "alert" }),
  };
  parts.wave.tabIndex = 0;
  parts.wave.setAttribute("aria-valuemin", "0");
  const bar = (...children) => element("div", { className: "voicelab-bar" }, {}, ...children);
  const group = (...children) => element("span", { className: "voicelab-group" }, {}, ...children);
  root.append(
    bar(
      group(parts.play, parts.loop, parts.mark, parts.clock),
      group(parts.wider, parts.closer, parts.whole),
      group(parts.speed),
      group(parts.scale, parts.range, parts.pitch),
      group(parts.format, parts.save),
    ),
    parts.wave,
    parts.spectrum,
    parts.minimap,
    parts.arrivals,
    parts.figures,
    parts.readout,
    parts.notice,
  );
  for (const canvas of [parts.wave, parts.spectrum]) {
    point(canvas, state, look, act);
    canvas.addEventListener("pointermove", (event) => {
      parts.readout.textContent = reading(state, look, canvas === parts.spectrum, canvas, event);
    });
    canvas.addEventListener("pointerleave", () => (parts.readout.textContent = ""));
  }
  navigate(parts, state, look, act);
  parts.arrivals.onpointermove = (event) => {
    const at = look.timeline.sample(event.offsetX, parts.arrivals.clientWidth);
    parts.arrivals.title = state.arrivals.told(at, state.samples.rate);
  };
  root.onkeydown = (event) => press(event, act);
  el.append(root);
  return parts;
}

/** Return the readout at the pointer. */
function reading(state, look, over, canvas, { offsetX, offsetY }) {
  const sample = look.timeline.sample(offsetX, canvas.clientWidth);
  const at = sample / state.samples.rate;
  const { timeline } = look;
  const [first, last] = [timeline.first, timeline.first + timeline.width].map((edge) => edge / state.samples.rate);
  const there = over
    ? state.spectrum.best(first, last).told(at, 1 - offsetY / canvas.clientHeight)
    : ` · ${Math.max(-120, state.samples.level(sample)).toFixed(1)} dBFS`;
  return `${at.toFixed(3)} s${there}${look.pitch ? state.pitch.told(at) : ""}`;
}

/** Scroll by click or drag on the overview. */
function navigate({ minimap: canvas, wave }, state, look, act) {
  const go = (event) => {
    look.timeline.center((event.offsetX / canvas.clientWidth) * state.samples.length);
    act.changed();
  };
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    wave.focus({ preventScroll: true }); // which handles keys
    go(event);
  };
  canvas.onmousedown = (event) => event.preventDefault();
  canvas.onpointermove = (event) => event.buttons && go(event);
}

/** Seek by click, loop a region by drag, zoom by wheel with Ctrl or Alt. */
function point(canvas, state, look, act) {
  const at = (event) => {
    const { left, width } = canvas.getBoundingClientRect(); // not clientWidth, which differs on a zoomed page
    return look.timeline.sample(event.clientX - left, width);
  };
  let began = null;
  canvas.onpointerdown = (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    began = { x: event.clientX, sample: at(event) };
  };
  canvas.onpointermove = (event) => {
    if (!began || (!look.drag && Math.abs(event.clientX - began.x) < DRAG)) return;
    look.drag = [began.sample, at(event)].sort((a, b) => a - b);
    act.changed();
  };
  canvas.onpointerup = (event) => {
    if (!began) return;
    if (look.drag) state.transport.loop(look.drag);
    else state.transport.seek(at(event));
    began = look.drag = null;
    act.changed();
  };
  canvas.onpointercancel = () => {
    began = look.drag = null;
    act.changed();
  };
  // Without a modifier the wheel scrolls the notebook.
  canvas.addEventListener(
    "wheel",
    (event) => {
      const aside = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      if (event.ctrlKey || event.altKey || event.metaKey) look.timeline.zoom(2 ** (-event.deltaY / 200), at(event));
      else if (aside && look.timeline.zoomed) {
        look.timeline.pan(((event.deltaX || event.deltaY) / canvas.clientWidth) * look.timeline.width);
      } else return;
      event.preventDefault();
      act.changed();
    },
    { passive: false },
  );
}

function press(event, act) {
  if (event.ctrlKey || event.metaKey || event.altKey || actsOn(event.target, event.key)) return;
  const jump = event.shiftKey ? 0.1 : 1;
  const actions = {
    " ": act.toggle,
    ArrowLeft: () => act.jump(-jump),
    ArrowRight: () => act.jump(jump),
    "[": () => act.word(-1),
    "]": () => act.word(1),
    Home: () => act.jump(-Infinity),
    End: () => act.jump(Infinity),
    l: act.loop,
    L: act.loop,
    m: act.mark,
    M: act.mark,
    f: act.pitch,
    F: act.pitch,
    Escape: act.unloop,
    "+": () => act.zoom(2),
    "=": () => act.zoom(2),
    "-": () => act.zoom(1 / 2),
    0: act.whole,
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}
