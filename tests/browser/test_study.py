"""A study in a real browser: as a listener on a small screen goes through it, several at once, and without a server."""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import CHROMIUM, CUT, serious
from tests.browser.test_listening import TEST, go_on, hear_all
from tests.listening.test_design import listening_test
from tests.listening.test_study import QUESTIONS
from voicelab.listening.design import Kind
from voicelab.listening.results import analyze
from voicelab.listening.study import Study, check_answer
from voicelab.listening.votes import Ballot
from voicelab.views.listening import listening_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SMALL: dict[str, Any] = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}


def a_study(kind: Kind = "AB", **fields: Any) -> Study:
    test = replace(listening_test(kind, items=3), training=1, per_listener=2, instructions="Welcome.\nHear and judge.")
    more = {"consent": "We keep what you answer.\nNothing else.", "questions": QUESTIONS, "comment": "Anything else?"}
    return Study(test, **{"listeners": 4, "breaks": 1, "code": "DONE-7", **more, **fields})


def state(page: Page, *names: str) -> None:
    page.wait_for_function(
        f"(names) => names.includes(document.querySelector('{TEST}')?.dataset.state)", arg=list(names), timeout=30_000
    )


def seen(page: Page) -> None:
    """Nothing is cut off, nothing wider than the screen, every button a finger's size, no fault of access."""
    assert page.evaluate(f"() => ({CUT})(document.body)") == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert serious(page) == []
    small = page.locator(f"{TEST} button").evaluate_all("(all) => all.filter((one) => one.offsetHeight < 43).length")
    assert small == 0


def answer(page: Page) -> None:
    hear_all(page)
    for slider in page.locator("input[type=range]").all():
        slider.tap()
    if page.locator("input[type=radio]").count():
        page.locator(".voicelab-option").last.tap()
    go_on(page)


def wear(page: Page, set_number: int = 0) -> None:
    state(page, "wear")
    page.locator(".voicelab-next").tap()
    for number in range(6):
        page.get_by_role("heading", name=f"Headphones {number + 1} of 6").wait_for(timeout=30_000)
        state(page, "ready")
        hear_all(page)
        page.locator(".voicelab-option").nth(check_answer(set_number, number) - 1).tap()
        go_on(page)


def consent_and_questions(page: Page) -> None:
    page.locator(f"{TEST} button[type=submit]").tap()
    state(page, "consent")
    seen(page)
    page.get_by_role("button", name="I agree").tap()
    state(page, "questionnaire")
    page.locator(".voicelab-next").tap()
    state(page, "questionnaire")  # what is required is missing
    page.fill("input[name=age]", "31")
    page.select_option("select[name=tongue]", "English")
    seen(page)
    page.locator(".voicelab-next").tap()


def to_the_end(page: Page) -> None:
    while True:
        state(page, "ready", "pause", "comment")
        now = page.locator(TEST).get_attribute("data-state")
        if now == "comment":
            break
        if now == "pause":
            page.locator(".voicelab-next").tap()
            continue
        title = page.text_content("h2")
        answer(page)
        page.wait_for_function("(old) => document.querySelector('h2')?.textContent !== old", arg=title)
    page.fill("textarea", "Fine.")
    seen(page)
    page.locator(".voicelab-next").tap()
    state(page, "done")


@pytest.mark.parametrize("kind", ["AB", "MUSHRA"])
def test_a_whole_study_on_a_small_screen(browser: Browser, tmp_path: Path, kind: Kind) -> None:
    headphones: Any = "antiphase" if kind == "AB" else ""
    study = a_study(kind, headphones=headphones, return_to="https://crowd.example/back")
    with (
        Ballot(study.test, tmp_path / "votes") as ballot,
        listening_page(ballot, study) as address,
        browser.new_context(**SMALL) as context,
    ):
        page = context.new_page()
        traffic: list[str] = []
        page.on(
            "response",
            lambda answer: traffic.append(
                answer.text() if "/api/" in answer.url and "sounds" not in answer.url else ""
            ),
        )
        page.goto(f"{address}/?id=worker-9")
        page.wait_for_selector(f"{TEST} button")
        seen(page)
        consent_and_questions(page)
        if headphones:
            wear(page)
        state(page, "volume")
        seen(page)
        hear_all(page)
        go_on(page)
        page.get_by_role("heading", name="Practice 1 of 1").wait_for(timeout=30_000)
        state(page, "ready")
        seen(page)
        # The laptop is closed in the middle: on the way back nothing is asked again.
        page.reload()
        page.locator(f"{TEST} button[type=submit]").tap()
        page.get_by_role("heading", name="Practice 1 of 1").wait_for(timeout=30_000)
        state(page, "ready")
        answer(page)
        page.get_by_role("heading", name="Question 1 of 2").wait_for(timeout=30_000)
        state(page, "ready")
        answer(page)
        state(page, "pause")
        seen(page)
        page.go_back()
        page.goto(f"{address}/?id=worker-9")
        page.locator(f"{TEST} button[type=submit]").tap()
        to_the_end(page)
        seen(page)
        assert page.text_content(".voicelab-code") == "DONE-7"
        assert page.get_by_role("link").get_attribute("href") == "https://crowd.example/back"
        page.reload()
        page.locator(f"{TEST} button[type=submit]").tap()
        state(page, "done")
        assert len(ballot.votes()) == len(study.test.trials(0)) == 2
        people = ballot.people()
        assert people["comment.comment"].tolist() == ["Fine."]
        assert "worker-9" not in people.to_csv()
        assert not any(name in "".join(traffic) for name in ('"a"', '"b"', '"s0"', "anchor35"))


