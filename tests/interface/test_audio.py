"""Part 4.1, the audio format rules: what is said about each format, read from its bytes by hand."""

from __future__ import annotations

import io
import struct
from typing import Any

import av
import numpy as np
import pytest

from tests.interface import tables
from tests.interface.conftest import Voice, Wire
from tests.interface.containers import mpeg, ogg, opus_head, opus_mono, opus_samples, wav
from tests.interface.rules import each, proves
from tests.interface.wire import KINDS, fields

TEXT = "forty notes of fifty milliseconds each.."
SECONDS = len(TEXT) * 0.05
RATES = [f"{kind}@{rate}" for kind, (rates, _) in tables.RATES.items() for rate in rates]
UNKNOWN = 0xFFFFFFFF


def _tones(wire: Wire, format: str, rate: int | None = None, **fields: Any) -> bytes:
    answer = wire.caller.tts({"text": TEXT, "format": format, "sample_rate": rate, **fields})
    assert answer.status == 200, answer.body
    return answer.body


def _measure(format: str, body: bytes) -> tuple[int, int]:
    """(rate, samples) that a body itself says it has; a raw pcm body says no rate."""
    if format == "wav":
        said = wav(body)
        return said.rate, len(said.data) // said.block
    if format == "mp3":
        frames = mpeg(body)
        assert len({frame.rate for frame in frames}) == 1
        return frames[0].rate, 1152 * len(frames)
    if format == "opus":
        pages = ogg(body)
        return 48000, pages[-1].granule - opus_head(pages[0].packets[0]).pre_skip
    return 0, len(body) // 2


def _has_rate(format: str, body: bytes, hertz: int) -> None:
    said, samples = _measure(format, body)
    assert said in {hertz, 0}
    # Of mp3 whole frames, with the encoder's delay before.
    assert 0 <= samples - SECONDS * hertz <= (3 * 1152 if format == "mp3" else 0)


@each("4.1/{}", RATES)
def test_sample_rate(wire: Wire, row: str) -> None:
    name, _, hertz = row.partition("@")
    _has_rate(name, _tones(wire, name, int(hertz)), int(hertz))


@each("4.1/{}:default", tables.RATES)
def test_default_rate(wire: Wire, row: str) -> None:
    for given in ({}, {"sample_rate": None}):
        _has_rate(row, wire.caller.tts({"text": TEXT, "format": row, **given}).body, tables.RATES[row][1])


@proves("2.1/sample_rate:null")
def test_a_rate_of_null_is_the_default_of_the_format(wire: Wire) -> None:
    for name, (_, default) in tables.RATES.items():
        assert _tones(wire, name) == wire.caller.tts({"text": TEXT, "format": name}).body
        # The voice of these tests plays other notes when anything in the request is another; its length stays.
        assert _measure(name, _tones(wire, name)) == _measure(name, _tones(wire, name, default))


@proves("D-3")
def test_a_rate_that_the_format_does_not_have_is_refused(wire: Wire, kind: str) -> None:
    everywhere = {8000, 16000, 24000, 32000, 44100, 48000}
    for name, (rates, _) in tables.RATES.items():
        for rate in (*sorted(everywhere - set(rates)), 0, -44100, 22050, 96000, 2**40):
            assert fields(wire.refused(kind, format=name, sample_rate=rate)) == [["body", "sample_rate"]]


@each("4.1/{}:mono", tables.RATES)
def test_mono(wire: Wire, row: str) -> None:
    body = _tones(wire, row)
    if row == "wav":
        assert wav(body).channels == 1
    elif row == "mp3":
        assert all(frame.mono for frame in mpeg(body))
    elif row == "opus":
        pages = ogg(body)
        assert opus_head(pages[0].packets[0]).channels == 1
        assert all(opus_mono(packet) for page in pages[2:] for packet in page.packets)
    else:
        # Two channels would be twice as many bytes.
        assert len(body) == SECONDS * 44100 * 2


@proves("4.1/wav:depth")
def test_wav_is_16_bit_pcm(wire: Wire) -> None:
    for rate in tables.RATES["wav"][0]:
        header = wav(_tones(wire, "wav", rate))
        assert (header.tag, header.bits, header.block) == (1, 16, 2)
        assert header.byte_rate == 2 * rate
        assert len(header.data) % 2 == 0


@proves("4.1/pcm:depth")
def test_pcm_is_the_16_bit_little_endian_samples_of_the_wav(voice: Voice) -> None:
    pcm = voice.say()
    assert pcm == wav(voice.say(format="wav")).data
    samples = np.frombuffer(pcm, "<i2")
    # Read with the wrong end first, speech is noise at full scale.
    assert 500 < np.abs(samples.astype(int)).max() < 32768
    assert np.abs(np.diff(samples.astype(int))).mean() < np.abs(samples.astype(int)).mean()


@proves("D-2")
def test_a_streamed_wav_says_that_its_length_is_unknown(wire: Wire) -> None:
    header = wav(_tones(wire, "wav"))
    assert header.riff_size == header.data_size == UNKNOWN
    assert len(header.data) == SECONDS * 44100 * 2


@each("4.1/mp3:{}", [64, 128, 192])
def test_mp3_bitrate(wire: Wire, row: int) -> None:
    for rate in (32000, 44100):
        frames = mpeg(_tones(wire, "mp3", rate, mp3_bitrate=row))
        assert len(frames) > 50
        assert {frame.kbps for frame in frames} == {row}


