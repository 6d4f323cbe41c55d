from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from tests.tones import ToneBackend
from voicelab.audio.clip import Clip
from voicelab.audio.samples import Samples
from voicelab.backend import SpeechStream
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.lab import Lab
from voicelab.views.job import Arrival, SpeechJob

TEXT = "Twelve notes"


class Log:
    """Keeps what a job tells, and which thread told it."""

    def __init__(self) -> None:
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


def test_what_arrives_is_the_clip_and_comes_from_another_thread() -> None:
    lab, log = Lab(ToneBackend()), Log()
    assert SpeechJob(lambda: lab.stream(TEXT, seed=1), log).wait(20)
    whole = lab.speak(TEXT, seed=1)
    assert log.clip == whole
    assert np.array_equal(np.concatenate(log.parts), whole.samples)
    assert log.rate == whole.rate
    assert sum(count for _, count in log.arrivals) == len(whole)
    assert [seconds for seconds, _ in log.arrivals] == sorted(seconds for seconds, _ in log.arrivals)
    assert threading.get_ident() not in log.threads
    assert log.clip is not None
    provenance = log.clip.provenance
    assert provenance is not None
    assert whole.provenance is not None
    assert (provenance.request, provenance.seed) == (whole.provenance.request, 1)
    assert 0 < provenance.timing.first_audio_s <= provenance.timing.total_s


def test_the_first_audio_is_told_at_once_and_the_rest_at_most_20_times_a_second() -> None:
    started = time.monotonic()
    log = Log()
    lab = Lab(ToneBackend(lambda _: time.sleep(0.01)))
    job = SpeechJob(lambda: lab.stream("x" * 60), log)
    assert log.heard.wait(10)
    assert job.running
    assert job.wait(20)
    took = time.monotonic() - started
    assert len(log.parts) <= took * 20 + 4
    assert len(log.parts) > 3


def test_cancel_stops_the_backend() -> None:
    gate = threading.Event()
    backend = ToneBackend(lambda number: gate.wait(20) if number == 3 else None)
    log = Log()
    job = SpeechJob(lambda: Lab(backend).stream(TEXT), log)
    assert log.heard.wait(10)
    job.cancel()
    gate.set()
    assert job.wait(20)
    assert isinstance(log.error, Cancelled)
    assert log.clip is None
    assert backend.open == 0
    job.cancel()


def test_cancel_before_the_stream_is_there() -> None:
    entered, gate, log = threading.Event(), threading.Event(), Log()
    backend = ToneBackend()

    def start() -> SpeechStream:
        entered.set()
        gate.wait(20)
        return Lab(backend).stream(TEXT)

    job = SpeechJob(start, log)
    assert entered.wait(10)
    job.cancel()
    gate.set()
    assert job.wait(20)
    assert isinstance(log.error, Cancelled)
    assert (log.parts, backend.open) == ([], 0)


def test_an_error_in_mid_speech_is_told() -> None:
    class BrokenError(Exception):
        pass

    def step(number: int) -> None:
        if number == 4:
            raise BrokenError

    log = Log()
    assert SpeechJob(lambda: Lab(ToneBackend(step)).stream(TEXT), log).wait(20)
    assert isinstance(log.error, BrokenError)
    assert log.clip is None


def test_a_refused_request_is_told() -> None:
    log = Log()
    assert SpeechJob(lambda: Lab(ToneBackend()).stream(" "), log).wait(20)
    assert isinstance(log.error, RequestInvalid)
