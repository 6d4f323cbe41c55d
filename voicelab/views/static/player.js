// The player of voicelab: streamed playback with waveform and spectrogram.
//
// The kernel sends PCM as custom messages, {kind: "audio", start, arrivals} with one buffer of s16le
// samples, and {kind: "begin"} and {kind: "end", samples} around them; `take` numbers the utterances.
// Messages may arrive before this file has loaded, or twice if several views ask, so `start` (in samples)
// detects duplicates, which are skipped, and gaps, which are requested again. An <audio> element plays a
// stream of unknown length only after its end.

import { download, followTheme, guard, hideSaved, watchTheme } from "./dom.js";
import { Samples } from "./player-samples.js";
import { Transport } from "./player-transport.js";
import { Pages } from "./player-pages.js";
import { Timeline } from "./player-timeline.js";
import { Arrivals, Pitch, Spectrum, drawMarks, drawWaveform, inks } from "./player-lanes.js";
import { build, shape } from "./player-controls.js";
import { RegionLane } from "./player-regions.js";
import { WordLane } from "./words.js";

/** State shared by all views of a model: samples, transport and listeners. */
class Shared {
  constructor(model) {
    this.model = model;
    this.samples = new Samples(model.get("rate"));
    this.transport = new Transport(this.samples);
    this.arrivals = new Arrivals();
    this.spectrum = new Spectrum();
    this.pitch = new Pitch();
    this.take = -1;
    this.heard = 0;
    this.notice = "";
    this.gone = false;
    this.listeners = new Set();
    // Opened early, since Safari resumes an audio context only during a user gesture.
    this.transport.open();
    model.on("msg:custom", (message, buffers) => this.receive(message, buffers));
    // After a kernel restart or crash received audio stays playable, and playback stops.
    model.on("comm_live_update", () => this.disconnect());
    this.ask();
  }

  /** Request all content, once until samples arrive. */
  ask() {
    if (!this.asked) this.model.send({ kind: "ready" });
    this.asked = true;
  }

