// The part of the recording that is shown: all lanes of a player are drawn from the same one.

const SHORTEST = 0.01; // seconds, the closest look
const STEPS = [1, 2, 5];

export class Timeline {
  constructor(samples) {
    this.samples = samples;
    this.reset();
  }

  /** Show everything, also what is still to come. */
  reset() {
    this.first = 0;
    this.span = null;
  }

  get whole() {
    return Math.max(this.samples.length, 1);
  }

  /** Samples shown. */
  get width() {
    return this.span ?? this.whole;
  }

  get zoomed() {
    return this.span !== null;
  }

  /** Show `factor` times less around `sample`, which stays where it is. */
  zoom(factor, sample) {
    const share = (sample - this.first) / this.width;
    const span = Math.max(this.width / factor, SHORTEST * this.samples.rate);
    if (span >= this.whole) return this.reset();
    this.span = span;
    this.pan(sample - share * span - this.first);
  }

  pan(samples) {
    if (this.zoomed) this.first = Math.max(0, Math.min(this.first + samples, this.whole - this.span));
  }

  /** Turn the page to where `sample` is. */
  follow(sample) {
    if (this.zoomed && (sample < this.first || sample > this.first + this.span)) this.pan(sample - this.first);
  }

  /** Where `sample` is drawn, of `pixels`. */
  x(sample, pixels) {
    return ((sample - this.first) / this.width) * pixels;
  }

  sample(x, pixels) {
    return Math.max(0, Math.min(this.first + (x / pixels) * this.width, this.samples.length));
  }

  /** Round times to label, [sample, text], some `apart` pixels from each other. */
  ticks(pixels, apart) {
    const least = (this.width / this.samples.rate) * (apart / pixels);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = power * (STEPS.find((times) => times * power >= least) ?? 10);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const made = [];
    for (let n = Math.ceil(this.first / this.samples.rate / step - 1e-9); ; n++) {
      const sample = n * step * this.samples.rate;
      if (sample > this.first + this.width) return made;
      made.push([sample, `${(n * step).toFixed(digits)} s`]);
    }
  }
}