def test_unqualified_listener_sees_exit_page(browser: Browser, tmp_path: Path) -> None:
    study = a_study()
    with (
        Ballot(study.test, tmp_path / "votes") as ballot,
        listening_page(ballot, study) as address,
        browser.new_context(**SMALL) as context,
    ):
        page = context.new_page()
        page.goto(address)
        page.locator(f"{TEST} button[type=submit]").tap()
        page.get_by_role("button", name="I do not agree").tap()
        state(page, "left")
        assert "the study ends here" in str(page.text_content(TEST))
        seen(page)


class _Posts(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, as any web host has them, and an address that takes answers."""

    taken: list[bytes]

    def do_POST(self) -> None:
        self.taken.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def host(folder: Path) -> Iterator[tuple[str, list[bytes]]]:
    handler = type("Posts", (_Posts,), {"taken": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", handler.taken  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("by", ["post", "mail"])
def test_a_study_without_a_server(browser: Browser, tmp_path: Path, by: str) -> None:
    study = a_study(headphones="huggins" if by == "post" else "")
    folder = tmp_path / "page"
    folder.mkdir()
    with host(folder) as (address, taken), browser.new_context(**SMALL) as context:
        study.export(folder, to=f"{address}/answers" if by == "post" else "lab@example.org")
        names = "".join(path.read_text() for path in folder.rglob("*.json"))
        assert not any(name in names for name in ('"a"', '"b"', '"s0"'))
        page = context.new_page()
        page.goto(address)
        consent_and_questions(page)
        if by == "post":
            wear(page)
        state(page, "volume")
        hear_all(page)
        go_on(page)
        state(page, "ready")
        answer(page)
        page.get_by_role("heading", name="Question 1 of 2").wait_for(timeout=30_000)
        page.reload()
        page.locator(f"{TEST} button[type=submit]").tap()
        to_the_end(page)
        if by == "mail":
            with page.expect_download() as download:
                page.get_by_role("link", name="Save the answers").tap()
            taken.append(Path(download.value.path()).read_bytes())
            assert str(page.get_by_role("link", name="Write an email").get_attribute("href")).startswith("mailto:lab@")
        page.reload()
        page.locator(f"{TEST} button[type=submit]").tap()
        state(page, "done")
    assert len(taken) == 1
    (tmp_path / "answers.json").write_bytes(taken[0])
    with Ballot(study.test, tmp_path / "votes") as ballot:
        assert study.collect(ballot, tmp_path / "answers.json") == 1
        assert study.collect(ballot, tmp_path / "answers.json") == 0
        assert len(study.finished(ballot)) == 1
        assert [vote.plays > 0 for vote in ballot.votes()] == [True, True]
        assert ballot.people()["questionnaire.age"].tolist() == [31]
        assert analyze(study.test, ballot).listeners == 1
        answers = json.loads(taken[0])
        for wrong in ("[]", "{}", json.dumps({**answers, "votes": [3]})):
            (tmp_path / "wrong.json").write_text(wrong)
            with pytest.raises(Exception, match="cannot be read as a listener's answers"):
                study.collect(ballot, tmp_path / "wrong.json")


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_eight_listeners_at_once(tmp_path: Path) -> None:
    from playwright.async_api import async_playwright

    study = a_study(listeners=8, comment="", questions=(), consent="")

    async def listen(context: Any, address: str) -> None:
        page = await context.new_page()
        await page.goto(address)
        await page.locator(f"{TEST} button[type=submit]").tap()
        while True:
            await page.wait_for_selector(
                f"{TEST}:is([data-state=volume], [data-state=ready], [data-state=pause], [data-state=done])"
            )
            now = await page.locator(TEST).get_attribute("data-state")
            if now == "done":
                return
            title = await page.text_content("h2")
            for number in range(await page.locator(".voicelab-play").count()):
                await page.locator(".voicelab-play").nth(number).tap()
                heard = "(n) => +document.querySelectorAll('.voicelab-play')[n].dataset.heard === 1"
                await page.wait_for_function(heard, arg=number)
                await page.wait_for_selector(f"{TEST}[data-playing='']")
            if await page.locator("input[type=radio]").count():
                await page.locator(".voicelab-option").last.tap()
            await page.locator(".voicelab-next").tap()
            await page.wait_for_function("(old) => document.querySelector('h2')?.textContent !== old", arg=title)

    async def all_of_them(address: str) -> None:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            contexts = [await browser.new_context(**SMALL) for _ in range(8)]
            await asyncio.gather(*(listen(context, address) for context in contexts))
            await browser.close()

    with Ballot(study.test, tmp_path / "votes") as ballot, listening_page(ballot, study) as address:
        asyncio.run(all_of_them(address))
        assert len(study.finished(ballot)) == 8
        votes = [vote.trial.id for vote in ballot.votes()]
        assert sorted(votes) == sorted(trial.id for number in range(8) for trial in study.test.trials(number))
