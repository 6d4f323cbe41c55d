"""The sweep panel in JupyterLab, used as a person would: typed, run, stopped, heard, compared, exported, scrolled."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import LONG, Scratch, in_kernel, shoot, themed, until
from tests.browser.figures import figure
from tests.browser.front_ends import shows
from tests.browser.test_shell import fit
from tests.tones import ToneBackend
from voicelab.lab import Lab
from voicelab.runs.cache import Cache

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETUP = """\
from tests.tones import ToneBackend
from voicelab.runs.cache import Cache
from voicelab.lab import Lab
"""
GRID = ".voicelab-takes"
PANEL = ".voicelab-sweep-panel"
OPENED_MS = 5_000
"""Milliseconds that a machine may need on which others work too; the goal is 1,000 on a quiet one."""


wait = partial(until, selector=GRID)
"""Waits until a condition on ``d``, the grid's figures, holds."""


def says(page: Page, words: str, selector: str = PANEL) -> None:
    page.wait_for_function(f"() => document.querySelector('{selector}').innerText.includes({words!r})", timeout=LONG)


def choose(page: Page, label: str, option: str) -> None:
    """Choose from the list that stands beside a label."""
    page.locator(".widget-dropdown", has=page.get_by_text(label, exact=True)).locator("select").select_option(option)


def tab(page: Page, name: str) -> None:
    """Open a tab of what a sweep has brought."""
    page.locator(".voicelab-tabs .lm-TabBar-tab", has_text=name).first.click()


def listed(page: Page) -> None:
    """Let the takes be cards, one for each."""
    choose(page, "View", "List")
    wait(page, "d.view === 'list'")


def shown(page: Page) -> list[int]:
    """Return the ids of the takes in the order in which they stand."""
    cards = page.locator(".voicelab-take").evaluate_all(
        "(cards) => cards.map((card) => [+card.getAttribute('aria-posinset'), +card.dataset.id])"
    )
    return [identity for _, identity in sorted(cards)]


@shows("JupyterLab 4", "sweep")
def test_typed_run_stopped_and_heard(scratch: Scratch) -> None:
    page = scratch.run(
        SETUP
        # Slow until the test says so.
        + "import threading\ngo = threading.Event()\nlab = Lab(ToneBackend(lambda _: go.wait(0.3)))\n"
        'panel = lab.sweep("Eight notes, then some more.", temperature=[0.5], cache=Cache("cache-typed")).panel()\npanel'
    )
    axis = page.locator(".voicelab-axis input")
    axis.fill("0..2 step 0.5")
    says(page, "must be between 0 and 1")
    ends = page.locator(f"{PANEL} .voicelab-picker input").evaluate_all(
        "(nodes) => nodes.map((node) => node.clientWidth)"
    )
    assert ends == [ends[0]] * 3
    run = page.locator("button.voicelab-run")
    page.wait_for_selector("button.voicelab-run:disabled", timeout=LONG)
    # In red: the words, and the border of what is wrong.
    alert = page.locator(f"{PANEL} [role=alert]")
    assert alert.inner_text().startswith("Temperature: must be between 0 and 1, got ")
    colour = "([node, name]) => '[' + getComputedStyle(node)[name].match(/[0-9.]+/g).slice(0, 3) + ']'"
    for place, name in ((alert, "color"), (axis, "borderTopColor")):
        red, green, blue = json.loads(page.evaluate(colour, [place.element_handle(), name]))
        assert red > 150 > green + blue
    axis.fill("0..1 step 0.05")
    page.wait_for_selector("button.voicelab-run:enabled", timeout=LONG)
    says(page, "21 requests, 588 characters")

    run.click()
    page.wait_for_selector(".voicelab-hear[data-state=running]", timeout=LONG)
    pause = page.locator("button.voicelab-pause")
    pause.click()
    says(page, "paused")
    assert pause.inner_text().strip() == "Continue"
    pause.click()
    page.locator("button.voicelab-cancel-sweep").click()
    says(page, "of 21 takes, cancelled")
    in_kernel(page, "go.set()")
    page.wait_for_selector("button.voicelab-run:enabled", timeout=LONG)
    assert run.inner_text().strip() == "Resume"
    run.click()
    says(page, "21 of 21 takes, done")
    listed(page)
    wait(page, "+d.all === 21 && +d.drawn >= 12")

    first = page.locator(".voicelab-take[data-id='0']")
    first.get_by_role("button", name="Play temperature 0").click()
    wait(page, "+d.heard > 0.1 && d.current === '0'")
    first.focus()
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    page.keyboard.press("p")
    page.wait_for_selector(".voicelab-take[data-id='1'] button[aria-pressed=true]")
    says(page, "2 selected")
    page.keyboard.press(" ")
    wait(page, "+d.heard > 0.1 && d.current === '1'")
    page.locator("button.voicelab-compare-selected:enabled").click()
    page.wait_for_selector(".voicelab-compare[data-current='temperature=0']", timeout=LONG)
    rows = page.locator(".voicelab-compare-row > button")
    assert [text.split()[1] for text in rows.all_text_contents()] == ["temperature=0,", "temperature=0.05,"]


