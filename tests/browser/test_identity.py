"""Several panels on a page, and several views of one: labels, names and ids of each are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.conftest import LONG, Jupyter, Scratch, open_and_run
from tests.browser.test_shell import PANELS, SETUP

if TYPE_CHECKING:
    from playwright.sync_api import Page

LISTENING = """\
from tests.listening.test_design import listening_test
def test(name):
    return vl.listen(vl.Ballot(listening_test("AB", items=1), f"{name}.sqlite3"))"""
# Ids of panels that other elements have too, references that lead out of a panel, radio buttons of another's group.
WRONG = """() => {
  const outputs = [...document.querySelectorAll(".jp-OutputArea-output")];
  const panels = outputs.filter((node) => node.querySelector(".voicelab-look"));
  const wrong = [];
  const groups = new Map();
  const count = new Map();
  for (const { id } of document.querySelectorAll("[id]")) count.set(id, (count.get(id) ?? 0) + 1);
  for (const panel of panels) {
    for (const { id } of panel.querySelectorAll("[id]")) if (count.get(id) > 1) wrong.push(`id ${id}`);
    for (const name of ["for", "list", "aria-labelledby", "aria-describedby", "aria-controls", "aria-owns", "aria-details"])
      for (const node of panel.querySelectorAll(`[${name}]`))
        for (const id of node.getAttribute(name).split(" "))
          if (!panel.contains(document.getElementById(id))) wrong.push(`${name} ${id}`);
    for (const { name } of panel.querySelectorAll("input[type=radio]")) {
      if (groups.has(name) && groups.get(name) !== panel) wrong.push(`radio ${name}`);
      groups.set(name, panel);
    }
  }
  return { wrong, panels: panels.length, ids: [...count.keys()].filter((id) => id.startsWith("voicelab-")).length };
}"""
# Where each control stands: its kind, and what it holds.
HELD = """(panel) => [...panel.querySelectorAll("input, select, textarea")].map((node) =>
  [node.type, node.type === "checkbox" || node.type === "radio" ? node.checked : node.value])"""


def begin(page: Page) -> None:
    """Go to the first question of every listening test."""
    for number in range(page.locator(".voicelab-listening").count()):
        test = page.locator(".voicelab-listening").nth(number)
        test.locator("input").fill(f"Ada {number}")
        test.locator("button", has_text="Begin").click()
        test.locator(".voicelab-play").click(timeout=LONG)
        test.locator("button:not([disabled])", has_text="The volume is comfortable").click(timeout=LONG)
        test.locator("input[type=radio]").first.wait_for(timeout=LONG)


def test_ids_and_names_are_of_one_view(scratch: Scratch) -> None:
    panels = ("panel", "explore", "sweep", "voices", "knobs", "compare", "player")
    shown = [PANELS[name] for name in panels]
    # A view again of what stands above, and another of the same kind.
    page = scratch.run(f"{SETUP}\n{LISTENING}", *shown, *shown, "panel", "one = test('one')\none", "one", "test('two')")
    page.locator(".voicelab-listening").nth(2).wait_for(timeout=LONG)
    begin(page)
    found = page.evaluate(WRONG)
    assert found["wrong"] == []
    assert found["panels"] >= 2 * len(panels) + 4
    assert found["ids"] > 60


def check_labels(page: Page, first: str, second: str) -> None:
    """Click every label of a panel, and check that another panel keeps what it holds and says nothing."""
    other, panel = page.locator(first), page.locator(second)
    for details in panel.locator("details:not([open]) summary").all():
        details.click()
    held, take = other.evaluate(HELD), other.locator(".voicelab-player").get_attribute("data-take")
    labels = [
        label for label in panel.locator("label:visible").all() if label.evaluate("(node) => Boolean(node.control)")
    ]
    assert len(labels) > 8
    turned = 0
    for label in labels:
        before = panel.evaluate(HELD)
        label.click()
        inside = "([label, panel]) => panel.contains(label.control) && panel.contains(document.activeElement)"
        assert page.evaluate(inside, [label.element_handle(), panel.element_handle()]), label.inner_text()
        turned += panel.evaluate(HELD) != before
        assert other.evaluate(HELD) == held, label.inner_text()
    assert turned >= 2, "check boxes turn"
    page.wait_for_timeout(500)
    assert other.evaluate(HELD) == held
    assert other.locator(".voicelab-player").get_attribute("data-take") == take, "it speaks"


SPEAKING = (
    "panel = tones.panel(compact=True)\npanel.controls.speak_on_change = True\npanel.speak()\npanel.wait()\npanel"
)


def test_labels_of_a_second_panel_turn_its_controls_only(scratch: Scratch) -> None:
    page = scratch.run(SETUP, SPEAKING, SPEAKING)
    page.locator(".voicelab-player[data-take]").nth(1).wait_for(timeout=LONG)
    for number, name in ((0, "first"), (1, "second")):
        page.locator(".voicelab-panel").nth(number).evaluate("(node, name) => (node.dataset.which = name)", name)
    first, second = "[data-which=first]", "[data-which=second]"
    check_labels(page, first, second)
    check_labels(page, second, first)


def test_ids_of_two_notebooks_on_a_page_differ(page: Page, jupyter: Jupyter) -> None:
    for name in ("twin.ipynb", "twin-copy.ipynb"):
        url = jupyter.notebook(name, SETUP, "panel = tones.panel(compact=True)\npanel")
    open_and_run(page, url)
    page.locator(".voicelab-panel").wait_for(timeout=LONG)
    # A kernel of its own, and the two side by side.
    page.evaluate(
        """async () => {
          const where = { path: "twin.ipynb", options: { mode: "split-right" } };
          const { context } = await jupyterapp.commands.execute("docmanager:open", where);
          await context.sessionContext.ready;
          await jupyterapp.commands.execute("notebook:run-all-cells");
        }"""
    )
    page.locator(".voicelab-panel").nth(1).wait_for(timeout=LONG)
    found = page.evaluate(WRONG)
    assert (found["wrong"], found["panels"]) == ([], 2)
