"""A listening test in a real browser: as a page for several listeners, and as a widget in JupyterLab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.browser.conftest import Jupyter, open_and_run
from tests.experiments.listening.test_design import listening_test
from voicelab.experiments.listening.design import Kind
from voicelab.experiments.listening.votes import Ballot
from voicelab.views.listening import listening_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

TEST = ".voicelab-listening"


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Ballot]]:
    kind: Kind = request.param
    with Ballot(listening_test(kind, items=2), tmp_path / "votes") as ballot, listening_page(ballot) as address:
        yield address, ballot


def ready(page: Page) -> None:
    page.wait_for_selector(f"{TEST}[data-state=ready]", timeout=30_000)


def begin(page: Page, name: str) -> None:
    page.fill(f"{TEST} input[type=text]", name)
    page.click(f"{TEST} button[type=submit]")


@pytest.mark.parametrize("address", ["AB"], indirect=True)
def test_keys_choose_sounds_and_a_vote_needs_all_of_them(page: Page, address: tuple[str, Ballot]) -> None:
    url, ballot = address
    page.goto(url)
    begin(page, "Ada")
    ready(page)
    # Space begins with the first; 2 and b are the second.
    page.keyboard.press("Space")
    page.wait_for_selector(f"{TEST}[data-playing=A]")
    page.keyboard.press("2")
    page.wait_for_selector(f"{TEST}[data-playing=B]")
    assert page.is_disabled(".voicelab-next")
    page.check(f"{TEST} input[value=B]")
    assert page.is_enabled(".voicelab-next")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('h2')?.textContent === '2 of 2'")
    ready(page)
    page.click("text=A >> nth=0")
    page.keyboard.press("b")
    # A pause is no play. An answer by the keys alone: a point has keys of its own.
    page.keyboard.press("b")
    page.wait_for_selector(f"{TEST}[data-playing='']")
    page.focus(f"{TEST} input[value=A]")
    page.keyboard.press("Space")
    assert page.is_checked(f"{TEST} input[value=A]")
    page.keyboard.press("ArrowRight")
    assert page.is_checked(f"{TEST} input[value=B]")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(f"() => document.querySelector('{TEST}').dataset.playing") == ""
    # Enter on a button presses it, and does not vote.
    page.focus("text=A >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{TEST}[data-playing=A]")
    assert len(ballot.votes()) == 1
    page.focus(TEST)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{TEST}[data-state=done]")
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    votes = ballot.votes()
    assert [vote.answers["choice"] for vote in votes] == ["B", "A"]
    assert [vote.plays for vote in votes] == [2, 3]
    assert all(vote.seconds > 0 for vote in votes)


@pytest.mark.parametrize("address", ["MOS"], indirect=True)
def test_what_could_not_be_loaded_is_tried_again(page: Page, address: tuple[str, Ballot]) -> None:
    url, _ = address
    page.goto(url)
    page.route("**/api/sounds/*", lambda route: route.abort())
    begin(page, "Ada")
    page.wait_for_selector(f"{TEST}[data-state=failed]")
    page.keyboard.press("1")
    page.unroute("**/api/sounds/*")
    page.get_by_role("button", name="Try again").click()
    ready(page)
    page.keyboard.press("1")
    page.wait_for_selector(f"{TEST}[data-playing=A]")


@pytest.mark.parametrize("address", ["MUSHRA"], indirect=True)
def test_sliders_and_a_blank_name(page: Page, address: tuple[str, Ballot]) -> None:
    url, ballot = address
    page.goto(url)
    begin(page, "   ")
    page.wait_for_function("() => document.querySelector('[role=alert]').textContent.includes('name')")
    begin(page, "Ada")
    ready(page)
    names = page.locator(".voicelab-sound button").all_text_contents()
    assert names == ["Reference", "A", "B", "C", "D", "E"]
    for key in "123456":
        page.keyboard.press(key)
    first, second, *others = page.locator("input[type=range]").all()
    for number, slider in enumerate(others, start=2):
        slider.fill(str(10 * number))
    # A rating of 0 leaves the slider where it is.
    assert page.is_disabled(".voicelab-next")
    first.click(position={"x": 2, "y": 5})
    assert page.locator("output").first.text_content() == "0"
    second.focus()
    assert page.is_disabled(".voicelab-next")
    page.keyboard.press("Home")
    page.click(".voicelab-next")
    page.wait_for_function("() => document.querySelector('h2')?.textContent === '2 of 2'")
    (vote,) = ballot.votes()
    assert dict(vote.answers) == {"A": 0, "B": 0, "C": 20, "D": 30, "E": 40}


@pytest.mark.parametrize("address", ["MOS"], indirect=True)
def test_two_on_one_page_do_not_share_their_points(page: Page, address: tuple[str, Ballot]) -> None:
    url, ballot = address
    page.goto(url)
    page.evaluate(
        """async () => {
          const { open, overHttp } = await import("./listening.js");
          window.second = open(document.body, overHttp());
        }"""
    )
    tests = page.locator(TEST).all()
    assert len(tests) == 2
    for test, name in zip(tests, ("Ada", "Ben"), strict=True):
        test.locator("input[type=text]").fill(name)
        test.locator("button[type=submit]").click()
        test.locator(".voicelab-sound button").first.click(timeout=30_000)
        test.locator("input[value='4']").check()
    for test in tests:
        assert test.locator("input[value='4']").is_checked()
        test.locator(".voicelab-next").click()
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{TEST} h2')].every((h) => h.textContent.startsWith('2 '))"
    )
    assert sorted(vote.listener for vote in ballot.votes()) == ["Ada", "Ben"]
    # A page has few audio contexts: a test that goes gives its own back.
    assert page.evaluate("async () => { const { audio } = second; second.close(); await new Promise(r => setTimeout(r, 100));"
                         " return audio.state; }") == "closed"  # fmt: skip


@pytest.mark.parametrize("address", ["MOS"], indirect=True)
def test_a_browser_keeps_no_sound_of_a_test(address: tuple[str, Ballot]) -> None:
    url, _ = address
    with httpx.Client(base_url=url) as client:
        listener = client.post("/api/listeners", json={"name": "Ada"}).json()["listener"]
        trial = client.get(f"/api/listeners/{listener}/trial").json()["trial"]
        sound = client.get(f"/api/sounds/{trial['letters'][0]['sound']}")
    assert sound.content.startswith(b"RIFF")
    assert sound.headers["cache-control"] == "no-store"


def test_two_views_of_one_test_in_a_notebook(page: Page, jupyter: Jupyter) -> None:
    cell = """
