// The equivalent Python code of a panel, with a button to copy it.

import { copier, element, followTheme } from "./dom.js";

export default {
  render({ model, el }) {
    followTheme(el);
    const text = element("code");
    const root = element("div", { className: "voicelab-code" }, {}, element("pre", {}, {}, text));
    root.append(copier("Copy the Python code", () => model.get("code")));
    const show = () => {
      text.textContent = model.get("code");
      root.hidden = !model.get("code");
    };
    model.on("change:code", show);
    show();
    el.append(root);
    return () => model.off("change:code", show);
  },
};