@proves("4.1/mp3:128")
def test_mp3_has_128_kbps_by_default(wire: Wire) -> None:
    assert {frame.kbps for frame in mpeg(_tones(wire, "mp3"))} == {128}


def _opus_kbps(body: bytes) -> float:
    pages = ogg(body)
    packets = [packet for page in pages[2:] for packet in page.packets]
    seconds = sum(map(opus_samples, packets)) / 48000
    return sum(map(len, packets)) * 8 / seconds / 1000


@each("4.1/opus:{}", [24, 32, 48, 64])
def test_opus_bitrate(voice: Voice, row: int) -> None:
    # Opus varies its rate with what is said; over a sentence the average comes near what was asked for.
    assert _opus_kbps(voice.say(format="opus", sample_rate=48000, opus_bitrate=row)) == pytest.approx(row, rel=0.3)


def test_more_kbps_are_more_bytes(voice: Voice) -> None:
    sizes = [len(voice.say(format="opus", sample_rate=48000, opus_bitrate=kbps)) for kbps in (24, 32, 48, 64)]
    assert sizes == sorted(set(sizes))


@proves("4.1/opus:auto", "2.1/opus_bitrate:automatic")
def test_opus_chooses_its_bitrate_by_itself(voice: Voice) -> None:
    automatic = _opus_kbps(voice.say(format="opus", sample_rate=48000, opus_bitrate=-1000))
    assert voice.say(format="opus", sample_rate=48000) == voice.say(
        format="opus", sample_rate=48000, opus_bitrate=-1000
    )
    assert 16 < automatic < 128  # not -1000, and a rate at which speech is clear


@proves("4.1/opus:mono")
def test_ogg_opus_is_a_whole_stream(voice: Voice) -> None:
    pages = ogg(voice.say(format="opus", sample_rate=48000))
    head = opus_head(pages[0].packets[0])
    assert (head.version, head.channels, head.mapping, head.gain) == (1, 1, 0, 0)
    assert head.rate in {44100, 48000}  # of what was encoded, for information only
    assert len(pages[0].packets) == 1
    assert pages[1].packets[0][:8] == b"OpusTags"
    assert pages[0].flags == 2
    assert pages[-1].flags & 4
    assert [page.flags & 2 for page in pages[1:]] == [0] * (len(pages) - 1)
    assert len({page.serial for page in pages}) == 1
    assert [page.sequence for page in pages] == list(range(len(pages)))
    granules = [page.granule for page in pages]
    assert granules == sorted(granules)
    decoded = sum(opus_samples(packet) for page in pages[2:] for packet in page.packets)
    assert 0 <= decoded - granules[-1] < 960 * 2  # the end of the last packet is cut off


def _matters_only_to(kind: str, voice: Voice, **field: Any) -> None:
    for name in tables.RATES:
        plain, changed = (voice.say(format=name, sample_rate=None, **more) for more in ({}, field))
        assert (plain != changed) == (name == kind)


@proves("2.1/mp3_bitrate:applies")
def test_mp3_bitrate_matters_to_mp3_only(voice: Voice) -> None:
    _matters_only_to("mp3", voice, mp3_bitrate=64)


@proves("2.1/opus_bitrate:applies")
def test_opus_bitrate_matters_to_opus_only(voice: Voice) -> None:
    _matters_only_to("opus", voice, opus_bitrate=64)


@proves("4.1-7", "1-3")
def test_the_body_is_audio_of_the_requested_format(voice: Voice) -> None:
    """The same speech in each of the four, found by its own marks and decoded by FFmpeg."""
    seconds = len(voice.say()) / 2 / 16000
    marks = {"wav": b"RIFF", "opus": b"OggS"}
    for name, demuxer in (("wav", "wav"), ("mp3", "mp3"), ("opus", "ogg")):
        body = voice.say(format=name, sample_rate=None)
        assert body.startswith(marks.get(name, b""))
        container: Any
        with av.open(io.BytesIO(body), format=demuxer) as container:
            stream = container.streams.audio[0]
            assert stream.codec_context.name in {"pcm_s16le", "mp3", "mp3float", "opus", "libopus"}
            count = sum(frame.samples for frame in container.decode(stream))
            assert count / stream.rate == pytest.approx(seconds, abs=0.1)


@proves("D-1")
def test_media_types(wire: Wire) -> None:
    types = {"wav": "audio/wav", "pcm": "audio/pcm", "mp3": "audio/mpeg", "opus": "audio/ogg"}
    for kind in KINDS:
        for name, media in types.items():
            answer = wire.caller.tts({"text": "Hi", "format": name}, kind)
            assert answer.headers["content-type"].split(";")[0] == media


def test_the_readers_of_these_tests_see_what_is_wrong() -> None:
    """Each container is planted with a defect and refused."""
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36, b"WAVE", b"fmt ", 16, 1, 2, 8000, 32000, 4, 16, b"data", 0)
    assert wav(header).channels == 2
    with pytest.raises(AssertionError):
        wav(header.replace(b"WAVE", b"WAVX"))
    frame = bytes([0xFF, 0xFB, 0x90, 0xC0]) + bytes(413)  # 128 kbps, 44.1 kHz, mono
    assert [found.kbps for found in mpeg(frame * 2)] == [128, 128]
    assert [found.mono for found in mpeg(frame)] == [True]
    for wrong in (frame + frame[:-1], frame + b"\0" * 417):
        with pytest.raises(AssertionError):
            mpeg(wrong)
