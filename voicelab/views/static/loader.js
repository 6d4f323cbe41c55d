// Loads the scripts and styles of widgets, each once per page, and tells the kernel how many views a widget has.
//
// On a page without a kernel, such as an exported one, nothing would answer a control, so a sentence is shown instead.

const IMPORT = /^import \{[^}]*\} from "\.\/([a-z-]+\.js)";\n/gm;
const EXPORT = /^export (?=class |function |const |async )/gm;
const STATIC = "This panel is not live, since the page has no kernel. Run the notebook to use it.";

/** A module with its imports as one text; see `inlined` in Python. */
function inlined(files, entry) {
  const seen = new Set();
  const parts = [];
  const add = (name) => {
    if (seen.has(name)) return;
    seen.add(name);
    const text = files[name].replace(IMPORT, (_, imported) => (add(imported), ""));
    parts.push(name === entry ? text : text.replace(EXPORT, ""));
  };
  add(entry);
  return parts.join("\n");
}

function still(el) {
  el.append(Object.assign(document.createElement("p"), { className: "voicelab-static", textContent: STATIC }));
  requestAnimationFrame(() => {
    let shell = el.closest(".voicelab-shell");
    for (let outer; (outer = shell?.parentElement.closest(".voicelab-shell")); ) shell = outer;
    for (const other of [...(shell?.querySelectorAll(".voicelab-static") ?? [])].slice(1)) other.remove();
    if (shell) Object.assign(shell, { inert: true }).style.opacity = "0.6";
  });
}

export class Loader {
  constructor(files) {
    this.files = files;
    this.modules = new Map();
  }

  module(name) {
    if (!this.modules.has(name)) {
      const url = URL.createObjectURL(new Blob([inlined(this.files, name)], { type: "text/javascript" }));
      this.modules.set(name, import(url));
    }
    return this.modules.get(name);
  }

  /** Add the styles to the page, or to the shadow tree around a widget. */
  dress(el, names) {
    const root = el.getRootNode() instanceof ShadowRoot ? el.getRootNode() : document.head;
    for (const name of ["look.css", ...names]) {
      if (root.querySelector(`style[data-voicelab="${name}"]`)) continue;
      const sheet = Object.assign(document.createElement("style"), { textContent: this.files[name] });
      sheet.dataset.voicelab = name;
      root.append(sheet);
    }
  }

  async load(model, live) {
    const [script, ...styles] = model.get("parts");
    const { default: made } = await this.module(script);
    const { initialize, render } = typeof made === "function" ? made() : made;
    let views = 0;
    const show = async (context) => {
      this.dress(context.el, styles);
      if (!live) return still(context.el);
      const done = await render(context);
      const count = (step) => model.send({ kind: "views", count: (views += step) });
      count(1);
      return () => {
        done?.();
        count(-1);
      };
    };
    return { show, close: live ? await initialize?.({ model }) : undefined };
  }
}
