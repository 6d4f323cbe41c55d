// The line of a panel that says what goes on, and what is wrong.

import { followTheme, guard } from "./dom.js";

export default {
  render({ model, el }) {
    followTheme(el);
    const show = () => (el.innerHTML = model.get("value"));
    model.on("change:value", show);
    show();
    guard(el);
    return () => model.off("change:value", show);
  },
};
