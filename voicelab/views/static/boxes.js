// The boxes and controls of ipywidgets for marimo, which has their models but no views of them. They have ipywidgets'
// classes, so that look.css styles both.

import { element, uniqueId } from "./dom.js";

const idOf = (reference) => reference.slice(10); // after IPY_MODEL_
const views = new Map(); // the number of views of a widget with a script, by its id

/** A view of one model; `follow` and `append` end with it. */
class View {
  constructor(page, id, model) {
    Object.assign(this, { page, id, model, ending: new AbortController(), children: new Map() });
  }

  /** Call `act` now and whenever one of these traits changes. */
  follow(names, act, model = this.model) {
    if (this.ending.signal.aborted) return;
    for (const name of names) {
      model.on(`change:${name}`, act);
      this.ending.signal.addEventListener("abort", () => model.off(`change:${name}`, act));
    }
    act();
  }

  set(name, value) {
    this.model.set(name, value);
    this.model.save_changes();
  }

  end() {
    this.ending.abort();
    for (const child of this.children.values()) child.end();
    this.root.remove();
  }

  /** Let `parent` hold the views of the models in `children`, in their order. */
  fill(parent, filled = () => {}) {
    this.follow(["children"], async () => {
      const ids = this.model.get("children").map(idOf);
      const models = await Promise.all(ids.map((id) => this.page.manager.get_model(id)));
      if (this.ending.signal.aborted || ids.join() !== this.model.get("children").map(idOf).join()) return; // changed again
      for (const [id, child] of this.children) if (!ids.includes(id)) child.end(), this.children.delete(id);
      for (const [place, id] of ids.entries()) {
        const child = this.children.get(id) ?? draw(this.page, id, models[place]);
        this.children.set(id, child);
        parent.append(child.root);
        child.begin();
      }
      filled();
    });
  }
}

function draw(page, id, model) {
  const view = new View(page, id, model);
  const kind = model.get("_model_name").replace("Model", "");
  const [tag, names, make] = KINDS[kind];
  view.root = element(tag, { className: `jupyter-widgets ${names}` });
  let begun = false;
  // A widget of its own needs to be on the page, for its styles.
  view.begin = () => begun || ((begun = true), make(view, view.root));
  let own = [];
  view.follow(["_dom_classes"], () => {
    view.root.classList.remove(...own);
    view.root.classList.add(...(own = model.get("_dom_classes") ?? []));
  });
  view.follow(["layout"], async () => {
    const layout = await page.manager.get_model(idOf(model.get("layout")));
    const apply = () => Object.assign(view.root.style, { width: layout.get("width") ?? "", display: layout.get("display") ?? "" });
    view.follow(["width", "display"], apply, layout); // a layout that is replaced never changes
  });
  view.follow(["tooltip"], () => (view.root.title = model.get("tooltip") ?? ""));
  return view;
}

/** A label with a field; `read` gives the field's value, undefined if it is none. */
function field(tag, fields, read = (node) => node.value, write = (node, value) => (node.value = value)) {
  return (view, root) => {
    const { model } = view;
    const node = element(tag, { id: uniqueId(), ...fields });
    const label = element("label", { className: "widget-label", htmlFor: node.id });
    root.append(label, node);
    const commit = () => {
      const value = read(node);
      if (value !== undefined && value !== model.get("value")) view.set("value", value);
    };
    node.onchange = commit;
    node.oninput = () => model.get("continuous_update") && fields.type !== "number" && commit();
    view.follow(["value"], () => read(node) !== model.get("value") && write(node, model.get("value")));
    view.follow(["description"], () => Object.assign(label, { textContent: model.get("description"), hidden: !model.get("description") }));
    view.follow(["disabled"], () => (node.disabled = model.get("disabled")));
    view.follow(["placeholder"], () => (node.placeholder = model.get("placeholder") ?? ""));
    return node;
  };
}

function combobox(view, root) {
  const node = field("input", { type: "text", className: "widget-input" })(view, root);
  const list = element("datalist", { id: uniqueId() });
  root.append(list);
  node.setAttribute("list", list.id);
  view.follow(["options"], () => list.replaceChildren(...view.model.get("options").map((value) => element("option", { value }))));
}

function dropdown(view, root) {
  const { model } = view;
  const node = element("select", { id: uniqueId() });
  const label = element("label", { className: "widget-label", htmlFor: node.id });
  root.append(label, node);
  node.onchange = () => view.set("index", node.selectedIndex);
  view.follow(["_options_labels", "index", "description", "disabled"], () => {
    const labels = model.get("_options_labels");
    if ([...node.options].map(({ text }) => text).join("\n") !== labels.join("\n"))
      node.replaceChildren(...labels.map((text) => element("option", { text })));
    node.selectedIndex = model.get("index") ?? -1;
    node.disabled = model.get("disabled");
    Object.assign(label, { textContent: model.get("description"), hidden: !model.get("description") });
  });
}

function checkbox(view, root) {
  const { model } = view;
  const node = element("input", { type: "checkbox" });
  const words = element("span");
  root.append(element("label", { className: "widget-label-basic" }, {}, node, words));
  node.onchange = () => view.set("value", node.checked);
  view.follow(["value", "description", "disabled"], () => {
    Object.assign(node, { checked: model.get("value"), disabled: model.get("disabled") });
    words.textContent = model.get("description");
  });
}

