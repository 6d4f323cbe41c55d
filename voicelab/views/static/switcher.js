// Several sounds that play as one: one is heard at a time, and another takes over within a cross-fade.
//
// Used by the comparison and by listening tests. A sound is an AudioBuffer by its name. `warp(from, to, seconds)`
// says where in `to` the same moment of `from` is (the same word, where clips were aligned); without it the same time.

export const FADE = 0.008; // seconds; long enough for no click, too short to be heard as a fade
const SHORTEST = 0.02; // seconds of a part to be repeated
const LEAD = 0.005; // seconds between the call and the sound: the next blocks are already rendered
const UNHEARD = 0.05; // seconds of a sound that may be missing between two parts of it that were heard

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
    this.looped = null; // what it is of: a sound and its edges there; no edges, all of whichever sound is heard
    this.parts = new Map(); // what was heard of each sound: [first, last] in seconds, in order
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
    if (from >= this.duration - 1e-3) from = 0;
    this.start(this.audio.currentTime + LEAD, this.inside(from));
  }

  pause() {
    this.stopped = this.position;
    this.stop();
  }

  seek(seconds) {
    const playing = this.playing;
    this.stop();
    this.stopped = this.inside(Math.max(0, Math.min(seconds, this.duration)));
    if (playing) this.play();
  }

  /** Let another sound be heard from the same moment on: without a gap while playing. */
  select(name) {
    if (name === this.current || !this.sounds.has(name)) return;
    const at = this.audio.currentTime + LEAD;
    const moment = this.playing ? this.position + LEAD : this.stopped;
    const there = Math.max(0, Math.min(this.warp(this.current, name, moment), this.sounds.get(name).duration));
    const old = this.playing ? this.source : null;
    this.note();
    this.current = name;
    this.region = this.regionHere();
    this.stopped = this.inside(there);
    if (!old) return;
    const mix = this.audio.createConstantSource();
    this.start(at, this.stopped, mix);
    this.crossFade(old, mix, at);
  }

  /** Repeat a part, [first, last] in seconds of the current sound; null plays on to the end. */
  loop(region) {
    this.repeat(region && region[1] - region[0] > SHORTEST ? { name: this.current, edges: region } : null);
  }

  /** Repeat all of whichever sound is heard. */
  loopAll() {
    this.repeat({});
  }

  repeat(looped) {
    const at = this.position;
    this.looped = looped;
    this.region = this.regionHere();
    this.stopped = this.inside(at);
    if (this.playing) this.play();
  }

  /** The part of the current sound that is to be repeated, null where there is none of it. */
  regionHere() {
    if (!this.looped) return null;
    const { name, edges = [0, this.duration] } = this.looped;
    const there = (edge) => (name === undefined || name === this.current ? edge : this.warp(name, this.current, edge));
    const [first, last] = edges.map((edge) => Math.max(0, Math.min(there(edge), this.duration)));
    return last - first > SHORTEST ? [first, last] : null;
  }

  /** A moment of the region: its beginning for one outside. */
  inside(seconds) {
    if (!this.region) return seconds;
    const [first, last] = this.region;
    return seconds < first || seconds >= last ? first : seconds;
  }

  /** What has sounded since the current sound began: parts of it, [first, last] in seconds. */
  get sounding() {
    if (!this.playing) return [];
    const end = this.from + Math.max(0, this.audio.currentTime - this.began);
    const [first, last] = this.region ?? [0, this.duration];
    if (end <= last) return [[this.from, end]];
    return this.region ? [[this.from, last], [first, Math.min(first + end - last, last)]] : [[this.from, last]];
  }

  /** Keep what has sounded, before another sound, or another part of it, is heard. */
  note() {
    if (this.playing) this.parts.set(this.current, this.partsOf(this.current));
  }

  /** What was heard of a sound so far, in order, without overlaps; a gap too short to be missed is none. */
  partsOf(name) {
    const parts = [...(this.parts.get(name) ?? []), ...(name === this.current ? this.sounding : [])];
    const joined = [];
    for (const [first, last] of parts.sort((one, other) => one[0] - other[0])) {
      const before = joined.at(-1);
      if (before && first <= before[1] + UNHEARD) before[1] = Math.max(before[1], last);
      else joined.push([first, last]);
    }
    return joined;
  }

  /** How much of a sound was heard, 0 to 1, in one go or in parts: 1 only from its beginning to its end. */
  heard(name) {
    const { duration } = this.sounds.get(name);
    const parts = this.partsOf(name);
    const [first, last] = parts[0] ?? [0, 0];
    if (parts.length === 1 && first <= UNHEARD && last >= duration - UNHEARD) return 1;
    return Math.min(0.99, parts.reduce((sum, part) => sum + part[1] - part[0], 0) / duration);
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
      this.note();
      this.playing = false;
      this.stopped = 0;
      this.source = null;
      this.onend();
    };
    Object.assign(this, { source, began: at, from: offset, playing: true });
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
    this.note();
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
