// The message line of a panel: status, error or table. It also applies theme and key handling to the boxes around it.

import { followTheme, guard, Presses } from "./dom.js";

/** Return the address of a file beside the notebook in JupyterLab and Notebook 7; undefined elsewhere. */
function addressOf(path) {
  const { baseUrl } = JSON.parse(document.querySelector("#jupyter-config-data")?.textContent ?? "{}");
  const [, notebook] = location.pathname.match(/\/(?:lab\/(?:workspaces\/[^/]+\/)?tree|notebooks)\/(.+)/) ?? [];
  return baseUrl && notebook && new URL(path.split("/").map(encodeURIComponent).join("/"), `${location.origin}${baseUrl}files/${notebook}`).href;
}

const guards = new WeakMap(); // message lines that watch buttons, by panel

export default {
  render({ model, el }) {
    followTheme(el);
    const show = () => {
      el.innerHTML = model.get("value");
      for (const name of el.querySelectorAll("[data-pick]")) Object.assign(name, { tabIndex: 0, role: "button" });
      for (const link of el.querySelectorAll("[data-file]")) {
        const href = addressOf(link.dataset.file);
        if (href) Object.assign(link, { href, target: "_blank", rel: "noopener" });
      }
    };
    el.onclick = ({ target }) => {
      const name = target.closest("tr")?.querySelector("[data-pick]");
      if (name) model.send({ pick: name.dataset.pick });
    };
    el.onkeydown = (event) => {
      if (!event.target.matches("[data-pick]") || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      event.target.click();
    };
    model.on("change:value", show);
    show();
    guard(el);
    const presses = new Presses(model);
    const pressed = (shell, event) => {
      const button = event.target.closest(".jupyter-button");
      // A shell within another has a message line of its own.
      if (!button || button.closest(".voicelab-shell") !== shell) return;
      if (!presses.press(button, () => {})) event.stopImmediatePropagation();
    };
    requestAnimationFrame(() => {
      const shell = el.closest(".voicelab-shell");
      if (!shell) return;
      followTheme(shell);
      // Of several message lines of a panel one watches its buttons.
      if (!shell.contains(guards.get(shell) ?? null)) {
        guards.set(shell, el);
        shell.addEventListener("click", (event) => guards.get(shell) === el && pressed(shell, event), true);
        shell.addEventListener("voicelab-submit", ({ target }) => {
          if (guards.get(shell) === el && target.closest(".voicelab-shell") === shell)
            presses.submit(shell.querySelector(".mod-primary"));
        });
      }
      // Collapsible sections of ipywidgets lack keyboard control.
      for (const head of shell.querySelectorAll(".jupyter-widget-Collapse-header")) {
        Object.assign(head, { tabIndex: 0, role: "button" });
        head.onkeydown = (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          head.click();
        };
      }
    });
    return () => model.off("change:value", show);
  },
};
