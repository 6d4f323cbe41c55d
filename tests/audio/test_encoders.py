from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.sounds import babble, encoded, random_chunks, vowel
from tests.interface.containers import mpeg
from voicelab.audio.decoders import OggReader
from voicelab.audio.encoders import StreamEncoder, wav_header
from voicelab.audio.samples import resample
from voicelab.errors import AudioError
from voicelab.schema import FORMATS, MP3_BITRATES, OPUS_BITRATES, RATES, AudioFormat

ANY_RATE = [(kind, rate) for kind in FORMATS for rate in RATES[kind]]
# Maximum seconds of input before the first bytes with audio, without resampling.
FIRST_S = {"wav": 0.02, "pcm": 0.02, "mp3": 0.08, "opus": 0.21}
HEADER = {"wav": 44, "pcm": 0, "mp3": 0, "opus": 97}


@pytest.mark.parametrize(("kind", "rate"), ANY_RATE)
def test_libsndfile_decodes_the_encoded_audio(kind: AudioFormat, rate: int) -> None:
    samples = vowel(120, 24000, 1.0)
    data = encoded(samples, kind, 24000, sample_rate=rate)
    expected = resample(samples, 24000, rate)
    if kind == "pcm":
        output, output_rate = np.frombuffer(data, "<i2") / 32768, rate
    else:
        output, output_rate = soundfile.read(io.BytesIO(data))
    assert output.ndim == 1
    assert output_rate == rate
    # libsndfile keeps the delay of a streamed MP3 and the padding of its last frame.
    shift = 1105 if kind == "mp3" else 0
    assert 0 <= output.size - shift - expected.size < (1152 if kind == "mp3" else 1)
    output = output[shift : shift + expected.size]
    error = np.sqrt(np.mean((output - expected) ** 2))
    if kind in ("wav", "pcm"):
        assert error < 1 / 32768
    else:
        # Below 64 kbit/s libopus uses SILK, a speech model that preserves the waveform less.
        assert np.corrcoef(output, expected)[0, 1] > (0.995 if kind == "mp3" else 0.9)


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=15)
@given(source=st.sampled_from([24000, 44100, 48000]), seed=st.integers(0, 99), max_size=st.integers(1, 4000))
def test_encoding_is_independent_of_block_sizes(kind: AudioFormat, source: int, seed: int, max_size: int) -> None:
    samples = babble(source, 0.3, seed)
    encoder = StreamEncoder(kind, source)
    parts = [encoder.feed(samples[begin:end]) for begin, end in random_chunks(samples.size, seed, max_size)]
    assert b"".join(parts) + encoder.finish() == encoded(samples, kind, source)


@pytest.mark.parametrize(("kind", "rate"), ANY_RATE)
def test_latency_of_the_first_audio_bytes(kind: AudioFormat, rate: int) -> None:
    samples = babble(rate, 1.0)
    step = rate // 100
    encoder = StreamEncoder(kind, rate, rate)
    outputs = ((begin + step, encoder.feed(samples[begin : begin + step])) for begin in range(0, samples.size, step))
    fed, data = next(output for output in outputs if output[1])
    assert fed / rate <= FIRST_S[kind]
    # Audio follows the header.
    assert len(data) > HEADER[kind] + 4


@pytest.mark.parametrize(
    ("kind", "source", "max_s"), [("opus", 44100, 0.25), ("wav", 24000, 0.08), ("mp3", 24000, 0.13)]
)
def test_latency_of_the_first_bytes_with_resampling(kind: AudioFormat, source: int, max_s: float) -> None:
    samples = babble(source, 1.0)
    encoder = StreamEncoder(kind, source)
    step = source // 100
    fed = next(begin + step for begin in range(0, samples.size, step) if encoder.feed(samples[begin : begin + step]))
    assert fed / source <= max_s


def test_wav_header_of_known_size() -> None:
    assert struct.unpack("<I", wav_header(8000, 200)[4:8]) == (236,)
    assert struct.unpack("<I", wav_header(8000, 200)[40:44]) == (200,)
    with pytest.raises(AudioError, match="4 GiB"):
        wav_header(8000, 2**32)


