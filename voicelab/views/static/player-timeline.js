// The visible range of a recording, shared by all lanes of a player.

const CLOSEST = 0.01; // seconds; minimum visible range
const STEPS = [1, 2, 5];

export class Timeline {
  constructor(samples) {
    this.samples = samples;
    this.reset();
  }

  /** Show the whole recording, including later samples. */
  reset() {
    this.first = 0;
    this.span = null;
  }

  get whole() {
    return Math.max(this.samples.length, 1);
  }

  /** Number of visible samples. */
  get width() {
    return this.span ?? this.whole;
  }

  get zoomed() {
    return this.span !== null;
  }

  /** Zoom by `factor` around `sample`, which keeps its position. */
  zoom(factor, sample) {
    const share = (sample - this.first) / this.width;
    const span = Math.max(this.width / factor, CLOSEST * this.samples.rate);
    if (span >= this.whole) return this.reset();
    this.span = span;
    this.pan(sample - share * span - this.first);
  }

  pan(samples) {
    if (this.zoomed) this.first = Math.max(0, Math.min(this.first + samples, this.whole - this.span));
  }

  /** Center the view on `sample`. */
  center(sample) {
    this.pan(sample - this.width / 2 - this.first);
  }

  /** Scroll so that `sample` is visible. */
  follow(sample) {
    if (this.zoomed && (sample < this.first || sample > this.first + this.span)) this.pan(sample - this.first);
  }

  /** Return the x position of `sample` in a view of `pixels`. */
  x(sample, pixels) {
    return ((sample - this.first) / this.width) * pixels;
  }

  sample(x, pixels) {
    return Math.max(0, Math.min(this.first + (x / pixels) * this.width, this.samples.length));
  }

  /** Return ticks at round times, [sample, text], at least `apart` pixels from each other. */
  ticks(pixels, apart) {
    const { rate } = this.samples;
    return roundTimes(this.first / rate, this.width / rate, pixels, apart).map(([at, text]) => [at * rate, text]);
  }
}

/** Return ticks at round times in `span` seconds from `first` on, [seconds, text], at least `apart` pixels apart. */
export function roundTimes(first, span, pixels, apart) {
  const least = span * (apart / pixels);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * (STEPS.find((times) => times * power >= least) ?? 10);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const made = [];
  for (let n = Math.ceil(first / step - 1e-9); n * step <= first + span; n++) made.push([n * step, `${(n * step).toFixed(digits)} s`]);
  return made;
}
