// The page's audio contexts: one for each sample rate, shared by all players.
//
// At its own rate no buffer is resampled, so that none has edges. Every widget has its own copy of this
// file, so the contexts hang on the page itself; browsers limit how many there may be.

const KEY = Symbol.for("voicelab.contexts");

if (!globalThis[KEY]) {
  globalThis[KEY] = new Map();
  // Sound may start only after somebody has touched the page; that touch is usually the Speak button,
  // which lives outside the player, so the document is watched.
  for (const event of ["pointerdown", "keydown"]) {
    const wake = () => globalThis[KEY].forEach(({ audio, users }) => users.size && void audio.resume());
    document.addEventListener(event, wake, { capture: true, passive: true });
  }
}

function entry(rate) {
  const contexts = globalThis[KEY];
  if (!contexts.has(rate)) {
    const audio = new AudioContext({ latencyHint: "interactive", sampleRate: rate });
    contexts.set(rate, { audio, users: new Set() });
  }
  return contexts.get(rate);
}

/** The context for `rate`, kept awake while anybody holds it. */
export function hold(rate, user) {
  const { audio, users } = entry(rate);
  if (!users.has(user)) release(user);
  users.add(user);
  return audio;
}

/** Let go; a context that nobody holds stops its thread. */
export function release(user) {
  for (const { audio, users } of globalThis[KEY].values()) {
    if (users.delete(user) && !users.size) void audio.suspend();
  }
}
