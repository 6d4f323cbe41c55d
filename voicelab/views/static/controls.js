// The form of a synthesis panel: text, voice, Speak, and a control for each field of the schema.
//
// `fields` describe the controls: {name, kind, label, title, help, default, options | min, max, step, log, front}.
// `values` are their values; a change is sent on the change event of a control.

import { element, followTheme, guard, hideSaved, Presses, uniqueId } from "./dom.js";

const DICE =
  '<svg viewBox="0 0 24 24" aria-hidden="true"><path fill-rule="evenodd" d="M5 3h14a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2H5a2 2 0 0 1' +
  "-2-2V5a2 2 0 0 1 2-2zM7 7v3h3V7zm7 0v3h3V7zM7 14v3h3v-3zm7 0v3h3v-3zm-3.500-3.500v3h3v-3z\"/></svg>";

class Field {
  constructor(about, panel) {
    Object.assign(this, { about, panel, id: uniqueId() });
    const { name, kind, label, title, help } = about;
    const described = { id: this.id, "aria-describedby": `${this.id}-help` };
    this.problem = element("div", { className: "voicelab-problem" }, { role: "alert" });
    this.inputs = this[kind](described);
    const caption = element("label", { title, htmlFor: this.id }, {}, label);
    this.undo = element("button", { type: "button", className: "voicelab-undo", title: `Reset to ${this.told(about.default)}` });
    Object.assign(this.undo, { textContent: "↺", onclick: () => this.change(about.default) });
    this.undo.setAttribute("aria-label", `Reset ${label}`);
    const body = element("div", { className: "voicelab-inputs" }, {}, ...this.inputs, ...(kind === "seed" ? [] : [this.undo]));
    const words = element("div", { className: "voicelab-help", id: `${this.id}-help` }, {}, help);
    this.root = element("div", { className: `voicelab-field voicelab-field-${name.replace(".", "-")}` });
    this.root.append(caption, body, words, this.problem);
    this.disabled = Boolean(about.disabled);
  }

  told(value) {
    return value === true ? "on" : value === false ? "off" : value === "" ? "the default" : value;
  }

  change(value) {
    this.panel.change(this.about.name, value);
  }

  choice(attributes) {
    this.main = element("select", {}, attributes);
    this.main.onchange = () => this.change(this.main.value);
    this.offer(this.about.options.map((option) => [option, option]));
    return [this.main];
  }

  voice(attributes) {
    const inputs = this.choice(attributes);
    this.offer(this.about.options);
    return inputs;
  }

  offer(options) {
    this.main.replaceChildren(...options.map(([text, value]) => element("option", { value, textContent: text })));
  }

  switch(attributes) {
    this.main = element("input", { type: "checkbox" }, attributes);
    this.main.onchange = () => this.change(this.main.checked);
    return [this.main];
  }

  word(attributes) {
    this.main = element("input", { type: "text" }, attributes);
    this.main.onchange = () => this.change(this.main.value);
    return [this.main];
  }

  number(attributes) {
    const { min, max, step } = this.about;
    this.main = element("input", { type: "number", min, max, step }, attributes);
    this.main.onchange = () => this.typed(this.main.value);
    return [this.main];
  }

  slider(attributes) {
    const { min, max, step, log, label } = this.about;
    const scale = log ? Math.log10 : (value) => value;
    const ends = { min: scale(min), max: scale(max), step: log ? 0.01 : step };
    this.main = element("input", { type: "range", ...ends }, attributes);
    this.box = element("input", { type: "number", min, max, step }, { "aria-label": `${label}, number` });
    const value = () => this.rounded(log ? 10 ** Number(this.main.value) : Number(this.main.value));
    this.main.oninput = () => {
      this.box.value = value();
      this.main.setAttribute("aria-valuetext", String(value()));
    };
    this.main.onchange = () => this.change(value());
    this.box.onchange = () => this.typed(this.box.value);
    return [this.main, this.box];
  }

