"""Keys pressed in a panel act on its controls as the platform does, and never on cells; shortcuts of the page still work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import LONG, VIEWPORT, Jupyter, Scratch, in_kernel, open_and_run
from tests.browser.test_shell import PANELS, ROOTS, SETUP
from tests.tones import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

TONES = "from tests.tones import ToneBackend\nfrom voicelab.lab import Lab\ntones = Lab(ToneBackend())"
# The page's commands are noted and not run: keys that reach the cells would take the panel away. What a control does is
# left to the browser: nobody answers its events.
WATCH = """() => {
  const { commands } = jupyterapp;
  const done = new AbortController();
  globalThis.keys = { commands: [], clicks: 0, end: () => (done.abort(), delete commands.execute) };
  commands.execute = (id) => (keys.commands.push(id), Promise.resolve());
  const stop = (event) => {
    event.stopImmediatePropagation();
    if (event.type === "click") keys.clicks += 1;
    if (event.type === "submit") event.preventDefault();
  };
  for (const name of ["click", "input", "change", "submit"])
    addEventListener(name, stop, { capture: true, signal: done.signal });
}"""
# One control of every kind: the tag, its type, its role, and whether it is of ipywidgets.
KINDS = """(root) => {
  const able = "a[href], button, input, select, textarea, summary, [tabindex], [role=tab]";
  const kinds = new Map();
  for (const node of [root, ...root.querySelectorAll(able)]) {
    if (node.disabled || !node.checkVisibility({ visibilityProperty: true }) || node.type === "file") continue;
    if (node === root ? !node.hasAttribute("tabindex") : node.tabIndex < 0 && !node.matches("button, input")) continue;
    const role = node.getAttribute("role") ?? "";
    const maker = node.closest(".jupyter-widgets:not(.voicelab-look)") ? "ipywidgets" : "";
    const kind = [node.tagName.toLowerCase(), node.type ?? "", role, maker].join(" ");
    if (kinds.has(kind)) continue;
    node.dataset.kind = kind;
    kinds.set(kind, node);
  }
  return [...kinds.keys()];
}"""
STATE = """(node) => ({
  value: node.value ?? null, index: node.selectedIndex ?? null, caret: node.selectionStart ?? null,
  focused: node.contains(document.activeElement), clicks: globalThis.keys?.clicks ?? 0,
})"""
# Shortcuts of cells, of one key and of two, and what moves and edits in fields.
PLAIN = [
    *"abchjkmrvxyzJLMR", "d", "d", "i", "i", "0", "0", "1", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp",
    "PageDown", "Home", "End", "Shift+ArrowDown", "Shift+ArrowUp", "Shift+Home", "Shift+End", "Escape", "Control+a",
    "Control+c", "Control+v", "Control+z", "Control+Shift+Z", "Control+Backspace", "Control+Shift+M",
    "Control+Shift+ArrowUp", "Control+Shift+ArrowDown", "Backspace", "Delete",
]  # fmt: skip
GLOBAL = {
    "Control+s": "docmanager:save",
    "Control+Shift+c": "apputils:activate-command-palette",
    "Shift+Enter": ("notebook:run-cell-and-select-next", "runmenu:run"),
    "Control+f": "documentsearch:start",
}
TYPED = "textarea, input:not([type=radio], [type=checkbox], [type=range])"
MAIN = """(field) => {
  const panel = field.closest(".voicelab-shell") ?? field.closest(".voicelab-look");
  return Boolean(panel.querySelector(".voicelab-speak:enabled, .mod-primary:enabled"));
}"""
CHORD_MS = 100
"""JupyterLab runs a command a moment after its key."""
WORD_MS = 1100
"""Letters that are typed into a list after so long begin another word."""


def press(page: Page, control: Locator, *names: str) -> dict[str, Any]:
    """Press keys with a control focused, and return its state after them."""
    control.evaluate("(node) => node.focus({ preventScroll: true })")
    for name in names:
        page.keyboard.press(name)
    state: dict[str, Any] = control.evaluate(STATE)
    return state


def commands(page: Page) -> list[str]:
    """Return the commands that keys have called since the call before."""
    page.wait_for_timeout(CHORD_MS)
    called: list[str] = page.evaluate("() => keys.commands.splice(0)")
    return called


def check_control(page: Page, control: Locator, kind: str) -> None:
    """Check that a control does with keys what a browser's does."""
    tag, type_, role, _ = kind.split(" ")
    if type_ == "range":
        low, high = (press(page, control, end)["value"] for end in ("Home", "End"))
        assert float(low) < float(high), f"{kind}: Home and End"
        for down, up in (("ArrowLeft", "ArrowRight"), ("ArrowDown", "ArrowUp"), ("PageDown", "PageUp")):
            less = press(page, control, down)["value"]
            assert float(low) <= float(less) < float(high), f"{kind}: {down}"
            assert press(page, control, up)["value"] == high, f"{kind}: {up}"
    elif tag == "select":
        texts = control.evaluate("(node) => [...node.options].filter((one) => !one.disabled).map((one) => one.text)")
        press(page, control, "Home")
        if len(texts) > 1:
            assert press(page, control, "ArrowDown")["index"] > press(page, control, "Home")["index"], f"{kind}: arrows"
            page.wait_for_timeout(WORD_MS)
            page.keyboard.type(texts[-1])
            assert press(page, control)["index"] == len(texts) - 1, f"{kind}: letters"
            page.wait_for_timeout(WORD_MS)
    elif type_ == "number":
        control.fill("")
        assert press(page, control, "1")["value"] == "1", f"{kind}: digits"
        before = float(press(page, control, "Home")["value"])
        step = press(page, control, "ArrowDown")["value"]
        assert float(press(page, control, "ArrowUp")["value"]) != float(step), f"{kind}: arrows, from {before}"
    elif tag == "textarea" or type_ == "text":
        control.fill("")
        assert press(page, control, "m", "d", "d", "Space", "a")["value"] == "mdd a", f"{kind}: letters"
        assert press(page, control, "Home")["caret"] == 0, f"{kind}: Home"
        assert press(page, control, "ArrowRight")["caret"] == 1, f"{kind}: arrows"
        lines = press(page, control, "End", "Enter")["value"]
        assert lines == ("mdd a\n" if tag == "textarea" else "mdd a"), f"{kind}: Enter"
        assert press(page, control, "Control+a", "x")["value"] == "x", f"{kind}: Ctrl+A"
        assert press(page, control, "Control+z")["value"] == lines, f"{kind}: Ctrl+Z"
    elif type_ == "radio":
        at = press(page, control, "ArrowRight")
        assert not at["focused"], f"{kind}: arrows go to the next of the group"
    elif type_ == "checkbox":
        clicks = control.evaluate(STATE)["clicks"]
        assert press(page, control, "Space")["clicks"] == clicks + 1, f"{kind}: Space"
    elif tag in {"button", "summary"} or role == "button":
        clicks = control.evaluate(STATE)["clicks"]
        assert press(page, control, "Enter")["clicks"] == clicks + 1, f"{kind}: Enter"
        assert press(page, control, "Space")["clicks"] == clicks + 2, f"{kind}: Space"