  receive(message, buffers) {
    if (message.take < this.take) return; // of a replaced take
    this.pages ??= new Pages(message.model);
    if (message.take > this.take) this.begin(message);
    const bytes = buffers?.map((view) => view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
    if (message.kind === "audio") this.add(message, bytes[0]);
    else if (message.kind === "end") {
      if (message.samples > this.samples.length) this.ask();
      else this.samples.complete = true;
    } else if (message.kind === "spectrogram") this.spectrum.set(message, bytes[0]);
    else if (message.kind === "pitch") this.pitch.set(message, bytes[0]);
    else if (message.kind === "file") download(new Blob([bytes[0]], { type: message.media }), message.name);
    else if (message.kind === "control") this.control(message);
    else if (message.kind === "problem") this.notice = message.message;
    this.tell();
  }

  add(message, bytes) {
    this.came ??= performance.now();
    if (this.samples.add(message.start, bytes)) this.asked = false;
    else this.ask();
    this.arrivals.add(message.arrivals);
    this.transport.schedule();
  }

  /** Do what Python asks: play, pause or seek. */
  control({ action, seconds }) {
    const { transport, samples } = this;
    if (seconds !== null) transport.seek(seconds * samples.rate);
    if (action === "play" && !transport.playing) transport.play();
    else if (action === "pause") transport.pause();
  }

  /** Tell Python of playback, where it wants to know. */
  report() {
    if (this.gone || !this.model.get("reports")) return;
    const { playing, position } = this.transport;
    const rate = this.samples.rate;
    const send = (event, sample) => this.model.send({ kind: "event", event, seconds: sample / rate, take: this.take });
    // After the end the position is the start.
    if (playing !== this.reported) send(playing ? "play" : position || !this.reported ? "pause" : "ended", position || (playing ? 0 : this.last));
    else if (playing && performance.now() > this.due) send("position", position);
    else return void (this.last = position || this.last);
    Object.assign(this, { reported: playing, last: position, due: performance.now() + REPORT_MS });
  }

  begin(message) {
    this.transport.reset();
    this.take = message.take;
    this.samples.clear(message.rate);
    this.arrivals.clear();
    this.spectrum.clear();
    this.pitch.clear();
    Object.assign(this, { reported: false, last: 0, due: 0, pitched: false, heard: 0, came: null, wanted: null, notice: "" });
    if (message.autoplay) void this.pages.claim(() => this.take === message.take && !this.gone && this.transport.play(0));
  }

  /** Request a spectrogram from the kernel, once per take and scale. */
  want(scale) {
    const wanted = `${this.take} ${scale}`;
    if (!scale || this.gone || !this.samples.complete || !this.samples.length || this.wanted === wanted) return;
    this.wanted = wanted;
    this.model.send({ kind: "spectrogram", scale, take: this.take });
  }

  /** Request a spectrogram of a region, in seconds, with a shorter hop. */
  wantPart(scale, part) {
    if (!this.gone && this.samples.complete) this.model.send({ kind: "spectrogram", scale, part, take: this.take });
  }

  /** Store changed regions, here and in the kernel. */
  keep(regions) {
    this.model.set("marks", regions);
    this.model.save_changes();
    this.tell();
  }

  /** Request F0 from the kernel, once per take. */
  wantPitch() {
    if (this.pitched || this.gone || !this.samples.complete || !this.samples.length) return;
    this.pitched = true;
    this.model.send({ kind: "pitch", take: this.take });
  }

  disconnect() {
    this.transport.rest();
    this.gone = true;
    if (!this.samples.complete && this.samples.length) this.notice = "Kernel disconnected; the audio is incomplete.";
    this.samples.complete = true;
    this.tell();
  }

  close() {
    this.pages?.close();
    this.transport.close();
    this.listeners.clear();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

/** Return the user actions of a view. */
function actions(state, look) {
  const { transport, samples } = state;
  const changed = () => state.tell();
  const does = (action) => (value) => (action(value), changed());
  return {
    changed,
    toggle: does(() => (transport.playing ? transport.pause() : transport.play())),
    jump: does((seconds) => {
      transport.seek(transport.position + seconds * samples.rate);
      look.timeline.follow(transport.position);
    }),
    hear: does((seconds) => {
      transport.seek(seconds * samples.rate);
      if (!transport.playing) transport.play();
    }),
    repeat: does((seconds) => {
      transport.loop(seconds.map((edge) => edge * samples.rate));
      if (!transport.playing) transport.play(transport.region?.[0]);
    }),
    /** Seek to the previous or next word. */
    word: does((step) => {
      const words = state.model.get("words");
      const now = transport.position / samples.rate;
      const here = words.findLastIndex(([, start]) => start <= now + 0.01);
      const there = words[here + step] ?? (step < 0 ? words[here] : null);
      if (there) transport.seek(there[1] * samples.rate);
    }),
    /** Mark the loop as a region, labeled with the first free number. */
    mark: does(() => {
      if (!transport.region) return;
      const regions = state.model.get("marks");
      let number = 1;
      while (regions.some(([label]) => label === String(number))) number += 1;
      state.keep([...regions, [String(number), ...transport.region.map((sample) => sample / samples.rate)]]);
    }),
    loop: does(() => transport.loop(transport.region ? null : [0, samples.length])),
    unloop: does(() => transport.loop(null)),
    zoom: does((factor) => look.timeline.zoom(factor, transport.position)),
    whole: does(() => look.timeline.reset()),
    speed: does((speed) => transport.hasten(Number(speed))),
    scale: does((scale) => (look.scale = scale)),
    pitch: does(() => (look.pitch = !look.pitch)),
    range: does((range) => (look.range = Number(range))),
    format: does((format) => (look.format = format)),
    save() {
      const name = `${state.model.get("name")}.${look.format}`;
      if (look.format === "wav") download(samples.wav(), name);
      else if (look.format === "pcm") download(samples.pcm(), name);
      else if (state.gone) state.notice = "The kernel, which encodes this format, is disconnected; WAV and PCM are available.";
      else state.model.send({ kind: "encode", format: look.format, take: state.take });
      changed();
    },
  };
}

function controls(parts, state, look, position) {
  const { transport, samples, model } = state;
  const { root, play, loop, clock, save, wave, figures } = parts;
  const { rate } = samples;
  const seconds = (position / rate).toFixed(1);
  parts.words.set(model.get("words"));
  parts.words.draw(look.timeline.first / rate, look.timeline.width / rate, position / rate);
  parts.regions.set(model.get("marks"));
  parts.regions.draw(look.timeline.first / rate, look.timeline.width / rate);
  root.setAttribute("aria-label", model.get("label"));
  shape(play, transport.playing ? "pause" : "play");
  play.setAttribute("aria-label", transport.playing ? "Pause" : "Play");
  play.title = transport.playing ? "Pause (space)" : "Play (space)";
  play.disabled = samples.length === 0;
  loop.disabled = samples.length === 0;
  loop.setAttribute("aria-pressed", String(transport.region !== null));
  parts.mark.disabled = !transport.region;
  save.title = `Download as ${parts.format.selectedOptions[0].textContent}`;
  save.setAttribute("aria-label", save.title);
  parts.speed.value = String(transport.speed);
  for (const late of [save, parts.speed]) late.disabled = !samples.complete || samples.length === 0;
  for (const one of [parts.wider, parts.closer]) one.disabled = samples.length === 0;
  parts.whole.disabled = !look.timeline.zoomed;
  parts.range.hidden = parts.pitch.hidden = !look.scale;
  parts.pitch.setAttribute("aria-pressed", String(look.pitch));
  parts.pitch.setAttribute("aria-label", "Pitch over the spectrogram");
  parts.spectrum.hidden = !look.scale || !samples.length;
  parts.minimap.hidden = !look.timeline.zoomed;
  clock.textContent = `${seconds} / ${samples.seconds.toFixed(1)} s`;
  wave.setAttribute("aria-valuemax", samples.seconds.toFixed(1));
  wave.setAttribute("aria-valuenow", seconds);
  wave.setAttribute("aria-valuetext", `${seconds} of ${samples.seconds.toFixed(1)} seconds`);
  const told = state.arrivals.figures(samples, transport.underruns);
  const caption = `Arrival of every chunk, higher is earlier: ${told}`;
  if (figures.textContent !== caption) figures.textContent = caption;
  parts.arrivals.hidden = figures.hidden = !told;
  parts.arrivals.setAttribute("aria-label", caption);
  if (parts.notice.textContent !== state.notice) parts.notice.textContent = state.notice;
}

/** Draw the whole recording with a frame around the visible range. */
function drawOverview(canvas, view) {
  const { samples, timeline } = view;
  const whole = new Timeline(samples);
  drawWaveform(canvas, { ...view, timeline: whole });
  const region = [timeline.first, timeline.first + timeline.width];
  drawMarks(canvas, { ...view, timeline: whole, region });
}

/** Request a spectrogram of the zoomed range after `REST` without changes. */
function refine(state, look) {
  const { timeline, scale } = look;
  const part = [timeline.first, timeline.first + timeline.width].map((sample) => sample / state.samples.rate);
  const wanted = `${state.take} ${scale} ${part}`;
  if (look.refined === wanted) return;
  look.refined = wanted;
  clearTimeout(look.later);
  if (timeline.zoomed && state.samples.complete) look.later = setTimeout(() => state.wantPart(scale, part), REST);
}

function refresh(parts, state, look) {
  const { transport, samples, spectrum } = state;
  const { root } = parts;
  const position = Math.min(transport.position, samples.length);
  state.heard = Math.max(state.heard, transport.playing ? transport.level() : 0);
  root.classList.toggle("voicelab-compact", state.model.get("compact"));
  if (transport.playing && !look.drag) look.timeline.follow(position);
  controls(parts, state, look, position);
  const view = { samples, timeline: look.timeline, position, region: look.drag ?? transport.region, ink: inks(root) };
  drawWaveform(parts.wave, view);
  drawMarks(parts.wave, view);
  if (look.scale && !state.model.get("compact")) {
    state.want(look.scale);
    refine(state, look);
    const why = state.gone ? "The kernel, which computes spectrograms, is disconnected." : "Computing the spectrogram…";
    spectrum.draw(parts.spectrum, view, look.range, samples.complete ? why : "The spectrogram appears after the last chunk.");
    if (look.pitch) {
      state.wantPitch();
      state.pitch.draw(parts.spectrum, view);
    }
    drawMarks(parts.spectrum, view);
    parts.spectrum.setAttribute("aria-label", `${look.scale} spectrogram`);
  }
  if (look.timeline.zoomed) drawOverview(parts.minimap, view);
  state.arrivals.draw(parts.arrivals, view);
  Object.assign(root.dataset, {
    take: state.take,
    samples: samples.length,
    peak: samples.peak.toFixed(4),
    heard: state.heard.toFixed(4),
    position: Math.round(position),
    state: transport.playing ? "playing" : samples.complete ? "ready" : "waiting",
    underruns: transport.underruns,
    time: (transport.audio?.currentTime ?? 0).toFixed(3),
    chunks: state.arrivals.chunks.length,
    // Milliseconds from the first bytes to the start of playback.
    delay: (transport.sounds === null || !state.came ? NaN : transport.sounds - state.came).toFixed(1),
    region: transport.region?.join(" ") ?? "",
    first: Math.round(look.timeline.first),
    shown: Math.round(look.timeline.width),
    spectrogram: spectrum.levels ? `${spectrum.scale} ${spectrum.bands} ${spectrum.columns}` : "",
    detail: spectrum.detail ? `${spectrum.detail.from} ${spectrum.detail.to} ${spectrum.detail.hop}` : "",
  });
}

const PATIENCE = 60; // frames
const REPORT_MS = 250;
const REST = 250; // milliseconds without a change

function render(state, el) {
  const look = { timeline: new Timeline(state.samples), scale: "mel", range: 80, format: "wav", pitch: false, drag: null };
  const act = actions(state, look);
  const parts = build(el, state, look, act);
  parts.words = new WordLane(act.hear, act.repeat);
  parts.regions = new RegionLane(act.repeat, (regions) => state.keep(regions));
  parts.wave.after(parts.words.root, parts.regions.root);
  guard(parts.root);
  let frame = 0;
  let unseen = 0;
  let take = state.take;
  const paint = () => {
    frame = 0;
    // Hidden before the first take.
    parts.root.hidden = state.take < 0;
    if (parts.root.hidden) return;
    // The size may be zero for a moment, for example during theme changes; the drawing would stay one pixel wide.
    if (!parts.wave.clientWidth && unseen++ < PATIENCE) return void ask();
    unseen = 0;
    if (take !== state.take) look.timeline.reset();
    take = state.take;
    state.transport.finish();
    state.report();
    refresh(parts, state, look);
    if (state.transport.playing) ask();
  };
  const ask = () => (frame ||= requestAnimationFrame(paint));
  const sizes = new ResizeObserver(ask);
  for (const canvas of [parts.wave, parts.spectrum, parts.minimap, parts.arrivals]) sizes.observe(canvas);
  // Redraw in the colors of a new theme.
  const theme = watchTheme(ask);
  const done = hideSaved(el);
  followTheme(el);
  for (const name of ["words", "marks"]) state.model.on(`change:${name}`, ask);
  state.listeners.add(ask);
  ask();
  return () => {
    for (const name of ["words", "marks"]) state.model.off(`change:${name}`, ask);
    clearTimeout(look.later);
    state.listeners.delete(ask);
    sizes.disconnect();
    theme.disconnect();
    done();
    cancelAnimationFrame(frame);
    if (!state.listeners.size) state.transport.rest();
  };
}

// Called once per model. The closure holds the state shared by views, since every call below gets another object for
// the same model.
export default () => {
  let state = null;
  return {
    initialize({ model }) {
      state = new Shared(model);
      return () => state.close();
    },
    render: ({ el }) => render(state, el),
  };
};
