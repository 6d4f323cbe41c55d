"""All panels as a reader sees and uses them: narrow and wide, light and dark, by eye, by keyboard and by ear."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import CUT, LONG, Scratch, in_kernel, serious, shoot, themed

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETUP = """\
import voicelab as vl
from tests.tones import ToneBackend
from voicelab.runs.cache import Cache
from voicelab.lab import Lab
lab = vl.connect(seed=7)
tones = Lab(ToneBackend())
clip = lab.speak("The birch canoe slid on the smooth planks.")
other = lab.speak("The birch canoe slid on the smooth planks.", voice="marlow", temperature=1)"""
PANELS = {
    "panel": "panel = lab.panel(compact=True)\npanel.speak()\npanel.wait()\npanel",
    "explore": "panel = lab.panel()\npanel.speak()\npanel.wait()\npanel",
    "sweep": """\
panel = lab.sweep("Glue the sheet.", latency=["low", "normal"], temperature="0.2..1.0 step 0.4", repeats=2,
                  cache=Cache("cache-shell")).panel()
panel.form.settled()
panel.run()
panel.wait()
panel""",
    "systems": """\
panel = vl.systems_panel(["One two three.", "Four five."], metrics=("duration", "loudness"), cache=Cache("cache-both"),
                         plain=tones, quiet=Lab(ToneBackend(fingerprint="tones-2"), volume=-12))
panel.form.settled()
panel.run()
panel.wait()
panel""",
    "knobs": """\
panel = tones.knob_panel("speed", "temperature", repeats=2)
panel.run()
panel.wait()
panel""",
    "compare": "vl.compare(embedded=clip, marlow=other).panel()",
    "voices": "lab.voice_panel(clip)",
    "listening": """\
