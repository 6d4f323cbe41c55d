// A listening test as a web page or inside a notebook. The page does not know which system a stimulus is from.
//
// `open(root, line)` takes a transport with test(), join(name), trial(listener), sound(id) and vote(listener, trial,
// body), which return promises; after an error the request can be repeated. The transport of a study also has
// step(listener, name, answers). In a study, step() and join() return the remaining steps.

import { actsOn, element, followTheme, guard, uniqueId } from "./dom.js";
import { overMessages } from "./listening-lines.js";
import { ratingScale, STEPS } from "./listening-scale.js";
import { ending, PAGES, paragraphs, pause, wear } from "./listening-study.js";
import { Switcher } from "./switcher.js";

const TASKS = {
  AB: "Each question has two sounds, A and B. Choose the sound that you prefer.",
  ABX: "Each question has three sounds, A, B and X. X is identical to A or B. Choose which.",
  MOS: "Each question has one sound. Rate its quality from 1 (bad) to 5 (excellent).",
  SMOS: "Each question has a reference and a sound, A. Rate how certain you are that both are the same, from 1 to 5.",
  DMOS: "Each question has a reference and a sound, A. Rate the degradation of A from 1 (very annoying) to 5 (inaudible).",
  CMOS: "Each question has two sounds, A and B. Rate the quality of B compared to A.",
  MUSHRA:
    "Each question has a reference and several versions of it. Rate the quality of each version from 0 to 100. " +
    "One of them is identical to the reference.",
  "MUSHRA-NMR": "Each question has several versions of a sentence. Rate the quality of each version from 0 to 100.",
  BWS: "Each question has several versions of a sentence. Choose the best and the worst.",
  transcription: "Each question has one sound. Type the words that you hear, or ? if you understand none.",
};
const ADVICE = "Use headphones in a quiet room. Listen to every sound to its end; play it as often as you like.";
const VOLUME = "Play this sound and set a comfortable volume on your device. Do not change the volume until you have finished.";

class Test {
  constructor(root, line) {
    this.root = element("div", { className: "voicelab-listening", tabIndex: 0 }, { role: "group", "aria-label": "Listening test" });
    this.line = line;
    this.names = null; // names of the current stimuli
    this.group = uniqueId();
    root.append(this.root);
    guard(this.root);
    this.root.addEventListener("keydown", (event) => this.key(event));
    // After a mouse click, keys act on the test rather than on the clicked button.
    this.root.addEventListener("click", (event) => {
      if (event.detail && event.target.closest("button")) this.root.focus({ preventScroll: true });
    });
    void this.attempt(() => this.welcome());
  }

  async welcome() {
    const { name: title, kind, instructions, study } = await this.line.test();
    Object.assign(this, { study, instructions });
    const name = element("input", { type: "text", maxLength: 100, autocomplete: "off" });
    const label = element("label", {}, {}, "Your name or code ", name);
    const form = element("form", {}, {}, ...(study ? [] : [label]), element("button", { type: "submit" }, {}, "Begin"));
    form.onsubmit = (event) => {
      event.preventDefault();
      void this.attempt(async () => {
        this.audio ??= new AudioContext({ latencyHint: "interactive" });
        const joined = await this.line.join(name.value);
        if (study) return this.follow(joined);
        const { listener, volume, training } = joined;
        Object.assign(this, { listener, practice: training, practised: training.length, given: [] });
        await this.step(() => this.volume(volume));
      });
    };
    this.show(element("h2", {}, {}, title), ...paragraphs(instructions || `${TASKS[kind]}\n${ADVICE}`), form);
  }

  /** Show the next step of a study. */
  async follow({ end, listener, steps, volume, ...state }) {
    Object.assign(this, { listener, practice: [], given: [] });
    if (end) return this.still(end === "finished" ? "done" : "left", ending({ end, ...state }));
    const [name] = steps;
    this.send = (answers) => void this.attempt(async () => this.follow(await this.line.step(listener, name, answers)));
    if (name in PAGES) return this.still(name, PAGES[name](this.study, this.send));
    if (name === "volume") return this.step(() => this.volume(volume));
    this.practice = name === "trials" ? [] : [...state[name]];
    this.practised = this.practice.length;
    const begin = () => void this.attempt(() => this.step(() => this.next()));
    if (name === "headphones") return this.still("wear", wear(begin));
    return this.step(() => this.next());
  }

