// Time alignment of clips, by words or by time.
//
// `knots` of a clip are pairs of aligned times in seconds, (first clip, this clip), both increasing.

/** Map the time `x` from one side of the knots to the other, by linear interpolation. */
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

/** Map a time of the clip `from` to the clip `to`; both are indices, all clips are aligned to clip 0. */
export function warped(clips, from, to, seconds) {
  if (from === to) return seconds;
  const first = from === 0 ? seconds : interpolate(clips[from].knots, 1, 0, seconds);
  return to === 0 ? first : interpolate(clips[to].knots, 0, 1, first);
}