LEAKY = (
    SETUP
    + """\
class Leaky(ToneBackend):
    def synthesize(self, call):
        if call.request.temperature == 0.5:
            raise OSError("<b>refused</b>: Authorization: Bearer abcdefghij0123456789, the rest of a long sentence")
        return super().synthesize(call)
panel = Lab(Leaky()).sweep("Eight notes.", temperature=[0, 0.5, 1], cache=Cache("cache-leaky")).panel()
panel"""
)


def test_a_failing_cell_says_why_without_a_secret_and_the_rest_go_on(scratch: Scratch) -> None:
    page = scratch.run(LEAKY)
    page.locator("button.voicelab-run:enabled").click()
    says(page, "3 of 3 takes, done, 1 failed")
    wait(page, "+d.all === 3 && +d.drawn === 2")
    assert "1 failed" in page.locator(".voicelab-facet-figure").nth(1).inner_text()
    listed(page)
    failed = page.locator(".voicelab-take[data-state=failed]")
    assert failed.locator(".voicelab-take-state").inner_text() == (
        "OSError: <b>refused</b>: Authorization: Bearer …, the rest of a long sentence"
    )
    assert "abcdefghij" not in page.locator(PANEL).inner_html()
    assert failed.get_by_role("button", name="Play").is_disabled()
    page.locator(".voicelab-take[data-id='2']").get_by_role("button", name="Play").click()
    wait(page, "+d.heard > 0.1 && d.current === '2'")


MADE = (
    SETUP
    + """\
result = Lab(ToneBackend()).sweep(["Eight notes.", "No more than twelve notes.", "Three"], voice=["ada", "ben"],
                                  cache=Cache("cache-made")).run()
panel = result.panel()
panel"""
)


def test_sorted_filtered_and_pinned(scratch: Scratch) -> None:
    page = scratch.run(MADE)
    listed(page)
    wait(page, "+d.all === 6 && +d.drawn === 6")
    assert shown(page) == [0, 1, 2, 3, 4, 5]
    choose(page, "Sort by", "Duration")
    page.wait_for_selector(".voicelab-take[data-id='4'][aria-posinset='1']")
    assert shown(page) == [4, 5, 0, 1, 2, 3]
    page.locator(".voicelab-takes-view .widget-toggle-button").click()
    page.wait_for_selector(".voicelab-take[data-id='2'][aria-posinset='1']")
    assert shown(page) == [2, 3, 0, 1, 4, 5]
    page.get_by_role("button", name="Pin text Three, voice ben").click()
    page.wait_for_selector(".voicelab-take[data-id='5'][aria-posinset='1']")
    assert shown(page) == [5, 2, 3, 0, 1, 4]
    words = page.locator(".voicelab-takes-view input[type=text]").first
    words.fill("voice=ada, duration>0.4")
    wait(page, "+d.shown === 2")
    assert shown(page) == [2, 0]
    words.fill("loudnes>1")
    says(page, "column must be one of text, voice, duration", ".voicelab-takes-view")
    words.fill("")
    wait(page, "+d.shown === 6")
    page.get_by_text("Measurements and outliers").click()
    page.locator(".voicelab-outlier-metric select").select_option("Duration")
    page.locator("button.voicelab-outlier").click()
    says(page, "robust standard deviations from the median", ".voicelab-takes-view")
    assert page.locator(".voicelab-take-odd").get_attribute("data-id") in {"2", "3"}


def test_a_page_of_a_sweep_sorts_and_plays_and_asks_nobody(page: Page, tmp_path: Path) -> None:
    texts = ["Eight notes.", "No more than twelve notes.", "Three"]
    result = Lab(ToneBackend()).sweep(texts, cache=Cache(tmp_path / "cache")).run()
    asked: list[str] = []
    page.context.set_offline(True)
    page.on("request", lambda request: asked.append(request.url.partition(":")[0]))
    page.goto(result.page(tmp_path / "takes.html").as_uri())
    column = page.locator("tbody tr td:first-child")
    assert column.all_inner_texts() == texts
    heading = page.get_by_role("button", name="duration s")
    heading.click()
    assert column.all_inner_texts() == ["Three", "Eight notes.", "No more than twelve notes."]
    heading.click()
    assert column.all_inner_texts() == ["No more than twelve notes.", "Eight notes.", "Three"]
    seconds = page.locator("audio").first.evaluate(
        """async (audio) => {
          audio.muted = true; // no hand has touched the page
          await audio.play();
          await new Promise((done) => (audio.onended = done));
          return audio.currentTime;
        }"""
    )
    assert abs(seconds - 26 * 0.05) < 0.1
    assert set(asked) <= {"file", "data"}, "it asks nobody for anything"


