from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.formats import encode
from voicelab.audio.samples import Samples
from voicelab.audio.words import WordTime
from voicelab.backend import DEFAULT_MAX_TEXT, SpeechStream, StreamSummary
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_text_length
from voicelab.errors import AudioError, Cancelled, EngineError, RequestInvalid
from voicelab.schema import FORMATS, AudioFormat, TTSRequest

TONES = Capabilities("tones", ("s1", "s2-pro"), "cpu", "exact", "tones-1")


def tone(seconds: float = 0.5) -> Samples:
    return (0.3 * np.sin(2 * np.pi * 220 * np.arange(round(44100 * seconds)) / 44100)).astype(np.float32)


def encoded(request: TTSRequest, samples: Samples, step: int = 4410) -> Generator[bytes, None, None]:
    encoder = StreamEncoder.for_request(request, 44100)
    for begin in range(0, samples.size, step):
        yield encoder.feed(samples[begin : begin + step])
    yield encoder.finish()


def stream(chunks: Iterator[bytes], kind: AudioFormat = "wav", **options: Any) -> SpeechStream:
    return SpeechStream(chunks, call=Call(TTSRequest(text="a", format=kind), "s1"), backend=TONES, **options)


def test_chunks_and_arrival_times() -> None:
    def slow() -> Generator[bytes, None, None]:
        yield b"abc"
        yield b""
        time.sleep(0.05)
        yield b"de"

    speech = stream(slow(), "pcm")
    assert list(speech) == [b"abc", b"de"]
    assert [size for _, size in speech.arrivals] == [3, 2]
    (first_s, _), (second_s, _) = speech.arrivals
    assert 0 <= first_s < 0.04
    assert second_s >= first_s + 0.05
    assert speech.first_audio_s == first_s
    assert speech.complete
    assert list(speech) == []


def test_arrival_times_count_from_the_call() -> None:
    speech = stream(iter([b"ab"]), "pcm", started=time.perf_counter() - 10)
    list(speech)
    assert speech.first_audio_s is not None
    assert 10 <= speech.first_audio_s < 11


def test_wav_header_does_not_count_as_first_audio() -> None:
    speech = stream(iter([bytes(44), b"ab"]), "wav")
    next(speech)
    assert speech.first_audio_s is None
    next(speech)
    assert speech.first_audio_s == speech.arrivals[1][0]


@pytest.mark.parametrize(
    ("kind", "rate", "message"),
    [
        (
            "wav",
            24000,
            r"of the backend 'tones' must be at 44100 Hz, got 24000 Hz: request sample_rate=24000, or encode",
        ),
        ("mp3", 32000, "request sample_rate=32000"),
        ("wav", 22050, "request format='pcm'"),
    ],
)
@pytest.mark.parametrize("size", [7, 100_000])
def test_audio_of_another_rate_is_rejected(kind: AudioFormat, rate: int, message: str, size: int) -> None:
    data = encode(tone(), kind, 44100, rate)
    closed = Mock()
    speech = stream(iter([data[at : at + size] for at in range(0, len(data), size)]), kind, on_close=closed)
    with pytest.raises(AudioError, match=message):
        speech.take()
    assert closed.call_count == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_clip_has_audio_words_notes_and_take(kind: AudioFormat) -> None:
    request = TTSRequest(text="a", format=kind)
    samples = tone()
    words, notes = (WordTime("a", 0.0, 0.5),), ("limited",)
    speech = SpeechStream(
        encoded(request, samples),
        call=Call(request, seed=5),
        backend=TONES,
        summary=lambda: StreamSummary(words, notes),
    )
    assert speech.summary == StreamSummary()
    clip = speech.clip()
    assert clip.rate == request.rate
    assert clip.duration == pytest.approx(0.5, abs=0.03 if kind == "mp3" else 1e-4)
    assert (clip.words, clip.notes) == (words, notes)
    assert clip.take is not None
    take = clip.take
    assert (take.request, take.model, take.backend, take.fingerprint, take.seed) == (
        request,
        "s2-pro",
        "tones",
        "tones-1",
        5,
    )
    assert take.timing.arrivals == speech.arrivals
    assert 0 < take.timing.first_audio_s <= take.timing.total_s
    assert take.timing.total_s >= speech.arrivals[-1][0]


@pytest.mark.parametrize("kind", FORMATS)
def test_pcm_streams_the_samples_of_the_clip(kind: AudioFormat) -> None:
    request = TTSRequest(text="a", format=kind)
    begun: list[int] = []

    def watched() -> Generator[bytes, None, None]:
        for number, chunk in enumerate(encoded(request, tone(2.0))):
            begun.append(number)
            yield chunk

    speech = SpeechStream(watched(), call=Call(request, "s1"), backend=TONES)
    parts = speech.pcm()
    block = next(parts)
    assert block.dtype == np.float32
    assert block.ndim == 1
    assert len(begun) <= 6, "no samples before most of the audio had arrived"
    samples = np.concatenate((block, *parts))
    assert np.array_equal(samples, stream(encoded(request, tone(2.0)), kind).clip().samples)
    assert speech.complete


def test_on_close_is_called_once_after_the_summary() -> None:
    order: list[str] = []

    def summary() -> StreamSummary:
        order.append("summary")
        return StreamSummary(notes=("n",))

    speech = stream(
        encoded(TTSRequest(text="a", format="wav"), tone()), on_close=lambda: order.append("close"), summary=summary
    )
    with speech:
        list(speech)
        speech.close()
    assert order == ["summary", "close"]
    assert speech.summary.notes == ("n",)


