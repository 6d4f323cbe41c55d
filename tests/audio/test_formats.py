from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from voicelab.audio.formats import StreamDecoder, StreamEncoder, decode, encode
from voicelab.audio.samples import SILENT, Samples, resample
from voicelab.errors import AudioError
from voicelab.schema import FORMATS, AudioFormat


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("source", [24000, 44100, 48000])
def test_a_file_is_as_long_as_its_samples(kind: AudioFormat, source: int, babble: Callable[..., Samples]) -> None:
    samples = babble(source, 0.51)
    data = encode(samples, kind, source)
    heard, rate = decode(data, kind)
    assert heard.size == resample(samples, source, rate).size


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_sounds_like_the_stream(kind: AudioFormat, babble: Callable[..., Samples]) -> None:
    samples = babble(44100, 0.5)
    encoder = StreamEncoder(kind, 44100)
    stream = encoder.feed(samples) + encoder.finish()
    decoder = StreamDecoder(kind)
    streamed = np.concatenate((decoder.feed(stream), decoder.finish()))
    heard, _ = decode(encode(samples, kind, 44100), kind)
    assert np.array_equal(streamed[: heard.size], heard)


def test_a_wav_file_has_exact_sizes() -> None:
    data = encode(np.zeros(1000, np.float32), "wav", 44100)
    assert struct.unpack("<I", data[4:8]) == (len(data) - 8,)
    assert struct.unpack("<I", data[40:44]) == (2000,)


@pytest.mark.parametrize("kind", FORMATS)
def test_no_samples_are_a_file_too(kind: AudioFormat) -> None:
    heard, _ = decode(encode(SILENT, kind, 48000), kind)
    # Ogg cannot tell an empty stream from one that was cut off, so it holds one sample of silence.
    assert heard.size == (kind == "opus")


def test_wrong_samples_are_refused() -> None:
    with pytest.raises(AudioError, match="shape"):
        encode(np.zeros((1, 2), np.float32), "wav", 44100)