  /** Show a page without audio. */
  still(state, parts) {
    this.switcher?.stop();
    clearInterval(this.timer);
    this.names = null;
    this.root.dataset.state = state;
    this.show(...parts);
  }

  /** Run an action and show its error on the page. */
  async attempt(work) {
    try {
      this.say("");
      await work();
    } catch (error) {
      this.say(error.message ?? String(error));
    }
  }

  say(text) {
    this.notice ??= element("p", { className: "voicelab-notice" }, { role: "alert" });
    this.notice.textContent = text;
    this.root.append(this.notice);
  }

  show(...parts) {
    this.root.replaceChildren(...parts);
  }

  /** Show the page that `load` builds, or a button to retry if it fails. */
  async step(load) {
    this.switcher?.stop();
    clearInterval(this.timer);
    this.names = null;
    this.root.dataset.state = "loading";
    this.show(element("p", {}, {}, "Loading the sounds…"));
    try {
      await load();
    } catch (error) {
      this.root.dataset.state = "failed";
      const again = element("button", { type: "button" }, {}, "Try again");
      again.onclick = () => void this.attempt(() => this.step(load));
      this.show(element("p", {}, {}, "The sounds could not be loaded. Your answers so far are saved."), again);
      throw error;
    }
    this.root.focus({ preventScroll: true });
  }

  async volume(id) {
    await this.load(["sound"], [id]);
    this.done = element("button", { type: "button", className: "voicelab-next" }, {}, "The volume is comfortable");
    this.done.onclick = () => (this.study ? this.send({}) : this.goOn());
    this.show(element("h2", {}, {}, "Volume"), element("p", {}, {}, VOLUME), this.player("sound", "Sound"), this.foot());
    this.begin("volume");
  }

  async next() {
    this.trial = this.practice[0] ?? (await this.line.trial(this.listener));
    if (!this.trial) {
      return this.study ? this.send({}) : this.still("done", ending({ end: "finished" }));
    }
    const { letters, reference, place, total, id } = this.trial;
    const every = this.practice.length ? 0 : this.study?.breaks;
    if (every && place && place % every === 0 && this.rested !== id) {
      this.rested = id;
      const questions = this.study.questions.filter(({ when }) => when === "breaks");
      const go = async (answers) => {
        if (questions.length) await this.line.step(this.listener, `break ${place}`, answers);
        this.goOn();
      };
      return this.still("pause", pause(place, total, questions, (answers) => void this.attempt(() => go(answers))));
    }
    const names = letters.map(({ letter }) => letter);
    const ids = letters.map(({ sound }) => sound);
    await this.load(reference ? ["reference", ...names] : names, reference ? [reference, ...ids] : ids);
    this.build();
    this.begin("ready");
  }

  /** Load the sounds of a page. */
  async load(names, ids) {
    this.switcher = new Switcher(this.audio, { onend: () => this.refresh() });
    const data = await Promise.all(ids.map((id) => this.line.sound(id)));
    for (const [place, bytes] of data.entries()) {
      this.switcher.add(names[place], await this.audio.decodeAudioData(bytes));
    }
    Object.assign(this, { loaded: names, players: new Map(), answers: {}, plays: 0, began: null });
  }

  /** Enable keys and buttons. */
  begin(state) {
    this.names = this.loaded;
    this.root.dataset.state = state;
    this.say("");
    this.refresh();
    // No event is fired when a loop reaches its end.
    this.timer = setInterval(() => this.switcher.playing && this.refresh(), 100);
  }

