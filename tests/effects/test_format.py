"""format, sample_rate and the bitrates: every listed combination, read from the bytes that the voice gives."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]

from tests.effects.measure import Floats, Voice
from voicelab.audio.decoders import OggReader
from voicelab.audio.mp3 import frame_length
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.schema import MP3_BITRATES, OPUS_BITRATES, RATES, Mp3Bitrate, OpusBitrate

TEXT = "Rice is served."
_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192)
_HERTZ = (44100, 48000, 32000)


@pytest.fixture(scope="module")
def seconds(voice: Voice) -> float:
    return voice.kept(TEXT).duration


def spoken(voice: Voice, **fields: object) -> bytes:
    return b"".join(voice.backend.synthesize(Call(voice.request(TEXT, **fields), seed=1)))


@pytest.mark.parametrize("rate", [None, *RATES["wav"]])
def test_wav(voice: Voice, seconds: float, rate: int | None) -> None:
    data = spoken(voice, format="wav", sample_rate=rate)
    hertz = rate or 44100
    fields = struct.unpack("<4sI4s4sIHHIIHH4sI", data[:44])
    assert fields[0:4] == (b"RIFF", 0xFFFFFFFF, b"WAVE", b"fmt ")
    assert fields[5:11] == (1, 1, hertz, 2 * hertz, 2, 16)  # PCM, mono, rate, bytes a second, a frame, bits
    assert fields[12] == 0xFFFFFFFF
    assert (len(data) - 44) / 2 / hertz == pytest.approx(seconds, abs=0.001)


@pytest.mark.parametrize("rate", [None, *RATES["pcm"]])
def test_pcm(voice: Voice, seconds: float, rate: int | None) -> None:
    data = spoken(voice, format="pcm", sample_rate=rate)
    assert len(data) / 2 / (rate or 44100) == pytest.approx(seconds, abs=0.001)
    assert np.abs(np.frombuffer(data, "<i2")).max() > 1000


@pytest.mark.parametrize("rate", [None, *RATES["mp3"]])
@pytest.mark.parametrize("bitrate", MP3_BITRATES)
def test_mp3(voice: Voice, seconds: float, rate: int | None, bitrate: Mp3Bitrate) -> None:
    data = spoken(voice, format="mp3", sample_rate=rate, mp3_bitrate=bitrate)
    found, at = [], 0
    while at < len(data):
        head = data[at : at + 4]
        found.append((_KBITS[head[2] >> 4], _HERTZ[head[2] >> 2 & 3], head[3] >> 6))
        length = frame_length(head)
        assert length is not None
        at += length
    assert set(found) == {(bitrate, rate or 44100, 3)}  # every frame: constant bitrate, one channel
    # Whole frames: one of information, the encoder's delay of 1105 samples, and the rest of the last one.
    assert 0 <= len(found) * 1152 - seconds * (rate or 44100) < 3 * 1152


@pytest.mark.parametrize("rate", [None, *RATES["opus"]])
@pytest.mark.parametrize("bitrate", OPUS_BITRATES)
def test_opus(voice: Voice, seconds: float, rate: int | None, bitrate: OpusBitrate) -> None:
    data = spoken(voice, format="opus", sample_rate=rate, opus_bitrate=bitrate)
    pages = OggReader().feed(data)
    head = pages[0].packets[0]
    assert head[:8] == b"OpusHead"
    channels, pre_skip, hertz = head[9], *struct.unpack_from("<HI", head, 10)
    assert (channels, hertz) == (1, 48000)
    assert (pages[-1].granule - pre_skip) / 48000 == pytest.approx(seconds, abs=0.001)
    assert pages[-1].last
    heard, _ = soundfile.read(io.BytesIO(data))
    assert heard.ndim == 1


def test_more_bits_are_more_bytes(voice: Voice) -> None:
    mp3 = [len(spoken(voice, format="mp3", mp3_bitrate=rate)) for rate in sorted(MP3_BITRATES)]
    assert [size / mp3[0] for size in mp3] == pytest.approx([1, 2, 3], rel=0.05)
    opus = [len(spoken(voice, format="opus", opus_bitrate=rate)) for rate in (24, 32, 48, 64)]
    assert opus == sorted(opus)
    assert opus[-1] > 1.5 * opus[0]


def test_each_format_holds_the_same_speech(voice: Voice) -> None:
    """The level over time is the same wherever it is read back, up to what the narrowest of them holds."""
    plain = voice.kept(TEXT)

    def levels(clip: Clip) -> Floats:
        samples, step = clip.resample(16_000).samples, 1600
        whole = samples[: samples.size // step * step].reshape(-1, step)
        found: Floats = 20 * np.log10(np.sqrt(np.mean(np.square(whole), axis=1)) + 1e-3)
        return found

    for fields in ({"format": "wav", "sample_rate": 16000}, {"format": "mp3"}, {"format": "opus"}):
        clip = voice.say(TEXT, **fields)
        mine, theirs = levels(clip), levels(plain)
        shared = min(mine.size, theirs.size)
        assert np.abs(mine[:shared] - theirs[:shared]).mean() < 1.5