  seed(attributes) {
    this.main = element("input", { type: "text", inputMode: "numeric", autocomplete: "off", spellcheck: false }, attributes);
    this.main.placeholder = this.about.disabled ? "not supported by this backend" : "random for each take";
    this.main.onchange = () => this.change(this.main.value.trim());
    const hold = element("input", { type: "checkbox" }, { "aria-label": "Hold the seed" });
    hold.onchange = () => this.panel.set("held", hold.checked);
    this.hold = hold;
    const label = element("label", { className: "voicelab-hold", title: "Keep the seed while controls change" }, {}, hold, " hold");
    const dice = element("button", { type: "button", className: "voicelab-draw", title: "Draw a new seed and speak" });
    dice.setAttribute("aria-label", "Draw a new seed and speak");
    Object.assign(dice, { innerHTML: DICE, onclick: () => this.panel.press("draw", dice) });
    return [this.main, label, dice];
  }

  /** Send a typed number, null for none; the kernel marks what is not allowed, and nothing is spoken. */
  typed(text) {
    this.change(text === "" ? null : Number(text));
  }

  rounded(value) {
    return Number(value.toFixed(this.about.log ? 2 : 4));
  }

  show(value) {
    const { kind, log, label } = this.about;
    if (kind === "switch") this.main.checked = value;
    else if (kind === "slider") {
      this.main.value = log ? Math.log10(Math.max(value, this.about.min)) : value;
      this.main.setAttribute("aria-valuetext", String(value));
      this.box.value = value ?? "";
    } else this.main.value = value ?? "";
    if (kind === "seed") this.hold.checked = this.panel.model.get("held");
    const same = value === this.about.default;
    this.undo.disabled = same;
    this.undo.setAttribute("aria-label", same ? `Reset ${label}` : `Reset ${label} to ${this.told(this.about.default)}`);
  }

  /** Show an error message; "" clears it. */
  blame(words) {
    for (const input of [this.main, this.box]) input?.setAttribute("aria-invalid", String(Boolean(words)));
    if (this.problem.textContent !== words) this.problem.textContent = words;
  }

  set disabled(off) {
    for (const input of this.root.querySelectorAll("input, select, button")) input.disabled = off;
  }
}

