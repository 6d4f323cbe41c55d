from __future__ import annotations

import struct
import tracemalloc
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.sounds import babble, decoded, encoded, libsndfile_bytes, random_chunks, vowel
from voicelab.audio.decoders import OggReader, StreamDecoder
from voicelab.audio.formats import encode
from voicelab.audio.samples import NO_SAMPLES, resample, to_int16
from voicelab.errors import AudioError
from voicelab.schema import FORMATS, RATES, AudioFormat

ANY_RATE = [(kind, rate) for kind in FORMATS for rate in RATES[kind]]


@pytest.mark.parametrize(("kind", "rate"), ANY_RATE)
def test_encode_decode_round_trip(kind: AudioFormat, rate: int) -> None:
    samples = vowel(120, rate, 1.01)
    output = decoded(encoded(samples, kind, rate, sample_rate=rate), kind, rate)
    assert output.dtype == np.float32
    if kind in ("wav", "pcm"):
        assert np.array_equal(to_int16(output), to_int16(samples))
        return
    # Opus states its length; an MP3 stream states only its delay, and pads its last frame.
    assert 0 <= output.size - samples.size < (1152 if kind == "mp3" else 1)
    assert np.corrcoef(output[: samples.size], samples)[0, 1] > (0.995 if kind == "mp3" else 0.9)


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 99), max_size=st.integers(1, 3000))
def test_decoding_is_independent_of_chunk_sizes(kind: AudioFormat, seed: int, max_size: int) -> None:
    rate = 48000 if kind == "opus" else 44100
    data = encoded(babble(rate, 0.3, seed), kind, rate)
    decoder = StreamDecoder(kind)
    blocks = [decoder.feed(data[begin:end]) for begin, end in random_chunks(len(data), seed, max_size)]
    assert np.array_equal(np.concatenate([*blocks, decoder.finish()]), decoded(data, kind))


@pytest.mark.parametrize(("kind", "rate"), ANY_RATE)
def test_decoding_latency_is_below_0_2_s(kind: AudioFormat, rate: int) -> None:
    data = encoded(babble(rate, 2.0), kind, rate, sample_rate=rate)
    decoder = StreamDecoder(kind, rate)
    output = 0
    for offset in range(0, len(data), 64):
        output += decoder.feed(data[offset : offset + 64]).size
        # At most 0.2 s behind the bytes that have arrived, by the average bitrate.
        assert output / rate >= 2.0 * offset / len(data) - 0.2
    assert output / rate > 1.9


FORM = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)
"""The fmt chunk of a 16-bit WAV at 16 kHz."""


def wav_of(body: bytes, size: int, form: bytes = FORM, *, file_size: int = 0, extra: bytes = b"") -> bytes:
    """Build a WAV file with extra chunks and arbitrary size fields."""
    chunk = b"fmt " + struct.pack("<I", len(form)) + form
    return (
        b"RIFF"
        + struct.pack("<I", file_size)
        + b"WAVE"
        + extra
        + chunk
        + extra
        + b"data"
        + struct.pack("<I", size)
        + body
    )


def test_wav_header_variants_are_decoded() -> None:
    samples = babble(16000, 0.2)
    data = to_int16(samples).tobytes()
    extensible = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16000, 32000, 2, 16, 22, 16, 4) + struct.pack("<H", 1) + bytes(14)
    extra = b"LIST" + struct.pack("<I", 5) + b"hello\0"
    for form in (FORM, extensible):
        for size in (0xFFFFFFFF, 0x7FFFFFFF, len(data)):
            trailer = b"LIST\4\0\0\0tags" if size == len(data) else b""
            wav = wav_of(data + trailer, size, form, extra=extra)
            assert np.array_equal(to_int16(decoded(wav, "wav", 16000)), to_int16(samples))


@pytest.mark.parametrize("file_size", [0, 36, 0xFFFFFFFF])
def test_wav_with_data_size_zero_is_decoded_to_its_end(file_size: int) -> None:
    samples = babble(16000, 0.2)
    wav = wav_of(to_int16(samples).tobytes(), 0, file_size=file_size)
    assert np.array_equal(to_int16(decoded(wav, "wav", 16000)), to_int16(samples))
    decoder = StreamDecoder("wav", 16000)
    output = [decoder.feed(wav[at : at + 7]) for at in range(0, len(wav), 7)]
    assert np.array_equal(to_int16(np.concatenate([*output, decoder.finish()])), to_int16(samples))


