from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.audio.sounds import vowel
from voicelab.audio.analysis import Contour, Digest, digest, energy, f0, mel, spectrogram
from voicelab.audio.paths import warping_path
from voicelab.audio.samples import Samples, as_samples
from voicelab.clip import Clip
from voicelab.errors import ArgumentError


def sound(samples: object, rate: int = 44100) -> Clip:
    return Clip(as_samples(samples), rate)


def tone(frequency: float, rate: int = 44100, seconds: float = 1.0, peak: float = 1.0) -> Clip:
    return sound(peak * np.sin(2 * np.pi * frequency * np.arange(round(rate * seconds)) / rate), rate)


@pytest.mark.parametrize("pitch", [70.0, 110.0, 220.0, 400.0, 550.0])
@pytest.mark.parametrize("rate", [16000, 44100])
def test_f0_of_a_vowel_is_within_5_cents(pitch: float, rate: int) -> None:
    contour = f0(sound(vowel(pitch, rate, 1.0), rate))
    assert abs(1200 * math.log2(contour.median / pitch)) < 5
    assert contour.share > 0.95
    assert contour.unit == "Hz"


def test_only_the_vowel_between_silence_and_noise_is_voiced() -> None:
    rng = np.random.default_rng(0)
    quarter = 11025
    samples = np.concatenate(
        (np.zeros(quarter), 0.1 * rng.standard_normal(quarter), vowel(150, 44100, 0.25), np.zeros(quarter))
    )
    contour = f0(sound(samples, 44100))
    voiced = contour.times[np.isfinite(contour.values)]
    assert voiced.min() > 0.46
    assert voiced.max() < 0.79
    assert contour.median == pytest.approx(150, rel=0.01)


def test_pyin_agrees_with_yin() -> None:
    clip = sound(vowel(180, 16000, 0.5), 16000)
    assert f0(clip, method="pyin").median == pytest.approx(f0(clip).median, rel=0.01)


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(1), np.zeros(20000), np.full(3, 0.1)])
def test_f0_of_unvoiced_audio_is_nan(samples: Samples) -> None:
    contour = f0(sound(samples, 44100))
    assert math.isnan(contour.median)
    assert contour.share == 0.0
    assert repr(contour)


@pytest.mark.parametrize(
    "options", [{"fmin": 5.0}, {"fmin": 300.0, "fmax": 200.0}, {"fmax": 9000.0}, {"hop_s": 0.0}, {"method": "swipe"}]
)
def test_invalid_f0_arguments_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        f0(tone(100), **options)


def test_energy_is_the_rms_level_per_frame() -> None:
    samples = np.concatenate((tone(1000, peak=0.5).samples, np.zeros(44100)))
    contour = energy(sound(samples, 44100))
    assert contour.values.size == 200
    assert contour.values[50] == pytest.approx(20 * math.log10(0.5) - 3.01, abs=0.1)
    assert contour.values[150] == -120.0
    assert energy(sound(np.zeros(0), 44100)).values.tolist() == [-120.0]


