// The player of voicelab: speech that is heard, and seen, while it arrives.
//
// The kernel sends PCM as custom messages, {kind: "audio", start} with one buffer of s16le samples, and
// {kind: "begin"} and {kind: "end", samples} around them; `take` numbers the utterances. Messages may
// come before this file has loaded, or twice when several views ask, so `start` (in samples) decides
// what is new: what is already there is skipped, what is missing is asked for again. An <audio> element
// cannot do this: it plays a stream of unknown length only once it has ended.

const LEAD = 0.04; // seconds between scheduling and sounding, enough for two cores under load
const WORST_LEAD = 0.32; // after repeated underruns the lead grows to this, and no further

const contexts = new Map();

/** One context for each sample rate of the page: at its own rate no buffer is resampled, so that none
 * has edges, and browsers limit how many contexts may exist. */
function context(rate) {
  if (!contexts.has(rate)) {
    contexts.set(rate, new AudioContext({ latencyHint: "interactive", sampleRate: rate }));
  }
  return contexts.get(rate);
}

// Sound may start only after somebody has touched the page; that touch is usually the Speak button,
// which lives outside this widget, so the document is watched.
for (const event of ["pointerdown", "keydown"]) {
  const wake = () => contexts.forEach((audio) => void audio.resume());
  document.addEventListener(event, wake, { capture: true, passive: true });
}

/** The samples of one utterance, growing while they arrive. */
export class Samples {
  constructor(rate) {
    this.clear(rate);
  }

  clear(rate) {
    this.rate = rate;
    this.length = 0;
    this.peak = 0;
    this.complete = false;
    this.data = new Float32Array(rate * 4);
  }

  /** Add s16le PCM that begins at sample `start`. Returns false where samples before it are missing. */
  add(start, buffer) {
    if (start > this.length) return false;
    const pcm = new Int16Array(buffer);
    const skip = this.length - start;
    if (skip >= pcm.length) return true;
    const needed = start + pcm.length;
    if (needed > this.data.length) {
      const grown = new Float32Array(Math.max(needed, this.data.length * 2));
      grown.set(this.data.subarray(0, this.length));
      this.data = grown;
    }
    for (let i = skip; i < pcm.length; i++) {
      const value = pcm[i] / 32768;
      this.data[start + i] = value;
      if (Math.abs(value) > this.peak) this.peak = Math.abs(value);
    }
    this.length = needed;
    return true;
  }

  get seconds() {
    return this.length / this.rate;
  }

  /** The samples as a WAV file of 16 bits, with exact sizes. */
  wav() {
    const bytes = new DataView(new ArrayBuffer(44 + 2 * this.length));
    const ascii = (at, text) => [...text].forEach((c, i) => bytes.setUint8(at + i, c.charCodeAt(0)));
    ascii(0, "RIFF");
    bytes.setUint32(4, 36 + 2 * this.length, true);
    ascii(8, "WAVEfmt ");
    bytes.setUint32(16, 16, true);
    bytes.setUint16(20, 1, true);
    bytes.setUint16(22, 1, true);
    bytes.setUint32(24, this.rate, true);
    bytes.setUint32(28, this.rate * 2, true);
    bytes.setUint16(32, 2, true);
    bytes.setUint16(34, 16, true);
    ascii(36, "data");
    bytes.setUint32(40, 2 * this.length, true);
    for (let i = 0; i < this.length; i++) {
      bytes.setInt16(44 + 2 * i, Math.round(this.data[i] * 32768), true);
    }
    return new Blob([bytes], { type: "audio/wav" });
  }
}

/** Plays Samples from any point, without a gap, also while they are still arriving. */
export class Transport {
  constructor(samples, audio = null) {
    this.samples = samples;
    this.given = audio; // a BaseAudioContext, given by tests; the page's own otherwise
    this.audio = null;
    this.sources = new Set();
    this.playing = false;
    this.stopped = 0; // the sample to go on from while not playing
    this.underruns = 0;
    this.lead = LEAD;
  }

  get output() {
    const audio = this.given ?? context(this.samples.rate);
    if (this.audio !== audio) {
      this.audio = audio;
      this.gain = audio.createGain();
      this.meter = audio.createAnalyser();
      this.gain.connect(this.meter).connect(audio.destination);
    }
    return this.gain;
  }

