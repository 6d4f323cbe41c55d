// Audio contexts of the page: one per sample rate, shared by all players.
//
// Matching rates avoid resampling of buffers and clicks at their edges. Contexts are global, since every widget has its
// copy of this file and browsers limit the number of contexts. The latency hint 0 requests the shortest output buffer: in
// Chromium on Linux the output latency at 44.1 kHz (24 kHz) is 8 ms (16 ms), and 32 ms with "interactive".

const KEY = Symbol.for("voicelab.contexts");

if (!globalThis[KEY]) {
  globalThis[KEY] = new Map();
  // Browsers allow audio after a user gesture only. It is usually a click on Speak, outside the player, so listen on
  // the document.
  for (const event of ["pointerdown", "keydown"]) {
    const wake = () => globalThis[KEY].forEach(({ audio, users }) => users.size && void audio.resume());
    document.addEventListener(event, wake, { capture: true, passive: true });
  }
}

function entry(rate) {
  const contexts = globalThis[KEY];
  if (!contexts.has(rate)) {
    const audio = new AudioContext({ latencyHint: 0, sampleRate: rate });
    contexts.set(rate, { audio, users: new Set() });
  }
  return contexts.get(rate);
}

/** Return the context for `rate`, running while it has users. */
export function hold(rate, user) {
  const { audio, users } = entry(rate);
  if (!users.has(user)) release(user);
  users.add(user);
  return audio;
}

/** Release the contexts of a user; a context without users is suspended. */
export function release(user) {
  for (const { audio, users } of globalThis[KEY].values()) {
    if (users.delete(user) && !users.size) void audio.suspend();
  }
}
