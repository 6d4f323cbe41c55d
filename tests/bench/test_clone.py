"""Speaker metrics of bench/clone.py, on synthetic voices with known pitch and spectrum."""

from __future__ import annotations

import clone
import numpy as np
import pytest
import teaching
from clone import (
    add_noise,
    pitch_error,
    portrait,
    portrait_distances,
    rank_correlation,
    ranks,
    reverberate,
    spectrum_distance,
    telephone,
)

from voicelab.clip import Clip

RATE = 16_000


def _voice(hertz: float, tilt_db: float, seed: int = 0) -> Clip:
    """Synthesize harmonics of `hertz` with a spectral tilt of `tilt_db` per octave, plus weak noise."""
    time = np.arange(2 * RATE) / RATE
    sound = np.random.default_rng(seed).normal(0, 1e-4, time.size)
    for k in range(1, int(7000 / hertz)):
        sound += 10 ** (-tilt_db * np.log2(k) / 20) * np.sin(2 * np.pi * k * hertz * time + k * k)
    return Clip(samples=(0.3 * sound / np.abs(sound).max()).astype(np.float32), rate=RATE)


def test_pitch_error_is_in_semitones() -> None:
    low, high = portrait(_voice(110, 6)), portrait(_voice(220, 6))
    assert pitch_error(low, high) == pytest.approx(12.0, abs=0.2)
    assert pitch_error(low, portrait(_voice(110, 6, seed=1))) < 0.1


def test_spectrum_distance_depends_on_tilt_not_level() -> None:
    plain = _voice(120, 6)
    quiet = Clip(samples=plain.samples * np.float32(0.2), rate=RATE)
    assert spectrum_distance(portrait(plain), portrait(quiet)) < 0.5
    assert spectrum_distance(portrait(plain), portrait(_voice(120, 12))) > 4.0


def test_matching_voices_have_rank_0() -> None:
    kinds = [(100, 6), (100, 12), (180, 6), (180, 12), (140, 9)]
    references = [portrait(_voice(*kind)) for kind in kinds]
    clones = [portrait(_voice(hertz * 1.01, tilt, seed=3)) for hertz, tilt in kinds[:3]]
    assert ranks(references, clones) == [0, 0, 0]
    figures = portrait_distances(references, clones)
    assert figures["first"] == 1.0
    assert figures["candidates"] == 5
    assert figures["f0_error_semitones"] < 0.3 < figures["f0_error_others"]


def test_mismatched_voice_has_rank_1() -> None:
    references = [portrait(_voice(100, 6)), portrait(_voice(200, 12))]
    assert ranks(references, [references[1]]) == [1]


def test_noise_has_an_snr_of_10_db() -> None:
    clean = _voice(120, 6).samples
    added = add_noise(clean, RATE) - clean
    assert 10 * np.log10(np.mean(clean**2) / np.mean(added**2)) == pytest.approx(10, abs=0.01)


def test_reverberation_has_a_t60_of_half_a_second() -> None:
    click = np.zeros(RATE, np.float32)
    click[0] = 1
    output = reverberate(click, RATE)
    power = [float(np.mean(np.square(output[int(time_s * RATE) :][: RATE // 50]))) for time_s in (0.05, 0.25, 0.45)]
    assert 10 * np.log10(power[0] / power[1]) == pytest.approx(24, abs=2)
    assert 10 * np.log10(power[1] / power[2]) == pytest.approx(24, abs=2)
    assert not output[RATE // 2 + 1 :].any() or np.abs(output[RATE // 2 + 1 :]).max() < 1e-6
    assert float(np.sum(np.square(output[1:]))) == pytest.approx(float(np.square(output[0])), rel=0.2)


def test_telephone_passes_300_to_3400_hz() -> None:
    time = np.arange(RATE) / RATE
    for hertz, passes in ((150, False), (1000, True), (3000, True), (3800, False), (6000, False)):
        sine = (0.3 * np.sin(2 * np.pi * hertz * time)).astype(np.float32)
        gain = float(np.sqrt(np.mean(telephone(sine, RATE) ** 2)) / np.sqrt(np.mean(sine**2)))
        assert (gain > 0.9) is passes
        assert passes or gain < 0.1


def test_rank_correlation() -> None:
    assert rank_correlation([1.0, 1.2, 1.5, 1.6], [2.0, 2.1, 2.9, 3.4]) == 1.0
    assert rank_correlation([1.6, 1.5, 1.2, 1.0], [2.0, 2.1, 2.9, 3.4]) == -1.0


@pytest.mark.thorough
def test_speakers_are_held_out_of_training() -> None:
    corpus = teaching.training("plan")
    speakers = clone.held_out(100)
    assert len({tuple(recipe) for recipe in speakers}) == 100
    assert speakers[: len(corpus.HELD_OUT_STOCK)] == [((voice, 1.0),) for voice in corpus.HELD_OUT_STOCK]
    assert set(corpus.blends()[corpus.BLENDS :]) <= set(speakers)
    blended = {voice for recipe in clone.draw_blends(78) for voice, _ in recipe}
    assert set(corpus.HELD_OUT_STOCK) <= blended
    for recipe in clone.draw_blends(78):
        assert sum(weight for _, weight in recipe) == pytest.approx(1)
        for blend in corpus.blends()[: corpus.BLENDS]:
            voices = {voice for voice, _ in (*recipe, *blend)}
            distance = sum(abs(dict(recipe).get(v, 0) - dict(blend).get(v, 0)) for v in voices) / 2
            assert distance >= clone.UNLIKE - 1e-3
