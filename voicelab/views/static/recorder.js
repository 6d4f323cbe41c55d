// Upload of recordings: dropped or selected files, and the microphone.
//
// A file is sent in chunks, {kind: "piece", file, name, size, at} with a buffer each, since messages of a notebook
// server are limited to 10 MB; the kernel acknowledges each with {kind: "got", file, at}. A recording is sent as a WAV
// file, since MediaRecorder compresses, in a codec that depends on the browser.

import { element, followTheme, guard } from "./dom.js";
import { Samples } from "./player-samples.js";

const PIECE = 1 << 20;
const LONGEST = 60; // seconds of one recording
const SILENT = 1 / 32768; // maximum of a muted microphone
const REFUSED = {
  NotAllowedError: "The browser denied access to the microphone.",
  NotFoundError: "No microphone was found.",
  NotReadableError: "The microphone is unavailable or in use by another program.",
};
const BEST = "10 to 30 s recommended";
const WORKLET = `registerProcessor("voicelab-tap", class extends AudioWorkletProcessor {
  process([input]) {
    if (input[0]) this.port.postMessage(input[0].slice());
    return true;
  }
});`;

/** An open microphone: `samples` grows, `level` is the peak of the latest block. */
export class Microphone {
  static get missing() {
    if (!globalThis.isSecureContext) return "Browsers allow the microphone on HTTPS pages and localhost only.";
    return navigator.mediaDevices?.getUserMedia ? "" : "This browser does not support microphone recording.";
  }

  /** Open the microphone without call processing, which would alter the voice. */
  static async open(changed, ended) {
    const processed = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, ...processed } });
    const made = new Microphone();
    Object.assign(made, { stream, level: 0, peak: 0 });
    // Unplugged, or revoked by the browser or the system.
    for (const track of stream.getTracks()) track.onended = () => ended();
    try {
      made.audio = new AudioContext();
      made.samples = new Samples(made.audio.sampleRate);
      const url = URL.createObjectURL(new Blob([WORKLET], { type: "text/javascript" }));
      await made.audio.audioWorklet.addModule(url);
      URL.revokeObjectURL(url);
      const tap = new AudioWorkletNode(made.audio, "voicelab-tap", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
      tap.port.onmessage = ({ data }) => {
        made.level = data.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        made.peak = Math.max(made.peak, made.level);
        const pcm = Int16Array.from(data, (value) => Math.max(-32768, Math.min(32767, Math.round(value * 32768))));
        made.samples.add(made.samples.length, pcm.buffer);
        changed();
      };
      made.audio.createMediaStreamSource(stream).connect(tap);
      await made.audio.resume();
    } catch (error) {
      made.close();
      throw error;
    }
    return made;
  }

  close() {
    for (const track of this.stream.getTracks()) track.stop();
    void this.audio?.close();
  }
}

/** Uploads to the kernel, one chunk at a time. */
class Sending {
  constructor(model) {
    this.model = model;
    this.files = new Map();
    this.next = 0;
    this.gone = false;
    this.views = new Set(); // callbacks for a lost kernel
    model.on("msg:custom", (message) => message.kind === "got" && this.got(message));
    model.on("comm_live_update", () => {
      this.gone = true;
      for (const lost of this.views) lost();
    });
  }

  add(name, blob) {
    // Unique among all pages of the kernel.
    const file = `${crypto.getRandomValues(new Uint32Array(1))[0]}-${this.next++}`;
    this.files.set(file, { name, blob });
    void this.piece(file, 0);
  }

  async piece(file, at) {
    const { name, blob } = this.files.get(file);
    const data = await blob.slice(at, at + PIECE).arrayBuffer();
    this.model.send({ kind: "piece", file, name, size: blob.size, at }, undefined, [data]);
  }

  got({ file, at }) {
    const known = this.files.get(file);
    if (!known) return;
    if (at >= 0 && at < known.blob.size) void this.piece(file, at);
    else this.files.delete(file);
  }
}