  play(from = this.stopped) {
    this.silence();
    void this.output; // makes the context
    if (!this.given && this.audio.state === "suspended") void this.audio.resume();
    this.playing = true;
    this.scheduled = Math.min(from, this.samples.length);
    this.anchor = null;
    this.schedule();
  }

  /** Hand every sample that has arrived to the audio thread, exactly after the one before it. */
  schedule() {
    if (!this.playing || this.scheduled >= this.samples.length) return;
    const { rate, data, length } = this.samples;
    const now = this.audio.currentTime;
    // In whole frames, so that each buffer begins on the very frame after the last one's end.
    const frame = () => this.anchor.frame + this.scheduled - this.anchor.sample;
    if (this.anchor && frame() / rate < now) {
      this.underruns += 1;
      this.lead = Math.min(2 * this.lead, WORST_LEAD);
      this.anchor = null;
    }
    if (!this.anchor) {
      const start = Math.ceil((now + this.lead) * rate);
      this.anchor = { frame: start, sample: this.scheduled };
    }
    const buffer = this.audio.createBuffer(1, length - this.scheduled, rate);
    buffer.copyToChannel(data.subarray(this.scheduled, length), 0);
    const source = this.audio.createBufferSource();
    source.buffer = buffer;
    source.connect(this.output);
    source.onended = () => this.sources.delete(source);
    source.start(frame() / rate);
    this.sources.add(source);
    this.scheduled = length;
  }

  pause() {
    this.stopped = this.position;
    this.playing = false;
    this.silence();
  }

  seek(sample) {
    this.stopped = Math.max(0, Math.min(sample, this.samples.length));
    if (this.playing) this.play(this.stopped);
  }

  silence() {
    for (const source of this.sources) {
      source.onended = null;
      source.stop();
      source.disconnect();
    }
    this.sources.clear();
  }

  /** The sample that is sounding now. */
  get position() {
    if (!this.playing) return this.stopped;
    if (!this.anchor) return this.scheduled;
    const passed = this.audio.currentTime * this.samples.rate - this.anchor.frame;
    return Math.max(this.anchor.sample, Math.min(this.anchor.sample + passed, this.scheduled));
  }

  /** The largest sample in the block that is at the output now: proof that sound leaves. */
  level() {
    if (!this.meter) return 0;
    const block = new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(block);
    return block.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  }

  /** Stop at the end of a complete utterance; returns whether it did. */
  finish() {
    if (!this.playing || !this.samples.complete || this.position < this.samples.length) return false;
    this.playing = false;
    this.stopped = 0;
    this.silence();
    return true;
  }
}

/** What all views of one model share: its samples, how they sound, and what to tell whom. */
class Shared {
  constructor(model) {
    this.model = model;
    this.samples = new Samples(model.get("rate"));
    this.transport = new Transport(this.samples);
    this.take = -1;
    this.heard = 0;
    this.listeners = new Set();
    // Made now, so that the touch that asks for speech finds it: Safari wakes one only during a touch.
    context(this.samples.rate);
    model.on("msg:custom", (message, buffers) => this.receive(message, buffers));
    this.ask();
  }

  /** Ask for all there is; once, until something has come. */
  ask() {
    if (!this.asked) this.model.send({ kind: "ready" });
    this.asked = true;
  }

  receive(message, buffers) {
    if (message.take < this.take) return; // late news of a take that has been replaced
    if (message.take > this.take) this.begin(message);
    if (message.kind === "audio") {
      const view = buffers[0];
      const bytes = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
      if (this.samples.add(message.start, bytes)) this.asked = false;
      else this.ask();
      this.transport.schedule();
    } else if (message.kind === "end") {
      if (message.samples > this.samples.length) this.ask();
      else this.samples.complete = true;
    }
    this.tell();
  }

