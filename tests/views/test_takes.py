"""What a grid of takes is told: nothing twice, nothing that is out of sight, and not too often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, StoreError
from voicelab.metrics import Metric
from voicelab.takes.cards import TakeCard
from voicelab.views.takes import COLUMNS, TakeRows, outline


def tone(seconds: float) -> Clip:
    wave = 0.5 * np.sin(np.arange(int(seconds * 8000)) / 5)
    return Clip(wave.astype(np.float32), 8000)


def rows(count: int) -> list[TakeCard]:
    return [
        TakeCard(number, {"n": str(number)}, {"n": number}, "done", fetch=partial(tone, 0.5 + number / 100))
        for number in range(count)
    ]


class Page:
    """What has been told to a page, and what it would show of it."""

    def __init__(self) -> None:
        self.messages: list[tuple[float, dict[str, Any], list[bytes]]] = []
        self.cards: dict[int, dict[str, Any]] = {}
        self.order: list[int] = []
        self.work: TakeRows | None = None

    def __call__(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.messages.append((time.monotonic(), message, buffers))
        self.cards |= {card["id"]: card for card in message.get("cards", ())}
        if message.get("ordered"):
            self.order = np.frombuffer(buffers[1], np.int32).tolist()


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def make(page: Page) -> Iterator[Callable[..., TakeRows]]:
    made: list[TakeRows] = []

    def make(count: int = 0, metrics: tuple[str | Metric, ...] = ("duration",)) -> TakeRows:
        work = TakeRows(page, metrics)
        made.append(work)
        work.put(rows(count))
        return work

    yield make
    for work in made:
        work.close()


def test_an_outline_has_the_extremes_of_every_part() -> None:
    samples = np.zeros(16_000, np.float32)
    samples[5000], samples[5050] = 0.5, -1.0
    low, high = np.frombuffer(outline(Clip(samples, 8000)), np.int8).reshape(-1, 2).T
    assert (low[50], high[50]) == (-127, 64)
    assert low.sum() == -127
    assert outline(Clip(np.zeros(0, np.float32), 8000)) == bytes(2 * COLUMNS)


def test_only_what_is_in_sight_is_told_and_only_once(make: Callable[..., TakeRows], page: Page) -> None:
    work = make(50)
    work.show([3, 4])
    assert work.settled(10)
    assert page.order == list(range(50))
    assert set(page.cards) == {3, 4}
    assert page.cards[3]["figures"] == [("Duration", "0.53 s")]
    assert page.cards[3]["drawn"]
    # All have been measured for sorting all the same.
    assert all(row.figures["duration"] == pytest.approx(0.5 + row.id / 100, abs=1e-3) for row in work.rows)
    count = len(page.messages)
    work.show([3, 4])
    assert work.settled(10)
    assert len(page.messages) == count
    work.show([4, 5])
    assert work.settled(10)
    assert [card["id"] for _, message, _ in page.messages[count:] for card in message["cards"]] == [5]
    work.again()
    work.show([4])
    assert work.settled(10)
    assert page.messages[-1][1]["ordered"]


def test_messages_are_few_however_many_takes_come(make: Callable[..., TakeRows], page: Page) -> None:
    work = make()
    work.show(range(8))
    begun = time.monotonic()
    for row in rows(8) * 60:
        work.put([row])
        time.sleep(0.002)
    assert work.settled(20)
    times = [at for at, _, _ in page.messages]
    assert len(times) <= (times[-1] - begun) * 10 + 2
    assert min(np.diff(times)) > 0.09


def test_sorted_and_filtered(make: Callable[..., TakeRows], page: Page) -> None:
    work = make(6)
    work.arrange("n>1", "duration", descending=True)
    assert work.settled(10)
    assert page.order == [5, 4, 3, 2]
    assert [row.id for row in work.shown] == [5, 4, 3, 2]
    work.pin([3])
    assert work.settled(10)
    assert page.order == [3, 5, 4, 2]
    with pytest.raises(RequestInvalid, match="must be one of n, duration, state, got 'm'"):
        work.arrange("m>1")
    assert [row.id for row in work.shown] == [3, 5, 4, 2]


def test_a_sound_that_is_gone_and_a_metric_that_breaks_are_said_in_their_place(
    make: Callable[..., TakeRows], page: Page
) -> None:
    def gone() -> Clip:
        raise StoreError("the take was removed")

    work = make(2)
    work.put([TakeCard(2, {}, state="done", fetch=gone)])
    work.show([0, 1, 2])
    assert work.settled(10)
    assert page.cards[2]["error"] == "the take was removed"
    assert page.cards[1]["error"] == ""

    def broken(_: object) -> float:
        raise ZeroDivisionError("oh")

    work.measure([Metric("broken", "", broken)])
    assert work.settled(10)
    assert page.cards[1]["error"].startswith("ZeroDivisionError: oh")


def test_other_metrics_are_measured_on_the_takes_that_are_there(make: Callable[..., TakeRows], page: Page) -> None:
    work = make(3)
    work.show([0])
    assert work.settled(10)
    work.measure(["peak", "level"])
    assert work.settled(10)
    assert [name for name, _ in page.cards[0]["figures"]] == ["Peak", "Level"]
    assert all(set(row.figures) == {"peak", "level"} for row in work.rows)


def test_a_filter_by_what_is_no_longer_measured_hides_nothing_and_work_goes_on(
    make: Callable[..., TakeRows], page: Page
) -> None:
    work = make(5)
    work.show(range(5))
    assert work.settled(20)
    work.arrange("duration<0.52")
    assert work.settled(20)
    assert page.order == [0, 1]
    work.measure(["peak"])
    assert work.settled(20)
    assert page.order == [0, 1, 2, 3, 4]
    assert [row.id for row in work.shown] == page.order
    assert [figure for figure, _ in page.cards[4]["figures"]] == ["Peak"]
    # It counts again once it means something again.
    work.measure(["duration"])
    assert work.settled(20)
    assert page.order == [0, 1]


def test_nothing_runs_when_there_is_nothing_to_do_or_it_is_closed(make: Callable[..., TakeRows]) -> None:
    def working() -> int:
        return sum(thread.name == "voicelab-takes" and thread.is_alive() for thread in threading.enumerate())

    work = make(3)
    assert work.settled(10)
    assert working() == 0
    hold = threading.Event()

    def slow() -> Clip:
        hold.wait(10)
        return tone(0.1)

    work.put([TakeCard(9, {}, fetch=slow), *rows(200)])
    work.close()
    hold.set()
    assert work.settled(5)
    assert working() == 0
    work.put(rows(1))
    assert working() == 0


def test_what_is_shown_is_told_at_once_and_to_the_page_as_well(make: Callable[..., TakeRows], page: Page) -> None:
    work = make(4)
    assert [row.id for row in work.shown] == [0, 1, 2, 3]
    work.show([0, 1, 2, 3])
    assert work.settled(10)
    work.arrange("", "duration", descending=True)
    assert [row.id for row in work.shown] == [3, 2, 1, 0]
    assert work.settled(10)
    assert page.order == [3, 2, 1, 0], "whoever looks takes nothing from the page"
    work.clear()
    work.put(rows(2))
    assert {row.id for row in work.shown} == {0, 1}


def test_each_cell_has_the_mean_and_the_spread_of_its_takes(page: Page, make: Callable[..., TakeRows]) -> None:
    work = make(7)
    work.facet(3, 3, "duration")
    assert work.settled(10)
    (message, (sums,)), *_ = [(one, held) for _, one, held in reversed(page.messages) if one["kind"] == "cells"]
    # Of 0.5 s and 10 ms more for each: three, three and one, which has no spread.
    means, deviations, numbers, _ = np.frombuffer(sums, np.float32).reshape(3, 4).T
    assert means == pytest.approx([0.51, 0.54, 0.56])
    assert deviations[:2] == pytest.approx([0.01, 0.01])
    assert numbers.tolist() == [3, 3, 1]
    assert (message["metric"], message["unit"]) == ("Duration", "s")
    assert (message["low"], message["high"], message["longest"]) == pytest.approx((0.51, 0.56, 0.56))
    work.arrange("n<1")
    assert work.settled(10)
    *_, (_, _, (sums,)) = [one for one in page.messages if one[1]["kind"] == "cells"]
    assert np.frombuffer(sums, np.float32).reshape(3, 4)[:, 2].tolist() == [1, 0, 0], "of those that are shown"


def test_a_cell_whose_takes_are_those_of_an_earlier_one_says_so(page: Page, make: Callable[..., TakeRows]) -> None:
    work = make()
    lengths = (0.5, 0.6, 0.5, 0.6, 0.5, 0.7)
    work.put(
        TakeCard(key, {}, {}, "done", fetch=lambda seconds=seconds: tone(seconds))  # type: ignore[misc]
        for key, seconds in enumerate(lengths)
    )
    work.facet(3, 2, "duration")
    assert work.settled(10)
    *_, (_, _, (sums,)) = [one for one in page.messages if one[1]["kind"] == "cells"]
    assert np.frombuffer(sums, np.float32).reshape(3, 4)[:, 3].tolist() == [-1, 0, -1]


def test_what_is_in_sight_is_drawn_before_anything_is_measured(page: Page, make: Callable[..., TakeRows]) -> None:
    measured: list[int] = []

    def slow(subject: Any) -> float:
        measured.append(sum(card["drawn"] for card in page.cards.values()))
        time.sleep(0.15)
        return 1.0

    work = make(0, (Metric("slow", "s", slow),))
    work.show(range(4))
    work.put(rows(4))
    assert work.settled(10)
    assert measured[1:] == [4, 4, 4], "the page has all pictures while the first take is measured"


def test_remaining_takes_are_measured_once(make: Callable[..., TakeRows]) -> None:
    measured: list[Any] = []

    def slow(subject: Any) -> float:
        measured.append(subject)
        time.sleep(0.02)
        return 1.0

    work = make(12, (Metric("slow", "s", slow),))
    work.finish()
    assert all(row.figures for row in work.rows)
    assert len(measured) <= 13, "the threads meet at one take"
