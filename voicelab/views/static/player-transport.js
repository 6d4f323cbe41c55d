// Gapless playback of Samples from any position, also while they arrive; loops and playback rates.

import { hold, release } from "./player-contexts.js";

const RESERVE = 0.1; // seconds of initial delay plus buffered audio before the first audible sample of a stream
const SOON = 0.01; // minimum initial delay; later buffers are scheduled relative to the first, which must not be late
const LEAD = 0.06; // the delay after an underrun is twice this, enough for two cores under load
const WORST_LEAD = 0.32; // maximum delay after repeated underruns
const AT_ONCE = 0.01; // the delay of complete speech

export class Transport {
  constructor(samples, audio = null) {
    this.samples = samples;
    this.given = audio; // a BaseAudioContext passed by tests; by default the page's
    this.audio = null;
    this.sources = new Set();
    this.reset();
  }

  /** Reset for new speech. */
  reset() {
    this.silence();
    if (this.element) URL.revokeObjectURL(this.element.src);
    this.element?.removeAttribute("src");
    this.node?.disconnect();
    this.element = this.node = null;
    this.speed = 1;
    this.playing = false;
    this.stopped = 0; // the sample to resume from while not playing
    this.underruns = 0;
    this.lead = LEAD;
    this.region = null; // [first, last) in samples, repeated
    this.anchor = null;
    this.sounds = null; // start of playback in milliseconds of performance.now()
  }

  /** Pause and release the audio context until the next playback. */
  rest() {
    if (this.playing) this.pause();
    release(this);
  }

  /** Stop and release all resources. */
  close() {
    this.reset();
    this.gain?.disconnect();
    this.meter?.disconnect();
    release(this);
    this.audio = null;
  }

  /** Open the audio context and return the output gain node. */
  open() {
    const audio = this.given ?? hold(this.samples.rate, this);
    if (this.audio === audio) return this.gain;
    this.audio = audio;
    this.gain = audio.createGain();
    this.meter = audio.createAnalyser();
    this.gain.connect(this.meter).connect(audio.destination);
    return this.gain;
  }

  play(from = this.stopped) {
    this.silence();
    this.open();
    if (!this.given && this.audio.state === "suspended") void this.audio.resume();
    this.playing = true;
    this.scheduled = Math.round(Math.max(0, Math.min(from, this.samples.length)));
    this.anchor = null;
    if (this.region) this.scheduled = this.inside(this.scheduled);
    else if (this.samples.complete && this.scheduled >= this.samples.length) this.scheduled = 0;
    this.start = this.scheduled;
    if (this.stretched) this.stretch();
    else if (this.region) this.repeat();
    else this.schedule();
  }

  /** Whether an <audio> element plays, since Web Audio changes speed only together with pitch. */
  get stretched() {
    return this.speed !== 1 && this.samples.complete;
  }

  /** Schedule all arrived samples, without a gap after those scheduled before. */
  schedule() {
    if (!this.playing || this.stretched || this.region || this.scheduled >= this.samples.length) return;
    const { rate, data, length } = this.samples;
    // In integer frames, so that each buffer starts on the frame after the end of the previous.
    const frame = () => this.anchor.frame + this.scheduled - this.anchor.sample;
    const ahead = () => frame() / rate - this.audio.currentTime;
    // A gap in the silence before the first word is inaudible.
    if (this.anchor && this.scheduled <= this.samples.onset && ahead() < (this.silent ? 0 : this.wait)) this.anchor = null;
    if (this.anchor && ahead() < 0) {
      this.underruns += 1;
      this.lead = Math.min(2 * this.lead, WORST_LEAD);
      this.anchor = null;
    }
    if (this.sooner) this.rewind();
    const source = this.source(data.subarray(this.scheduled, length));
    if (!this.anchor) this.begin(this.wait);
    source.start(frame() / rate);
    this.scheduled = length;
  }

  /** Whether all samples so far are silent. */
  get silent() {
    return this.samples.onset >= this.samples.length;
  }

  /** Whether playback has not started and samples that arrived since allow an earlier start. */
  get sooner() {
    if (this.anchor?.sample !== this.start || this.underruns) return false;
    const there = (this.samples.length - this.anchor.sample) / this.samples.rate;
    return this.anchor.frame / this.samples.rate - this.audio.currentTime > this.waitFor(there);
  }

  /** Cancel scheduled samples that have not been played. */
  rewind() {
    this.scheduled = this.anchor.sample;
    this.anchor = this.sounds = null;
    this.silence();
  }