  build() {
    const { place, total, question, kind, letters, scale, reference } = this.trial;
    const training = this.practice.length > 0;
    const all = training ? this.practised : total;
    const check = kind === "headphones";
    const title = `${check ? "Headphones" : training ? "Practice" : "Question"} ${place + 1} of ${all}`;
    const progress = element("progress", { max: all, value: place }, { "aria-label": `${place} of ${all} answered` });
    const head = element("div", { className: "voicelab-head" }, {}, element("h2", {}, {}, title), progress);
    this.done = element("button", { type: "button", className: "voicelab-next" }, {}, "Next");
    this.done.onclick = () => void this.vote();
    const asked = element("p", { className: "voicelab-question" }, {}, question);
    const note = training && !check ? [element("p", {}, {}, "Practice question: your answer is not recorded.")] : [];
    const names = letters.map(({ letter }) => letter);
    const play = (name) => this.player(name);
    const body = kind.startsWith("MUSHRA")
      ? this.scales.flatMap(([key, text], i) => {
          const shown = (name) => (i ? element("span", {}, {}, name.split(" ")[0]) : play(name.split(" ")[0]));
          const rate = (name, value) => this.answer(name, value);
          return [...text, ratingScale(names.map(key), scale, reference && !i && "reference", shown, rate)];
        })
      : [this.cards(this.loaded), ...this.points()];
    const guidelines = paragraphs(this.instructions);
    const again = element("details", {}, {}, element("summary", {}, {}, "Instructions"), ...guidelines);
    this.show(head, ...note, asked, ...body, this.foot(), ...(this.instructions ? [again] : []));
  }

  foot() {
    this.loop = element("input", { type: "checkbox" });
    this.loop.onchange = () => this.setLoop();
    this.hint = element("p", { className: "voicelab-hint" }, { role: "status" });
    const loop = element("label", {}, {}, this.loop, " Loop (L)");
    return element("div", { className: "voicelab-foot" }, {}, loop, this.hint, this.done);
  }

  /** Return a play button that shows the share of the sound played so far. */
  player(name, label = name === "reference" ? "Reference" : name) {
    const key = this.loaded.indexOf(name) + 1;
    const icon = element("span", { className: "voicelab-icon" }, { "aria-hidden": "true" });
    const share = element("span", { className: "voicelab-share" });
    const fields = { type: "button", className: "voicelab-play", title: `Key ${key}` };
    const button = element("button", fields, { "aria-label": `Play ${label}` }, icon, element("span", {}, {}, label), share);
    button.onclick = () => this.hear(name);
    this.players.set(name, { button, icon, share });
    return button;
  }

  /** Return a card for each sound, with its answer option if there is one. */
  cards(names) {
    const { kind, question } = this.trial;
    const box = element("div", { className: "voicelab-cards" });
    const choice = { AB: (name) => `Prefer ${name}`, ABX: (name) => `X is ${name}` }[kind];
    if (choice) {
      box.setAttribute("role", "radiogroup");
      box.setAttribute("aria-label", question);
    }
    for (const [place, name] of names.entries()) {
      const label = kind === "CMOS" ? `${name}, the ${["first", "second"][place]}` : undefined;
      const card = element("div", { className: "voicelab-card voicelab-sound" }, {}, this.player(name, label));
      if (choice && name !== "X") card.append(this.option("choice", name, choice(name)));
      if (kind === "BWS") card.append(this.option("best", name, "Best"), this.option("worst", name, "Worst"));
      box.append(card);
    }
    return box;
  }

  /** Return, for each scale of the question, a function from a letter to the name of its answer, and the text. */
  get scales() {
    const { scales = [] } = this.trial;
    if (!scales.length) return [[(letter) => letter, []]];
    const text = (asked) => [element("p", { className: "voicelab-question" }, {}, asked)];
    return scales.map(([scale, asked]) => [(letter) => `${letter} ${scale}`, text(asked)]);
  }

  /** Return the points of the rating scales or the field of a transcription, if the question has any. */
  points() {
    const { kind, question } = this.trial;
    if (kind === "transcription") {
      const input = element("input", { type: "text", maxLength: 1000, autocomplete: "off", spellcheck: false }, { "aria-label": question });
      input.oninput = () => this.answer("A", input.value.trim());
      return [input];
    }
    const steps = {
      ...STEPS,
      headphones: ["The first", "The second", "The third"].map((text, i) => [i + 1, text]),
    }[kind];
    if (!steps) return [];
    return this.scales.flatMap(([key, asked]) => {
      const name = key(kind === "CMOS" ? "B" : "A");
      const options = steps.map(([value, text]) => this.option(name, value, text));
      const label = asked[0]?.textContent ?? question;
      return [...asked, element("div", { className: "voicelab-points" }, { role: "radiogroup", "aria-label": label }, ...options)];
    });
  }