READY = SETUP + (
    "lab = Lab(ToneBackend())\n"
    "cache = Cache('cache-{takes}')\n"
    "result = lab.sweep('Eight notes.', temperature='0..1 step 0.1111', repeats={takes} // 10, cache=cache).run()\n"
    "assert len(result.takes) == {takes}\n"
)
# Runs the second cell again, which opens the panel, and waits until players have been drawn.
OPEN = """
async () => {
  const { content } = jupyterapp.shell.currentWidget;
  content.activeCellIndex = 1;
  const before = document.querySelector('.voicelab-takes');
  const began = performance.now();
  const opened = new Promise((resolve) => {
    const look = () => {
      const grid = document.querySelector('.voicelab-takes');
      const there = grid && grid !== before && +grid.dataset.all === 100 && +grid.dataset.drawn >= 12;
      if (there) resolve(performance.now() - began);
      else requestAnimationFrame(look);
    };
    look();
  });
  jupyterapp.commands.execute('notebook:run-cell');
  return await opened;
}
"""


def test_a_hundred_cells_open_at_once(scratch: Scratch) -> None:
    page = scratch.run(READY.format(takes=100), "result.panel()")
    wait(page, "+d.all === 100 && +d.drawn >= 12")
    opened = [float(page.evaluate(OPEN)) for _ in range(3)]
    for milliseconds in opened:
        figure("grid_of_100_ms", milliseconds)
    # What others do on the machine only adds to it.
    assert min(opened) < OPENED_MS, opened


THOUSAND = SETUP + (
    "axes = dict(temperature='0..1 step 0.0101', voice=['ada', 'ben'])\n"
    "result = Lab(ToneBackend()).sweep('Eight notes.', **axes, repeats=5, cache=Cache('cache-1000')).run()\n"
    "assert len(result.takes) == 1000\n"
)
# As fast as a hand turns a wheel: half a screen in ten frames.
SCROLL = """
async (built) => {
  const grid = document.querySelector('.voicelab-takes');
  const times = [];
  const paints = [];
  let most = 0;
  let last = await new Promise(requestAnimationFrame);
  for (let n = 0; n < 100; n++) {
    grid.scrollTop += 30;
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
    paints.push(+grid.dataset.paint);
    most = Math.max(most, grid.querySelectorAll(built).length);
  }
  grid.scrollTop = grid.scrollHeight;
  const middle = (values) => values.sort((a, b) => a - b)[50];
  return { frame: middle(times), slowest: times[95], paint: middle(paints), most };
}"""


@pytest.mark.parametrize(("view", "built"), [("Facets", ".voicelab-facet"), ("List", ".voicelab-take")])
def test_a_thousand_takes_scroll(scratch: Scratch, view: str, built: str) -> None:
    page = scratch.run(THOUSAND, "result.panel()")
    wait(page, "+d.all === 1000 && +d.drawn >= 12")
    choose(page, "View", view)
    wait(page, f"d.view === '{view.lower()}' && +d.drawn >= 12")
    page.locator(GRID).scroll_into_view_if_needed()
    frames = page.evaluate(SCROLL, built)
    figure(f"frame_while_1000_scroll_as_{view.lower()}_ms", frames["frame"])
    figure(f"slowest_of_20_frames_as_{view.lower()}_ms", frames["slowest"])
    figure(f"our_part_of_a_frame_as_{view.lower()}_ms", frames["paint"])
    assert frames["most"] < 80, "only what is in sight is built"
    # A frame has 16 ms; our part of it, so that it holds on a busy machine too.
    assert frames["paint"] < 8
    # The end is reached, drawn, and can be heard.
    button = (
        ".voicelab-hear[data-id='999']"
        if view == "Facets"
        else ".voicelab-take[data-id='999'] .voicelab-take-body > button"
    )
    page.locator(button).wait_for(timeout=LONG)
    page.wait_for_function("() => !document.querySelector(\"[data-id='999'][data-state=waiting]\")", timeout=LONG)
    page.locator(button).click()
    wait(page, "+d.heard > 0.1 && d.current === '999'")
    page.locator(".voicelab-takes-view input").first.fill("temperature>0.95")
    wait(page, "+d.shown === 50")


