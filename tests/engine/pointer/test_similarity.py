"""Speaker similarity of known vectors, and notes on references."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny import make_codec, numpy_codec
from voicelab.clip import Clip
from voicelab.engine.pointer.speakers import MIN_RETAINED, References, reference_notes, retained_share, similarity
from voicelab.schema import ReferenceAudio

RATE = 44_100
VOICES = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]], np.float32)


def _noise(seconds: float) -> NDArray[np.float32]:
    return (0.1 * np.random.default_rng(1).standard_normal(int(seconds * RATE))).astype(np.float32)


def test_similarity_scale() -> None:
    usual = (2 + 2 + 8**0.5) / 3
    one = np.array([0.3, -1.0])
    assert similarity(one, one, VOICES) == 1.0
    assert similarity(one, one + np.array([usual, 0.0]), VOICES) == pytest.approx(0.0, abs=1e-6)
    assert similarity(one, one + np.array([0.0, 3 * usual]), VOICES) == pytest.approx(-2.0, abs=1e-5)
    assert similarity(one, VOICES[0], VOICES) == similarity(VOICES[0], one, VOICES)


@pytest.mark.parametrize("voices", [VOICES[:1], VOICES[[0, 0, 0]]])
def test_similarity_without_preset_distance_is_zero(voices: NDArray[np.float32]) -> None:
    assert similarity(VOICES[1], VOICES[2], voices) == 0.0


def test_retained_share() -> None:
    latents = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert retained_share(latents, latents) == 1.0
    assert retained_share(latents, np.broadcast_to(latents.mean(0), latents.shape)) == pytest.approx(0.0, abs=1e-6)
    assert retained_share(latents, 0.5 * (latents + latents.mean(0))) == pytest.approx(0.75, abs=1e-5)
    assert retained_share(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)) == 0.0


@pytest.mark.parametrize(
    ("seconds", "kept", "narrow", "told"),
    [
        (2.0, 0.99, False, "2.0 s"),
        (4.0, MIN_RETAINED - 0.01, False, "87%"),
        (4.0, -3.0, False, "0%"),
        (4.0, 0.99, True, "telephone"),
    ],
)
def test_reference_notes(seconds: float, kept: float, narrow: bool, told: str) -> None:
    (doubt,) = reference_notes(seconds, kept, narrow=narrow)
    assert told in doubt
    assert reference_notes(3.0, MIN_RETAINED, narrow=False) == ()


def test_notes_name_the_reference_number() -> None:
    """Noise, which the tiny codec does not retain, and a short excerpt."""
    references = References(numpy_codec(make_codec()))
    given = [ReferenceAudio(audio=Clip(_noise(s), RATE).to_bytes("wav"), text="") for s in (4.0, 1.0)]
    found = references.notes(given)
    assert {doubt.split(":")[0] for doubt in found} == {"reference 1", "reference 2"}
    assert any("1.0 s" in doubt for doubt in found)
    assert all("4.0 s" not in doubt and "telephone" not in doubt for doubt in found)


def test_telephone_reference_has_a_note() -> None:
    narrow = Clip(Clip(_noise(4.0), RATE).resample(8_000).samples, 8_000)
    found = References(numpy_codec(make_codec())).notes(
        [ReferenceAudio(audio=narrow.to_bytes("wav", sample_rate=8_000), text="")]
    )
    assert any("telephone" in doubt for doubt in found)
