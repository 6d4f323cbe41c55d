// Synchronized sounds, one audible at a time, switched with a cross-fade.
//
// Used by comparisons and listening tests. A sound is a named AudioBuffer. `warp(from, to, seconds)` maps a time of the
// sound `from` to the sound `to` (the same word in aligned clips); by default the same time.

export const FADE = 0.008; // seconds; long enough to avoid clicks, too short to be audible as a fade
const SHORTEST = 0.02; // seconds; minimum length of a loop
const LEAD = 0.005; // seconds between the call and playback, since the next blocks are already rendered
const UNHEARD = 0.05; // seconds; shorter gaps between played intervals are ignored

export class Switcher {
  constructor(audio, { warp = (_from, _to, seconds) => seconds, onend = () => {} } = {}) {
    this.audio = audio;
    this.sounds = new Map();
    this.levels = new Map(); // gain factors by sound, 1 by default
    this.warp = warp;
    this.onend = onend;
    this.current = null;
    this.playing = false;
    this.stopped = 0; // seconds in the current sound to resume from
    this.region = null; // [first, last] in seconds of the current sound, while looping
    this.looped = null; // the sound and edges of the region; without edges all of the current sound
    this.parts = new Map(); // played intervals by sound: [first, last] in seconds, in order
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

  /** Set gain factors by name, effective immediately. */
  setLevels(levels) {
    this.levels = levels;
    const at = this.audio.currentTime;
    this.source?.level.gain.setValueAtTime(this.source.level.gain.value, at);
    this.source?.level.gain.linearRampToValueAtTime(this.factor, at + FADE);
  }

  /** Playback position in the current sound, in seconds. */
  get position() {
    if (!this.playing) return this.stopped;
    const passed = this.from + Math.max(0, this.audio.currentTime - this.began);
    if (!this.region) return Math.min(passed, this.duration);
    const [first, last] = this.region;
    return passed < last ? passed : first + ((passed - first) % (last - first));
  }

  play(from = this.stopped) {
    this.stop();
    // Contexts are suspended until a user gesture; an OfflineAudioContext must not be resumed.
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

  /** Switch to another sound at the same time, without a gap during playback. */
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

  /** Loop a region, [first, last] in seconds of the current sound; null ends the loop. */
  loop(region) {
    this.repeat(region && region[1] - region[0] > SHORTEST ? { name: this.current, edges: region } : null);
  }

  /** Loop all of the current sound. */
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

  /** Return the loop in the current sound, null if there is none. */
  regionHere() {
    if (!this.looped) return null;
    const { name, edges = [0, this.duration] } = this.looped;
    const there = (edge) => (name === undefined || name === this.current ? edge : this.warp(name, this.current, edge));
    const [first, last] = edges.map((edge) => Math.max(0, Math.min(there(edge), this.duration)));
    return last - first > SHORTEST ? [first, last] : null;
  }

  /** Return `seconds`, or the start of the loop if it is outside. */
  inside(seconds) {
    if (!this.region) return seconds;
    const [first, last] = this.region;
    return seconds < first || seconds >= last ? first : seconds;
  }

  /** Intervals played since the current sound started: [first, last] in seconds. */
  get sounding() {
    if (!this.playing) return [];
    const end = this.from + Math.max(0, this.audio.currentTime - this.began);
    const [first, last] = this.region ?? [0, this.duration];
    if (end <= last) return [[this.from, end]];
    return this.region ? [[this.from, last], [first, Math.min(first + end - last, last)]] : [[this.from, last]];
  }

  /** Record played intervals before a switch or a seek. */
  note() {
    if (this.playing) this.parts.set(this.current, this.partsOf(this.current));
  }

  /** Return the played intervals of a sound, sorted and merged across gaps up to `UNHEARD`. */
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

  /** Return the played share of a sound, 0 to 1; it is 1 only if all of it was played. */
  heard(name) {
    const { duration } = this.sounds.get(name);
    const parts = this.partsOf(name);
    const [first, last] = parts[0] ?? [0, 0];
    if (parts.length === 1 && first <= UNHEARD && last >= duration - UNHEARD) return 1;
    return Math.min(0.99, parts.reduce((sum, part) => sum + part[1] - part[0], 0) / duration);
  }

  /** Return the peak of the current output block, which shows that audio is played. */
  level() {
    const block = new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(block);
    return block.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  }

  /** Start the current sound, with `mix` as its gain signal if given. */
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
   * Ramp `mix` from 0 to 1 within FADE from `at` on, and stop the `old` source, faded by the complement.
   *
   * A single signal drives both fades, since a busy page could delay the second of two.
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
      // The mix may still fade out the previous source.
      this.source.mix?.stop(this.audio.currentTime + LEAD + FADE);
    }
    this.source = null;
    this.playing = false;
  }
}
