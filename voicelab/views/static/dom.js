// DOM helpers shared by all panels.

export function element(tag, fields = {}, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Return a button that copies a text to the clipboard. */
export function copier(label, text) {
  const button = element("button", { type: "button", className: "voicelab-copy" }, { "aria-label": label }, "Copy");
  button.onclick = async (event) => {
    event.stopPropagation();
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };
  return button;
}

/** Let the browser save a file. */
export function download(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return an id, or name of a radio group, that is unique on the page: panels and views of one model share it. */
export function uniqueId() {
  const count = Symbol.for("voicelab.ids"); // global, since every widget has its copy of this file
  globalThis[count] = (globalThis[count] ?? 0) + 1;
  return `voicelab-${globalThis[count]}`;
}

const EDITING = /^(?:[acvxyz]|Shift [vz]|(?:Shift )?(?:Backspace|Delete|Insert|Home|End|PageUp|PageDown|Arrow\w+))$/i;

/** Whether a key is a shortcut of the whole page, such as Ctrl+S; other keys act on the control that has the focus. */
function isGlobal({ key, ctrlKey, metaKey, altKey, shiftKey }) {
  const modified = ctrlKey || metaKey || altKey;
  if (key === "Enter") return modified || shiftKey; // runs the cell
  return /^F([13-9]|1\d)$/.test(key) || (modified && !EDITING.test(shiftKey ? `Shift ${key}` : key));
}

const TYPED = "textarea, input:not([type=radio], [type=checkbox], [type=range])";

/** Whether a control itself acts on a key, so that no panel may give the key another meaning. */
export function actsOn(control, key) {
  if (control.matches(`select, ${TYPED}`)) return true;
  if (control.matches("button, summary, a[href], [role=button], [role=tab]")) return key === " " || key === "Enter";
  // Checked radio buttons and sliders ignore the space key.
  if (control.matches("[type=checkbox], [type=radio]:not(:checked)") && key === " ") return true;
  return control.matches("[type=radio], [type=range]") && /^(?:Arrow|Page|Home$|End$)/.test(key);
}

const PANEL = ".voicelab-look, .voicelab-shell";
const SUPPRESS = "data-lm-suppress-shortcuts";

/**
 * Route keydown events inside panels: most keys belong to the focused control, shortcuts of the page to the notebook.
 *
 * Notebook 7 handles keydown at the document in the capture phase, JupyterLab in the bubble phase. Both match shortcuts from
 * the focused element upward and stop at an element with the attribute above. A focused slider itself matches the shortcuts
 * of cells, so the attribute must be on it. Shortcuts of the page are dispatched outside the panel, since ipywidgets'
 * controls stop them. In a text field Shift+Enter and Ctrl+Enter do not run the cell, which would replace the panel and lose
 * the text: they commit it, and the event "voicelab-submit" presses the main button of the panel.
 */
function watchKeys() {
  const watching = Symbol.for("voicelab.keys"); // global, since every widget has its copy of this file
  if (globalThis[watching]) return;
  globalThis[watching] = true;
  let focused = null;
  const route = (event) => {
    focused?.removeAttribute(SUPPRESS);
    const field = event.composedPath()[0]; // inside shadow trees too
    if (event.key === "Enter" && isGlobal(event) && field.matches?.(TYPED) && field.closest(PANEL)) {
      event.stopImmediatePropagation();
      event.preventDefault();
      if (!event.isComposing && !event.repeat)
        for (const type of ["change", "voicelab-submit"]) field.dispatchEvent(new Event(type, { bubbles: true }));
      return;
    }
    focused = event.target.closest?.(PANEL) ? event.target : null;
    if (!focused) return;
    // In a control without text, Chromium undoes the last edit of the page, in any field, and gives that field the focus.
    if ((event.ctrlKey || event.metaKey) && /^[yz]$/i.test(event.key) && !focused.matches(TYPED)) event.preventDefault();
    if (!isGlobal(event)) return focused.setAttribute(SUPPRESS, "true");
    event.stopImmediatePropagation();
    if (!outermost(focused).parentElement.dispatchEvent(new KeyboardEvent(event.type, event))) event.preventDefault();
  };
  addEventListener("keydown", route, true);
  // Both otherwise handle undo of text fields inside a notebook.
  addEventListener("beforeinput", (event) => event.target.closest?.(PANEL) && event.stopPropagation(), true);
}

function outermost(node) {
  let panel = node.closest(PANEL);
  for (let outer; (outer = panel.parentElement?.closest(PANEL)); ) panel = outer;
  return panel;
}

/** Keep keys pressed in `root`, or after a click on a blank part of it, from acting on the notebook's cells. */
export function guard(root) {
  watchKeys();
  // A panel of several widgets is a box around them, known once this one is on the page.
  requestAnimationFrame(() => {
    const whole = root.closest(PANEL) ? outermost(root) : root;
    // VS Code and Colab handle keys in the bubble phase.
    whole.addEventListener("keydown", stopOwn);
    if (whole.tabIndex < 0) whole.tabIndex = -1;
    whole.style.outline = "none";
  });
}

function stopOwn(event) {
  if (!isGlobal(event)) event.stopPropagation();
}

const LATE_MS = 150;

/** Presses that the kernel has not handled yet: their buttons say so when it is busy, and take no further press. */
export class Presses {
  constructor(model, changed = () => {}) {
    Object.assign(this, { model, changed, open: new Map(), number: 0 });
    model.on("msg:custom", ({ kind, number }) => kind === "pong" && this.answered(number));
    model.on("comm_live_update", () => [...this.open.keys()].forEach((number) => this.answered(number)));
  }

  /** Whether the kernel has not answered for a while. */
  get late() {
    return [...this.open.values()].some(({ late }) => late);
  }

  /**
   * Call `send`, unless an earlier press of the button waits; `button` may be null. Returns whether it was called.
   * `handled` is called once the kernel has handled all messages so far.
   */
  press(button, send, handled = () => {}) {
    if (button?.dataset.waiting) return false;
    const number = ++this.number;
    const press = { button, handled, late: false };
    press.timer = setTimeout(() => this.wait(press), LATE_MS);
    this.open.set(number, press);
    if (button) button.dataset.waiting = "soon";
    send();
    // After the messages of the press: the kernel handles them in order.
    setTimeout(() => this.model.send({ kind: "ping", number }));
    return true;
  }

  wait(press) {
    press.late = true;
    if (press.button) press.button.dataset.waiting = "late";
    press.button?.setAttribute("aria-busy", "true");
    this.changed();
  }

  answered(number) {
    const { button, handled, late, timer } = this.open.get(number) ?? {};
    if (!this.open.delete(number)) return;
    clearTimeout(timer);
    delete button?.dataset.waiting;
    button?.removeAttribute("aria-busy");
    if (late) this.changed();
    handled();
  }

  /** Click a button after the changes of fields: a click overtakes changes that the widget manager holds back. */
  submit(button) {
    if (button) this.press(button, () => {}, () => button.click());
  }
}

/** Call `changed` whenever the theme of the page may have changed; return the observer. */
export function watchTheme(changed) {
  const watcher = new MutationObserver(changed);
  const attributeFilter = ["class", "theme", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"];
  for (const node of [document.documentElement, document.body]) watcher.observe(node, { attributeFilter });
  return watcher;
}

// Variables of JupyterLab, [light, dark]. Other pages lack them, or have those of a widget manager's light theme.
const THEME_COLORS = {
  "layout-color0": ["#fff", "#111"],
  "layout-color1": ["#fff", "#1b1b1b"],
  "layout-color2": ["#ededed", "#333"],
  "ui-font-color1": ["#212121", "#e6e6e6"],
  "border-color1": ["#9e9e9e", "#757575"],
  "border-color2": ["#d0d0d0", "#555"],
  "content-font-color1": ["#212121", "#e6e6e6"],
  "error-color1": ["#c62828", "#ff8a80"],
};

/** Whether the background of `node` is dark. VS Code has a white background behind widgets in its dark themes. */
function onDark(node) {
  const light = (colour) => {
    // Drawn, since CSS colors have many notations.
    const pen = element("canvas", { width: 1, height: 1 }).getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, opaque] = pen.getImageData(0, 0, 1, 1).data;
    return opaque > 128 ? 0.299 * red + 0.587 * green + 0.114 * blue > 128 : null;
  };
  for (let at = node.parentNode; at; at = at.parentNode ?? at.host) {
    const paper = at instanceof Element ? light(getComputedStyle(at).backgroundColor) : null;
    if (paper !== null) return !paper;
  }
  return light(getComputedStyle(document.body).color) === true;
}

/**
 * Apply the styles of all panels to a widget, and theme colors outside of JupyterLab and Notebook, which define them.
 */
export function followTheme(el) {
  el.classList.add("voicelab-look");
  const follow = () => {
    if (document.body.dataset.jpThemeLight) return;
    const dark = onDark(el);
    el.classList.toggle("voicelab-dark", dark);
    for (const [name, pair] of Object.entries(THEME_COLORS)) el.style.setProperty(`--jp-${name}`, pair[Number(dark)]);
  };
  requestAnimationFrame(follow);
  watchTheme(() => requestAnimationFrame(follow)); // after the theme is applied
}

const living = new WeakMap(); // number of live widgets by cell

/**
 * Hide the saved output of a panel while the panel is live; return a function that shows it again.
 *
 * In JupyterLab and Notebook 7 the style of the saved output does so. Elsewhere a cell has another class or is a page.
 */
export function hideSaved(el) {
  let cell = null;
  const saved = () => cell?.querySelectorAll(".voicelab-saved") ?? [];
  const hide = () => saved().forEach((output) => (output.hidden = true));
  const watcher = new MutationObserver(hide);
  const begin = () => {
    if (el.closest(".lm-Widget.jp-OutputArea")) return; // Voilà's has no other class
    cell = el.closest(".cell_container, .cell, [data-cell-id], .jp-Cell") ?? document.body;
    living.set(cell, (living.get(cell) ?? 0) + 1);
    hide();
    watcher.observe(cell, { childList: true, subtree: true });
  };
  const frame = requestAnimationFrame(begin);
  return () => {
    cancelAnimationFrame(frame);
    watcher.disconnect();
    if (cell) living.set(cell, living.get(cell) - 1);
    // A panel may consist of several widgets, of which one is closed, such as the player of a card.
    if (cell && !living.get(cell)) saved().forEach((output) => (output.hidden = false));
  };
}