from tests.experiments.listening.test_design import listening_test
from voicelab.experiments.listening.votes import Ballot
from voicelab.views.listening import ListeningWidget
ballot = Ballot(listening_test("MOS", items=1), "both.sqlite3")
widget = ListeningWidget(ballot)
display(widget, widget)
"""
    open_and_run(page, jupyter.notebook("both.ipynb", cell))
    page.locator(f"{TEST} input[type=text]").nth(1).wait_for(timeout=60_000)
    tests = page.locator(TEST).all()
    for test, name in zip(tests, ("Ada", "Ben"), strict=True):
        test.locator("input[type=text]").fill(name)
    # Both at once, so that the answers cross.
    page.evaluate(f"() => document.querySelectorAll('{TEST} form').forEach((form) => form.requestSubmit())")
    for test, points in zip(tests, "24", strict=True):
        test.locator(".voicelab-sound button").click(timeout=30_000)
        test.locator(f"input[value='{points}']").check()
        test.locator(".voicelab-next").click()
        test.locator("h2", has_text="2 of 2").wait_for(timeout=30_000)
    with Ballot(listening_test("MOS", items=1), jupyter.folder / "both.sqlite3") as ballot:
        assert {vote.listener: vote.answers["A"] for vote in ballot.votes()} == {"Ada": 2.0, "Ben": 4.0}


def test_in_a_notebook(page: Page, jupyter: Jupyter) -> None:
    cell = """
from tests.experiments.listening.test_design import listening_test
from voicelab.experiments.listening.votes import Ballot
from voicelab.views.listening import ListeningWidget
ballot = Ballot(listening_test("MOS", items=1), "votes.sqlite3")
ListeningWidget(ballot)
"""
    open_and_run(page, jupyter.notebook("listening.ipynb", cell))
    page.wait_for_selector(f"{TEST} input[type=text]", timeout=60_000)
    begin(page, "Ada")
    for _ in range(2):
        ready(page)
        page.click(f"{TEST} .voicelab-sound button")
        page.wait_for_selector(f"{TEST}[data-playing=A]")
        # JupyterLab would cut the cell with X, and go to another one with the arrows.
        page.focus(f"{TEST} input[value='5']")
        page.keyboard.press("x")
        page.keyboard.press("Space")
        page.keyboard.press("ArrowLeft")
        assert page.is_checked(f"{TEST} input[value='4']")
        title = page.text_content(f"{TEST} h2")
        page.click(".voicelab-next")
        page.wait_for_function(
            "(old) => (document.querySelector('.voicelab-listening h2')?.textContent ?? old) !== old", arg=title
        )
    page.wait_for_selector(f"{TEST}[data-state=done]")
    with Ballot(listening_test("MOS", items=1), jupyter.folder / "votes.sqlite3") as ballot:
        assert [vote.answers for vote in ballot.votes()] == [{"A": 4.0}, {"A": 4.0}]
