// What all panels build their pages with.

export function element(tag, fields = {}, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A button that copies a text, and says so. */
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

/** Return an id, or name of a radio group, that is unique on the page: panels and views of one model share it. */
export function uniqueId() {
  const count = Symbol.for("voicelab.ids"); // on the page: every widget has its own copy of this file
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

/** Whether a control itself acts on a key, so that no panel may give the key another meaning. */
export function actsOn(control, key) {
  if (control.matches("select, textarea, input:not([type=radio], [type=checkbox], [type=range])")) return true;
  if (control.matches("button, summary, a[href], [role=button], [role=tab]")) return key === " " || key === "Enter";
  // A radio button that is chosen, and a slider, do nothing at a space.
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
 * controls stop them.
 */
function watchKeys() {
  const watching = Symbol.for("voicelab.keys"); // on the page: every widget has its own copy of this file
  if (globalThis[watching]) return;
  globalThis[watching] = true;
  let focused = null;
  const route = (event) => {
    focused?.removeAttribute(SUPPRESS);
    focused = event.target.closest?.(PANEL) ? event.target : null;
    if (!focused || !isGlobal(event)) return focused?.setAttribute(SUPPRESS, "true");
    event.stopImmediatePropagation();
    if (!outermost(focused).parentElement.dispatchEvent(new KeyboardEvent(event.type, event))) event.preventDefault();
  };
  addEventListener("keydown", route, true);
  // Both prevent the undo of a text field inside a notebook.
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

/** Call `changed` whenever the page may have another theme; returns what ends that. */
export function watchTheme(changed) {
  const watcher = new MutationObserver(changed);
  const attributeFilter = ["class", "theme", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"];
  for (const node of [document.documentElement, document.body]) watcher.observe(node, { attributeFilter });
  return watcher;
}

// JupyterLab's names for them. Pages that are none have not these, or, with a widget manager, those of its light theme.
const THEME_COLOURS = {
  "layout-color0": ["#fff", "#111"],
  "layout-color1": ["#fff", "#1b1b1b"],
  "layout-color2": ["#ededed", "#333"],
  "ui-font-color1": ["#212121", "#e6e6e6"],
  "ui-font-color2": ["#555", "#b8b8b8"],
  "border-color1": ["#9e9e9e", "#757575"],
  "border-color2": ["#d0d0d0", "#555"],
  "content-font-color1": ["#212121", "#e6e6e6"],
  "error-color1": ["#c62828", "#ff8a80"],
};

/** Whether what lies behind `node` is dark: VS Code lays white below widgets in its dark themes, other pages nothing. */
function onDark(node) {
  const light = (colour) => {
    // Drawn, since a colour is written in many ways.
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
 * Give a widget the look of all panels, and the colours that fit the page around it, where that is not JupyterLab or
 * Notebook, which have them.
 */
export function followTheme(el) {
  el.classList.add("voicelab-look");
  const follow = () => {
    if (document.body.dataset.jpThemeLight) return;
    const dark = onDark(el);
    el.classList.toggle("voicelab-dark", dark);
    for (const [name, pair] of Object.entries(THEME_COLOURS)) el.style.setProperty(`--jp-${name}`, pair[Number(dark)]);
  };
  requestAnimationFrame(follow);
  watchTheme(() => requestAnimationFrame(follow)); // once the page has its other colours
}

const living = new WeakMap(); // how many widgets live in a cell

/**
 * Hide what the notebook keeps of a panel while the panel lives; returns what ends that.
 *
 * In JupyterLab and Notebook 7 the kept output does so by its own style. Elsewhere a cell is a box of another name, or,
 * where each has a page of its own, the page.
 */
export function hideSaved(el) {
  let cell = null;
  const saved = () => cell?.querySelectorAll(".voicelab-saved") ?? [];
  const hide = () => saved().forEach((output) => (output.hidden = true));
  const watcher = new MutationObserver(hide);
  const begin = () => {
    if (el.closest(".jp-OutputArea")) return;
    cell = el.closest(".cell_container, .cell, [data-cell-id]") ?? document.body;
    living.set(cell, (living.get(cell) ?? 0) + 1);
    hide();
    watcher.observe(cell, { childList: true, subtree: true });
  };
  const frame = requestAnimationFrame(begin);
  return () => {
    cancelAnimationFrame(frame);
    watcher.disconnect();
    if (cell) living.set(cell, living.get(cell) - 1);
    // A panel has several parts, of which one may go, as the player of a card does.
    if (cell && !living.get(cell)) saved().forEach((output) => (output.hidden = false));
  };
}