CHECKED: set[str] = set()
"""Kinds that a panel before has had, by front end: they are not checked again, but one of every panel is."""


def check_panel(page: Page, root: str, front_end: str = "JupyterLab") -> list[str]:
    """Press keys in a control of every kind that is new, or of one, and return all kinds."""
    panel = page.locator(root).first
    panel.wait_for(timeout=LONG)
    page.evaluate(WATCH)
    kinds: list[str] = panel.evaluate(KINDS)
    new = [kind for kind in kinds if f"{front_end} {kind}" not in CHECKED] or kinds[:1]
    CHECKED.update(f"{front_end} {kind}" for kind in kinds)
    for kind in new:
        control = page.locator(f'{root}[data-kind="{kind}"], {root} [data-kind="{kind}"]').first
        if not control.count():
            continue  # a click before has taken it away
        press(page, control, *PLAIN)
        assert commands(page) == [], kind
        assert panel.evaluate("(root) => root.contains(document.activeElement)"), kind
        check_control(page, control, kind)
        assert commands(page) == [], kind
        for name, command in GLOBAL.items():
            before = page.evaluate("() => keys.clicks")
            press(page, control, name)
            if name == "Shift+Enter" and control.evaluate(f"(node) => node.matches({json.dumps(TYPED)})"):
                # The main button is clicked once the kernel has handled the text; the panel is not made again.
                if panel.evaluate(f"(root, field) => ({MAIN})(root.querySelector(field))", f'[data-kind="{kind}"]'):
                    page.wait_for_function("(before) => keys.clicks > before", arg=before, timeout=LONG)
                assert commands(page) == [], kind
                continue
            page.wait_for_function("() => keys.commands.length", timeout=LONG)
            called = commands(page)
            assert len(called) == 1, f"{kind}: {name} calls {called}"
            assert called[0] in command, f"{kind}: {name} calls {called}"
    page.evaluate("() => keys.end()")
    return kinds