from tests.listening.test_design import listening_test
vl.listen(vl.Ballot(listening_test("MUSHRA", items=1), "shell.sqlite3"))""",
    "player": "from voicelab.views.player import Player\nPlayer(clip)",
}
ROOTS = {
    "panel": ".voicelab-panel",
    "explore": ".voicelab-explore",
    "sweep": ".voicelab-sweep-panel",
    "systems": ".voicelab-sweep-panel",
    "knobs": ".voicelab-knob-panel",
    "compare": ".voicelab-compare",
    "voices": ".voicelab-voices",
    "listening": ".voicelab-listening",
    "player": ".voicelab-player",
}


# A size that has changed is told in one frame, and drawn in another.
FRAMES = "async () => { for (let n = 0; n < 6; n++) await new Promise(requestAnimationFrame) }"


def fit(page: Page, root: str, width: int) -> None:
    """Let the page be so wide that the panel has ``width`` pixels."""
    page.evaluate("() => jupyterapp.shell.collapseLeft()")
    page.set_viewport_size({"width": width, "height": 1600})
    # The page takes a moment to have the width of its window.
    narrower = "([root, width]) => document.querySelector(root).getBoundingClientRect().width < width"
    page.wait_for_function(narrower, arg=[root, width])
    have = page.locator(root).first.evaluate("(node) => node.getBoundingClientRect().width")
    page.set_viewport_size({"width": round(2 * width - have), "height": 1600})
    page.evaluate(FRAMES)


# Words on two lines other than at a hyphen, or partly clipped. Cards of takes and code break anywhere.
BROKEN = """(root) => {
  const found = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (parent.closest("pre, code, option, textarea, script, style, .voicelab-take, .voicelab-narrow")) continue;
    if (!parent.checkVisibility({ visibilityProperty: true })) continue;
    const clips = [];
    for (let at = parent; at !== root.parentElement; at = at.parentElement)
      if (getComputedStyle(at).overflowX === "hidden") clips.push(at.getBoundingClientRect());
    for (const { 0: word, index } of node.textContent.matchAll(/[^\\s\\u200b-]+-?/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const boxes = [...range.getClientRects()].filter((box) => box.width);
      if (new Set(boxes.map((box) => Math.round(box.top))).size > 1) found.push(`broken: ${word}`);
      if (boxes.some((box) => clips.some((clip) => box.right > clip.right + 1 || box.left < clip.left - 1)))
        found.push(`cut: ${word}`);
    }
  }
  return found;
}"""
# Buttons that belong together and do not stand side by side.
APART = """(root) => [...root.querySelectorAll(".voicelab-buttons, .voicelab-pair")].filter((group) => {
  const parts = [...group.children].map((child) => child.getBoundingClientRect()).filter((box) => box.width);
  return parts.some((box) => box.top >= parts[0].bottom);
}).map((group) => group.innerText)"""
# Fields below each other whose controls do not end at the same place.
RAGGED = """(root) => {
  const ends = (selector, side) => new Set([...root.querySelectorAll(`.voicelab-controls > .voicelab-grid ${selector}`)]
    .map((node) => Math.round(node.getBoundingClientRect()[side])));
  const [columns, rights] = [ends(".voicelab-field", "left"), ends(".voicelab-undo", "right")];
  return rights.size > columns.size ? [...rights] : [];
}"""
# How controls look: of buttons and of what is typed or chosen into, all that there is.
LOOK = """(root) => {
  const seen = (nodes, ...names) => [...new Set([...nodes].filter((node) => node.checkVisibility()).map((node) => {
    const style = getComputedStyle(node);
    return names.map((name) => style[name]).join(" ");
  }))];
  const of = (selector) => root.querySelectorAll(selector);
  const parts = ["take", "facet", "player", "words", "facet-tabs", "picker"];
  const drawn = `:not(${parts.map((name) => `.voicelab-${name} *`).join(", ")})`;
  const plain = ":not(.voicelab-icon, .voicelab-undo, .voicelab-draw, .mod-primary, .voicelab-speak)";
  const how = ["borderRadius", "borderTopColor", "backgroundColor", "fontSize", "fontFamily"];
  return {
    buttons: seen(of(`button${plain}${drawn}`), "height", ...how),
    primary: seen(of("button.mod-primary, button.voicelab-speak"), "height", ...how),
    fields: seen(of(`:is(input:not([type=checkbox], [type=range], [type=file]), select)${drawn}`), "height", ...how),
    icons: of(".fa").length - of(".jupyter-widget-Collapse-header > .fa").length,
  };
}"""


@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_all_panels_have_one_look(scratch: Scratch, theme: str) -> None:
    names = ("explore", "sweep", "systems", "knobs", "voices")
    page = scratch.run(SETUP, *(PANELS[name] for name in names))
    themed(page, theme)
    fit(page, ROOTS["knobs"], 900)
    looks = []
    for name, root in (*((name, ROOTS[name]) for name in names[:2]), *((name, ROOTS[name]) for name in names[3:])):
        page.locator(root).first.wait_for(timeout=LONG)
        if name == "sweep":
            page.locator(root).first.get_by_text("Design").first.click()
        looks.append(page.locator(root).first.evaluate(LOOK))
    themed(page, "Light")
    for part in ("buttons", "primary", "fields"):
        seen = {how for look in looks for how in look[part]}
        assert len(seen) == 1, f"{part}: {sorted(seen)}"
    assert [look["icons"] for look in looks] == [0] * len(looks)


RESULT = """\
grid = dict(temperature=[0.2, 1], latency=["low", "normal"])
result = tones.sweep(["Eight notes.", "Twelve notes, or so."], **grid, repeats=2, cache=Cache("cache-tabs")).run()
result.panel()"""


def test_each_tab_of_a_result_fits_into_a_narrow_cell(scratch: Scratch, tmp_path: Path) -> None:
    page = scratch.run(SETUP, RESULT)
    root = ".voicelab-takes-view"
    page.locator(root).wait_for(timeout=LONG)
    for tab, there in (
        ("Listen", ".voicelab-facet[data-mean]:not([data-mean=''])"),
        ("Effects", "table"),
        ("Compare", ".widget-label:has-text('Select 2 to 8')"),
        ("Blind test", ".voicelab-blind-test"),
        ("Table", ".voicelab-table table"),
        ("Export", ".voicelab-export"),
    ):
        page.locator(".voicelab-tabs .lm-TabBar-tab", has_text=tab).click()
        page.locator(f"{root} .widget-tab-contents > :not(.lm-mod-hidden) {there}").first.wait_for(timeout=LONG)
        for width in (460, 600, 900, 1280):
            fit(page, root, width)
            shoot(page, root, tmp_path, f"result-{tab.partition(' ')[0].lower()}-{width}.png")
            for wrong in (BROKEN, APART):
                assert page.locator(root).first.evaluate(wrong) == [], f"{tab} at {width} pixels"
            wide = page.locator(root).first.evaluate("(root) => root.scrollWidth - root.clientWidth")
            assert wide <= 0 or tab != "Effects", f"it scrolls sideways at {width} pixels"
    # A click in a table is sent at once, but the state of the tabs only after the kernel has handled the previous tab.
    in_kernel(page, "pass")
    page.locator(".voicelab-tabs .lm-TabBar-tab", has_text="Effects").click()
    effects = page.locator(f"{root} table", has_text="p with texts random")
    effects.wait_for(timeout=LONG)
    heads = effects.locator("thead th").all_inner_texts()
    assert heads == ["metric by axis", "effect", "p", "p, texts fixed", "ω²", ""]
    cells = [row.locator("td").all_inner_texts() for row in effects.locator("tbody tr").all()]
    assert ["Duration, s\ntemperature", "0.2 → 1.0: 0 [no variance]"] in [row[:2] for row in cells]
    # A click on a row, or a key, sorts and colors the takes by its metric.
    for metric, act in (("Loudness, LUFS", "click"), ("Duration, s", "Enter")):
        name = effects.get_by_role("button", name=metric).first
        name.click() if act == "click" else name.press(act)
        page.locator(".voicelab-facet").first.wait_for(timeout=LONG)
        assert (
            page.locator(f"{root} select:visible", has_text="Word rate").first.input_value() == metric.partition(",")[0]
        )
        page.locator(".voicelab-tabs .lm-TabBar-tab", has_text="Effects").click()
        effects.wait_for(timeout=LONG)
    page.locator(".voicelab-tabs .lm-TabBar-tab", has_text="Table").click()
    # The figures stand before the seeds, whose 19 digits would push them out of sight.
    # The table is made again when its tab is opened.
    headed = "() => [...document.querySelectorAll('.voicelab-table thead th')].map((node) => node.textContent)"
    heads = page.wait_for_function(f"() => {{ const heads = ({headed})(); return heads.length && heads }}").json_value()
    assert heads[:5] == ["text", "temperature", "latency", "take", "Duration, s"]
    assert heads.index("seed") > heads.index("Word rate, 1/s")


@pytest.mark.parametrize("name", PANELS)
def test_nothing_is_cut_and_everything_can_be_reached(scratch: Scratch, tmp_path: Path, name: str) -> None:
    page, root = scratch.run(SETUP, PANELS[name]), ROOTS[name]
    page.locator(root).first.wait_for(timeout=LONG)
    for theme in ("Dark", "Light"):
        themed(page, theme)
        for width in (460, 600, 900, 1280):
            fit(page, root, width)
            shoot(page, root, tmp_path, f"{name}-{theme.lower()}-{width}.png")
            for wrong in (CUT, BROKEN, APART, RAGGED):
                assert page.locator(root).first.evaluate(wrong) == [], f"at {width} pixels, {theme}"
        assert serious(page, root) == [], theme


# A place in a panel where nothing takes a click: its middle, or what is left of it.
BLANK = """(root) => {
  const box = root.getBoundingClientRect();
  for (let y = Math.max(1, box.top + 1); y < Math.min(box.bottom, innerHeight); y += 3)
    for (let x = box.right - 2; x > box.left; x -= 7) {
      const node = document.elementFromPoint(x, y);
      const used = node?.closest("button, input, select, textarea, a, canvas, summary, label, [tabindex='0']");
      if (root.contains(node) && (!used || used.contains(root))) return [x, y];
    }
}"""


@pytest.mark.parametrize("name", PANELS)
def test_keys_after_a_click_on_a_blank_part_are_not_the_notebooks(scratch: Scratch, name: str) -> None:
    page, root = scratch.run(SETUP, PANELS[name], "after = 1"), ROOTS[name]
    panel = page.locator(root).first
    panel.wait_for(timeout=LONG)
    panel.scroll_into_view_if_needed()
    page.evaluate(FRAMES)
    place = panel.evaluate(BLANK)
    assert place is not None
    page.mouse.click(*place)
    for key in ("a", "x"):  # a cell above, and this one cut
        page.keyboard.press(key)
        assert page.evaluate("() => jupyterapp.shell.currentWidget.content.model.cells.length") == 3, key