FACETS = SETUP + (
    "axes = dict(temperature=[0, 0.5], voice=['ada', 'ben'], latency=['low', 'normal'])\n"
    "texts = ['Eight notes.', 'No more than twelve notes.']\n"
    "panel = Lab(ToneBackend()).sweep(texts, **axes, repeats=3, cache=Cache('cache-facets')).run().panel()\n"
    "panel"
)
# The contrast of the text of each cell with what is behind it, by WCAG 2.
CONTRASTS = """
() => {
  const light = (css) => css.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);
  return [...document.querySelectorAll('.voicelab-facet')].map((cell) => {
    const { color, backgroundColor } = getComputedStyle(cell);
    const [low, high] = [light(color), light(backgroundColor)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
}"""


def test_facets_have_a_cell_for_each_combination_coloured_by_its_mean(scratch: Scratch) -> None:
    page = scratch.run(FACETS)
    wait(page, "d.view === 'facets' && +d.all === 48 && +d.drawn === 12")
    grid = page.locator(".voicelab-facets")
    assert grid.get_by_role("rowheader").all_inner_texts() == ["Eight notes.", "No more than twelve notes."]
    assert grid.get_by_role("columnheader").all_inner_texts()[1:] == ["0", "0.5"]
    tabs = page.locator(".voicelab-facet-tabs [role=tab]")
    assert tabs.all_inner_texts() == ["ada", "ben", "low", "normal"]
    page.wait_for_function("() => [...document.querySelectorAll('.voicelab-facet')].every((one) => one.dataset.mean)")
    figures = page.locator(".voicelab-facet-figure")
    assert figures.all_inner_texts() == ["0.60 ± 0.00 s"] * 2 + ["1.30 ± 0.00 s"] * 2
    assert "Duration mean ± sd 0.60" in page.locator(".voicelab-legend").inner_text()
    assert "waveforms span 1.30\xa0s" in page.locator(".voicelab-legend").inner_text()
    assert min(page.evaluate(CONTRASTS)) >= 4.5
    # The shorter one's picture ends where it ends on the common scale.
    ends = page.evaluate(
        """() => [...document.querySelectorAll('.voicelab-facet canvas')].map((canvas) => {
          const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          const inked = (end, value, at) => (at % 4 === 3 && value ? Math.max(end, ((at - 3) / 4) % width) : end);
          return data.reduce(inked, 0) / width;
        })"""
    )
    assert [round(end, 1) for end in ends] == [0.5, 0.5, 1.0, 1.0]
    choose(page, "Color", "Loudness")
    page.wait_for_function("() => document.querySelector('.voicelab-legend').innerText.startsWith('Loudness')")
    # Heard, selected and compared with the keys alone, under another tab.
    tabs.nth(1).click()
    buttons = page.locator(".voicelab-hear")
    page.wait_for_function("() => document.querySelector('.voicelab-hear').title.includes('voice ben')", timeout=LONG)
    buttons.first.click()
    wait(page, "+d.heard > 0.1 && d.current === '6'")
    page.keyboard.press("x")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    says(page, "2 selected", ".voicelab-takes-view")
    assert page.locator(".voicelab-hear[data-selected=true]").evaluate_all(
        "(all) => all.map((one) => +one.dataset.id)"
    ) == [6, 31]
    page.locator("button.voicelab-compare-selected:enabled").click()
    page.wait_for_selector(".voicelab-compare[data-current]", timeout=LONG)
    # The tab that was opened has the focus, and is in sight.
    page.wait_for_function("() => document.activeElement.querySelector('.voicelab-compare') !== null", timeout=LONG)


NARROW = (
    SETUP
    + """\
fields = dict(condition_on_previous_chunks=[True, False], temperature=[0.2, 0.6, 1])
panel = Lab(ToneBackend()).sweep("Eight notes.", **fields, repeats=5, cache=Cache("cache-narrow")).run().panel()
panel"""
)


def test_three_columns_and_all_their_buttons_fit_into_a_narrow_cell(scratch: Scratch) -> None:
    page = scratch.run(NARROW)
    page.locator(".voicelab-hear[data-state=done]").first.wait_for(timeout=LONG)
    fit(page, ".voicelab-takes-view", 460)
    hidden = """(root) => [...root.querySelectorAll("*"), root].filter((node) =>
      getComputedStyle(node).overflowX !== "visible" && node.clientWidth &&
      (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1)).map((node) => node.className)"""
    assert page.locator(GRID).evaluate(hidden) == []
    title = page.locator(".voicelab-facet .voicelab-hear").nth(1).get_attribute("title") or ""
    assert "take 2" in title
    # The browser draws a closed list, so that a long name ends before its arrow.
    choice = page.locator(".voicelab-takes-view .widget-dropdown select").first
    assert choice.evaluate("(node) => getComputedStyle(node).appearance") == "auto"


