// Growing buffer of the samples of an utterance, with extremes for drawing, and file export.

const AUDIBLE = 0.003; // -50 dBFS
const BLOCK = 256; // samples per cached minimum and maximum, for fast drawing of long recordings

export class Samples {
  constructor(rate) {
    this.clear(rate);
  }

  clear(rate) {
    this.rate = rate;
    this.length = 0;
    this.peak = 0;
    this.onset = Infinity; // the first audible sample
    this.complete = false;
    this.data = new Float32Array(rate * 4);
    this.low = [];
    this.high = [];
  }

  /** Add s16le PCM from sample `start` on. Return false if preceding samples are missing. */
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
      const block = Math.floor((start + i) / BLOCK);
      this.data[start + i] = value;
      if (this.onset === Infinity && Math.abs(value) > AUDIBLE) this.onset = start + i;
      if (!(this.low[block] <= value)) this.low[block] = value;
      if (!(this.high[block] >= value)) this.high[block] = value;
      if (Math.abs(value) > this.peak) this.peak = Math.abs(value);
    }
    this.length = needed;
    return true;
  }

  get seconds() {
    return this.length / this.rate;
  }

  /** Return minimum and maximum from `first` to before `last`, in long ranges to within a block. */
  extremes(first, last) {
    const many = last - first > 2 * BLOCK;
    const scale = many ? BLOCK : 1;
    const [lows, highs] = many ? [this.low, this.high] : [this.data, this.data];
    let [low, high] = [0, 0];
    for (let i = Math.floor(first / scale); i < Math.ceil(Math.min(last, this.length) / scale); i++) {
      if (lows[i] < low) low = lows[i];
      if (highs[i] > high) high = highs[i];
    }
    return [low, high];
  }

  /** Return the level in dBFS of 25 ms around `sample`; -Infinity for silence. */
  level(sample) {
    const half = Math.round(this.rate / 80);
    const part = this.data.subarray(Math.max(0, Math.round(sample) - half), Math.min(Math.round(sample) + half, this.length));
    return 10 * Math.log10(part.reduce((sum, value) => sum + value * value, 0) / Math.max(part.length, 1));
  }

  /** Return the samples as a 16-bit WAV file. */
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

  /** Return the samples as s16le. */
  pcm() {
    return this.wav().slice(44, undefined, "audio/pcm");
  }
}