  /** Seconds until playback starts, as short as avoids underruns. */
  get wait() {
    if (this.samples.complete) return AT_ONCE;
    if (this.underruns) return this.lead;
    return this.waitFor((this.samples.length - this.scheduled) / this.samples.rate);
  }

  /** The initial delay if `there` seconds have arrived. */
  waitFor(there) {
    return Math.max(this.silent ? 0 : RESERVE - there, SOON, 2 * (this.audio.baseLatency ?? 0));
  }

  /** Loop the region from the current position, as a rotated buffer, so without a gap. */
  repeat() {
    const [first, last] = this.region;
    const turned = new Float32Array(last - first);
    turned.set(this.samples.data.subarray(this.scheduled, last));
    turned.set(this.samples.data.subarray(first, this.scheduled), last - this.scheduled);
    const source = this.source(turned);
    source.loop = true;
    this.begin(AT_ONCE);
    source.start(this.anchor.frame / this.samples.rate);
  }

  begin(lead) {
    const now = this.audio.currentTime;
    this.anchor = { frame: Math.ceil((now + lead) * this.samples.rate), sample: this.scheduled };
    this.sounds ??= performance.now() + 1000 * (this.anchor.frame / this.samples.rate - now);
  }

  /** Return a source of `samples`, prepared before its start time is computed. */
  source(samples) {
    const buffer = this.audio.createBuffer(1, samples.length, this.samples.rate);
    buffer.copyToChannel(samples, 0);
    const source = this.audio.createBufferSource();
    source.buffer = buffer;
    source.connect(this.gain);
    source.onended = () => this.sources.delete(source);
    this.sources.add(source);
    return source;
  }

  stretch() {
    if (!this.element) {
      this.element = new Audio(URL.createObjectURL(this.samples.wav()));
      this.element.ontimeupdate = () => this.turn();
      this.node = this.audio.createMediaElementSource(this.element);
      this.node.connect(this.gain);
    }
    Object.assign(this.element, { preservesPitch: true, webkitPreservesPitch: true, playbackRate: this.speed });
    this.element.currentTime = this.scheduled / this.samples.rate;
    // play() rejects if it is paused or sought before it starts.
    this.element.play().catch(() => {});
  }

  /** Seek to the start of the loop if the element has passed its end. */
  turn() {
    if (!this.playing || !this.stretched || !this.region) return;
    const [first, last] = this.region;
    const at = this.element.currentTime * this.samples.rate;
    if (at >= last || this.element.ended) {
      this.element.currentTime = first / this.samples.rate;
      this.element.play().catch(() => {});
    }
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

  /** Loop the samples from `first` to before `last`; null ends the loop. */
  loop(region) {
    const at = this.position;
    this.region = region?.map((sample) => Math.round(Math.max(0, Math.min(sample, this.samples.length)))) ?? null;
    if (this.region && this.region[1] - this.region[0] < this.samples.rate / 50) this.region = null;
    if (this.region) this.stopped = this.inside(at);
    if (this.playing) this.play(this.region ? this.inside(at) : at);
  }

  inside(sample) {
    const [first, last] = this.region;
    return sample < first || sample >= last ? first : sample;
  }

  /** Set the playback rate, at constant pitch; takes effect when the speech is complete. */
  hasten(speed) {
    const at = this.position;
    this.speed = speed;
    this.stopped = at;
    if (this.playing) this.play(at);
  }

  silence() {
    this.element?.pause();
    for (const source of this.sources) {
      source.onended = null;
      source.stop();
      source.disconnect();
    }
    this.sources.clear();
  }

  /** The sample at the output. */
  get position() {
    if (!this.playing) return this.stopped;
    if (this.stretched) return Math.min(this.element.currentTime * this.samples.rate, this.samples.length);
    if (!this.anchor) return this.scheduled;
    const passed = Math.max(0, this.audio.currentTime * this.samples.rate - this.anchor.frame);
    if (!this.region) return Math.min(this.anchor.sample + passed, this.scheduled);
    const [first, last] = this.region;
    return first + ((this.anchor.sample - first + passed) % (last - first));
  }

  /** Return the peak of the current output block, which shows that audio is played. */
  level() {
    if (!this.meter) return 0;
    const block = new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(block);
    return block.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  }

  /** Stop at the end of a complete utterance; return whether it has stopped. */
  finish() {
    this.turn();
    if (!this.playing || !this.samples.complete || this.region) return false;
    if (this.stretched ? !this.element.ended : this.position < this.samples.length) return false;
    this.playing = false;
    this.stopped = 0;
    this.silence();
    return true;
  }
}
