from __future__ import annotations

import io
import struct
from pathlib import Path
from unittest.mock import Mock

import av
import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.sounds import babble, decoded, encoded, libsndfile_bytes, vowel
from voicelab.audio.formats import _decode_container, decode, encode, read, sniff
from voicelab.audio.samples import NO_SAMPLES, resample
from voicelab.errors import AudioError
from voicelab.schema import FORMATS, AudioFormat


@pytest.mark.parametrize(
    ("kind", "subtype", "tolerance"),
    [
        ("WAV", "PCM_U8", 1 / 127),
        ("WAV", "PCM_16", 1.1 / 32768),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 1e-7),
        ("WAV", "DOUBLE", 1e-7),
        ("WAVEX", "PCM_16", 1.1 / 32768),
        ("FLAC", "PCM_16", 1.1 / 32768),
        ("FLAC", "PCM_24", 1e-6),
    ],
)
@pytest.mark.parametrize("rate", [8000, 44100, 96000])
def test_lossless_files_by_libsndfile_are_decoded(kind: str, subtype: str, tolerance: float, rate: int) -> None:
    samples = babble(rate, 0.3)
    output, output_rate = decode(libsndfile_bytes(samples, rate, kind, subtype))
    assert output_rate == rate
    assert output.shape == samples.shape
    assert np.abs(output - samples).max() <= tolerance


@pytest.mark.parametrize(("kind", "subtype"), [("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS")])
@pytest.mark.parametrize("channels", [1, 2])
def test_lossy_files_by_libsndfile_are_decoded(kind: str, subtype: str, channels: int) -> None:
    samples = vowel(120, 48000, 1.0)
    data = libsndfile_bytes(np.stack((samples,) * channels, axis=1), 48000, kind, subtype)
    output, rate = decode(data)
    assert rate == 48000
    expected, _ = soundfile.read(io.BytesIO(data))
    expected = expected if channels == 1 else expected.mean(axis=1)
    assert abs(output.size - expected.size) <= 1152
    size = min(output.size, expected.size)
    assert np.corrcoef(output[:size], expected[:size])[0, 1] > 0.98


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
@pytest.mark.parametrize("channels", [2, 3, 6])
def test_channels_are_averaged(kind: str, channels: int) -> None:
    samples = np.stack([babble(44100, 0.2, seed) for seed in range(channels)], axis=1)
    output, _ = decode(libsndfile_bytes(samples, 44100, kind, "PCM_24"))
    assert np.abs(output - samples.mean(axis=1)).max() < 1e-6


@pytest.mark.parametrize("kind", ["wav", "mp3", "opus"])
def test_encoded_streams_are_decoded_as_files(kind: AudioFormat) -> None:
    rate = 48000 if kind == "opus" else 44100
    samples = vowel(120, rate, 0.5)
    output, output_rate = decode(encoded(samples, kind, rate), kind)
    assert output_rate == rate
    assert 0 <= output.size - samples.size < 1152


def test_pcm_requires_the_format_argument() -> None:
    data = np.array([0, 16384], "<i2").tobytes()
    assert decode(data, "pcm")[1] == 44100
    output, rate = decode(data, "pcm", sample_rate=8000)
    assert (output.tolist(), rate) == ([0.0, 0.5], 8000)
    with pytest.raises(AudioError):
        decode(data)


def test_format_argument_must_match_the_signature() -> None:
    wav = encode(np.zeros(100, np.float32), "wav", 44100)
    mp3 = encode(np.zeros(5000, np.float32), "mp3", 44100)
    opus = encode(np.zeros(5000, np.float32), "opus", 48000)
    flac = libsndfile_bytes(np.zeros(100), 44100, "FLAC", "PCM_16")
    assert [sniff(data) for data in (wav, mp3, opus, flac)] == ["wav", "mp3", "ogg", "flac"]
    assert sniff(b"ID3\4\0\0\0\0\0\0" + mp3) == "mp3"
    for kind, data in (("mp3", wav), ("wav", mp3), ("opus", flac), ("wav", opus)):
        with pytest.raises(AudioError, match=f"must be {kind}"):
            decode(data, kind)  # type: ignore[arg-type]