  option(name, value, text) {
    const input = element("input", { type: "radio", name: `${this.group}-${name}`, value: String(value) });
    input.onchange = () => this.answer(name, value);
    return element("label", { className: "voicelab-option" }, {}, input, element("span", {}, {}, text));
  }

  answer(name, value) {
    this.answers[name] = value;
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

  /** What the listener still has to do on this page; "" if it is complete. */
  get missing() {
    const left = this.names.filter((name) => this.switcher.heard(name) < 1);
    if (left.length) {
      const names = left.map((name) => ({ reference: "the reference", sound: "the sound" })[name] ?? name);
      const listed = new Intl.ListFormat("en-GB").format(names);
      return this.began === null ? `Play ${listed} to the end.` : `Not yet played to the end: ${listed}.`;
    }
    if (this.root.dataset.state === "volume") return "";
    const { kind, letters } = this.trial;
    const wanted = { AB: ["choice"], ABX: ["choice"], CMOS: ["B"], BWS: ["best", "worst"] }[kind] ?? letters.map(({ letter }) => letter);
    const names = this.scales.flatMap(([key]) => wanted.map(key));
    const open = names.filter((name) => (this.answers[name] ?? "") === "");
    const { best, worst } = this.answers;
    if (best && best === worst) return "Best and worst must be different sounds.";
    if (!open.length) return "";
    if (kind === "transcription") return "Type what you hear.";
    return kind.startsWith("MUSHRA") ? `Not yet rated: ${open.join(", ")}.` : "Choose an answer.";
  }

  refresh() {
    for (const [name, { button, icon, share }] of this.players) {
      const on = this.switcher.playing && this.switcher.current === name;
      const heard = this.switcher.heard(name);
      button.setAttribute("aria-pressed", String(on));
      button.dataset.heard = heard.toFixed(2);
      icon.textContent = on ? "❚❚" : "▶";
      share.style.width = `${100 * heard}%`;
    }
    const missing = this.missing;
    if (this.hint.textContent !== missing) this.hint.textContent = missing;
    this.done.disabled = missing !== "";
    this.root.dataset.playing = this.switcher.playing ? this.switcher.current : "";
  }

  goOn() {
    void this.attempt(() => this.step(() => this.next()));
  }

  async vote() {
    if (this.missing || this.voting) return;
    this.voting = true;
    const seconds = (performance.now() - this.began) / 1000;
    await this.attempt(async () => {
      const body = { answers: this.answers, seconds, plays: this.plays };
      if (this.practice.length) {
        this.given.push(this.answers.A);
        this.practice.shift();
        if (this.study && !this.practice.length) return this.send({ answers: this.given });
      } else await this.line.vote(this.listener, this.trial.id, body);
      await this.step(() => this.next());
    });
    this.voting = false;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    const { target, key } = event;
    if (!this.names || actsOn(target, key)) return;
    const digit = Number(key);
    const letter = this.names.find((name) => name.toLowerCase() === key.toLowerCase());
    if (digit >= 1 && digit <= this.names.length) this.hear(this.names[digit - 1]);
    else if (letter) this.hear(letter);
    else if (key === " ") this.hear(this.switcher.current);
    else if (key === "l" || key === "L") {
      this.loop.checked = !this.loop.checked;
      this.setLoop();
    } else if (key === "Enter" && !this.missing) this.done.click();
    else return;
    event.preventDefault();
  }

  close() {
    this.switcher?.stop();
    clearInterval(this.timer);
    void this.audio?.close();
  }
}

export function open(root, line) {
  return new Test(root, line);
}

export default {
  render({ model, el }) {
    followTheme(el);
    const test = open(el, overMessages(model));
    const stop = () => test.switcher?.stop();
    model.on("comm_live_update", stop);
    return () => {
      model.off("comm_live_update", stop);
      test.close();
    };
  },
};
