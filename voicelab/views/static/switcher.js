// Several sounds that play as one: one is heard at a time, and another takes over within a cross-fade.
//
// Used by the comparison and by listening tests. A sound is an AudioBuffer by its name. `warp(from, to, seconds)`
// says where in `to` the same moment of `from` is (the same word, where clips were aligned); without it the same time.

export const FADE = 0.008; // seconds; long enough for no click, too short to be heard as a fade
const LEAD = 0.005; // seconds between the call and the sound: the next blocks are already rendered

export class Switcher {
  constructor(audio, { warp = (_from, _to, seconds) => seconds, onend = () => {} } = {}) {
    this.audio = audio;
    this.sounds = new Map();
    this.levels = new Map(); // a factor for each sound that is not to be heard as it is
    this.warp = warp;
    this.onend = onend;
    this.current = null;
    this.playing = false;
    this.stopped = 0; // seconds in the current sound to go on from
    this.region = null; // [first, last] in seconds of the current sound, while looping
    this.heard = new Set();
    this.output = audio.createGain();
    this.meter = audio.createAnalyser();
    this.output.connect(this.meter).connect(audio.destination);
  }

  add(name, buffer) {
    this.sounds.set(name, buffer);
    this.current ??= name;
  }

  get duration() {
    return this.sounds.get(this.current)?.duration ?? 0;
  }

  get factor() {
    return this.levels.get(this.current) ?? 1;
  }

  /** Hear sounds at other levels, at once: a map from names to factors. */
  setLevels(levels) {
    this.levels = levels;
    const at = this.audio.currentTime;
    this.source?.level.gain.setValueAtTime(this.source.level.gain.value, at);
    this.source?.level.gain.linearRampToValueAtTime(this.factor, at + FADE);
  }

  /** Seconds in the current sound that are at the output now. */
  get position() {
    if (!this.playing) return this.stopped;
    const passed = this.from + Math.max(0, this.audio.currentTime - this.began);
    if (!this.region) return Math.min(passed, this.duration);
    const [first, last] = this.region;
    return passed < last ? passed : first + ((passed - first) % (last - first));
  }

  play(from = this.stopped) {
    this.stop();
    // A page may sound only after it was touched; a context that renders is not to be hurried.
    if (this.audio instanceof AudioContext && this.audio.state === "suspended") void this.audio.resume();
    if (from >= this.duration - 1e-3) from = this.region?.[0] ?? 0;
    this.start(this.audio.currentTime + LEAD, from);
  }

  pause() {
    this.stopped = this.position;
    this.stop();
  }

  seek(seconds) {
    const playing = this.playing;
    this.stop();
    this.stopped = Math.max(0, Math.min(seconds, this.duration));
    if (playing) this.play();
  }

  /** Let another sound be heard from the same moment on: without a gap while playing. */
  select(name) {
    if (name === this.current || !this.sounds.has(name)) return;
    const at = this.audio.currentTime + LEAD;
    const moment = this.playing ? this.position + LEAD : this.stopped;
    const there = Math.max(0, Math.min(this.warp(this.current, name, moment), this.sounds.get(name).duration));
    const region = this.region?.map((edge) => this.warp(this.current, name, edge)) ?? null;
    const old = this.playing ? this.source : null;
    this.current = name;
    this.region = region;
    this.stopped = there;
    if (!old) return;
    const mix = this.audio.createConstantSource();
    this.start(at, there, mix);
    this.crossFade(old, mix, at);
  }

  /** Repeat a part, [first, last] in seconds of the current sound; null plays on to the end. */
  loop(region) {
    this.region = region && region[1] - region[0] > 0.02 ? region : null;
    if (!this.playing) return;
    const inside = this.region && (this.position < this.region[0] || this.position > this.region[1]);
    this.play(inside ? this.region[0] : this.position);
  }

  /** The largest sample in the block that is at the output now: proof that sound leaves. */
  level() {
    const block = new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(block);
    return block.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  }

  /** Let the current sound begin; with a `mix`, as loud as that is. */
  start(at, offset, mix = null) {
    const node = this.audio.createBufferSource();
    const level = this.audio.createGain();
    const gain = this.audio.createGain();
    node.buffer = this.sounds.get(this.current);
    if (this.region) Object.assign(node, { loop: true, loopStart: this.region[0], loopEnd: this.region[1] });
    level.gain.value = this.factor;
    if (mix) {
      mix.offset.value = 0;
      gain.gain.value = 0;
      mix.connect(gain.gain);
      mix.start();
    }
    node.connect(level).connect(gain).connect(this.output);
    node.start(at, offset);
    const source = { node, level, gain, mix };
    node.onended = () => {
      mix?.stop();
      if (this.source !== source) return;
      this.playing = false;
      this.stopped = 0;
      this.source = null;
      this.onend();
    };
    Object.assign(this, { source, began: at, from: offset, playing: true });
    this.heard.add(this.current);
  }

  /**
   * Raise `mix` from 0 to 1, in FADE from `at` on, and end the `old` source, which loses what the new one gains.
   *
   * One signal is behind both: of two fades that are set one after the other, a busy page delays the second.
   */
  crossFade(old, mix, at) {
    const less = this.audio.createGain();
    less.gain.value = -1;
    mix.connect(less).connect(old.gain.gain);
    mix.offset.setValueAtTime(0, at);
    mix.offset.linearRampToValueAtTime(1, at + FADE);
    old.node.stop(at + FADE);
  }

  stop() {
    if (this.source) {
      this.source.node.onended = null;
      this.source.node.stop();
      this.source.node.disconnect();
      // It may still be fading an older one out.
      this.source.mix?.stop(this.audio.currentTime + LEAD + FADE);
    }
    this.source = null;
    this.playing = false;
  }
}
