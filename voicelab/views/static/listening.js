// A listening test, as a page of its own or inside a notebook. Which sounds are which is known to the kernel only.
//
// `open(root, line)` needs a line to whoever keeps the votes: join(name), trial(listener), sound(id) and
// vote(listener, trial, body), each a promise; errors are shown where they belong, and nothing is lost by one.

import { Switcher } from "./switcher.js";

const ACR = ["Bad", "Poor", "Fair", "Good", "Excellent"];
const CMOS = ["Much worse", "Worse", "Slightly worse", "About the same", "Slightly better", "Better", "Much better"];
const DOWN = ["ArrowLeft", "ArrowDown", "PageDown", "Home"];

function node(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

/** A number that no other view has: of two tests on one page, or two pages of one kernel. */
function unique() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

class Test {
  constructor(root, line) {
    this.root = node("div", { className: "voicelab-listening" });
    this.root.tabIndex = 0;
    this.line = line;
    this.names = null; // of the sounds that can be heard now
    this.group = unique();
    root.append(this.root);
    this.root.addEventListener("keydown", (event) => this.key(event));
    // Whoever uses a mouse goes on with the test's keys, not with those of the button that was clicked last.
    this.root.addEventListener("click", (event) => {
      if (event.detail && event.target.closest("button")) this.root.focus({ preventScroll: true });
    });
    this.welcome();
  }

  welcome() {
    const name = node("input", { type: "text", maxLength: 100, autocomplete: "off" });
    name.setAttribute("aria-label", "Your name");
    const form = node("form", {}, node("label", {}, "Your name ", name), node("button", { type: "submit" }, "Begin"));
    form.onsubmit = (event) => {
      event.preventDefault();
      void this.guard(async () => {
        this.listener = (await this.line.join(name.value)).listener;
        this.audio ??= new AudioContext({ latencyHint: "interactive" });
        await this.next();
      });
    };
    this.show(node("h2", {}, "Listening test"), form);
    name.focus({ preventScroll: true });
  }

  /** Do something that may fail, and say so on the page if it does. */
  async guard(work) {
    try {
      this.say("");
      await work();
    } catch (error) {
      this.say(error.message ?? String(error));
    }
  }

  say(text) {
    if (!this.notice) {
      this.notice = node("p", { className: "voicelab-notice" });
      this.notice.setAttribute("role", "alert");
    }
    this.notice.textContent = text;
    this.root.append(this.notice);
  }

  show(...parts) {
    this.root.replaceChildren(...parts);
  }

  async next() {
    this.switcher?.stop();
    this.names = null;
    this.root.dataset.state = "loading";
    this.show(node("p", {}, "Loading the sounds…"));
    try {
      this.trial = await this.line.trial(this.listener);
      if (this.trial) return await this.load();
    } catch (error) {
      this.root.dataset.state = "failed";
      const again = node("button", { type: "button" }, "Try again");
      again.onclick = () => void this.guard(() => this.next());
      this.show(node("p", {}, "The sounds could not be loaded. Your answers so far are kept."), again);
      throw error;
    }
    this.root.dataset.state = "done";
    this.show(node("h2", {}, "Thank you"), node("p", {}, "Your answers are saved."));
  }

  async load() {
    this.switcher = new Switcher(this.audio, { onend: () => this.refresh() });
    const names = this.trial.letters.map(({ letter }) => letter);
    const wanted = this.trial.letters.map(({ sound }) => sound);
    if (this.trial.reference) {
      names.unshift("reference");
      wanted.unshift(this.trial.reference);
    }
    const data = await Promise.all(wanted.map((sound) => this.line.sound(sound)));
    for (const [place, bytes] of data.entries()) {
      this.switcher.add(names[place], await this.audio.decodeAudioData(bytes));
    }
    this.names = names;
    this.answers = {};
    this.plays = 0;
    this.began = null;
    this.build();
    this.root.dataset.state = "ready";
    this.root.focus({ preventScroll: true });
  }

  build() {
    const { place, total, question } = this.trial;
    this.buttons = new Map();
    const sounds = node("div", { className: "voicelab-sounds" });
    for (const [index, name] of this.names.entries()) {
      const label = name === "reference" ? "Reference" : name;
      const button = node("button", { type: "button", title: `Key ${index + 1}` }, label);
      button.onclick = () => this.hear(name);
      this.buttons.set(name, button);
      sounds.append(node("div", { className: "voicelab-sound" }, button, ...this.rating(name)));
    }
    this.loop = node("input", { type: "checkbox" });
    this.loop.onchange = () => this.setLoop();
    this.done = node("button", { type: "button", className: "voicelab-next" }, "Next");
    this.done.onclick = () => void this.vote();
    const foot = node("div", { className: "voicelab-foot" }, node("label", {}, this.loop, " loop (L)"), this.done);
    const title = node("h2", {}, `${place + 1} of ${total}`);
    this.show(title, node("p", {}, question), sounds, ...this.choice(), foot);
    this.say("");
    this.refresh();
  }

  /** What is to be answered beside one sound. */
  rating(name) {
    const { kind, scale } = this.trial;
    if (name === "reference") return [];
    if (kind === "MUSHRA") {
      const slider = node("input", { type: "range", min: scale[0], max: scale[1], step: 1, value: 0 });
      slider.setAttribute("aria-label", `Rating of ${name}`);
      const value = node("output", {}, "–");
      const rate = () => this.answer(name, Number(slider.value), () => (value.textContent = slider.value));
      // Who clicks at 0 or steps down from it rates with 0, though the slider does not move.
      slider.oninput = slider.onclick = rate;
      slider.onkeyup = ({ key }) => DOWN.includes(key) && rate();
      return [slider, value];
    }
    if (kind === "MOS") return [this.points(name, ACR.map((label, i) => [i + 1, `${i + 1} ${label}`]))];
    return [];
  }

  /** What is to be answered about all of them. */
  choice() {
    const { kind } = this.trial;
    if (kind === "CMOS") return [this.points("B", CMOS.map((label, i) => [i - 3, `${label}`]))];
    if (kind === "AB") return [this.points("choice", [["A", "A"], ["B", "B"]])];
    if (kind === "ABX") return [this.points("choice", [["A", "X is A"], ["B", "X is B"]])];
    return [];
  }

  points(name, options) {
    const group = node("div", { className: "voicelab-points" });
    group.setAttribute("role", "radiogroup");
    group.setAttribute("aria-label", this.trial.question);
    for (const [value, label] of options) {
      const input = node("input", { type: "radio", name: `voicelab-${this.group}-${name}`, value: String(value) });
      input.onchange = () => this.answer(name, value);
      group.append(node("label", {}, input, ` ${label}`));
    }
    return group;
  }

  answer(name, value, then = () => {}) {
    this.answers[name] = value;
    then();
    this.refresh();
  }

  hear(name) {
    this.began ??= performance.now();
    const { playing, current } = this.switcher;
    if (playing && current === name) this.switcher.pause();
    else {
      this.plays += 1;
      this.switcher.select(name);
      if (!playing) this.switcher.play();
    }
    this.refresh();
  }

  setLoop() {
    if (this.loop.checked) this.switcher.loopAll();
    else this.switcher.loop(null);
  }

  /** Every sound must have been heard, and everything asked must be answered. */
  get complete() {
    const { kind, letters } = this.trial;
    const wanted = { AB: ["choice"], ABX: ["choice"], CMOS: ["B"] }[kind] ?? letters.map(({ letter }) => letter);
    const heard = this.names.every((name) => this.switcher.heard.has(name));
    return heard && wanted.every((name) => name in this.answers);
  }

  refresh() {
    for (const [name, button] of this.buttons) {
      const on = this.switcher.playing && this.switcher.current === name;
      button.setAttribute("aria-pressed", String(on));
      button.classList.toggle("voicelab-heard", this.switcher.heard.has(name));
    }
    this.done.disabled = !this.complete;
    this.root.dataset.playing = this.switcher.playing ? this.switcher.current : "";
  }

  async vote() {
    if (!this.complete || this.voting) return;
    this.voting = true;
    const seconds = (performance.now() - this.began) / 1000;
    await this.guard(async () => {
      await this.line.vote(this.listener, this.trial.id, { answers: this.answers, seconds, plays: this.plays });
      await this.next();
    });
    this.voting = false;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    event.stopPropagation(); // JupyterLab would take the keys for its cells
    const { target, key } = event;
    if (!this.names || target.type === "text") return;
    // A button and a box have keys of their own; so has a point that is not chosen yet.
    if (target.tagName === "BUTTON" && (key === " " || key === "Enter")) return;
    if (key === " " && (target.type === "checkbox" || (target.type === "radio" && !target.checked))) return;
    const digit = Number(key);
    const letter = this.names.find((name) => name.toLowerCase() === key.toLowerCase());
    if (digit >= 1 && digit <= this.names.length) this.hear(this.names[digit - 1]);
    else if (letter) this.hear(letter);
    else if (key === " ") this.hear(this.switcher.current);
    else if (key === "l" || key === "L") {
      this.loop.checked = !this.loop.checked;
      this.setLoop();
    } else if (key === "Enter" && this.complete) void this.vote();
    else return;
    event.preventDefault();
  }

  close() {
    this.switcher?.stop();
    void this.audio?.close();
  }
}

export function open(root, line) {
  return new Test(root, line);
}

/** What tells this browser from others: listeners of one name in two browsers are two. Ports share it, as cookies do. */
function session() {
  const kept = document.cookie.match(/(?:^|; )voicelab-listener=([\w-]+)/)?.[1];
  const name = kept ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("-");
  document.cookie = `voicelab-listener=${name}; max-age=${90 * 24 * 3600}; path=/; SameSite=Strict`;
  return name;
}

/** The line of a page that voicelab serves. */
export function overHttp(base = "") {
  const call = async (path, body) => {
    const options = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
    const answer = await fetch(`${base}${path}`, options ?? {});
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.message ?? `the server answered ${answer.status}`);
  };
  const json = async (path, body) => (await call(path, body)).json();
  return {
    join: (name) => json("api/listeners", { name, session: session() }),
    trial: async (listener) => (await json(`api/listeners/${listener}/trial`)).trial,
    sound: async (id) => (await call(`api/sounds/${id}`)).arrayBuffer(),
    vote: (listener, trial, body) => json(`api/listeners/${listener}/votes`, { trial, ...body }),
  };
}

