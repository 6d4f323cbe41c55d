from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from training import world
from training.kokoro import FRAME, RATE
from training.plan import Request
from training.render import Rendering


def rendering(level: float = 0.05) -> Rendering:
    """Half a second of a buzz at 150 Hz between .4 s and .9 s, a phone and a full stop, under a rumble."""
    durations = np.array([18, 22, 10, 1], np.uint8)
    frames = int(durations.sum())
    at = np.arange(frames * FRAME) / RATE
    buzz = np.zeros(at.size)
    for harmonic in range(1, 60):
        buzz += np.cos(2 * np.pi * 150 * harmonic * at)
    buzz *= level / buzz.std() * ((at > 0.4) & (at < 0.9))
    samples = buzz + 0.005 * np.sin(2 * np.pi * 15 * at)
    asked = Request(3, "stock", "af_sky", (("af_sky", 1.0),), "en", "ah.", 1.0, 0)
    f0, energy = np.full(2 * frames, 149, np.float32), np.ones(2 * frames, np.float32)
    return Rendering(asked, "a.", durations, f0, energy, np.round(samples * 32768).astype(np.int16), 1.0)


def test_silence_is_trimmed_and_the_phones_move_with_the_audio() -> None:
    audio, phones = world.trimmed(rendering())
    assert [p.name for p in phones] == ["a", "."]
    assert phones[0].start == pytest.approx(world.LEAD, abs=1e-3)
    assert phones[0].end == pytest.approx(world.LEAD + 0.5, abs=0.02)
    assert phones[-1].end == pytest.approx(audio.size / RATE, abs=1e-3)
    assert audio.size / RATE == pytest.approx(0.5 + world.LEAD + world.TAIL, abs=0.02)


def test_voices_of_any_level_come_to_one_and_rumble_goes() -> None:
    for level in (0.02, 0.06):
        found = world.levelled(rendering(level).audio())
        middle = found[round(0.5 * RATE) : round(0.8 * RATE)]
        assert np.sqrt(np.mean(np.square(middle))) == pytest.approx(world.LEVEL, rel=0.1)
    assert np.abs(found[: round(0.3 * RATE)]).max() < 0.002


def test_bands_are_means_of_the_bins_around_them() -> None:
    spread = world._spread(513)
    assert spread.shape == (513, world.BANDS)
    assert np.allclose(spread.sum(0), 1)
    centres = (spread * np.linspace(0, RATE / 2, 513)[:, None]).sum(0)
    assert (np.diff(centres) > 0).all()


def test_bytes_keep_what_they_are_given() -> None:
    values = np.linspace(-8.5, 1, 50)
    assert np.abs(world.nepers(world._pack(values, world._ENVELOPE)) - values).max() <= 0.0201
    shares = np.linspace(-55, 0, 50)
    assert np.abs(world.decibels(world._pack(shares, world._APERIODICITY)) - shares).max() <= 0.1251


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        world.Measured(
            {"number": n, "phones": [["a", 0.1, 0.2, True]]},
            rng.integers(0, 256, (n, world.BANDS), np.uint8),
            rng.integers(0, 256, (n, 3), np.uint8),
            rng.random(n, np.float32),
        )
        for n in (3, 5)
    ]
    world.save(tmp_path / "00000.npz", rows)
    for before, after in zip(rows, world.load(tmp_path / "00000.npz"), strict=True):
        assert after.meta == before.meta
        for name in ("envelope", "aperiodicity", "f0"):
            assert np.array_equal(getattr(after, name), getattr(before, name))


@pytest.mark.thorough  # pyworld is compiled when it is installed, which the nightly run does
def test_a_buzz_is_voiced_at_its_pitch_and_its_envelope_has_its_level() -> None:
    if find_spec("pyworld") is None:
        pytest.skip("pyworld is not installed")
    found = world.measure(rendering())
    assert found.envelope.shape == (found.f0.size, world.BANDS)
    assert found.aperiodicity.shape == (found.f0.size, 3)
    middle = slice(round(0.3 / world.STEP), round(0.5 / world.STEP))
    assert np.allclose(found.f0[middle], 150, rtol=0.01)
    # 59 harmonics up to 8,850 Hz hold a power of LEVEL² together, out of 12 kHz.
    density = np.log(world.LEVEL * np.sqrt(12_000 / 8_850))
    assert np.median(world.nepers(found.envelope[middle])[:, 10:70]) == pytest.approx(density, abs=0.15)
    assert found.meta["phones"][0][0] == "a"