def test_closing_early_cancels_and_is_idempotent() -> None:
    closed, ended = Mock(), Mock()

    def endless() -> Generator[bytes, None, None]:
        try:
            while True:
                yield b"ab"
        finally:
            ended()

    speech = stream(endless(), "pcm", on_close=closed, summary=lambda: pytest.fail("summary called without an end"))
    with speech:
        next(speech)
    speech.close()
    assert (closed.call_count, ended.call_count) == (1, 1)
    assert not speech.complete
    with pytest.raises(Cancelled):
        next(speech)
    with pytest.raises(AudioError, match="already read"):
        speech.clip()


def test_closed_unread_stream_raises_cancelled() -> None:
    closed = Mock()
    speech = stream(iter([b"ab"]), "pcm", on_close=closed)
    speech.close()
    assert closed.call_count == 1
    for read in (lambda: next(speech), speech.clip, lambda: list(speech.pcm())):
        with pytest.raises(Cancelled):
            read()


def test_leaving_pcm_early_closes_the_stream() -> None:
    closed = Mock()
    speech = stream(encoded(TTSRequest(text="a", format="wav"), tone(5.0)), on_close=closed)
    parts = speech.pcm()
    next(parts)
    assert isinstance(parts, Generator)
    parts.close()
    assert closed.call_count == 1
    assert len(speech.arrivals) < 5


def test_garbage_collected_stream_is_closed() -> None:
    closed = Mock()
    speech = stream(iter([b"ab"]), "pcm", on_close=closed)
    del speech
    assert closed.call_count == 1


@pytest.mark.parametrize("error", [EngineError("no memory"), RequestInvalid.of("text", "no"), KeyboardInterrupt()])
@pytest.mark.parametrize("read", [list, SpeechStream.clip, lambda speech: list(speech.pcm())])
def test_errors_of_the_source_propagate(error: BaseException, read: Callable[[SpeechStream], Any]) -> None:
    closed = Mock()

    def failing() -> Generator[bytes, None, None]:
        yield bytes(100)
        raise error

    speech = stream(failing(), "pcm", on_close=closed)
    with pytest.raises(type(error)) as caught:
        read(speech)
    assert caught.value is error
    assert closed.call_count == 1
    assert not speech.complete


def test_closing_from_another_thread_cancels_the_reader() -> None:
    waiting, go_on, ended = threading.Event(), threading.Event(), Mock()

    def blocked() -> Generator[bytes, None, None]:
        try:
            yield b"ab"
            waiting.set()
            go_on.wait(10)
            yield b"cd"
        finally:
            ended()

    # Like in a backend, on_close wakes the source.
    speech = stream(blocked(), "pcm", on_close=go_on.set)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list, speech)
        assert waiting.wait(10)
        speech.close()
        assert isinstance(reading.exception(10), Cancelled)
    assert ended.call_count == 1


class Source:
    """Iterator that records whether it was closed while a thread was inside."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.inside = False
        self.closed: list[bool] = []

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self.inside = True
        self.entered.set()
        assert self.go_on.wait(10)
        self.inside = False
        return b"ab"

    def close(self) -> None:
        self.closed.append(self.inside)


def test_source_in_use_is_closed_by_its_reader() -> None:
    # A generator that is closed while another thread runs it may end the process: CPython 3.11 reads a stale frame.
    source = Source()
    speech = stream(source, "pcm")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, speech)
        assert source.entered.wait(10)
        speech.close()
        assert source.closed == []
        source.go_on.set()
        assert isinstance(reading.exception(10), Cancelled)
    assert source.closed
    assert not any(source.closed)


def test_stream_can_be_read_once() -> None:
    speech = stream(encoded(TTSRequest(text="a", format="wav"), tone()))
    next(speech)
    for action in (speech.clip, speech.pcm):
        with pytest.raises(AudioError, match="require an unread stream"):
            action()
    done = stream(encoded(TTSRequest(text="a", format="wav"), tone()))
    done.clip()
    with pytest.raises(AudioError, match="already read"):
        done.clip()


@pytest.mark.parametrize("kind", ["wav", "mp3", "opus"])
def test_truncated_audio_raises(kind: AudioFormat) -> None:
    request = TTSRequest(text="a", format=kind)
    data = b"".join(encoded(request, tone()))
    with pytest.raises(AudioError):
        stream(iter([data[: len(data) // 2 | 1]]), kind).clip()


def test_repr_shows_the_state() -> None:
    speech = stream(iter([b"ab"]), "pcm")
    assert repr(speech) == "SpeechStream(pcm, 44100 Hz, 0 bytes, open)"
    list(speech)
    assert repr(speech) == "SpeechStream(pcm, 44100 Hz, 2 bytes, complete)"
    speech = stream(iter([b"ab"]), "pcm")
    speech.close()
    assert repr(speech) == "SpeechStream(pcm, 44100 Hz, 0 bytes, closed)"


def test_text_above_the_limit_is_rejected() -> None:
    request = TTSRequest(text="ä" * 11)
    check_text_length(request, 11)
    check_text_length(request, None)
    check_text_length(request, DEFAULT_MAX_TEXT)
    with pytest.raises(RequestInvalid) as caught:
        check_text_length(request, 10)
    (item,) = caught.value.errors
    assert item.to_wire()["loc"] == ["body", "text"]
    assert item.to_wire()["ctx"] == "max_length: 10"