/** The line of a notebook's widget: questions are numbered messages, and so are their answers. */
export function overMessages(model) {
  const open = new Map();
  const page = unique(); // answers come to every view of the model
  let last = 0;
  model.on("msg:custom", (message, buffers) => {
    const waiting = open.get(message.number);
    if (!waiting) return;
    open.delete(message.number);
    if (message.error) waiting.reject(new Error(message.error));
    else waiting.resolve(buffers.length ? buffers[0] : message.value);
  });
  let gone = null;
  model.on("comm_live_update", () => {
    gone = new Error("The kernel has gone; the votes so far are kept. Run the cell again.");
    for (const { reject } of open.values()) reject(gone);
    open.clear();
  });
  const ask = (call, fields) =>
    new Promise((resolve, reject) => {
      if (gone) return reject(gone);
      last += 1;
      const number = `${page}-${last}`;
      open.set(number, { resolve, reject });
      model.send({ number, call, ...fields });
    });
  // decodeAudioData takes the buffer away, and a DataView may be a part of a larger one.
  const copy = (view) => view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  return {
    join: (name) => ask("join", { name }),
    trial: (listener) => ask("trial", { listener }),
    sound: async (id) => copy(await ask("sound", { id })),
    vote: (listener, trial, body) => ask("vote", { listener, trial, ...body }),
  };
}

export default {
  render({ model, el }) {
    const test = open(el, overMessages(model));
    const stop = () => test.switcher?.stop();
    model.on("comm_live_update", stop);
    return () => {
      model.off("comm_live_update", stop);
      test.close();
    };
  },
};