def test_scripts_that_reference_files_are_rejected(tmp_path: Path) -> None:
    canary = tmp_path / "canary.wav"
    canary.write_bytes(encode(vowel(120, 44100, 0.1), "wav", 44100))
    scripts = [
        f"ffconcat version 1.0\nfile '{canary}'\n",
        f"#EXTM3U\n#EXTINF:1,\n{canary}\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{canary}\n#EXT-X-ENDLIST\n",
        f"[playlist]\nFile1={canary}\n",
        f"concat:{canary}",
        f"v=0\nm=audio 1 RTP/AVP 0\na=file:{canary}\n",
    ]
    for script in scripts:
        for kind in (None, "wav", "mp3", "opus"):
            with pytest.raises(AudioError):
                decode(script.encode(), kind)
        # A signature before the script does not help.
        for head in (b"RIFF\0\0\0\0WAVE", b"fLaC", b"OggS", b"ID3\4\0\0\0\0\0\0", b"\xff\xfb\x90\xc4"):
            with pytest.raises(AudioError):
                decode(head + script.encode())


def test_the_demuxer_is_always_given_to_ffmpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Mock(side_effect=av.open)
    monkeypatch.setattr("voicelab.audio.formats.av.open", opened)
    samples = babble(44100, 0.1)
    for kind, subtype in (("WAV", "PCM_24"), ("FLAC", "PCM_16"), ("OGG", "VORBIS")):
        decode(libsndfile_bytes(samples, 44100, kind, subtype))
    assert [call.kwargs.get("format") for call in opened.call_args_list] == ["wav", "flac", "ogg"]


def test_truncated_flac_raises() -> None:
    data = libsndfile_bytes(babble(16000, 1.0), 16000, "FLAC", "PCM_16")
    for cut in range(0, len(data), 61):
        with pytest.raises(AudioError):
            decode(data[:cut])


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_truncated_file_raises(kind: str) -> None:
    subtypes = {"OGG": "OPUS", "MP3": "MPEG_LAYER_III"}
    data = libsndfile_bytes(babble(48000, 0.5), 48000, kind, subtypes.get(kind, "PCM_16"))
    for share in (0.0, 0.01, 0.3, 0.6, 0.95):
        # An odd offset is not a frame boundary, where truncation of an MP3 is undetectable.
        cut = int(len(data) * share) | 1
        with pytest.raises(AudioError):
            decode(data[:cut])


def test_decompression_bomb_is_rejected() -> None:
    bomb = libsndfile_bytes(np.zeros(48000 * 400), 48000, "FLAC", "PCM_16")
    assert len(bomb) < 300_000
    with pytest.raises(AudioError, match="300 s long"):
        decode(bomb)
    assert decode(bomb, max_seconds=None)[0].size == 48000 * 400
    assert decode(bomb, max_seconds=400)[0].size == 48000 * 400
    with pytest.raises(AudioError, match="399 s long"):
        decode(bomb, max_seconds=399)


def test_max_seconds_applies_to_every_format() -> None:
    second = np.zeros(48000, np.float32)
    for kind in ("wav", "mp3", "opus"):
        data = encode(np.tile(second, 3), kind, 48000)
        assert decode(data, max_seconds=3.1)[0].size
        with pytest.raises(AudioError, match="2 s long"):
            decode(data, max_seconds=2)
    with pytest.raises(AudioError, match="2 s long"):
        decode(bytes(6 * 44100), "pcm", max_seconds=2)


def test_forged_rate_does_not_extend_max_seconds() -> None:
    data = bytearray(encode(np.zeros(96_000 * 3, np.float32), "wav", 48000, 48000))
    data[24:28] = struct.pack("<I", 700_000)
    with pytest.raises(AudioError, match="2 s long"):
        decode(bytes(data), max_seconds=2)
    data[24:28] = struct.pack("<I", 4_000_000_000)
    with pytest.raises(AudioError):
        decode(bytes(data))


def test_files_above_max_bytes_are_rejected() -> None:
    with pytest.raises(AudioError, match="at most 10"):
        decode(b"RIFF" + bytes(20), max_bytes=10)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_samples_are_rejected(value: float) -> None:
    with pytest.raises(AudioError, match="finite"):
        decode(libsndfile_bytes(np.array([0.0, value, 0.0]), 44100, "WAV", "FLOAT"))