def test_wav_chunks_after_an_empty_data_chunk_are_ignored() -> None:
    assert decoded(wav_of(b"LIST\4\0\0\0tags", 0, file_size=48), "wav", 16000).size == 0


def test_stereo_is_averaged() -> None:
    left, right = babble(44100, 0.3, 1), babble(44100, 0.3, 2)
    output = decoded(libsndfile_bytes(np.stack((left, right), axis=1), 44100), "wav")
    assert np.abs(output - (left + right) / 2).max() < 1.1 / 32768


def test_stream_of_another_rate_is_resampled() -> None:
    samples = vowel(120, 16000, 0.5)
    decoder = StreamDecoder("wav", 44100)
    output = np.concatenate((decoder.feed(encoded(samples, "wav", 16000, sample_rate=16000)), decoder.finish()))
    assert decoder.source_rate == 16000
    assert np.abs(output - resample(samples, 16000, 44100)).max() < 1e-4


@pytest.mark.parametrize("count", [1, 3])
def test_id3_tags_before_an_mp3_are_skipped(count: int) -> None:
    samples = vowel(120, 44100, 0.5)
    data = encoded(samples, "mp3", 44100)
    picture = b"\xff\xfb\x90\xc4" * 100
    tag = b"ID3\4\0\0" + bytes((0, 0, len(picture) >> 7, len(picture) & 127)) + picture
    decoder = StreamDecoder("mp3")
    tagged = tag * count + data
    blocks = [decoder.feed(tagged[at : at + 13]) for at in range(0, len(tagged), 13)]
    assert np.array_equal(np.concatenate([*blocks, decoder.finish()]), decoded(data, "mp3"))


def test_large_id3_tag_is_skipped_in_constant_memory() -> None:
    data = encoded(np.zeros(5000, np.float32), "mp3", 44100)
    decoder = StreamDecoder("mp3")
    decoder.feed(b"ID3\4\0\0" + bytes((127, 127, 127, 127)))
    chunk_of_zeros = bytes(2**16)
    tracemalloc.start()
    for _ in range(2**12 - 1):
        decoder.feed(chunk_of_zeros)
    decoder.feed(chunk_of_zeros[:-1])
    current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20, f"a tag of 256 MiB took {peak} bytes at the peak and {current} at the end"
    assert np.array_equal(np.concatenate((decoder.feed(data), decoder.finish())), decoded(data, "mp3"))


def test_mp3_without_information_frame_keeps_its_delay() -> None:
    samples = vowel(120, 44100, 0.5)
    data = encoded(samples, "mp3", 44100)[417:]
    output = decoded(data, "mp3")
    assert output.size % 1152 == 0
    assert np.corrcoef(output[1105 : 1105 + samples.size], samples)[0, 1] > 0.995