@pytest.mark.parametrize("name", PANELS)
def test_controls_act_on_keys_and_cells_do_not(scratch: Scratch, name: str) -> None:
    page = scratch.run(SETUP, PANELS[name], "after = 1")
    try:
        assert check_panel(page, ROOTS[name])
    finally:
        page.evaluate("() => globalThis.keys?.end()")


# What cannot be seen before a test has begun: radio buttons and the scales of a listening test, a region's button.
BEGUN = {
    "AB": ("input radio", "vl.listen(vl.Ballot(listening_test('AB', items=1), 'keys-ab.sqlite3'))"),
    "MUSHRA": ("input range", "vl.listen(vl.Ballot(listening_test('MUSHRA', items=1), 'keys-mushra.sqlite3'))"),
}


@pytest.mark.parametrize("name", BEGUN)
def test_questions_of_a_listening_test_act_on_keys_and_cells_do_not(scratch: Scratch, name: str) -> None:
    kind, cell = BEGUN[name]
    page = scratch.run(f"{SETUP}\nfrom tests.listening.test_design import listening_test", cell, "after = 1")
    root = ".voicelab-listening"
    page.locator(f"{root} input").fill("Ada")
    page.locator(f"{root} button", has_text="Begin").click()
    page.locator(f"{root}[data-state=volume] .voicelab-play").click()
    page.locator(f"{root} button:not([disabled])", has_text="The volume is comfortable").click(timeout=LONG)
    page.locator(f"{root}[data-state=ready]").wait_for(timeout=LONG)
    try:
        assert any(one.startswith(kind) for one in check_panel(page, root))
    finally:
        page.evaluate("() => globalThis.keys?.end()")


def test_undo_in_a_control_without_text_leaves_other_fields_alone(scratch: Scratch) -> None:
    page = scratch.run(TONES, "tones.panel('One two.', compact=True)", "tones.panel('Three four.', compact=True)")
    text = page.locator(".voicelab-panel textarea").first
    for control in ("input[type=range]", "select", "button.voicelab-speak", "input[type=checkbox]"):
        text.press("End")
        page.keyboard.type(" five")
        before = text.input_value()
        for name in ("Control+z", "Control+Shift+Z", "Control+y"):
            assert press(page, page.locator(f".voicelab-panel >> nth=1 >> {control}").first, name)["focused"], control
        assert text.input_value() == before


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    """Open an empty page whose errors are not ours: Notebook 7 has some of its own."""
    opened = browser.new_context(viewport=VIEWPORT).new_page()
    yield opened
    opened.context.close()


@pytest.mark.parametrize("name", ["explore", "compare", "knobs"])
def test_controls_act_on_keys_and_cells_do_not_in_notebook_7(plain: Page, jupyter: Jupyter, name: str) -> None:
    jupyter.notebook("keys.ipynb", SETUP, PANELS[name], "after = 1")
    open_and_run(plain, f"{jupyter.url}/notebooks/keys.ipynb")
    assert check_panel(plain, ROOTS[name], "Notebook 7")


CELLS = """() => {
  const { content, context } = jupyterapp.shell.currentWidget;
  const { cells } = content.model.toJSON();
  return { types: cells.map((cell) => cell.cell_type), active: content.activeCellIndex, dirty: context.model.dirty,
           count: content.model.cells.get(1).executionCount };
}"""


def temperature(page: Page, folder: Path) -> float:
    """Return the temperature that the panel has in the kernel."""
    in_kernel(
        page, "from pathlib import Path; Path('temperature').write_text(str(panel.controls.values['temperature']))"
    )
    return float((folder / "temperature").read_text(encoding="utf-8"))