function render(sending, el) {
  followTheme(el);
  const choose = element("input", { type: "file", multiple: true, accept: "audio/*,.wav,.mp3,.flac,.ogg,.opus" });
  const add = (files) => [...files].forEach((file) => sending.add(file.name, file));
  choose.hidden = true;
  choose.onchange = () => {
    add(choose.files);
    choose.value = "";
  };
  const files = element("button", { type: "button", textContent: "Choose files…", onclick: () => choose.click() });
  const record = element("button", { type: "button", className: "voicelab-record" });
  const level = element("meter", { min: 0, max: 1, low: 0.05, high: 0.95, optimum: 0.5 }, { "aria-label": "Level" });
  const clock = element("span", { className: "voicelab-record-clock" }, { role: "timer" });
  const notice = element("div", { className: "voicelab-notice" }, { role: "alert" });
  const hint = element("p", { textContent: "Drop recordings of one speaker here: WAV, MP3, FLAC or Ogg, " });
  hint.append(BEST, ".");
  const root = element(
    "div",
    { className: "voicelab-recorder" },
    { role: "group", "aria-label": "Add recordings" },
    hint,
    element("div", { className: "voicelab-bar" }, {}, files, record, level, clock, choose),
    notice,
  );
  let microphone = null;
  let opening = false;
  let number = 0;
  const shown = () => {
    record.textContent = microphone ? "■ Stop" : "● Record";
    record.setAttribute("aria-pressed", String(microphone !== null));
    record.disabled = opening || sending.gone || Microphone.missing !== "";
    files.disabled = sending.gone;
    record.title = Microphone.missing || `Record from the microphone, unprocessed; ${BEST}`;
    level.hidden = clock.hidden = microphone === null;
    if (microphone) {
      level.value = microphone.level;
      clock.textContent = `${microphone.samples.seconds.toFixed(1)} s; ${BEST}`;
    }
    Object.assign(root.dataset, { recorded: microphone?.samples.seconds.toFixed(2) ?? "", level: level.value.toFixed(3) });
  };
  let frame = 0;
  const changed = () => {
    if (microphone?.samples.seconds >= LONGEST) stop();
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      shown();
    });
  };
  const stop = () => {
    const { samples, peak } = microphone;
    microphone.close();
    microphone = null;
    if (samples.length && peak > SILENT) sending.add(`Recording ${++number}.wav`, samples.wav());
    else notice.textContent = "The recording is silent and was discarded. Check whether the microphone is muted.";
    changed();
  };
  const ended = () => {
    if (!microphone) return;
    stop();
    notice.textContent ||= "The microphone was disconnected. The recording up to that point is kept.";
  };
  const start = async () => {
    notice.textContent = "";
    opening = true;
    shown();
    try {
      microphone = await Microphone.open(changed, ended);
      if (!root.isConnected || sending.gone) close();
    } catch (error) {
      notice.textContent = REFUSED[error.name] ?? `No microphone: ${error.message}`;
    }
    opening = false;
    shown();
  };
  const close = () => {
    microphone?.close();
    microphone = null;
    cancelAnimationFrame(frame);
  };
  record.onclick = () => (microphone ? stop() : void start());
  const over = (on) => root.classList.toggle("voicelab-over", on);
  root.ondragover = (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    event.stopPropagation();
    over(true);
  };
  root.ondragleave = () => over(false);
  root.ondrop = (event) => {
    event.preventDefault();
    event.stopPropagation(); // JupyterLab would upload them into its folder
    over(false);
    if (!sending.gone) add(event.dataTransfer.files);
  };
  const lost = () => {
    close();
    shown();
    notice.textContent = "Kernel disconnected; run the cell again.";
  };
  sending.views.add(lost);
  shown();
  el.append(root);
  guard(el);
  return () => {
    sending.views.delete(lost);
    close();
  };
}

// Called once per model; every call below gets another object for the same model.
export default () => {
  let sending = null;
  return {
    initialize({ model }) {
      sending = new Sending(model);
    },
    render: ({ el }) => render(sending, el),
  };
};
