"""A listening test in a real browser: as a page for several listeners, and as a widget in JupyterLab."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.browser.conftest import CUT, Jupyter, box_of, open_and_run, serious, shoot
from tests.listening.test_design import listening_test
from voicelab.listening.design import KINDS, SINGLE, WITH_REFERENCE, Kind
from voicelab.listening.votes import Ballot
from voicelab.views.listening import listening_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TEST = ".voicelab-listening"
PLAYS = "document.querySelectorAll('.voicelab-play')"


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Ballot]]:
    kind: Kind = request.param
    with Ballot(listening_test(kind, items=2), tmp_path / "votes") as ballot, listening_page(ballot) as address:
        yield address, ballot


def ready(page: Page) -> None:
    page.wait_for_selector(f"{TEST}[data-state=ready]", timeout=30_000)


def begin(page: Page, name: str) -> None:
    """Join, and set the volume."""
    page.fill(f"{TEST} input[type=text]", name)
    page.click(f"{TEST} button[type=submit]")
    page.wait_for_selector(f"{TEST}[data-state=volume]", timeout=30_000)
    assert page.is_disabled(".voicelab-next")
    page.keyboard.press("Space")
    go_on(page)


def go_on(page: Page) -> None:
    page.wait_for_selector(".voicelab-next:enabled", timeout=30_000)
    page.click(".voicelab-next")


def hear_all(page: Page) -> None:
    """Hear each sound to its end, one after the other."""
    for number in range(page.locator(".voicelab-play").count()):
        page.locator(".voicelab-play").nth(number).click()
        page.wait_for_function(f"(n) => +{PLAYS}[n].dataset.heard === 1", arg=number)
        page.wait_for_selector(f"{TEST}[data-playing='']")


@pytest.mark.parametrize("address", ["AB"], indirect=True)
def test_keys_choose_sounds_and_a_vote_needs_all_of_them(page: Page, address: tuple[str, Ballot]) -> None:
    url, ballot = address
    page.goto(url)
    begin(page, "Ada")
    ready(page)
    # Space begins with the first; 2 and b are the second.
    page.keyboard.press("Space")
    page.wait_for_selector(f"{TEST}[data-playing=A]")
    page.wait_for_function(f"() => +{PLAYS}[0].dataset.heard > 0.2")
    page.keyboard.press("2")
    page.wait_for_selector(f"{TEST}[data-playing=B]")
    assert page.is_disabled(".voicelab-next")
    page.check(f"{TEST} input[value=B]")
    # Both have begun, and B went to its end; neither was heard from its beginning to its end.
    page.wait_for_selector(f"{TEST}[data-playing='']")
    assert page.is_disabled(".voicelab-next")
    assert page.text_content(".voicelab-hint") == "Not yet played to the end: A and B."
    hear_all(page)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('h2')?.textContent === 'Question 2 of 2'")
    assert page.get_by_role("progressbar").get_attribute("aria-label") == "1 of 2 answered"
    ready(page)
    hear_all(page)
    # A pause is no play. An answer by the keys alone: a point has keys of its own.
    page.keyboard.press("b")
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
    page.focus(".voicelab-play >> nth=0")
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
    assert [vote.plays for vote in votes] == [4, 4]
    assert all(vote.seconds > 0 for vote in votes)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "DMOS"])  # as SMOS, with other points
def test_practice_comes_first_and_is_not_kept(page: Page, tmp_path: Path, kind: Kind) -> None:
    training = 2 if kind in SINGLE else int(kind != "transcription")
    test = replace(listening_test(kind, items=1), training=training, instructions="Sit down.\nListen.")
    with Ballot(test, tmp_path / "votes") as ballot, listening_page(ballot) as url:
        page.goto(url)
        page.wait_for_selector(f"{TEST} input[type=text]")
        assert page.locator("h2, p:not(.voicelab-notice)").all_text_contents() == ["trial", "Sit down.", "Listen."]
        assert page.get_by_label("Your name or code").count() == 1
        begin(page, "Ada")
        for title in [f"Practice {place + 1} of {test.training}" for place in range(test.training)] + [
            "Question 1 of "
        ]:
            page.wait_for_function("(text) => document.querySelector('h2')?.textContent.startsWith(text)", arg=title)
            ready(page)
            assert page.get_by_label("Play Reference").count() == (kind in WITH_REFERENCE)
            names = [name.lstrip("▶").partition(",")[0] for name in page.locator(".voicelab-play").all_text_contents()]
            asked = " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))).replace("Reference", "the reference")
            assert page.text_content(".voicelab-hint") == f"Play {asked} to the end."
            schemes: tuple[Literal["dark", "light"], ...] = ("dark", "light")
            for scheme, width in itertools.product(schemes, (600, 900, 1280)):
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": 700})
                page.screenshot(path=tmp_path / f"{title}-{scheme}-{width}.png")
                assert page.evaluate(f"() => ({CUT})(document.body)") == [], (title, width)
                assert width != 900 or serious(page) == [], (title, scheme)
            hear_all(page)
            for slider in page.locator("input[type=range]").all():
                slider.fill("70")
            if kind == "transcription":
                page.get_by_label(test.question).fill("The a table? ")
            elif not kind.startswith("MUSHRA"):
                for radio in (page.locator("input[type=radio]").first, page.locator("input[type=radio]").last):
                    radio.check()  # in best-worst scaling, the best and the worst
            assert ballot.votes() == ()
            assert page.text_content(".voicelab-hint") == ""
            page.click(".voicelab-next")
        page.wait_for_function("() => !document.querySelector('h2')?.textContent.startsWith('Question 1')")
        assert [vote.trial.id for vote in ballot.votes()] == ["0-0"]
        # Who comes back has practised.
        page.reload()
        if len(test.trials(0)) > 1:
            begin(page, "Ada")
            page.wait_for_function("() => document.querySelector('h2')?.textContent.startsWith('Question 2')")


@pytest.mark.parametrize("address", ["MOS"], indirect=True)
def test_what_could_not_be_loaded_is_tried_again(page: Page, address: tuple[str, Ballot]) -> None:
    url, _ = address
    page.goto(url)
    page.route("**/api/sounds/*", lambda route: route.abort())
    page.fill(f"{TEST} input[type=text]", "Ada")
    page.click(f"{TEST} button[type=submit]")
    page.wait_for_selector(f"{TEST}[data-state=failed]")
    page.keyboard.press("1")
    page.unroute("**/api/sounds/*")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(f"{TEST}[data-state=volume]")
    page.keyboard.press("1")
    page.wait_for_selector(f"{TEST}[data-playing=sound]")


def has_thumb(slider: Locator) -> bool:
    """Whether there is more of the accent's blue than a line around the slider has."""
    picture = np.asarray(Image.open(io.BytesIO(slider.screenshot())).convert("RGB"), int)
    return int((np.abs(picture - (0, 114, 178)).sum(axis=2) < 12).sum()) > 200


