// Of several pages that show one player, such as two windows with a notebook, one plays: the one that was used last.

const USED = "voicelab-used";
const PAGE = String(Math.random());
const ANSWER_MS = 1000; // only a page that was not used last waits; a busy page answers late

// Frames of some front ends have no storage; there every page counts as used.
function stored(action) {
  try {
    return action(globalThis.localStorage);
  } catch {
    return null;
  }
}

for (const event of ["pointerdown", "keydown"]) {
  document.addEventListener(event, () => stored((store) => store.setItem(USED, PAGE)), { capture: true, passive: true });
}
addEventListener("pagehide", () => stored((store) => store.getItem(USED) === PAGE && store.removeItem(USED)));

/** Whether no other page was used after this one. */
function usedLast() {
  return (stored((store) => store.getItem(USED)) ?? PAGE) === PAGE;
}

/** The pages of a player, by the id of its model. */
export class Pages {
  constructor(id) {
    this.channel = new BroadcastChannel(`voicelab-${id}`);
    this.channel.onmessage = ({ data }) => {
      if (data === "here") this.other = true;
      else if (usedLast()) this.channel.postMessage("here");
    };
  }

  /** Call `play`, unless a page that was used later shows the player too. */
  async claim(play) {
    if (usedLast()) {
      this.channel.postMessage("here"); // to pages that asked before this one listened
      return play();
    }
    this.other = false;
    this.channel.postMessage("who");
    await new Promise((done) => setTimeout(done, ANSWER_MS));
    if (!this.other) play();
  }

  close() {
    this.channel.close();
  }
}
