from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.tones import ToneBackend
from voicelab.audio.samples import Samples
from voicelab.backend import SpeechStream
from voicelab.clip import Clip
from voicelab.lab import Lab
from voicelab.views.background import Arrival, Debouncer, SpeechTask, Task

TEXT = "Twelve notes"


class Log(SpeechTask):
    """Keeps what a task reports, and in which thread."""

    def __init__(self, stream: Callable[[], SpeechStream]) -> None:
        super().__init__(stream)
        self.rate = 0
        self.parts: list[Samples] = []
        self.arrivals: list[Arrival] = []
        self.clip: Clip | None = None
        self.error: Exception | None = None
        self.threads: set[int] = set()
        self.heard = threading.Event()

    def began(self, rate: int) -> None:
        self.rate = rate

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        self.threads.add(threading.get_ident())
        self.parts.append(samples)
        self.arrivals += arrivals
        self.heard.set()

    def finished(self, clip: Clip) -> None:
        self.clip = clip

    def failed(self, error: Exception) -> None:
        self.error = error


def done(stream: Callable[[], SpeechStream]) -> Log:
    log = Log(stream).start()
    assert log.wait(20)
    return log


def test_what_arrives_is_the_clip_and_comes_from_another_thread() -> None:
    lab = Lab(ToneBackend())
    log = done(lambda: lab.stream(TEXT, seed=1))
    whole = lab.speak(TEXT, seed=1)
    assert log.clip == whole
    assert np.array_equal(np.concatenate(log.parts), whole.samples)
    assert log.rate == whole.rate
    assert sum(count for _, count in log.arrivals) == len(whole)
    assert [seconds for seconds, _ in log.arrivals] == sorted(seconds for seconds, _ in log.arrivals)
    assert threading.get_ident() not in log.threads
    assert log.clip is not None
    take = log.clip.take
    assert take is not None
    assert whole.take is not None
    assert (take.request, take.seed) == (whole.take.request, 1)
    assert 0 < take.timing.first_audio_s <= take.timing.total_s


def test_a_task_reports_its_error_and_is_waited_for() -> None:
    errors: list[Exception] = []
    assert Task(lambda: 1 / 0, name="test", failed=errors.append).start().wait(5)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    go = threading.Event()
    task = Task(lambda: go.wait(5), name="test").start()
    assert (task.running, task.wait(0.01)) == (True, False)
    go.set()
    assert task.wait(5)


def test_a_call_during_the_work_makes_it_unwanted_and_is_done_after() -> None:
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
def test_work_that_fails_can_be_asked_for_again() -> None:
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


def test_a_closed_debouncer_leaves_nothing_running() -> None:
    calls: list[bool] = []
    debouncer = Debouncer(lambda wanted: calls.append(wanted()), delay=5)
    debouncer.ask()
    debouncer.close()
    for thread in threading.enumerate():
        if thread.name == "voicelab-debouncer":
            thread.join(5)
            assert not thread.is_alive()
    debouncer.ask()
    assert calls == []