@pytest.mark.parametrize("address", ["MUSHRA"], indirect=True)
def test_sliders_and_a_blank_name(page: Page, address: tuple[str, Ballot], tmp_path: Path) -> None:
    url, ballot = address
    page.goto(url)
    page.fill(f"{TEST} input[type=text]", "   ")
    page.click(f"{TEST} button[type=submit]")
    page.wait_for_function("() => document.querySelector('[role=alert]').textContent.includes('name')")
    begin(page, "Ada")
    ready(page)
    names = [name.lstrip("▶") for name in page.locator(".voicelab-play").all_text_contents()]
    assert names == ["Reference", "A", "B", "C", "D", "E"]
    bands = page.locator(".voicelab-bands > div").all_text_contents()
    assert bands == ["100Excellent", "80Good", "60Fair", "40Poor", "20Bad"]
    hear_all(page)
    sliders = page.locator("input[type=range]")
    assert not any(has_thumb(slider) for slider in sliders.all())
    assert page.locator("output").all_text_contents() == ["", *"–––––"]
    # Rated by a click in the middle, which moves nothing; by one below; by keys.
    first, second, third, fourth, fifth = sliders.all()
    first.click()
    box = box_of(second)
    second.click(position={"x": box["width"] / 2, "y": box["height"] - 2})
    assert [has_thumb(slider) for slider in sliders.all()] == [True, True, False, False, False]
    for slider, key in ((third, "ArrowUp"), (fourth, "End")):
        slider.focus()
        assert page.text_content(".voicelab-hint") != ""
        assert slider.get_attribute("aria-valuetext") == "not rated yet"
        page.keyboard.press(key)
    assert page.text_content(".voicelab-hint") == "Not yet rated: E."
    page.set_viewport_size({"width": 900, "height": 800})
    shoot(page, TEST, tmp_path, "listening-mushra-light.png")
    fifth.fill("40")
    assert fourth.get_attribute("aria-valuetext") == "100, Excellent"
    # The middle of a thumb is on the line of its value.
    line, whole = box_of(page.locator(".voicelab-bands > div").nth(3)), box_of(fifth)
    assert line["y"] == pytest.approx(whole["y"] + 8 + (whole["height"] - 16) * 0.6, abs=1.5)
    go_on(page)
    page.wait_for_function("() => document.querySelector('h2')?.textContent === 'Question 2 of 2'")
    (vote,) = ballot.votes()
    assert dict(vote.answers) == {"A": 50, "B": 0, "C": 51, "D": 100, "E": 40}


