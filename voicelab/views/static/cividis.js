// Nine steps of the color map cividis (Nuñez, Anderton and Renslow 2018), safe for color-blind readers.

const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#fee838"].map(
  (c) => [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16)),
);

/** Return red, green and blue of a value from 0 to 255. */
export function colour(value) {
  const at = (value / 255) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return CIVIDIS[low].map((part, i) => Math.round(part + (CIVIDIS[low + 1][i] - part) * (at - low)));
}
