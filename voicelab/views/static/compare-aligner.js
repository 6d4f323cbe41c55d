// Where the same moment of another clip is: at the same word, or at the same time.
//
// `knots` of a clip are pairs of moments in seconds, of the first clip and of this one, that belong together; both rise.

/** Between the knots in a straight line: where the moment `x` of one side is on the other. */
export function interpolate(knots, from, to, x) {
  let low = 0;
  let high = knots.length - 1;
  if (x <= knots[0][from]) return knots[0][to];
  if (x >= knots[high][from]) return knots[high][to];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[middle][from] <= x) low = middle;
    else high = middle;
  }
  const share = (x - knots[low][from]) / (knots[high][from] - knots[low][from]);
  return knots[low][to] + share * (knots[high][to] - knots[low][to]);
}

/** Where in the clip `to` the moment of the clip `from` is; clips by their places, 0 is the one that all are aligned to. */
export function warped(clips, from, to, seconds) {
  if (from === to) return seconds;
  const first = from === 0 ? seconds : interpolate(clips[from].knots, 1, 0, seconds);
  return to === 0 ? first : interpolate(clips[to].knots, 0, 1, first);
}
