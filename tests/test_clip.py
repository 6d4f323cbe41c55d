from __future__ import annotations

import copy
import dataclasses
import hashlib
import io
import math
import pickle
import resource
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]

from tests.audio.sounds import babble
from voicelab.audio.words import Words, WordTime
from voicelab.call import Call
from voicelab.clip import Clip, Take, Timing
from voicelab.errors import AudioError, StoreError
from voicelab.schema import TTSRequest

WORDS = (WordTime("a", 0.0, 0.4), WordTime("b", 0.5, 0.9))
TAKE = Take(
    Call(TTSRequest(text="a b"), seed=7),
    bytes(30),
    Timing(first_audio_s=0.1, total_s=0.5, arrivals=((0.1, 10), (0.5, 20))),
    backend="test",
    fingerprint="f00d",
    seed=7,
    words=WORDS,
    notes=("a note",),
    similarity=0.5,
)


@pytest.fixture
def clip() -> Clip:
    return Clip(babble(44100, 1.0), 44100, Words(WORDS), TAKE)


def test_clip_properties() -> None:
    clip = Clip(np.full(22050, 0.1, np.float32), 44100)
    assert (clip.duration, len(clip), clip.rate) == (0.5, 22050, 44100)
    assert clip.level == pytest.approx(-20, abs=1e-4)
    assert clip.peak == pytest.approx(0.1)
    assert Clip(np.array([1.0, -1.0]), 44100).peak == 1.0, "full scale is allowed"
    assert (clip.take, clip.words, clip.notes, clip.similarity) == (None, (), (), None)


def test_repr(clip: Clip) -> None:
    assert repr(Clip(np.full(22050, 0.1, np.float32), 44100)) == "Clip(0.50 s, 44100 Hz, -20.0 dBFS)"
    assert repr(Clip(np.zeros(0, np.float32), 8000)) == "Clip(0.00 s, 8000 Hz, -inf dBFS)"
    assert repr(clip) == repr(pickle.loads(pickle.dumps(clip)))  # noqa: S301 - created above


def test_samples_are_immutable() -> None:
    source = np.array([0.1, 0.2, 0.3])
    clip = Clip(source, 44100)
    source[0] = 0.9
    assert clip.samples[0] == np.float32(0.1)
    with pytest.raises(ValueError, match="read-only"):
        clip.samples[0] = 0.5
    with pytest.raises(ValueError, match="WRITEABLE"):
        clip.samples.setflags(write=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        clip.rate = 8000  # type: ignore[misc]
    for duplicate in (copy.copy(clip), copy.deepcopy(clip), pickle.loads(pickle.dumps(clip)), clip.slice(0, 1)):  # noqa: S301
        assert not duplicate.samples.flags.writeable


@pytest.mark.parametrize(
    ("samples", "rate", "argument"),
    [
        ([0.0, math.nan], 44100, "samples"),
        ([0.0, 1.01], 44100, "samples"),
        ([[0.0]], 44100, "samples"),
        ([1, 0], 44100, "samples"),
        (0.5, 44100, "samples"),
        ([0.0], 0, "rate"),
        ([0.0], 44100.0, "rate"),
        ([0.0], True, "rate"),
        ([0.0], None, "rate"),
    ],
)
def test_invalid_arguments_are_named(samples: Any, rate: Any, argument: str) -> None:
    with pytest.raises(AudioError, match=f"^{argument} must "):
        Clip(np.array(samples), rate)


@pytest.mark.parametrize(("start", "end"), [(-0.1, 1.0), (1.0, 0.5), (math.nan, 1.0), (0.0, math.inf)])
def test_invalid_word_times_are_rejected(start: float, end: float) -> None:
    with pytest.raises(AudioError, match="words"):
        WordTime("a", start, end)


def test_clips_are_equal_by_samples_and_rate(clip: Clip) -> None:
    twin = Clip(clip.samples, clip.rate)
    assert clip == twin
    assert hash(clip) == hash(twin)
    assert len({clip, twin}) == 1
    assert clip != Clip(clip.samples, 48000)
    assert clip != Clip(clip.samples[:-1], clip.rate)
    assert clip != "clip"
    minus, plus = Clip(np.array([-0.0]), 8000), Clip(np.array([0.0]), 8000)
    assert minus == plus
    assert hash(minus) == hash(plus)
    assert minus.sha256 == plus.sha256


def test_sha256_is_of_rate_and_samples() -> None:
    # 0.5 as a little-endian float32 is 00 00 00 3f.
    digest = Clip(np.array([0.5]), 8000).sha256
    assert digest == hashlib.sha256(b"8000:\x00\x00\x00\x3f").hexdigest()
    assert digest != Clip(np.array([0.5]), 8001).sha256


def test_copies_are_equal(clip: Clip) -> None:
    for duplicate in (copy.copy(clip), copy.deepcopy(clip), pickle.loads(pickle.dumps(clip))):  # noqa: S301 - created above
        assert duplicate == clip
        assert (duplicate.take, duplicate.words, duplicate.notes) == (clip.take, clip.words, clip.notes)


def test_empty_clip() -> None:
    empty = Clip(np.zeros(0, np.float32), 44100)
    assert empty
    assert empty.duration == 0.0
    assert Clip.load(empty.to_bytes("wav")) == empty
    assert empty.resample(8000).rate == 8000


def test_resampling(clip: Clip) -> None:
    half = clip.resample(22050)
    assert half.rate == 22050
    assert half.duration == pytest.approx(clip.duration, abs=1e-4)
    assert (half.words, half.notes, half.take) == (clip.words, clip.notes, clip.take)
    assert clip.resample(44100) is clip
    square = Clip(np.where(np.arange(4410) // 50 % 2, 1.0, -1.0).astype(np.float32), 44100)
    assert square.resample(48000).peak <= 1.0
    with pytest.raises(AudioError, match="rate"):
        clip.resample(0)


def test_slices_include_overlapping_words(clip: Clip) -> None:
    section = clip.slice(0.3, 0.7)
    assert len(section) == round(0.4 * 44100)
    assert np.array_equal(section.samples, clip.samples[13230:30870])
    assert [word.text for word in section.words] == ["a", "b"]
    assert [(round(word.start, 3), round(word.end, 3)) for word in section.words] == [(0.0, 0.1), (0.2, 0.4)]
    assert clip.slice() == clip
    assert len(clip.slice(0.5)) == 22050
    assert clip.slice(0.5, 99).duration == 0.5
    assert len(clip.slice(2.0, 3.0)) == 0
    assert clip.slice(0.95).words == ()
    # Arrival times of the complete clip do not apply to a slice.
    assert clip.take is not None
    assert section.take is not None
    assert clip.slice().take == clip.take
    assert section.take.request == clip.take.request
    assert (bool(clip.take.timing.arrivals), section.take.timing.arrivals) == (True, ())
    for start, end in ((-1.0, 1.0), (0.6, 0.5), (math.nan, 1.0), (0.0, math.nan)):
        with pytest.raises(AudioError, match="slice"):
            clip.slice(start, end)


@pytest.mark.parametrize("suffix", [".wav", ".mp3", ".opus", ".ogg", ".WAV"])
def test_save_load_round_trip(suffix: str, clip: Clip, tmp_path: Path) -> None:
    path = clip.save(tmp_path / f"clip{suffix}")
    loaded = Clip.load(path)
    assert Clip.load(str(path)) == loaded == Clip.load(path.read_bytes())
    assert loaded.rate == (48000 if suffix in (".opus", ".ogg") else 44100)
    assert loaded.duration == pytest.approx(clip.duration, abs=1e-9)
    if suffix.lower() == ".wav":
        assert np.abs(loaded.samples - clip.samples).max() <= 0.5 / 32768 + 1e-9


def test_loading_beyond_full_scale_clips_with_a_note() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.array([0.5, 2.0, -1.5, 1.0]), 44100, format="WAV", subtype="FLOAT")
    loaded = Clip.load(file.getvalue())
    assert loaded.samples.tolist() == [0.5, 1.0, -1.0, 1.0]
    assert loaded.notes == ("The file exceeds full scale by 6.0 dB at its peak: 2 of 4 samples were clipped.",)
    assert Clip.load(loaded.to_bytes("wav")).notes == ()


def test_failed_save_leaves_the_existing_file(clip: Clip, tmp_path: Path) -> None:
    path = clip.save(tmp_path / "a.wav")
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))  # Python ignores SIGXFSZ
    try:
        with pytest.raises(StoreError, match=r"a\.wav: no space"):
            clip.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.wav"]
    assert clip.save(tmp_path / "new" / "a.wav").exists()
    with pytest.raises(StoreError, match=r"a\.wav/b\.wav"):
        clip.save(path / "b.wav")


