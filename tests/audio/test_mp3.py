from __future__ import annotations

import io

import av
import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]

from tests.audio.sounds import encoded, vowel
from voicelab.audio.formats import encode
from voicelab.audio.mp3 import MP3_DELAY, Mp3Info, frame_length, info_frame, read_info, with_exact_info
from voicelab.audio.samples import Samples

LENGTHS = [5000, 44100, 44147, 44148]


def decode_with_ffmpeg(data: bytes) -> Samples:
    with av.open(io.BytesIO(data), "r", format="mp3") as source:
        return np.concatenate([frame.to_ndarray()[0] for frame in source.decode(audio=0)])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("bitrate", [64, 192])
def test_other_decoders_remove_delay_and_padding(length: int, bitrate: int) -> None:
    samples = vowel(130, 44100, 2.0)[:length]
    data = encode(samples, "mp3", 44100, mp3_bitrate=bitrate)
    for output in (soundfile.read(io.BytesIO(data))[0], decode_with_ffmpeg(data)):
        assert output.size == length
        assert np.corrcoef(output, samples)[0, 1] > 0.99


def test_information_frame_of_stream_and_file() -> None:
    data = encoded(np.zeros(10_000, np.float32), "mp3", 44100)
    assert read_info(data[:417]) == Mp3Info(skip=MP3_DELAY, length=None)
    assert read_info(with_exact_info(data, 10_000)[:417]) == Mp3Info(skip=MP3_DELAY, length=10_000)
    assert len(with_exact_info(data, 10_000)) == len(data)
    # The next frame is audio.
    assert read_info(data[417:834]) is None


def test_information_frame_matches_its_stream() -> None:
    data = encoded(np.zeros(10_000, np.float32), "mp3", 32000, sample_rate=32000, mp3_bitrate=64)
    frame = info_frame(data[288:])
    assert data[:288] == frame
    assert len(frame) == 144000 * 64 // 32000
    # LAME's checksum is a CRC-16 (polynomial 0x8005, reflected) of the preceding bytes.
    end = frame.index(b"LAME") + 34
    value = 0
    for byte in frame[:end]:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
    assert int.from_bytes(frame[end : end + 2], "big") == value


@pytest.mark.parametrize("frame", [b"", b"\xff\xfb", b"\xff\xfb\x90\xc4" + bytes(17) + b"Info", bytes(400)])
def test_frame_without_tag_has_no_info(frame: bytes) -> None:
    assert read_info(frame) is None


def test_xing_tag_without_lame_fields() -> None:
    bare = b"\xff\xfb\x90\xc4" + bytes(17) + b"Xing" + bytes(300)
    assert read_info(bare) == Mp3Info(skip=0, length=None)


@pytest.mark.parametrize(
    ("header", "length"),
    [
        ("fffb90c4", 417),
        ("fffb92c4", 418),
        ("fffb98c4", 576),
        ("fff380c4", 208),
        ("ffe350c4", 261),
        ("fffb00c4", None),
        ("fffbf0c4", None),
        ("fffb9cc4", None),
        ("ffeb90c4", None),
        ("fffd90c4", None),
        ("49443304", None),
        ("fffb90", None),
    ],
)
def test_frame_lengths(header: str, length: int | None) -> None:
    assert frame_length(bytes.fromhex(header)) == length
