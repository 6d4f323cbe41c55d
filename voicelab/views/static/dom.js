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

/** Keys that are pressed in `root`, or after a click on a blank part of it, are not the notebook's, which would cut cells. */
export function guard(root) {
  // A panel of several widgets is a box around them, known once this one is on the page.
  requestAnimationFrame(() => {
    let whole = root.closest(".voicelab-shell") ?? root;
    for (let outer; (outer = whole.parentElement?.closest(".voicelab-shell")); ) whole = outer;
    whole.dataset.lmSuppressShortcuts = "true";
    if (whole.tabIndex < 0) whole.tabIndex = -1;
    whole.style.outline = "none";
  });
}

/** Call `changed` whenever the page may have another theme; returns what ends that. */
export function watchTheme(changed) {
  const watcher = new MutationObserver(changed);
  const attributeFilter = ["class", "theme", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"];
  for (const node of [document.documentElement, document.body]) watcher.observe(node, { attributeFilter });
  return watcher;
}

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
  const frame = requestAnimationFrame(() => {
    if (el.closest(".jp-OutputArea")) return;
    cell = el.closest(".cell_container, .output_container, .cell, [data-cell-id]") ?? document.body;
    hide();
    watcher.observe(cell, { childList: true, subtree: true });
  });
  return () => {
    cancelAnimationFrame(frame);
    watcher.disconnect();
    saved().forEach((output) => (output.hidden = false));
  };
}