  begin(message) {
    this.transport.silence();
    this.take = message.take;
    this.samples.clear(message.rate);
    this.heard = 0;
    Object.assign(this.transport, { playing: false, stopped: 0, underruns: 0, lead: LEAD });
    if (message.autoplay) this.transport.play(0);
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

const shared = new WeakMap();

function sharedOf(model) {
  if (!shared.has(model)) shared.set(model, new Shared(model));
  return shared.get(model);
}

function button(label, glyph, action) {
  const node = document.createElement("button");
  Object.assign(node, { type: "button", title: label, textContent: glyph, onclick: action });
  node.setAttribute("aria-label", label);
  return node;
}

/** Draw the least and greatest sample of every pixel column; the part already heard is darker. */
export function drawWaveform(canvas, samples, position, style) {
  const ratio = globalThis.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  pen.fillStyle = style.getPropertyValue("--vl-axis");
  pen.fillRect(0, Math.floor(height / 2), width, 1);
  if (!samples.length) return;
  const step = samples.length / width;
  // Loud speech fills the canvas, but the scale is honest: full scale is the edge.
  for (let x = 0; x < width; x++) {
    const end = Math.max(Math.floor((x + 1) * step), Math.floor(x * step) + 1);
    let low = 0;
    let high = 0;
    for (let i = Math.floor(x * step); i < end; i++) {
      if (samples.data[i] < low) low = samples.data[i];
      if (samples.data[i] > high) high = samples.data[i];
    }
    pen.fillStyle = style.getPropertyValue(x * step <= position ? "--vl-heard" : "--vl-wave");
    const top = ((1 - high) * height) / 2;
    pen.fillRect(x, top, 1, Math.max(((high - low) * height) / 2, 1));
  }
  pen.fillStyle = style.getPropertyValue("--vl-cursor");
  pen.fillRect(Math.round(position / step) - ratio, 0, 2 * ratio, height);
}

function build(el, state) {
  const root = document.createElement("div");
  root.className = "voicelab-player";
  root.setAttribute("role", "group");
  const { transport, samples } = state;
  const toggle = () => (transport.playing ? transport.pause() : transport.play(), state.tell());
  const play = button("Play", "▶", toggle);
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "slider");
  canvas.setAttribute("aria-label", "Position in the recording");
  const clock = document.createElement("span");
  clock.className = "voicelab-clock";
  const save = button("Download as WAV", "⤓", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(samples.wav());
    link.download = `${state.model.get("name")}.wav`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
  canvas.onpointerdown = (event) => {
    transport.seek((event.offsetX / canvas.clientWidth) * samples.length);
    state.tell();
  };
  root.onkeydown = (event) => {
    const jump = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === " " && event.target !== save) toggle();
    else if (jump) transport.seek(transport.position + jump * samples.rate);
    else return;
    event.preventDefault();
    event.stopPropagation(); // JupyterLab would take the arrows to move between cells
    state.tell();
  };
  root.append(play, canvas, clock, save);
  el.append(root);
  return { root, play, canvas, clock, save };
}

function refresh({ root, play, canvas, clock, save }, state) {
  const { transport, samples, model } = state;
  const position = Math.min(transport.position, samples.length);
  state.heard = Math.max(state.heard, transport.playing ? transport.level() : 0);
  root.setAttribute("aria-label", model.get("label"));
  play.textContent = transport.playing ? "❚❚" : "▶";
  play.setAttribute("aria-label", transport.playing ? "Pause" : "Play");
  play.title = transport.playing ? "Pause (space)" : "Play (space)";
  play.disabled = samples.length === 0;
  save.disabled = !samples.complete || samples.length === 0;
  clock.textContent = `${(position / samples.rate).toFixed(1)} / ${samples.seconds.toFixed(1)} s`;
  canvas.setAttribute("aria-valuemax", samples.seconds.toFixed(1));
  canvas.setAttribute("aria-valuenow", (position / samples.rate).toFixed(1));
  drawWaveform(canvas, samples, position, getComputedStyle(root));
  Object.assign(root.dataset, {
    take: state.take,
    samples: samples.length,
    peak: samples.peak.toFixed(4),
    heard: state.heard.toFixed(4),
    position: Math.round(position),
    state: transport.playing ? "playing" : samples.complete ? "ready" : "waiting",
    underruns: transport.underruns,
    time: (transport.audio?.currentTime ?? 0).toFixed(3),
  });
}

function initialize({ model }) {
  sharedOf(model);
}

function render({ model, el }) {
  const state = sharedOf(model);
  const parts = build(el, state);
  let frame = 0;
  const paint = () => {
    frame = 0;
    state.transport.finish();
    refresh(parts, state);
    if (state.transport.playing) ask();
  };
  const ask = () => (frame ||= requestAnimationFrame(paint));
  const observer = new ResizeObserver(ask);
  observer.observe(parts.canvas);
  state.listeners.add(ask);
  ask();
  return () => {
    state.listeners.delete(ask);
    observer.disconnect();
    cancelAnimationFrame(frame);
    if (!state.listeners.size && state.transport.playing) state.transport.pause();
  };
}

export default { initialize, render };