class Panel {
  constructor(model, el) {
    this.model = model;
    this.presses = new Presses(model, () => this.show());
    guard(el);
    this.text = element("textarea", { rows: 2, className: "voicelab-text" }, { "aria-label": "Text to speak" });
    this.text.onchange = () => this.change("text", this.text.value);
    this.textProblem = element("div", { className: "voicelab-problem" }, { role: "alert" });
    const [voice, ...rest] = model.get("fields");
    this.voice = new Field(voice, this);
    this.fields = rest.map((field) => new Field(field, this));
    const button = (label, name) =>
      element("button", { type: "button", className: `voicelab-${name}`, onclick: (event) => this.press(name, event.target) }, {}, label);
    this.speak = button("Speak", "speak");
    this.speak.title = "Also Shift+Enter or Ctrl+Enter in a field";
    this.cancel = button("Cancel", "cancel");
    this.onChange = element("input", { type: "checkbox" });
    this.onChange.onchange = () => this.set("speak_on_change", this.onChange.checked);
    const automatic = element("label", { className: "voicelab-pair" }, {}, this.onChange, " Speak on change");
    this.bar = element("progress", { max: 1 }, { "aria-label": "Progress of the take" });
    this.status = element("span", { className: "voicelab-status" }, { role: "status" });
    this.message = element("div", { className: "voicelab-message" }, { role: "alert" });
    this.notes = element("div", { className: "voicelab-notes" });
    const pair = element("div", { className: "voicelab-pair" }, {}, this.speak, this.cancel);
    const actions = element("div", { className: "voicelab-head" }, {}, pair, automatic);
    const head = element("div", { className: "voicelab-grid voicelab-voice" }, {}, this.voice.root, actions);
    const grid = (front) =>
      element("div", { className: "voicelab-grid" }, {}, ...this.fields.filter(({ about }) => about.front === front).map(({ root }) => root));
    const more = element("details", {}, {}, element("summary", {}, {}, "More fields"), grid(false));
    const line = element("div", { className: "voicelab-progress" }, {}, this.bar, this.status);
    this.root = element("div", { className: "voicelab-controls" }, { role: "group", "aria-label": "Synthesis" });
    this.root.append(this.text, this.textProblem, head, grid(true), more, line, this.message, this.notes);
    // Typing enables Speak after an error, since a text field sends its value only when it loses focus.
    this.root.oninput = () => {
      this.unjudged = true;
      this.ready();
    };
    // Suspend updates while a button is pressed: if it moves, the click is lost.
    this.root.onpointerdown = ({ target }) => {
      if (!target.closest("button")) return;
      this.pressing = true;
      for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, this.released, { once: true });
    };
    this.root.addEventListener("voicelab-submit", () => this.presses.submit(this.speak));
    el.append(this.root);
    this.show();
  }

  released = () => {
    this.pressing = false;
    setTimeout(() => this.show()); // after the click
  };

  ready() {
    const { model } = this;
    const mended = this.unjudged && Object.keys(model.get("problems")).length > 0 && this.text.value.trim();
    this.speak.disabled = Boolean(this.gone) || !(model.get("ready") || mended);
  }

  judged() {
    this.unjudged = false;
    this.show();
  }

  get values() {
    return this.model.get("values");
  }

  set(name, value) {
    if (this.gone) return; // removing a focused field fires a change event
    this.presses.press(null, () => {
      this.model.set(name, value);
      try {
        this.model.save_changes();
      } catch {
        // The model was closed: removing a focused field fires a change event.
      }
    });
  }

  change(name, value) {
    if (this.values[name] !== value) this.set("values", { ...this.values, [name]: value });
    this.show();
  }

  press(kind, button) {
    // Include typed text if the browser keeps the focus in the field.
    if (this.values.text !== this.text.value) this.change("text", this.text.value);
    this.unjudged = false;
    this.presses.press(button, () => this.model.send({ kind }));
  }

  show() {
    if (this.pressing) return;
    const { model, values } = this;
    const problems = model.get("problems");
    const gone = this.gone ? "Kernel disconnected: run the cell to use this panel again." : "";
    // Do not overwrite text being typed.
    if (document.activeElement !== this.text || this.shown !== values.text) this.text.value = values.text;
    this.shown = values.text;
    this.textProblem.textContent = problems.text ?? "";
    this.text.setAttribute("aria-invalid", String("text" in problems));
    for (const field of [this.voice, ...this.fields]) {
      field.show(values[field.about.name]);
      field.blame(problems[field.about.name] ?? "");
    }
    const busy = model.get("busy") && !this.gone;
    this.ready();
    this.cancel.disabled = !busy;
    this.onChange.checked = model.get("speak_on_change");
    this.bar.value = model.get("share");
    this.root.dataset.tone = model.get("tone");
    this.bar.hidden = !busy;
    const also = this.onChange.checked ? ", or change a field" : "";
    const hint = this.speak.disabled ? "" : `Press Speak to hear the text${also}.`;
    const late = this.presses.late && !this.gone;
    const status = late ? "Waiting for the kernel, which is busy…" : model.get("status") || hint;
    if (this.status.textContent !== status) this.status.textContent = status;
    const wrong = gone || (problems[""] ?? "");
    if (this.message.textContent !== wrong) this.message.textContent = wrong;
    const notes = model.get("notes").map((note) => element("div", {}, { role: "note" }, note));
    this.notes.replaceChildren(...notes);
  }

  /** Update the list of voices. */
  voices() {
    const [voice] = this.model.get("fields");
    this.voice.offer(voice.options);
    this.show();
  }

  lost() {
    this.gone = true;
    for (const field of [this.voice, ...this.fields]) field.disabled = true;
    this.show();
  }
}

export default {
  render({ model, el }) {
    const panel = new Panel(model, el);
    const show = () => panel.show();
    const voices = () => panel.voices();
    const lost = () => panel.lost();
    const judged = () => panel.judged();
    const shown = ["values", "notes", "status", "share", "tone", "busy", "held", "speak_on_change"];
    for (const name of shown) model.on(`change:${name}`, show);
    model.on("change:problems change:ready", judged);
    model.on("change:fields", voices);
    model.on("comm_live_update", lost);
    const done = hideSaved(el);
    followTheme(el);
    return () => {
      panel.gone = true;
      done();
      for (const name of shown) model.off(`change:${name}`, show);
      model.off("change:problems change:ready", judged);
      model.off("change:fields", voices);
      model.off("comm_live_update", lost);
    };
  },
};