@pytest.mark.parametrize("address", ["MOS"], indirect=True)
def test_two_on_one_page_do_not_share_their_points(page: Page, address: tuple[str, Ballot]) -> None:
    url, ballot = address
    page.goto(url)
    page.evaluate(
        """async () => {
          const { open } = await import("./listening.js");
          const { overHttp } = await import("./listening-lines.js");
          window.second = open(document.body, overHttp());
        }"""
    )
    page.locator(f"{TEST} input[type=text]").nth(1).wait_for()
    tests = page.locator(TEST).all()
    for test, name in zip(tests, ("Ada", "Ben"), strict=True):
        test.locator("input[type=text]").fill(name)
        test.locator("button[type=submit]").click()
        for _ in ("volume", "question"):
            test.locator(".voicelab-play").click(timeout=30_000)
            if test.locator("input[value='4']").count():
                test.locator("input[value='4']").check()
            else:
                test.locator(".voicelab-next:enabled").click()
                test.locator("input[value='4']").wait_for()
    for test in tests:
        assert test.locator("input[value='4']").is_checked()
        test.locator(".voicelab-next").click()
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{TEST} h2')].every((h) => h.textContent.startsWith('Question 2 '))"
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
from tests.listening.test_design import listening_test
from voicelab.listening.votes import Ballot
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
        test.locator(".voicelab-play").click(timeout=30_000)
        test.locator(".voicelab-next:enabled").click(timeout=30_000)
        # JupyterLab would cut the cell with X, and go to another one with the arrows.
        test.locator(f"input[value='{int(points) + 1}']").focus(timeout=30_000)
        for key in ("x", "Space", "ArrowLeft"):
            page.keyboard.press(key)
        assert test.locator(f"input[value='{points}']").is_checked()
        test.locator(".voicelab-play").click()
        test.locator(".voicelab-next").click()
        test.locator("h2", has_text="Question 2 of 2").wait_for(timeout=30_000)
    with Ballot(listening_test("MOS", items=1), jupyter.folder / "both.sqlite3") as ballot:
        assert {vote.listener: vote.answers["A"] for vote in ballot.votes()} == {"Ada": 2.0, "Ben": 4.0}