LOW = NARROW.replace("[0.2, 0.6, 1]", "'0..1 step 0.1'").replace(
    "fields = dict(condition_on_previous_chunks=[True, False], temperature='0..1 step 0.1')",
    "fields = dict(temperature='0..1 step 0.1', condition_on_previous_chunks=[True, False])",
)


def test_keys_bring_a_whole_row_into_sight_below_names_of_several_lines(scratch: Scratch) -> None:
    page = scratch.run(LOW)
    page.locator(".voicelab-hear[data-state=done]").first.wait_for(timeout=LONG)
    fit(page, ".voicelab-takes-view", 460)
    page.locator(".voicelab-hear").first.focus()
    for _ in range(7):
        page.keyboard.press("ArrowDown")
    inside = """() => {
      const [cell, grid] = [".voicelab-facet", ".voicelab-takes"].map((name) => document.activeElement.closest(name));
      const below = cell.getBoundingClientRect().bottom - grid.getBoundingClientRect().bottom;
      return document.activeElement.dataset.id === "70" && below <= 1;
    }"""
    page.wait_for_function(inside, timeout=LONG)


SAME = (
    SETUP
    + """\
class Deaf(ToneBackend):
    \"\"\"What it says does not depend on the latency.\"\"\"
    def _notes(self, call):
        return super()._notes(call.replace(latency="normal"))
lab = Lab(Deaf())
panel = lab.sweep("Eight notes.", temperature=[0, 1], latency=["low", "normal"], cache=Cache("cache-same")).run().panel()
panel"""
)


def test_a_cell_that_cannot_differ_says_so_and_nothing_is_coloured_over_nothing(scratch: Scratch) -> None:
    page = scratch.run(SAME)
    page.wait_for_function("() => [...document.querySelectorAll('.voicelab-facet')].every((one) => one.dataset.mean)")
    page.wait_for_function("() => document.querySelector('.voicelab-legend').innerText.includes('every cell')")
    figures = page.locator(".voicelab-facet-figure")
    assert figures.all_inner_texts() == ["0.60 s", "identical"] * 2
    twin = "identical samples to temperature 0, latency low: 0.60 s"
    assert figures.nth(1).get_attribute("title") == twin
    assert "Duration the same in every cell: 0.60\xa0s" in page.locator(".voicelab-legend").inner_text()
    assert page.locator(".voicelab-facet").evaluate_all("(all) => all.map((one) => one.style.background)") == [""] * 4


def test_a_take_is_opened_with_its_words(scratch: Scratch) -> None:
    page = scratch.run(VOICE.replace(".panel()", ".run().panel()"))
    wait(page, "+d.all === 6 && +d.drawn === 6")
    page.locator(".voicelab-open").nth(1).click()
    words = page.locator(".voicelab-player .voicelab-words button")
    words.first.wait_for(timeout=LONG)
    assert words.all_inner_texts() == ["The", "birch", "canoe", "slid", "on", "the", "smooth", "planks"]
    words.nth(2).click()
    page.wait_for_selector(".voicelab-player[data-state=playing]", timeout=LONG)


VOICE = """\
import voicelab as vl
from voicelab.runs.cache import Cache
lab = vl.connect()
panel = lab.sweep("The birch canoe slid on the smooth planks.", temperature=[0.4, 1],
                  voice=["clara", "marlow", "juno"], cache=Cache("cache-voice")).panel()
panel"""


def test_how_it_looks(scratch: Scratch, tmp_path: Path) -> None:
    page = scratch.run(VOICE.replace("cache=", "repeats=2, cache="))
    page.set_viewport_size({"width": 1300, "height": 1300})
    page.wait_for_selector("button.voicelab-run:enabled", timeout=LONG)
    page.locator("button.voicelab-run").click()
    says(page, "12 of 12 takes, done")
    wait(page, "+d.all === 12 && +d.drawn === 12")
    for number in (0, 6):
        page.locator(f".voicelab-hear[data-id='{number}']").focus()
        page.keyboard.press("x")
    says(page, "2 selected")
    # Dark first: JupyterLab remembers it, and other tests expect the light one.
    for theme in ("Dark", "Light"):
        themed(page, theme)
        shoot(page, PANEL, tmp_path, f"sweep-{theme.lower()}.png")
