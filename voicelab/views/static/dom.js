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
    const whole = root.closest(".voicelab-shell") ?? root;
    whole.dataset.lmSuppressShortcuts = "true";
    if (whole.tabIndex < 0) whole.tabIndex = -1;
    whole.style.outline = "none";
  });
}
