// Plays Samples from any point, also while they are still arriving: without a gap, looped, faster or slower.

import { hold, release } from "./player-contexts.js";

const RESERVE = 0.1; // seconds until more is needed, when speech begins that is still arriving: the wait and what is there
const SOON = 0.02; // the least wait then: later buffers are put after the first one, which therefore must not be late
const LEAD = 0.06; // the wait after an underrun is twice this, enough for two cores under load
const WORST_LEAD = 0.32; // after repeated underruns the lead grows to this, and no further
const AT_ONCE = 0.01; // the lead where all of it is there

export class Transport {
  constructor(samples, audio = null) {
    this.samples = samples;
    this.given = audio; // a BaseAudioContext, given by tests; the page's own otherwise
    this.audio = null;
    this.sources = new Set();
    this.reset();
  }

  /** Forget the speech that was there. */
  reset() {
    this.silence();
    if (this.element) URL.revokeObjectURL(this.element.src);
    this.element?.removeAttribute("src");
    this.node?.disconnect();
    this.element = this.node = null;
    this.speed = 1;
    this.playing = false;
    this.stopped = 0; // the sample to go on from while not playing
    this.underruns = 0;
    this.lead = LEAD;
    this.region = null; // [first, last) in samples, repeated
    this.anchor = null;
    this.sounds = null; // when the first sample is heard, in milliseconds of performance.now()
  }

  /** Stop, and let go of the page's audio until it is played again. */
  rest() {
    if (this.playing) this.pause();
    release(this);
  }

  /** Stop for good. */
  close() {
    this.reset();
    this.gain?.disconnect();
    this.meter?.disconnect();
    release(this);
    this.audio = null;
  }

  /** Make the context, and what all sound goes through. */
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
    if (this.stretched) this.stretch();
    else if (this.region) this.repeat();
    else this.schedule();
  }

  /** Whether an <audio> element plays: Web Audio can change the speed only together with the pitch. */
  get stretched() {
    return this.speed !== 1 && this.samples.complete;
  }

  /** Hand every sample that has arrived to the audio thread, exactly after the one before it. */
  schedule() {
    if (!this.playing || this.stretched || this.region || this.scheduled >= this.samples.length) return;
    const { rate, data, length } = this.samples;
    // In whole frames, so that each buffer begins on the very frame after the last one's end.
    const frame = () => this.anchor.frame + this.scheduled - this.anchor.sample;
    if (this.anchor && frame() / rate < this.audio.currentTime) {
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

  /** Whether nothing has sounded yet, and what has come since needs not be waited for as long as was thought. */
  get sooner() {
    if (!this.anchor || this.underruns) return false;
    const there = (this.samples.length - this.anchor.sample) / this.samples.rate;
    return this.anchor.frame / this.samples.rate - this.audio.currentTime > this.waitFor(there);
  }

  /** Take back what was handed over and has not sounded. */
  rewind() {
    this.scheduled = this.anchor.sample;
    this.anchor = this.sounds = null;
    this.silence();
  }

  /** Seconds from now until the first sample is to sound: no more than it takes for the rest to come in time. */
  get wait() {
    if (this.samples.complete) return AT_ONCE;
    if (this.underruns) return this.lead;
    return this.waitFor((this.samples.length - this.scheduled) / this.samples.rate);
  }

  /** The same where this much speech is there, in seconds. */
  waitFor(there) {
    return Math.max(RESERVE - there, SOON, 2 * (this.audio.baseLatency ?? 0));
  }

  /** Repeat the region, from where it is: turned so that it begins there, and so without any seam of ours. */
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

  /** A source of `samples`, ready to start: what takes time is done before anyone looks at the clock. */
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
    // Somebody may pause, or seek, before it has begun; then there is nothing to say.
    this.element.play().catch(() => {});
  }

  /** Go back to the beginning of the region, where the element has passed its end. */
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

  /** Repeat the samples from `first` to before `last`; null plays on to the end. */
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

  /** Play `speed` times as fast, at the same pitch; takes effect when all speech is there. */
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

  /** The sample that is sounding now. */
  get position() {
    if (!this.playing) return this.stopped;
    if (this.stretched) return Math.min(this.element.currentTime * this.samples.rate, this.samples.length);
    if (!this.anchor) return this.scheduled;
    const passed = Math.max(0, this.audio.currentTime * this.samples.rate - this.anchor.frame);
    if (!this.region) return Math.min(this.anchor.sample + passed, this.scheduled);
    const [first, last] = this.region;
    return first + ((this.anchor.sample - first + passed) % (last - first));
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
    this.turn();
    if (!this.playing || !this.samples.complete || this.region) return false;
    if (this.stretched ? !this.element.ended : this.position < this.samples.length) return false;
    this.playing = false;
    this.stopped = 0;
    this.silence();
    return true;
  }
}