@pytest.mark.parametrize("rate", RATES["mp3"])
@pytest.mark.parametrize("bitrate", MP3_BITRATES)
def test_mp3_has_the_requested_bitrate_and_unity_gain(rate: int, bitrate: int) -> None:
    samples = vowel(120, rate, 1.0)
    data = encoded(samples, "mp3", rate, sample_rate=rate, mp3_bitrate=bitrate)
    frames = mpeg(data)
    assert len(frames) > rate // 1152
    assert set(frames) == {(bitrate, rate, True)}
    output, _ = soundfile.read(io.BytesIO(data))
    gain = float(output[1105:][: samples.size] @ samples) / float(samples @ samples)
    assert abs(20 * np.log10(gain)) < 0.05


@pytest.mark.parametrize("bitrate", OPUS_BITRATES)
def test_opus_bitrate_is_near_the_requested_one(bitrate: int) -> None:
    noise = (0.1 * np.random.default_rng(0).standard_normal(48000 * 5)).astype(np.float32)
    # Unconstrained VBR exceeds the target bitrate on pitched sounds.
    for samples, tolerance in ((noise, 0.15), *([(vowel(140.0, 48000, 4.0), 0.2)] if bitrate > 0 else [])):
        kbits = len(encoded(samples, "opus", 48000, opus_bitrate=bitrate)) * 8 / (samples.size / 48)
        assert kbits == pytest.approx(51 if bitrate < 0 else bitrate, rel=tolerance)


def test_opus_is_mono_in_pages_of_100_ms() -> None:
    data = encoded(np.zeros(48000, np.float32), "opus", 48000)
    pages = OggReader().feed(data)
    head = pages[0].packets[0]
    assert (head[:8], head[9]) == (b"OpusHead", 1)
    (pre_skip, rate) = struct.unpack_from("<HI", head, 10)
    assert rate == 48000
    steps = np.diff([page.granule for page in pages[1:]])
    assert steps.max() <= 4800
    assert pages[-1].last
    assert pages[-1].granule == 48000 + pre_skip


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("length", [0, 1, 46, 47, 48, 959, 960, 1152, 2305])
def test_encoded_length(kind: AudioFormat, length: int) -> None:
    rate = 48000 if kind == "opus" else 44100
    data = encoded(np.zeros(length, np.float32), kind, rate)
    if kind in ("wav", "pcm"):
        assert len(data) == HEADER[kind] + 2 * length
    elif kind == "opus":
        pages = OggReader().feed(data)
        assert pages[-1].granule - 312 == max(1, length)
    else:
        frames = len(mpeg(data)) - 1
        assert 0 <= frames * 1152 - 1105 - length < 1152


def test_samples_beyond_full_scale_are_clipped() -> None:
    loud = np.array([1.5, -1.5, 1.0], np.float32)
    assert np.frombuffer(encoded(loud, "pcm", 44100), "<i2").tolist() == [32767, -32768, 32767]
    for kind in ("mp3", "opus"):
        rate = 48000 if kind == "opus" else 44100
        square = np.where(np.arange(rate // 2) // 100 % 2, 1.0, -1.0).astype(np.float32)
        assert encoded(4 * square, kind, rate) == encoded(square, kind, rate)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"format": "flac"}, "format"),
        ({"source_rate": 0}, "source_rate"),
        ({"source_rate": 44100.0}, "source_rate"),
        ({"sample_rate": 8000}, "sample_rate"),
        ({"sample_rate": -1, "format": "wav"}, "sample_rate"),
        ({"format": "opus", "sample_rate": 44100}, "sample_rate"),
        ({"mp3_bitrate": 96}, "mp3_bitrate"),
        ({"opus_bitrate": 96}, "opus_bitrate"),
    ],
)
def test_invalid_arguments_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(AudioError, match=f"^{field} (of mp3 |of opus )?must be "):
        StreamEncoder(**{"format": "mp3", "source_rate": 44100, **options})


@pytest.mark.parametrize("kind", FORMATS)
def test_rejected_samples_leave_the_encoder_unchanged(kind: AudioFormat) -> None:
    rate = 48000 if kind == "opus" else 44100
    encoder = StreamEncoder(kind, rate)
    for wrong in (np.array([np.nan]), np.array([[0.0]]), np.array([1])):
        with pytest.raises(AudioError, match="samples"):
            encoder.feed(wrong)
    samples = np.zeros(5000, np.float32)
    assert encoder.feed(samples) + encoder.finish() == encoded(samples, kind, rate)
