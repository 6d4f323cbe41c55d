// Scales: the labeled steps of single ratings, and the continuous quality scale of ITU-R BS.1534: a slider per stimulus, with
// five labeled bands.

import { element } from "./dom.js";

const BANDS = ["Bad", "Poor", "Fair", "Good", "Excellent"];
const SAME = ["Definitely different", "Probably different", "Cannot tell", "Probably the same", "Definitely the same"];
// Recommendation ITU-T P.800, annex D.
const DEGRADATION = ["Very annoying", "Annoying", "Slightly annoying", "Audible but not annoying", "Inaudible"];
const COMPARED = ["Much worse", "Worse", "Slightly worse", "About the same", "Slightly better", "Better", "Much better"];

function numbered(texts) {
  return texts.map((text, i) => [i + 1, `${i + 1} ${text}`]);
}

/** By kind of test, the values and labels of a rating. */
export const STEPS = {
  MOS: numbered(BANDS),
  SMOS: numbered(SAME),
  DMOS: numbered(DEGRADATION),
  CMOS: COMPARED.map((text, i) => [i - 3, text]),
};

function bandOf(value, [low, high]) {
  return BANDS[Math.min(BANDS.length - 1, Math.floor(((value - low) / (high - low)) * BANDS.length))];
}

/** Return a slider that has no thumb and no rating until it is touched. Arrow keys start in the middle of the scale. */
function slider(name, scale, rate) {
  const [min, max] = scale;
  const value = element("output", {}, {}, "–");
  const fields = { type: "range", min, max, step: 1, value: (min + max) / 2, className: "voicelab-rating" };
  const said = { "aria-label": `Rating of ${name}`, "aria-orientation": "vertical", "aria-valuetext": "not rated yet" };
  const input = element("input", fields, said);
  // A click or tap in the middle does not change the value, but is a rating. A tap on a slider fires no click event.
  input.oninput = input.onclick = input.onpointerup = () => {
    input.dataset.rated = "true";
    input.setAttribute("aria-valuetext", `${input.value}, ${bandOf(Number(input.value), scale)}`);
    value.textContent = input.value;
    rate(name, Number(input.value));
  };
  return [input, value];
}

/** Return the scale for stimuli `names`; `play(name)` returns a play button, `rate(name, value)` receives ratings. */
export function ratingScale(names, scale, reference, play, rate) {
  const bands = element("div", { className: "voicelab-bands" }, { "aria-hidden": "true" });
  const [low, high] = scale;
  for (const [place, band] of [...BANDS].reverse().entries()) {
    const top = high - (place * (high - low)) / BANDS.length;
    bands.append(element("div", {}, {}, element("span", {}, {}, String(top)), band));
  }
  bands.append(element("span", {}, {}, String(low)));
  const open = reference ? [play(reference)] : [];
  const first = element("div", { className: "voicelab-column" }, {}, bands, element("output", {}, {}, ""), ...open);
  const columns = names.map((name) => {
    const [input, value] = slider(name, scale, rate);
    const lines = element("div", { className: "voicelab-lines" }, {}, input);
    return element("div", { className: "voicelab-column voicelab-sound" }, {}, lines, value, play(name));
  });
  return element("div", { className: "voicelab-scale" }, {}, first, ...columns);
}