@pytest.mark.parametrize("kind", ["wav", "mp3", "opus"])
def test_decoded_samples_are_within_full_scale(kind: AudioFormat) -> None:
    rate = 48000 if kind == "opus" else 44100
    square = np.where(np.arange(rate) // 50 % 2, 1.0, -1.0).astype(np.float32)
    output = decoded(encoded(square, kind, rate), kind)
    assert np.abs(output).max() <= 1.0


@pytest.mark.parametrize("kind", FORMATS)
def test_truncated_stream_raises(kind: AudioFormat) -> None:
    rate = 48000 if kind == "opus" else 44100
    data = encoded(babble(rate, 0.5), kind, rate)
    cuts = {"wav": [0, 10, 43, len(data) - 1], "pcm": [len(data) - 1], "opus": range(0, len(data), 97)}
    for cut in cuts.get(kind, [0, 3, 430, 500, len(data) - 100]):
        with pytest.raises(AudioError):
            decoded(data[:cut], kind)


def test_truncated_wav_of_known_length_raises() -> None:
    data = libsndfile_bytes(np.zeros(1000), 44100)
    for cut in range(0, 2044, 100):
        with pytest.raises(AudioError, match="cut off"):
            decoded(data[:cut], "wav")


@pytest.mark.parametrize("kind", ["wav", "mp3", "opus"])
@pytest.mark.parametrize(
    "data",
    [
        b"not audio at all, but a sentence that is long enough to be one" * 10,
        b"ffconcat version 1.0\nfile '/etc/hostname'\n",
        b"#EXTM3U\nhttp://127.0.0.1:9/a.mp3\n",
        b"<html>" * 500,
        bytes(5000),
        b"\xff" * 5000,
        b'{"status": 500, "message": "no audio"}',
    ],
    ids=lambda data: repr(data[:12]),
)
def test_other_data_raise(kind: AudioFormat, data: bytes) -> None:
    with pytest.raises(AudioError):
        decoded(data, kind)


def test_other_audio_formats_raise() -> None:
    kinds: tuple[AudioFormat, ...] = ("wav", "mp3", "opus")
    for kind, other_kind in permutations(kinds, 2):
        data = encoded(np.zeros(20000, np.float32), kind, 48000 if kind == "opus" else 44100)
        with pytest.raises(AudioError):
            decoded(data, other_kind)


@pytest.mark.parametrize(("kind", "chunk"), [(1, 8), (1, 24), (3, 32), (7, 8), (1, 0)])
def test_streamed_wav_that_is_not_16_bit_pcm_is_rejected(kind: int, chunk: int) -> None:
    form = struct.pack("<HHIIHH", kind, 1, 44100, 0, 2, chunk)
    with pytest.raises(AudioError, match="16-bit"):
        decoded(wav_of(bytes(400), 0xFFFFFFFF, form), "wav")


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damaged_data_give_finite_audio_or_audio_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(FORMATS))
    rate = 48000 if kind == "opus" else 44100
    audio = bytearray(encoded(babble(rate, 0.1), kind, rate))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(audio) - 1), st.integers(0, 255)), max_size=8)):
        audio[at] = value
    try:
        output = decoded(bytes(audio[: data.draw(st.integers(0, len(audio)))]), kind)
    except AudioError as error:
        str(error).encode()
    else:
        assert np.isfinite(output).all()
        assert np.abs(output).max(initial=0) <= 1.0


@pytest.mark.parametrize(("options", "field"), [({"format": "flac"}, "format"), ({"sample_rate": 0}, "sample_rate")])
def test_invalid_arguments_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(AudioError, match=f"^{field} must be "):
        StreamDecoder(**{"format": "wav", **options})


def test_empty_streams_decode_to_no_samples() -> None:
    decoder = StreamDecoder("mp3")
    assert decoder.feed(b"").size == 0
    assert decoded(b"", "pcm").size == 0
    assert decoded(encoded(NO_SAMPLES, "wav", 44100), "wav").size == 0


# Ogg pages.


@pytest.fixture(scope="module")
def opus_data() -> bytes:
    return encode(babble(48000, 0.5), "opus", 48000)


def starts(data: bytes) -> list[int]:
    found = [0]
    while (at := data.find(b"OggS", found[-1] + 1)) >= 0:
        found.append(at)
    return found


def test_flipped_bytes_in_an_ogg_page_raise(opus_data: bytes) -> None:
    start, end = starts(opus_data)[2:4]
    for at in range(start, end, 7):
        damaged = opus_data[:at] + bytes((opus_data[at] ^ 0x10,)) + opus_data[at + 1 :]
        with pytest.raises(AudioError, match="opus: "):
            OggReader().feed(damaged)


def test_missing_ogg_page_raises(opus_data: bytes) -> None:
    start, end = starts(opus_data)[3:5]
    with pytest.raises(AudioError, match="missing"):
        OggReader().feed(opus_data[:start] + opus_data[end:])


def test_packet_over_several_ogg_pages_is_joined() -> None:
    packet = np.random.default_rng(0).integers(0, 256, 255 * 3 + 10, np.uint8).tobytes()
    pages = [page_of(0, 0, bytes((255, 255)), packet[:510]), page_of(1, 1, bytes((255, 10)), packet[510:])]
    reader = OggReader()
    assert [page.packets for page in reader.feed(pages[0])] == [()]
    assert reader.within_page
    assert [page.packets for page in reader.feed(pages[1])] == [(packet,)]
    lonely = OggReader()
    with pytest.raises(AudioError, match="incomplete"):
        lonely.feed(page_of(0, 1, bytes((10,)), packet[:10]))


def page_of(number: int, flags: int, lengths: bytes, body: bytes) -> bytes:
    """Build a page by RFC 3533, with a checksum computed bit by bit."""
    page = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, 0, 7, number, 0, len(lengths)) + lengths + body
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1) ^ (0x04C11DB7 if value & 0x80000000 else 0)
        value &= 0xFFFFFFFF
    return page[:22] + struct.pack("<I", value) + page[26:]
