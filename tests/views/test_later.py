from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from voicelab.views.later import Later


def test_many_wishes_are_one_call() -> None:
    calls: list[bool] = []
    later = Later(lambda wanted: calls.append(wanted()), delay=0.05)
    for _ in range(20):
        later.ask()
    assert later.settled(5)
    assert calls == [True]
    later.ask()
    assert later.settled(5)
    assert calls == [True, True]


def test_a_wish_during_the_work_makes_it_unwanted_and_is_worked_on_after() -> None:
    begun, go = threading.Event(), threading.Event()
    calls: list[bool] = []

    def work(wanted: Callable[[], bool]) -> None:
        begun.set()
        go.wait(5)
        calls.append(wanted())

    later = Later(work, delay=0.01)
    later.ask()
    assert begun.wait(5)
    later.ask()
    go.set()
    assert later.settled(5)
    assert calls == [False, True]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_fails_can_be_wished_for_again() -> None:
    calls: list[bool] = []

    def work(wanted: Callable[[], bool]) -> None:
        calls.append(wanted())
        if len(calls) == 1:
            raise ValueError("the first time")

    later = Later(work, delay=0.01)
    for count in (1, 2):
        later.ask()
        assert later.settled(5)
        assert len(calls) == count


def test_closing_leaves_nothing_running() -> None:
    calls: list[bool] = []
    later = Later(lambda wanted: calls.append(wanted()), delay=5)
    later.ask()
    later.close()
    for thread in threading.enumerate():
        if thread.name == "voicelab-later":
            thread.join(5)
            assert not thread.is_alive()
    later.ask()
    assert calls == []
