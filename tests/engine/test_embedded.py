"""The voice inside the package, held to what its figures promise."""

from __future__ import annotations

import numpy as np
import pytest

from voicelab.audio.analysis import f0
from voicelab.engine.local import LocalBackend
from voicelab.schema import TTSRequest

TEXTS = ("The birch canoe slid on the smooth planks.", "Rice is served.", "Glue the sheet to the dark blue background.")


def test_batched_is_single() -> None:
    backend = LocalBackend()
    try:
        requests = [TTSRequest(text=text, format="wav") for text in TEXTS]
        alone = [backend.synthesize(request, seed=3).clip().samples for request in requests]
        together = [backend.synthesize(request, seed=3) for request in requests]
        for single, stream in zip(alone, together, strict=True):
            samples = stream.clip().samples
            assert samples.shape == single.shape
            assert float(np.abs(samples - single).max()) <= 1e-4
            assert float(np.abs(samples).max()) > 0.05
    finally:
        backend.close()


def test_the_four_tones_differ_in_pitch() -> None:
    """Once the voice has learned Mandarin: 1 is high, 3 is low, 2 rises, 4 falls; means over takes, in semitones."""
    with LocalBackend() as backend:
        if "zh" not in backend.capabilities.languages:
            pytest.skip("this voice speaks no Mandarin")
        found: dict[int, list[tuple[float, float]]] = {tone: [] for tone in (1, 2, 3, 4)}
        for seed, order in enumerate(("衣移椅意", "意椅移衣", "移意衣椅")):
            request = TTSRequest(text="，".join(order) + "。", format="wav")
            clip = backend.synthesize(request, seed=seed).clip()
            contour = f0(clip)
            for character, word in zip(order, clip.words, strict=True):
                inside = (contour.times > word.start) & (contour.times < word.end) & ~np.isnan(contour.values)
                pitch = 12 * np.log2(contour.values[inside])
                if pitch.size >= 4:
                    half = pitch.size // 2
                    found["衣移椅意".index(character) + 1].append(
                        (float(pitch.mean()), float(pitch[half:].mean() - pitch[:half].mean()))
                    )
    mean = {tone: np.mean(pairs, axis=0) for tone, pairs in found.items()}
    assert mean[1][0] > mean[3][0] + 2
    assert mean[2][1] > 0.5
    assert mean[4][1] < -0.5
