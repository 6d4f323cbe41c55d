"""Values typed, picked, filtered and taken away by a reader."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from tests.browser.conftest import LONG, Scratch, in_kernel

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETUP = """\
from tests.tones import ToneBackend
from voicelab.runs.cache import Cache
from voicelab.lab import Lab
lab = Lab(ToneBackend())
"""


def status(page: Page) -> str:
    return page.locator(".voicelab-controls .voicelab-status").inner_text()


def test_enter_commits_a_number_and_one_out_of_range_is_marked(scratch: Scratch) -> None:
    page = scratch.run(SETUP + "panel = lab.panel('Four notes.')\npanel")
    box = page.locator(".voicelab-field-temperature input[type=number]")
    assert status(page) == "Press Speak to hear the text, or change a field."
    direction = "() => getComputedStyle(document.querySelector('.voicelab-text')).unicodeBidi"
    assert page.evaluate(direction) == "plaintext"
    in_kernel(page, "panel.controls.set(temperature=5)")
    page.wait_for_selector("button.voicelab-speak:disabled")
    assert status(page) == ""
    box.fill("0.35")
    box.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('.voicelab-code').innerText.includes('temperature=0.35')", timeout=LONG
    )
    page.wait_for_selector(".voicelab-controls[data-tone=success]", timeout=LONG)
    before = status(page)
    box.fill("1.5")
    box.press("Enter")
    problem = page.locator(".voicelab-field-temperature .voicelab-problem")
    problem.get_by_text("got 1.5").wait_for(timeout=LONG)
    assert box.input_value() == "1.5"
    assert box.get_attribute("aria-invalid") == "true"
    assert page.locator("button.voicelab-speak").is_disabled()
    # Nothing is spoken; on a busy machine the status says meanwhile that the kernel is awaited.
    page.wait_for_function("() => !document.querySelector('.voicelab-status').innerText.startsWith('Waiting')")
    assert status(page) == before


def test_a_table_is_sorted_filtered_copied_and_downloaded(scratch: Scratch) -> None:
    page = scratch.run(
        SETUP
        + "panel = lab.sweep('Eight notes, more.', voice=['ada', 'ben'], temperature=[0.5, 1.0, 0.0], repeats=2,\n"
        "                  cache=Cache('cache-input')).panel()\npanel.form.settled()\npanel.run()\npanel.wait()\npanel"
    )
    page.locator(".voicelab-tabs .lm-TabBar-tab", has_text="Table").click()
    table = page.locator(".voicelab-table table")
    table.wait_for(timeout=LONG)

    def column(number: int) -> list[str]:
        return table.locator(f"tbody td:nth-child({number})").all_inner_texts()

    assert column(3) == ["1", "2"] * 6
    head = table.get_by_role("button", name="temperature")
    head.click()
    assert column(2) == ["0.0"] * 4 + ["0.5"] * 4 + ["1.0"] * 4
    head.click()
    assert column(2)[0] == "1.0"
    assert table.locator("th[aria-sort=descending]").inner_text().startswith("temperature")
    assert table.locator("td").nth(1).evaluate("(cell) => getComputedStyle(cell).textAlign") == "right"
    page.get_by_label("Filter the rows").fill("ben")
    assert column(1) == ["ben"] * 6
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download CSV").click()
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("voice,temperature,take,")
    assert len(lines) == 7
    page.locator(".voicelab-tabs .lm-TabBar-tab", has_text="Export").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download a zip").click()
    names = zipfile.ZipFile(saved.value.path()).namelist()
    assert "sweep/takes.csv" in names
    assert sum(name.startswith("sweep/audio/") and not name.endswith("/") for name in names) == 12
    page.get_by_role("textbox", name="Folder").fill("my sweep #1")
    page.get_by_role("button", name="Write to the folder").click()
    links = page.locator(".voicelab-takes-view a[data-file]")
    links.first.wait_for(timeout=LONG)
    assert links.all_inner_texts() == ["takes.csv", "takes.html"]
    table = page.evaluate("async (url) => (await fetch(url)).text()", links.nth(0).get_attribute("href"))
    assert len(table.splitlines()) == 13
    with page.expect_popup() as opened:
        links.nth(1).click()
    opened.value.locator("audio").first.wait_for(timeout=LONG)
    opened.value.close()
