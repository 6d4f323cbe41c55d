from __future__ import annotations

import math

import librosa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.sounds import babble, random_chunks, vowel
from voicelab.audio.prosody import CEILING_DBFS, Limiter, ProsodyProcessor
from voicelab.audio.samples import Samples
from voicelab.errors import AudioError, RequestInvalid

RATE = 44100
CEILING = 10 ** (CEILING_DBFS / 20)


def run_through(processor: ProsodyProcessor | Limiter, samples: Samples) -> Samples:
    return np.concatenate((processor.feed(samples), processor.finish()))


def processed(samples: Samples, speed: float = 1.0, volume: float = 0.0, rate: int = RATE) -> Samples:
    return run_through(ProsodyProcessor(rate, speed, volume), samples)


def pitch(samples: Samples, rate: int) -> float:
    return float(np.median(librosa.yin(samples.astype(float), fmin=60, fmax=500, sr=rate, frame_length=4096)))


@pytest.mark.parametrize("speed", [0.5, 0.75, 0.9, 1.1, 1.5, 2.0])
@pytest.mark.parametrize(("f0", "rate"), [(110.0, 44100), (220.0, 44100), (160.0, 16000)])
def test_speed_changes_duration_but_not_pitch(speed: float, f0: float, rate: int) -> None:
    samples = vowel(f0, rate, 3.0)
    output = processed(samples, speed, rate=rate)
    assert output.size == round(samples.size / speed)
    cents = 1200 * np.log2(pitch(output, rate) / f0)
    assert abs(cents) < 20
    # No silence was padded.
    level = np.sqrt(np.mean(output[: output.size // 50 * 50].reshape(50, -1) ** 2, axis=1))
    assert level.min() > 0.3 * level.max()


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 2.0])
def test_events_are_scaled_by_speed(speed: float) -> None:
    samples = np.zeros(RATE * 3, np.float32)
    samples[RATE : RATE + RATE // 2] = vowel(150, RATE, 0.5)
    output = processed(samples, speed)
    sounding = np.flatnonzero(np.abs(output) > 0.05)
    assert sounding[0] / RATE == pytest.approx(1.0 / speed, abs=0.04)
    assert sounding[-1] / RATE == pytest.approx(1.5 / speed, abs=0.04)


def test_neutral_prosody_is_bit_exact_and_immediate() -> None:
    samples = babble(RATE, 0.5)
    processor = ProsodyProcessor(RATE)
    assert np.array_equal(processor.feed(samples), samples)
    assert processor.finish().size == 0
    assert processor.notes == ()
    with pytest.raises(AudioError, match="finite"):
        ProsodyProcessor(RATE).feed(np.array([np.nan], np.float32))


@pytest.mark.parametrize("volume", [-100.0, -20.0, -6.0, 3.0])
def test_volume_without_limiting_is_an_exact_gain(volume: float) -> None:
    samples, processor = vowel(120, RATE, 0.5, peak=0.5), ProsodyProcessor(RATE, 1.0, volume)
    assert np.array_equal(run_through(processor, samples), samples * np.float32(10 ** (volume / 20)))
    assert processor.notes == ()


@pytest.mark.parametrize("volume", [6.5, 12.0, 40.0, 100.0])
def test_high_volume_is_limited_with_a_note(volume: float) -> None:
    samples, processor = babble(RATE, 2.0), ProsodyProcessor(RATE, 1.0, volume)
    output = run_through(processor, samples)
    assert output.size == samples.size
    peak = np.abs(output).max()
    assert peak <= CEILING + 1e-6
    assert peak > 0.9 * CEILING
    (note,) = processor.notes
    needed = volume + 20 * np.log10(np.abs(samples).max()) - CEILING_DBFS
    assert f"{volume:+g} dB" in note
    assert f"by up to {needed:.1f} dB" in note


def test_limiter_distortion_is_below_clipping() -> None:
    times = np.arange(RATE * 3 // 2) / RATE
    tone = np.sin(2 * np.pi * 200 * times)
    bump = np.where((times > 0.33) & (times < 0.5), 1.9, 0.5)
    samples = (tone * bump).astype(np.float32)
    limiter = Limiter(RATE)
    output = run_through(limiter, samples)
    assert limiter.reduction_db == pytest.approx(20 * np.log10(1.9 / CEILING), abs=0.05)
    cut = np.clip(samples, -CEILING, CEILING)

    def distortion(signal: Samples) -> float:
        steady = signal[int(RATE * 0.36) : int(RATE * 0.48)]
        lines = np.abs(np.fft.rfft(steady * np.hanning(steady.size)))
        frequencies = np.fft.rfftfreq(steady.size, 1 / RATE)
        return float(lines[frequencies > 350].max() / lines.max())

    assert distortion(output) < 0.01
    assert distortion(cut) > 0.1
    # Samples far from the bump are unchanged.
    for untouched in (slice(0, int(RATE * 0.32)), slice(int(RATE * 1.1), None)):
        assert np.array_equal(output[untouched], samples[untouched])


def test_limiter_attack_and_release() -> None:
    samples = np.full(RATE, 0.4, np.float32)
    samples[RATE // 2] = 4.0
    gain = run_through(Limiter(RATE), samples) / samples
    gain_at = {ms: float(gain[RATE // 2 + round(ms * RATE / 1000)]) for ms in (-20, -7, -3, 0, 20, 80, 450)}
    assert gain_at[-20] == gain_at[-7] == 1.0
    assert gain_at[0] < gain_at[-3] < 0.9
    assert gain_at[0] == pytest.approx(CEILING / 4, rel=0.01)
    # Release time constant: 80 ms.
    assert 1 - gain_at[80] == pytest.approx((1 - gain_at[0]) * math.exp(-1), rel=0.05)
    assert gain_at[20] < gain_at[80] < gain_at[450]
    assert gain[-1] == pytest.approx(1.0, abs=0.005)
    # The gain is smooth: it changes by less than 0.2 within a millisecond.
    assert np.abs(gain[44:] - gain[:-44]).max() < 0.2


@settings(deadline=None, max_examples=60)
@given(
    peaks=st.lists(st.tuples(st.integers(0, 3999), st.floats(-50, 50)), max_size=12),
    rate=st.sampled_from([8000, 16000, 44100]),
)
def test_limiter_output_is_below_the_ceiling(peaks: list[tuple[int, float]], rate: int) -> None:
    samples = np.full(4000, 0.1, np.float32)
    for index, value in peaks:
        samples[index] = value
    output = run_through(Limiter(rate), samples)
    assert output.size == samples.size
    assert np.abs(output).max() <= CEILING + 1e-6
    assert np.all(output * samples >= 0), "the limiter inverted the sign of a sample"


@settings(deadline=None, max_examples=25)
@given(
    speed=st.sampled_from([0.5, 0.9, 1.0, 1.3, 2.0]),
    volume=st.sampled_from([-6.0, 0.0, 6.0, 30.0]),
    seed=st.integers(0, 99),
    max_size=st.integers(1, 5000),
)
def test_processing_is_independent_of_block_sizes(speed: float, volume: float, seed: int, max_size: int) -> None:
    samples = babble(RATE, 0.4, seed)
    reference = ProsodyProcessor(RATE, speed, volume)
    expected = run_through(reference, samples)
    processor = ProsodyProcessor(RATE, speed, volume)
    blocks = [processor.feed(samples[begin:end]) for begin, end in random_chunks(samples.size, seed, max_size)]
    assert np.array_equal(np.concatenate([*blocks, processor.finish()]), expected)
    assert processor.notes == reference.notes


@pytest.mark.parametrize(
    ("speed", "volume", "max_delay_s"), [(1.0, 0.0, 0.01), (1.0, 12.0, 0.02), (0.5, 0.0, 0.15), (2.0, 6.0, 0.16)]
)
def test_processing_latency(speed: float, volume: float, max_delay_s: float) -> None:
    samples = babble(RATE, 2.0)
    processor = ProsodyProcessor(RATE, speed, volume)
    out = 0
    for begin in range(0, samples.size, 441):
        out += processor.feed(samples[begin : begin + 441]).size
        assert out >= (begin + 441 - max_delay_s * RATE) / speed


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("length", [0, 1, 10, 500, 3000])
def test_length_of_short_audio(speed: float, length: int) -> None:
    assert processed(vowel(200, RATE, 1.0)[:length], speed, 12.0).size == round(length / speed)


@pytest.mark.parametrize(("speed", "volume", "field"), [(0.4, 0, "speed"), (2.1, 0, "speed"), (1, 1000, "volume")])
def test_values_out_of_bounds_are_named(speed: float, volume: float, field: str) -> None:
    with pytest.raises(RequestInvalid, match=field):
        ProsodyProcessor(RATE, speed, volume)