def test_samples_beyond_full_scale_are_clipped() -> None:
    output, _ = decode(libsndfile_bytes(np.array([0.5, 3.0, -3.0]), 44100, "WAV", "FLOAT"))
    assert output.tolist() == [0.5, 1.0, -1.0]


def test_tags_and_padding_after_an_mp3_are_ignored_and_other_bytes_raise() -> None:
    data = encode(vowel(120, 44100, 0.3), "mp3", 44100)
    expected = decode(data)[0]
    tag, lyrics = b"TAG" + bytes(125), b"LYRICSBEGININD0000200" + b"000021LYRICS200"
    ape = bytes(10) + b"APETAGEX" + struct.pack("<IIII", 2000, 32 + 10, 1, 0) + bytes(8)
    for tail in (tag, ape, ape + tag, b"\0", bytes(3000), b"\r\n", bytes(100) + tag, lyrics, b"3DI\4" + bytes(6)):
        assert np.array_equal(decode(data + tail)[0], expected), tail
    for cut in range(1500, len(data) - 500, 97):  # zero-filled like an interrupted download
        with pytest.raises(AudioError, match="cut off"):
            decode(data[:cut] + bytes(len(data) - cut))
    for tail in (b"and a sentence", bytes(range(1, 255)), data[500:700], data[:3]):
        with pytest.raises(AudioError, match="damaged or cut off"):
            decode(data + tail)


def test_unknown_codec_raises() -> None:
    data = bytearray(libsndfile_bytes(np.zeros(1000), 16000, "WAV", "PCM_24"))
    data[34] = 0
    with pytest.raises(AudioError, match="wav: "):
        decode(bytes(data))


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_damaged_data_give_finite_audio_or_audio_error(data: st.DataObject) -> None:
    kind, subtype = data.draw(
        st.sampled_from([("WAV", "PCM_24"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")])
    )
    audio = bytearray(libsndfile_bytes(babble(16000, 0.1), 16000, kind, subtype))
    # Prefer the headers.
    offsets = st.integers(0, min(200, len(audio) - 1)) | st.integers(0, len(audio) - 1)
    for at, value in data.draw(st.lists(st.tuples(offsets, st.integers(0, 255)), max_size=8)):
        audio[at] = value
    try:
        output, rate = decode(bytes(audio))
    except AudioError as error:
        str(error).encode()
    else:
        assert rate > 0
        assert np.isfinite(output).all()
        assert np.abs(output).max(initial=0) <= 1.0


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("source", [24000, 44100, 48000])
def test_file_has_the_length_of_its_samples(kind: AudioFormat, source: int) -> None:
    samples = babble(source, 0.51)
    data = encode(samples, kind, source)
    output, rate = decode(data, kind)
    assert output.size == resample(samples, source, rate).size


@pytest.mark.parametrize("kind", FORMATS)
def test_file_and_stream_decode_to_equal_samples(kind: AudioFormat) -> None:
    samples = babble(44100, 0.5)
    streamed = decoded(encoded(samples, kind, 44100), kind)
    output, _ = decode(encode(samples, kind, 44100), kind)
    assert np.array_equal(streamed[: output.size], output)


@pytest.mark.parametrize("kind", FORMATS)
def test_empty_audio_is_a_valid_file(kind: AudioFormat) -> None:
    output, _ = decode(encode(NO_SAMPLES, kind, 48000), kind)
    # An empty Ogg stream is indistinguishable from a truncated one, so the file has one sample of silence.
    assert output.size == (kind == "opus")


@pytest.mark.parametrize("channels", [1, 2])
def test_plain_wav_files_have_the_samples_that_ffmpeg_decodes(channels: int) -> None:
    data = libsndfile_bytes(np.stack([babble(44100, 0.3)] * channels, axis=-1).squeeze(), 44100, "WAV", "PCM_16")
    samples, rate = read(data)
    expected, expected_rate = _decode_container(data, "wav", None)
    assert rate == expected_rate
    np.testing.assert_array_equal(samples, expected)