@pytest.mark.parametrize("frequency", [200.0, 1000.0, 8000.0])
def test_spectrogram_of_a_full_scale_sine_peaks_at_0_db(frequency: float) -> None:
    spectrum = spectrogram(tone(frequency))
    middle = spectrum.db[:, spectrum.times.size // 2]
    assert middle.max() == pytest.approx(0.0, abs=0.2)
    assert spectrum.frequencies[middle.argmax()] == pytest.approx(frequency, abs=25)
    assert spectrum.db.shape == (spectrum.frequencies.size, spectrum.times.size)
    assert spectrum.times[-1] == pytest.approx(1.0, abs=0.01)
    # Frequencies far from the tone are below -60 dB.
    assert np.median(middle) < -60


def test_mel_peak_is_at_the_frequency_of_the_tone() -> None:
    spectrum = mel(tone(1000), bands=40, fmax=8000)
    assert spectrum.db.shape[0] == spectrum.frequencies.size == 40
    strongest = spectrum.frequencies[spectrum.db[:, 50].argmax()]
    assert strongest == pytest.approx(1000, rel=0.1)
    assert np.all(np.diff(spectrum.frequencies) > 0)


@pytest.mark.parametrize(
    "options", [{"bands": 0}, {"fmin": 30000.0}, {"fmin": -1.0}, {"window_s": 0.0}, {"hop_s": 2.0}]
)
def test_invalid_mel_arguments_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        mel(tone(1000), **options)


@pytest.mark.parametrize("size", [0, 1, 100, 3000])
@pytest.mark.parametrize("rate", [8000, 44100])
def test_spectrograms_of_very_short_clips_are_finite(size: int, rate: int) -> None:
    clip = sound(0.1 * np.ones(size), rate)
    for spectrum in (mel(clip), spectrogram(clip)):
        assert spectrum.db.size
        assert np.isfinite(spectrum.db).all()
        assert repr(spectrum)


def test_contours_are_read_only() -> None:
    contour = energy(tone(100))
    with pytest.raises(ValueError, match="read-only"):
        contour.values[0] = 1
    assert isinstance(contour, Contour)


def test_digest_of_a_vowel_and_of_silence() -> None:
    result = digest(sound(vowel(140, 44100, 1.5), 44100))
    assert result.duration == 1.5
    assert result.f0 == pytest.approx(140, abs=0.5)
    assert len(result.mel) == 8
    assert str(result).startswith("1.50 s, ")
    assert "F0 140 Hz" in str(result)
    assert str(digest(sound(np.zeros(4410), 44100))).startswith("0.10 s, -inf dBFS, unvoiced, mel -120")


def test_close_to_accepts_noise_and_rejects_real_changes() -> None:
    samples = vowel(140, 44100, 1.5)
    reference = digest(sound(samples, 44100))
    noise = 1e-4 * np.random.default_rng(0).standard_normal(samples.size)
    assert reference.close_to(digest(sound(samples + noise, 44100)))
    assert reference.close_to(digest(Clip.load(sound(samples, 44100).to_bytes("mp3"))))
    different = [
        sound(0.5 * samples, 44100),
        sound(samples[:-8820], 44100),
        sound(vowel(150, 44100, 1.5), 44100),
        sound(np.zeros(samples.size), 44100),
        sound(0.1 * np.random.default_rng(0).standard_normal(samples.size), 44100),
    ]
    for clip in different:
        assert not reference.close_to(digest(clip))
        assert not digest(clip).close_to(reference)
    silence = Digest(1.0, -math.inf, None, (-120.0,) * 8)
    assert silence.close_to(silence)


@pytest.mark.parametrize("rate", [16000, 44100])
def test_values_equal_librosa(rate: int) -> None:
    import librosa

    noise = 0.02 * np.random.default_rng(0).standard_normal(rate // 2)
    clip = sound(np.concatenate((vowel(130, rate, 0.5), noise, vowel(310, rate, 0.5))), rate)
    samples = clip.resample(16000).samples.astype(np.float64)
    pitch = librosa.yin(samples, fmin=60, fmax=600, sr=16000, frame_length=1024, hop_length=160)
    contour = f0(clip)
    voiced = np.isfinite(contour.values)
    assert contour.values.shape == pitch.shape
    assert 0.3 < voiced.mean() < 0.9
    np.testing.assert_allclose(contour.values[voiced], pitch[voiced], rtol=1e-4)
    window, hop = round(0.025 * rate), round(0.005 * rate)
    lines = librosa.stft(clip.samples, n_fft=window, hop_length=hop, pad_mode="constant")
    level = 20.0 * np.log10(np.maximum(np.abs(lines).astype(np.float64) / (window / 4), 1e-6))
    spectrum = spectrogram(clip)
    np.testing.assert_allclose(spectrum.db, level, atol=0.01)
    np.testing.assert_allclose(spectrum.frequencies, librosa.fft_frequencies(sr=rate, n_fft=window))
    middles = librosa.mel_frequencies(n_mels=42, fmin=50, fmax=7000)[1:-1]
    np.testing.assert_allclose(mel(clip, bands=40, fmin=50, fmax=7000).frequencies, middles)


@pytest.mark.parametrize("bounds", [{}, {"fmin": 50.0, "fmax": 2000.0, "hop_s": 0.003}])
def test_pyin_equals_librosa(bounds: dict[str, float]) -> None:
    """Tones, an octave jump without transition, glides beyond the bounds, noise and silence; every frame is equal."""
    import librosa

    rate = 16_000
    time = np.arange(rate) / rate
    noise = np.random.default_rng(0).standard_normal(rate // 2)
    sweep = np.sign(np.sin(2 * np.pi * np.cumsum(80 + 700 * time) / rate))
    parts = (vowel(110, rate, 0.3), vowel(440, rate, 0.3), 0.3 * sweep, 0.05 * noise, np.zeros(rate // 4))
    samples = np.concatenate(parts).astype(np.float64)
    clip = sound(samples + 0.001 * np.resize(noise, samples.size), rate)
    contour = f0(clip, method="pyin", **bounds)
    fmin, fmax, hop_s = (bounds.get(name, value) for name, value in (("fmin", 60.0), ("fmax", 600.0), ("hop_s", 0.01)))
    frame = 2 ** math.ceil(math.log2(3 * rate / fmin))
    reference, voiced, _ = librosa.pyin(
        clip.samples.astype(np.float64),
        fmin=fmin,
        fmax=fmax,
        sr=rate,
        frame_length=frame,
        hop_length=round(hop_s * rate),
    )
    assert 0.3 < voiced.mean() < 0.95
    np.testing.assert_allclose(contour.values, reference, rtol=1e-9)


def test_pyin_of_noise_is_computed_in_little_memory() -> None:
    noise = sound(0.1 * np.random.default_rng(0).standard_normal(11 * 16_000), 16_000)
    tracemalloc.start()
    try:
        f0(noise, method="pyin")
        peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert peak_mb < 200


@pytest.mark.parametrize("sizes", [(60, 45), (1, 4), (5, 1), (1, 1)])
def test_warping_path_equals_librosa(sizes: tuple[int, int]) -> None:
    import librosa

    rng = np.random.default_rng(0)
    for scale in (1.0, 1e9):  # rounded to integers, many costs are equal
        x, y = (np.round(rng.standard_normal((2, size)) * 2 * scale) / scale for size in sizes)
        _, steps = librosa.sequence.dtw(x, y, metric="euclidean")
        np.testing.assert_array_equal(warping_path(x, y), steps[::-1])