@pytest.mark.parametrize("where", ["lab/workspaces/used/tree", "notebooks"])
def test_a_reader_uses_a_panel_by_keys_and_saves(plain: Page, jupyter: Jupyter, where: str) -> None:
    page = plain
    jupyter.notebook(
        "used.ipynb", SETUP, "panel = lab.panel(compact=True)\npanel.controls.set(text='Hello.')\npanel", "after = 1"
    )
    open_and_run(page, f"{jupyter.url}/{where}/used.ipynb")
    slider = page.locator(".voicelab-field-temperature input[type=range]")
    slider.wait_for(timeout=LONG)
    before = temperature(page, jupyter.folder)
    press(page, slider, "ArrowRight", "ArrowUp", "ArrowUp", "ArrowLeft")
    after = slider.evaluate("(node) => Number(node.value)")
    assert after > before
    # The widget manager sends a change after the kernel has handled the one before.
    until(lambda: temperature(page, jupyter.folder) == pytest.approx(after), 30)
    voice = page.locator(".voicelab-panel select").first
    voice.focus()
    page.keyboard.type("mar")
    assert voice.evaluate("(node) => node.selectedOptions[0].text").lower().startswith("mar")
    text = page.locator(".voicelab-panel textarea").first
    text.press("End")
    page.keyboard.type("dd mx")
    assert text.input_value() == "Hello.dd mx"
    now = page.evaluate(CELLS)
    assert (now["types"], now["active"]) == (["code"] * 3, 1)
    page.evaluate("() => jupyterapp.shell.currentWidget.content.model.sharedModel.setMetadata('mark', 'saved')")
    page.wait_for_function(f"() => ({CELLS})().dirty", timeout=LONG)
    press(page, slider, "Control+s")
    page.wait_for_function(f"() => !({CELLS})().dirty", timeout=LONG)
    saved = json.loads((jupyter.folder / "used.ipynb").read_text(encoding="utf-8"))
    assert saved["metadata"]["mark"] == "saved"
    press(page, slider, "Shift+Enter")
    page.wait_for_function(
        f"(count) => ({CELLS})().count > count && ({CELLS})().active === 2", arg=now["count"], timeout=LONG
    )


@pytest.mark.parametrize("name", ["Shift+Enter", "Control+Enter"])
def test_enter_with_a_modifier_in_a_text_field_presses_the_main_button_and_keeps_the_text(
    scratch: Scratch, name: str
) -> None:
    sweep = "sweep = tones.sweep('One.', temperature=[0.2]).panel()\nsweep"
    page = scratch.run(TONES, "tones.panel('One two.', compact=True)", sweep)
    count = page.evaluate(CELLS)["count"]
    text = page.locator(".voicelab-panel textarea")
    text.press("End")
    page.keyboard.type(" Three.")
    page.keyboard.press(name)
    page.wait_for_selector(".voicelab-status:has-text('RTF')", timeout=LONG)
    assert text.input_value() == "One two. Three."
    assert "One two. Three." in page.locator(".voicelab-code").inner_text()
    # At once after the last letter, whose change the widget manager may hold back.
    page.locator(".voicelab-sweep-texts textarea").press("End")
    page.keyboard.type(" Two.")
    page.keyboard.press(name)
    page.wait_for_function("() => document.querySelector('.voicelab-sweep-panel').innerText.includes('1 of 1 takes')")
    in_kernel(page, "open('said.txt', 'w').write(sweep.result.takes[0].request.text)")
    assert (scratch.folder / "said.txt").read_text(encoding="utf-8") == "One. Two."
    # A field of a part without a main button runs nothing.
    runs = page.locator(".voicelab-status", has_text="1 of 1 takes").inner_text()
    filtered = page.locator(".voicelab-takes-view input[type=text]").first
    filtered.fill("temperature>1")
    filtered.press(name)
    page.wait_for_timeout(CHORD_MS)
    assert page.locator(".voicelab-status", has_text="1 of 1 takes").inner_text() == runs
    now = page.evaluate(CELLS)
    assert (now["count"], now["types"]) == (count, ["code"] * 3)
