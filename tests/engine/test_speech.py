"""Speech that ends before its text does is an error, never a shorter clip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.tiny import voice, write_weights
from voicelab.call import Call
from voicelab.engine.core.decoding import Samples
from voicelab.engine.core.sequence import Codes, Frame, Sequence, Settings
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer.family import split_long
from voicelab.engine.pointer.numpy_codec import LAG, NumpyStream
from voicelab.engine.speech import BLOCK_FRAMES, Speech
from voicelab.errors import Cancelled, EngineError
from voicelab.schema import LATENCIES, Latency, TTSRequest

HOP = 2048
TEXT = "One dog barks at the moon tonight and the cats of this long street answer. " * 6


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LocalBackend]:
    with LocalBackend("cpu", weights=write_weights(tmp_path / "tiny.safetensors"), rows=2) as made:
        yield made


def _speech(backend: LocalBackend, **fields: object) -> Speech:
    request = TTSRequest.build(text=TEXT, **{"chunk_length": 100, **fields})
    return Speech(backend._models.parts("s2-pro"), Call(request), lambda: voice(1), 1)


@pytest.mark.parametrize("conditioned", [True, False])
def test_frames_that_end_early_are_an_error(
    backend: LocalBackend, conditioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Sequence.put

    def without_a_reason(self: Sequence, item: Frame | BaseException | None) -> None:
        put(self, None if isinstance(item, Frame) and item.codes is None else item)

    monkeypatch.setattr(Sequence, "put", without_a_reason)
    with pytest.raises(EngineError, match="ended before the end of the text"):
        list(_speech(backend, condition_on_previous_chunks=conditioned, latency="low").audio())


def test_less_audio_than_frames_is_an_error(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = NumpyStream.feed

    def shorter(self: NumpyStream, codes: Codes, final: bool = False) -> Samples:
        return feed(self, codes, final)[: -1 if final else None]

    monkeypatch.setattr(NumpyStream, "feed", shorter)
    with pytest.raises(EngineError, match="decoded length"):
        list(_speech(backend).audio())


@pytest.mark.parametrize("latency", LATENCIES)
def test_blocks_arrive_in_time_for_playback(latency: Latency) -> None:
    """At a real-time factor of 0.97 and a player that buffers 20 to 100 ms, no block is late."""
    frame, rtf, sizes = HOP / 44_100, 0.97, [*BLOCK_FRAMES[latency], *[BLOCK_FRAMES[latency][-1]] * 50]
    open_end = LAG / 44_100
    made = sizes[0]
    heard_from = rtf * made * frame + max(0.1 - (made * frame - open_end), 0.02)
    for size in sizes[1:]:
        made += size
        assert rtf * made * frame <= heard_from + (made - size) * frame - open_end


def test_independent_segments_are_submitted_in_batches(backend: LocalBackend) -> None:
    """A long text is submitted one batch ahead of the reader."""
    speech = _speech(backend, condition_on_previous_chunks=False)
    assert len(speech._sequences) == 2
    audio = speech.audio()
    next(audio)
    assert len(speech._sequences) == 4
    list(audio)
    assert len(speech._sequences) == 6


def test_cancelled_speech_submits_no_more_segments(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another thread cancels during submission."""
    speech = _speech(backend, condition_on_previous_chunks=False)

    def meanwhile(*arguments: float) -> Settings:
        speech.cancel()
        return Settings(*arguments)

    monkeypatch.setattr("voicelab.engine.speech.Settings", meanwhile)
    with pytest.raises(Cancelled):
        list(speech.audio())
    assert len(speech._sequences) == 4
    assert all(sequence.cancelled for sequence in speech._sequences)


def test_chinese_is_split_in_shorter_segments() -> None:
    """A character is a syllable, so the English limit would exceed max_new_tokens."""
    text = "我们今天去学校, " * 50
    found = split_long(text)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert max(map(len, found)) <= 160
    assert split_long("dogs bark, " * 50) == ("dogs bark, " * 50,)