def test_saved_wav_has_exact_sizes_and_the_rate_of_the_clip(clip: Clip, tmp_path: Path) -> None:
    path = clip.resample(22050).save(tmp_path / "a.wav")
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (22050, 1, 2)
        assert file.getnframes() == 22050
    assert path.stat().st_size == 44 + 2 * 22050


def test_bytes_of_each_format(clip: Clip) -> None:
    assert clip.to_bytes("pcm") == clip.to_bytes("wav")[44:]
    assert len(clip.to_bytes("pcm", sample_rate=8000)) == 16000
    assert len(clip.to_bytes("mp3", bitrate=64)) < 0.6 * len(clip.to_bytes("mp3"))
    assert len(clip.to_bytes("opus", bitrate=24)) < 0.6 * len(clip.to_bytes("opus", bitrate=64))
    # An unsupported rate is replaced by the format's default.
    assert Clip.load(clip.resample(22050).to_bytes("mp3")).rate == 44100
    assert Clip.load(clip.resample(32000).to_bytes("mp3")).rate == 32000
    wrong: dict[str, Any]
    for wrong in ({"format": "wav", "bitrate": 64}, {"format": "mp3", "bitrate": 100}, {"format": "flac"}):
        with pytest.raises(AudioError, match=r"bitrate|format"):
            clip.to_bytes(**wrong)
    with pytest.raises(AudioError, match="sample_rate"):
        clip.to_bytes("opus", sample_rate=44100)


@pytest.mark.parametrize("name", ["clip", "clip.flac", "clip.wav.txt", ".wav"])
def test_invalid_suffix_is_rejected_without_a_file(name: str, clip: Clip, tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"\.wav, \.pcm, \.mp3"):
        clip.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_loading_other_files_raises(tmp_path: Path) -> None:
    text = tmp_path / "a.wav"
    text.write_text("no audio")
    with pytest.raises(AudioError):
        Clip.load(text)
    with pytest.raises(FileNotFoundError):
        Clip.load(tmp_path / "none.wav")
    with pytest.raises(AudioError, match="1 s long"):
        Clip.load(Clip(np.zeros(88200, np.float32), 44100).to_bytes(), max_seconds=1)


def test_real_time_factor() -> None:
    assert TAKE.timing.rtf(2.0) == 0.25
    assert TAKE.timing.rtf(0.0) == math.inf
