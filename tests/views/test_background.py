from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from voicelab.views.background import Debouncer, Task


def wait_for_threads() -> None:
    """Wait until no thread of a debouncer runs, so that its uncaught error belongs to the test that raised it."""
    for thread in threading.enumerate():
        if thread.name == "voicelab-debouncer":
            thread.join(5)
            assert not thread.is_alive()


def test_task_passes_errors_to_its_callback_and_waits() -> None:
    errors: list[Exception] = []
    assert Task(lambda: 1 / 0, name="test", failed=errors.append).start().wait(5)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    go = threading.Event()
    task = Task(lambda: go.wait(5), name="test").start()
    assert (task.running, task.wait(0.01)) == (True, False)
    go.set()
    assert task.wait(5)


def test_debouncer_reruns_after_a_request_during_work() -> None:
    begun, go = threading.Event(), threading.Event()
    calls: list[bool] = []

    def work(wanted: Callable[[], bool]) -> None:
        begun.set()
        go.wait(5)
        calls.append(wanted())

    debouncer = Debouncer(work, delay=0.01)
    debouncer.ask()
    assert begun.wait(5)
    debouncer.ask()
    go.set()
    assert debouncer.settled(5)
    assert calls == [False, True]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_debouncer_works_after_an_error() -> None:
    calls: list[bool] = []

    def work(wanted: Callable[[], bool]) -> None:
        calls.append(wanted())
        if len(calls) == 1:
            raise ValueError("the first time")

    debouncer = Debouncer(work, delay=0.01)
    for count in (1, 2):
        debouncer.ask()
        assert debouncer.settled(5)
        assert len(calls) == count
        wait_for_threads()


def test_closed_debouncer_leaves_no_threads() -> None:
    calls: list[bool] = []
    debouncer = Debouncer(lambda wanted: calls.append(wanted()), delay=5)
    debouncer.ask()
    debouncer.close()
    wait_for_threads()
    debouncer.ask()
    assert calls == []