/** A button; `press` is called with its view on a click. */
const button = (press) => (view, node) => {
  const { model } = view;
  node.type = "button";
  node.onclick = () => press(view);
  view.follow(["description", "disabled", "value", "button_style"], () => {
    Object.assign(node, { textContent: model.get("description"), disabled: model.get("disabled") });
    node.classList.toggle("mod-primary", model.get("button_style") === "primary");
    node.classList.toggle("mod-active", model.get("value") === true);
    if (typeof model.get("value") === "boolean") node.setAttribute("aria-pressed", model.get("value"));
  });
};

const label = (view, root) => view.follow(["value"], () => (root.textContent = view.model.get("value")));

function html(view, root) {
  const content = root.appendChild(element("div", { className: "widget-html-content" }));
  view.follow(["value"], () => (content.innerHTML = view.model.get("value")));
}

/** A collapsible section. */
function accordion(view, root) {
  const { model } = view;
  const title = element("span");
  const head = element("button", { type: "button", className: "jupyter-widget-Collapse-header" }, {}, element("i", { className: "fa" }), title);
  const body = element("div", { className: "jupyter-widget-Collapse-contents" });
  root.append(head, body);
  head.onclick = () => view.set("selected_index", model.get("selected_index") === 0 ? null : 0);
  view.follow(["titles"], () => (title.textContent = model.get("titles")[0] ?? ""));
  view.follow(["selected_index"], () => {
    const open = model.get("selected_index") === 0;
    body.hidden = !open;
    root.classList.toggle("jupyter-widget-Collapse-open", open);
    head.setAttribute("aria-expanded", open);
  });
  view.fill(body);
}

function tabs(view, root) {
  const { model } = view;
  const list = element("ul", { className: "lm-TabBar-content" }, { role: "tablist" });
  const body = element("div", { className: "widget-tab-contents" });
  root.append(element("div", { className: "lm-TabBar" }, {}, list), body);
  const open = (place) => {
    view.set("selected_index", place);
    list.children[place].focus();
  };
  const mark = () => {
    const current = model.get("selected_index");
    for (const [place, tab] of [...list.children].entries()) {
      tab.classList.toggle("lm-mod-current", place === current);
      tab.setAttribute("aria-selected", place === current);
      tab.tabIndex = place === current ? 0 : -1;
    }
    for (const [place, panel] of [...body.children].entries()) panel.hidden = place !== current;
  };
  view.follow(["titles"], () => {
    const tab = (text, place) => {
      const made = element("li", { className: "lm-TabBar-tab", textContent: text }, { role: "tab" });
      made.onclick = () => open(place);
      made.onkeydown = ({ key }) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
        if (step) open((place + step + list.children.length) % list.children.length);
      };
      return made;
    };
    list.replaceChildren(...model.get("titles").map(tab));
    mark();
  });
  view.fill(body, mark);
  view.follow(["selected_index"], mark);
}

/** A widget with a script; as in loader.js, the kernel is told how many views it has. */
async function own(view, root) {
  const { signal } = view.ending;
  const widget = await view.page.host.getWidget(`anywidget:${view.id}`);
  if (signal.aborted) return;
  const count = (step) => {
    views.set(view.id, (views.get(view.id) ?? 0) + step);
    view.model.send({ kind: "views", count: views.get(view.id) });
  };
  count(1);
  signal.addEventListener("abort", () => count(-1));
  await widget.render({ el: root, signal });
}

const box = (view, root) => view.fill(root);
const KINDS = {
  Box: ["div", "widget-box", box],
  HBox: ["div", "widget-box widget-hbox", box],
  VBox: ["div", "widget-box widget-vbox", box],
  Accordion: ["div", "jupyter-widget-Collapse", accordion],
  Tab: ["div", "widget-tab", tabs],
  HTML: ["div", "widget-html", html],
  Label: ["div", "widget-label", label],
  Button: ["button", "jupyter-button", button(({ model }) => model.send({ event: "click" }))],
  ToggleButton: ["button", "jupyter-button", button((view) => view.set("value", !view.model.get("value")))],
  Checkbox: ["div", "widget-checkbox", checkbox],
  Dropdown: ["div", "widget-inline-hbox widget-dropdown", dropdown],
  Text: ["div", "widget-inline-hbox widget-text", field("input", { type: "text", className: "widget-input" })],
  Combobox: ["div", "widget-inline-hbox widget-text", combobox],
  IntText: ["div", "widget-inline-hbox widget-text", field("input", { type: "number", className: "widget-input" }, wholeNumber)],
  Textarea: ["div", "widget-inline-hbox widget-textarea", field("textarea", { rows: 3 })],
  Any: ["div", "", own],
};

function wholeNumber({ value }) {
  return /^-?\d+$/.test(value.trim()) ? Number(value) : undefined;
}

export default {
  async render({ model, el, host }) {
    const page = { manager: model.widget_manager, host };
    const id = idOf(model.get("root"));
    const view = draw(page, id, await page.manager.get_model(id));
    el.append(view.root);
    view.begin();
    return () => view.end();
  },
};
