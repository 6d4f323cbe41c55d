"""The comparison in JupyterLab: keys switch what is heard, at the same word, and the sound reaches the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.conftest import Jupyter, open_and_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

PANEL = ".voicelab-compare"
CELL = """
import voicelab as vl
lab = vl.connect()
text = "The birch canoe slid on the smooth planks."
comparison = vl.compare(lab.speak(text, seed=1), slow=lab.speak(text, seed=1, prosody={"speed": 0.5}))
comparison.panel()
"""


def data(page: Page, name: str) -> str:
    return str(page.evaluate(f"() => document.querySelector('{PANEL}').dataset.{name}"))


def test_keys_switch_at_the_same_word(page: Page, jupyter: Jupyter) -> None:
    open_and_run(page, jupyter.notebook("compare.ipynb", CELL))
    page.wait_for_selector(f"{PANEL}[data-current=A]", timeout=90_000)
    page.focus(PANEL)
    page.keyboard.press("Space")
    page.wait_for_selector(f"{PANEL}[data-playing=true]")
    page.wait_for_function(f"() => Number(document.querySelector('{PANEL}').dataset.position) > 0.6")
    page.keyboard.press("2")
    page.wait_for_selector(f"{PANEL}[data-current=slow]")
    # Half the speed: the same word is twice as far.
    assert float(data(page, "position")) > 1.1
    page.wait_for_function(f"() => Number(document.querySelector('{PANEL}').dataset.heard) > 0.02")
    page.keyboard.press("Space")
    page.wait_for_selector(f"{PANEL}[data-playing=false]")
    page.keyboard.press("1")
    page.wait_for_selector(f"{PANEL}[data-current=A]")
    # A drag repeats a part; Escape plays on.
    box = page.locator(f"{PANEL} canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20, steps=4)
    page.mouse.up()
    page.wait_for_selector(f"{PANEL}[data-playing=true]")
    loop = page.get_by_role("button", name="No loop")
    assert loop.is_enabled()
    page.keyboard.press("Escape")
    page.wait_for_function(
        "() => [...document.querySelectorAll('button')].find((b) => b.textContent === 'No loop').disabled"
    )


def test_blind_hides_the_names(page: Page, jupyter: Jupyter) -> None:
    open_and_run(page, jupyter.notebook("blind.ipynb", CELL))
    page.wait_for_selector(f"{PANEL}[data-current=A]", timeout=90_000)
    rows = page.locator(f"{PANEL} .voicelab-compare-row button")
    assert [text.split()[1] for text in rows.all_text_contents()] == ["A", "slow"]
    page.get_by_role("button", name="Blind", exact=True).click()
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{PANEL}-row button')].every((b) => b.textContent.length === 1)"
    )
    assert rows.all_text_contents() == ["1", "2"]
